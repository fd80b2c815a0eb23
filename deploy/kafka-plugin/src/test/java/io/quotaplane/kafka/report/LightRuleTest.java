package io.quotaplane.kafka.report;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.quotaplane.kafka.limits.QuotaKind;
import io.quotaplane.kafka.report.LightRule.State;
import io.quotaplane.kafka.usage.GroupUsage;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.SortedMap;
import java.util.TreeMap;
import org.junit.jupiter.api.Test;

class LightRuleTest {
    private static final int EVERY = 10;
    private static final int MANY = 1_000_000;

    private final SortedMap<String, State> states = new TreeMap<>();
    private long report;

    private static State state(double published, double throttled, long seq) {
        return state(published, throttled, seq, Double.POSITIVE_INFINITY);
    }

    private static State state(double published, double throttled, long seq, double limit) {
        double[] used = new double[QuotaKind.COUNT];
        double[] more = new double[QuotaKind.COUNT];
        used[QuotaKind.PRODUCE.ordinal()] = published;
        more[QuotaKind.PRODUCE.ordinal()] = throttled;
        double[] limits = new double[QuotaKind.COUNT];
        limits[QuotaKind.PRODUCE.ordinal()] = limit;
        return new State(new GroupUsage(used, more), seq, limits);
    }

    private List<String> next(LightRule rule) {
        return rule.named(states, ++report, MANY);
    }

    @Test
    void aNewGroupIsNamed() {
        LightRule rule = new LightRule(EVERY, false, 1);
        states.put("a", state(0, 0, 1));
        assertEquals(List.of("a"), next(rule));
    }

    @Test
    void onlyWhatChangedByMoreThanFivePercentIsNamed() {
        LightRule rule = new LightRule(MANY, false, 1);
        states.put("a", state(100, 0, 1));
        next(rule);
        states.put("a", state(105, 0, 2));
        assertEquals(List.of(), next(rule));
        states.put("a", state(94.9, 0, 2));
        assertEquals(List.of("a"), next(rule));
        // Beside the last one that was reported, so that a slow change is seen.
        states.put("a", state(98, 0, 2));
        assertEquals(List.of(), next(rule));
        states.put("a", state(99.7, 0, 2));
        assertEquals(List.of("a"), next(rule));
    }

    @Test
    void aGroupThatBeginsOrEndsIsNamed() {
        LightRule rule = new LightRule(MANY, false, 1);
        states.put("a", state(0, 0, 1));
        next(rule);
        states.put("a", state(0.001, 0, 1));
        assertEquals(List.of("a"), next(rule));
        states.put("a", state(0, 0, 1));
        assertEquals(List.of("a"), next(rule));
        states.put("a", state(0, 7, 1));
        assertEquals(List.of("a"), next(rule));
        assertEquals(List.of("a"), next(rule));
        states.put("a", state(0, 0, 1));
        assertEquals(List.of(), next(rule));
    }

    @Test
    void aChangedGroupIsNamedUntilItHasSettled() {
        LightRule rule = new LightRule(MANY, false, 3);
        states.put("a", state(0, 0, 1));
        next(rule);
        assertEquals(List.of(), next(rule));
        states.put("a", state(100, 0, 1));
        for (int count = 0; count < 3; count++) {
            assertEquals(List.of("a"), next(rule));
        }
        assertEquals(List.of(), next(rule));
    }

    @Test
    void aGroupThatIsHeldToItsLimitIsNamedInEachReport() {
        LightRule rule = new LightRule(MANY, false, 1);
        states.put("a", state(100, 0, 1, 90));
        states.put("b", state(100, 5, 1, 110));
        next(rule);
        assertEquals(List.of("a", "b"), next(rule));
        assertEquals(List.of("a", "b"), next(rule));
    }

    @Test
    void aChangedLimitIsNamedAndARenewedOneIsNot() {
        LightRule rule = new LightRule(MANY, false, 1);
        states.put("a", state(0, 0, 1, Double.NaN));
        next(rule);
        assertEquals(List.of(), next(rule));
        for (double limit : new double[] {100, 101, Double.POSITIVE_INFINITY, 50, Double.NaN}) {
            states.put("a", state(0, 0, 1, limit));
            assertEquals(List.of("a"), next(rule));
            states.put("a", state(0, 0, 2, limit));
            assertEquals(List.of(), next(rule));
        }
    }

    @Test
    void strictlyEachVersionIsAcknowledged() {
        LightRule rule = new LightRule(MANY, true, 1);
        states.put("a", state(0, 0, 1));
        next(rule);
        states.put("a", state(0, 0, 2));
        assertEquals(List.of("a"), next(rule));
        assertEquals(List.of(), next(rule));
    }

    @Test
    void eachGroupIsNamedInOneOfTenReportsAndNotAllInTheSame() {
        LightRule rule = new LightRule(EVERY, false, 1);
        for (int group = 0; group < 200; group++) {
            states.put("group-" + group, state(group, 0, 1));
        }
        next(rule);
        Map<String, Long> last = new HashMap<>();
        states.keySet().forEach(group -> last.put(group, report));
        int most = 0;
        for (int count = 0; count < 50; count++) {
            List<String> named = next(rule);
            most = Math.max(most, named.size());
            for (String group : named) {
                assertTrue(report - last.put(group, report) <= EVERY);
            }
        }
        last.values().forEach(at -> assertTrue(report - at < EVERY));
        assertTrue(most < 60, "up to " + most + " at once");
    }

    @Test
    void whatDoesNotFitComesNext() {
        LightRule rule = new LightRule(MANY, false, 1);
        List.of("a", "b", "c").forEach(group -> states.put(group, state(1, 0, 1)));
        long ofTwo = 2 * (LightRule.BYTES_OF_VALUES + 3);
        assertEquals(List.of("a", "b"), rule.named(states, 1, ofTwo));
        assertEquals(List.of("c"), rule.named(states, 2, ofTwo));
    }

    @Test
    void afterALossAllAreNamed() {
        LightRule rule = new LightRule(MANY, false, 1);
        states.put("a", state(1, 0, 1));
        next(rule);
        assertEquals(List.of(), next(rule));
        rule.forget();
        assertEquals(List.of("a"), next(rule));
    }
}
