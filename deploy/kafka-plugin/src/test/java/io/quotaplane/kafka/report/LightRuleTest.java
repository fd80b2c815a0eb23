package io.quotaplane.kafka.report;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.quotaplane.kafka.limits.QuotaKind;
import io.quotaplane.kafka.report.LightRule.State;
import io.quotaplane.kafka.usage.GroupUsage;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.SortedMap;
import java.util.TreeMap;
import org.junit.jupiter.api.Test;

class LightRuleTest {
    private static final int EVERY = 10;
    private static final int MANY = 1_000_000;
    private static final long NO_TURN = MANY / 2;

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
        return new State(NO_TURN, new GroupUsage(used, more), seq, limits);
    }

    private List<String> next(LightRule rule) {
        return List.copyOf(rule.named(states, ++report, MANY).keySet());
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
    void eachGroupIsNamedInOneOfSoManyReports() {
        LightRule rule = new LightRule(EVERY, false, 1);
        for (int group = 0; group < 200; group++) {
            State state = state(group, 0, 1);
            states.put("g" + group, new State(group, state.usage(), 1, state.limits()));
        }
        next(rule);
        for (int count = 0; count < 3 * EVERY; count++) {
            List<String> named = next(rule);
            assertEquals(200 / EVERY, named.size());
            named.forEach(group -> assertEquals(report % EVERY, states.get(group).id() % EVERY));
        }
    }

    @Test
    void whatDoesNotFitComesNext() {
        LightRule rule = new LightRule(3, false, 5);
        List.of("a", "b", "c").forEach(group -> states.put(group, state(1, 0, 1)));
        assertEquals(Set.of("a", "b"), ofTwo(rule, 1));
        // All are to be named in five reports, and the one that waited is the first.
        assertEquals(Set.of("a", "c"), ofTwo(rule, 2));
        assertEquals(Set.of("a", "b"), ofTwo(rule, 3));
    }

    @Test
    void whatDidNotFitInItsTurnComesAfterIt() {
        LightRule rule = new LightRule(EVERY, false, 1);
        List.of("a", "b", "c").forEach(group -> states.put(group, state(0, 0, 1)));
        next(rule);
        assertEquals(Set.of("a", "b"), ofTwo(rule, NO_TURN));
        assertEquals(Set.of("c"), ofTwo(rule, NO_TURN + 1));
    }

    private Set<String> ofTwo(LightRule rule, long number) {
        return rule.named(states, number, 2 * (LightRule.BYTES_OF_VALUES + 3)).keySet();
    }

    @Test
    void aGroupThatLeftIsNamedOnceMoreAsUnused() {
        LightRule rule = new LightRule(MANY, false, 1);
        states.put("a", state(5, 3, 1, 90));
        next(rule);
        states.clear();
        State left = rule.named(states, 2, MANY).get("a");
        assertEquals(NO_TURN, left.id());
        assertEquals(-1, left.seq());
        assertArrayEquals(new double[QuotaKind.COUNT], left.usage().used());
        assertArrayEquals(new double[QuotaKind.COUNT], left.usage().throttled());
        assertTrue(Arrays.stream(left.limits()).allMatch(Double::isNaN));
        assertEquals(Map.of(), rule.named(states, 3, MANY));
    }

    @Test
    void aGroupThatLeftBeforeAnyReportNamedItIsNotNamed() {
        LightRule rule = new LightRule(MANY, false, 1);
        states.put("a", state(5, 0, 1));
        rule.named(states, 1, 0);
        states.clear();
        assertEquals(List.of(), next(rule));
    }

    @Test
    void afterALossAllAreNamedOnce() {
        LightRule rule = new LightRule(MANY, false, 2);
        states.put("a", state(1, 0, 1));
        next(rule);
        next(rule);
        assertEquals(List.of(), next(rule));
        rule.reportsLost();
        assertEquals(List.of("a"), next(rule));
        assertEquals(List.of(), next(rule));
    }
}
