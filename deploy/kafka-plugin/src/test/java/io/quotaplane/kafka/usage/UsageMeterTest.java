package io.quotaplane.kafka.usage;

import static io.quotaplane.kafka.limits.QuotaKind.CONTROLLER_MUTATION;
import static io.quotaplane.kafka.limits.QuotaKind.FETCH;
import static io.quotaplane.kafka.limits.QuotaKind.PRODUCE;
import static io.quotaplane.kafka.limits.QuotaKind.REQUEST;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.quotaplane.kafka.limits.Bounds;
import io.quotaplane.kafka.limits.FakeRates;
import io.quotaplane.kafka.limits.LimitsInForce;
import io.quotaplane.kafka.limits.QuotaKind;
import io.quotaplane.kafka.limits.Rates;
import io.quotaplane.kafka.limits.ReceivedLimits;
import io.quotaplane.kafka.wire.Dimension;
import io.quotaplane.kafka.wire.GroupIds;
import io.quotaplane.kafka.wire.LimitsMessage;
import java.util.Set;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;

class UsageMeterTest {
    private final FakeRates rates = new FakeRates();
    private final UsageMeter meter = new UsageMeter(0);
    private LimitsInForce limits;

    @BeforeEach
    void limitG() {
        double unset = Double.POSITIVE_INFINITY;
        ReceivedLimits received = new ReceivedLimits("b1", 1, unset, unset);
        double[][] limit = new double[Dimension.COUNT][];
        limit[Dimension.PUBLISH_BYTES.ordinal()] = new double[] {100_000};
        limit[Dimension.DISPATCH_BYTES.ordinal()] = new double[] {100_000};
        limit[Dimension.CONTROLLER_MUTATIONS.ordinal()] = new double[] {2};
        long[] ids = {GroupIds.idOf("g")};
        received.apply(
                new LimitsMessage("b1", 0, 1, 1, 0, 60_000, 0, ids, limit, null, new long[0]), 0, 0);
        limits = new LimitsInForce(received, new Bounds(false, 10_000, 5, 3, -1, 2000));
        limits.tick(Set.of("g", "free"), 0, Set.of(), rates);
    }

    private void tick(long nowMs, Rates measured) {
        meter.tick(nowMs, measured.tags(), measured, limits);
    }

    private GroupUsage after(long nowMs, String tag) {
        return meter.take(nowMs, limits, rates).get(tag);
    }

    private static double of(double[] column, QuotaKind kind) {
        return column[kind.ordinal()];
    }

    @Test
    void usageIsTheAmountByTheTime() {
        rates.use("free", PRODUCE, 3000);
        rates.use("free", REQUEST, 12);
        tick(200, rates);
        GroupUsage first = after(2000, "free");
        assertEquals(1500, of(first.used(), PRODUCE));
        assertEquals(6, of(first.used(), REQUEST));
        rates.use("free", PRODUCE, 500);
        assertEquals(0, meter.windowMs(2000));
        assertEquals(1000, meter.windowMs(3000));
        GroupUsage second = after(3000, "free");
        assertEquals(500, of(second.used(), PRODUCE));
        assertEquals(0, of(second.used(), REQUEST));
        assertEquals(0, of(second.throttled(), PRODUCE));
    }

    @Test
    void aGroupBelowItsLimitIsNotThrottled() {
        rates.rate("g", PRODUCE, 100_000);
        for (long now = 200; now <= 1000; now += 200) {
            tick(now, rates);
        }
        rates.use("g", PRODUCE, 100_000);
        assertEquals(0, of(after(1000, "g").throttled(), PRODUCE));
    }

    /** Kafka takes back what a delayed fetch would have added, so the rate is never above. */
    @Test
    void aConsumerAtItsLimitIsThrottled() {
        rates.fetchDelayS = 0.2;
        rates.rate("g", FETCH, 99_000);
        for (long now = 200; now <= 1000; now += 200) {
            tick(now, rates);
        }
        rates.use("g", FETCH, 99_000);
        assertEquals(100_000, of(after(1000, "g").throttled(), FETCH));

        // Far below the limit nobody would be delayed, however long others were before.
        rates.rate("g", FETCH, 50_000);
        for (long now = 1400; now <= 3000; now += 200) {
            tick(now, rates);
        }
        rates.use("g", FETCH, 50_000);
        assertEquals(0, of(after(3000, "g").throttled(), FETCH));

        rates.fetchDelayS = 0;
        rates.rate("g", FETCH, 99_000);
        tick(3200, rates);
        rates.use("g", FETCH, 99_000);
        assertEquals(0, of(after(4000, "g").throttled(), FETCH));
    }

    /** Muted clients are above the limit by as much as mutes them for 0.1 s. */
    private void look(long nowMs, boolean muted) {
        rates.rate("g", PRODUCE, muted ? 105_000 : 100_000);
        tick(nowMs, rates);
    }

    private double throttledAfter(long nowMs, double used) {
        rates.use("g", PRODUCE, used);
        return of(after(nowMs, "g").throttled(), PRODUCE);
    }

    /** Looks for a second, of which so many find its clients muted; returns what is throttled then. */
    private double second(int number, int muted, double used) {
        for (int step = 1; step <= 5; step++) {
            look(1000 * number + 200 * step, step <= muted);
        }
        return throttledAfter(1000 * (number + 1), used);
    }

    @Test
    void aGroupThatIsMutedNowAndThenIsNotThrottled() {
        for (int number = 0; number < 10; number++) {
            assertEquals(0, second(number, 1, 99_000));
            assertEquals(0, second(++number, 3, 90_000));
        }
    }

    @Test
    void ofAGroupThatIsMutedAllTheTimeDemandDoubles() {
        assertEquals(100_000, second(0, 5, 30_000));
        assertEquals(100_000, second(1, 4, 80_000));
        assertEquals(300_000, second(2, 5, 300_000));
        assertEquals(0, second(3, 0, 30_000));
    }

    @Test
    void aGroupThatUsesItsLimitUpIsThrottledIfItIsOftenMuted() {
        assertEquals(100_000, second(0, 2, 98_000));
        assertEquals(0, second(1, 2, 90_000));
    }

    @Test
    void aGroupWhoseUsageVariesIsThrottledOnlyAfterThreeSeconds() {
        for (int number = 0; number < 10; number++) {
            second(number, 0, number % 2 == 0 ? 50_000 : 80_000);
        }
        assertEquals(0, second(10, 5, 100_000));
        assertEquals(0, second(11, 5, 100_000));
        assertEquals(100_000, second(12, 5, 100_000));
        assertEquals(0, second(13, 1, 100_000));
        assertEquals(0, second(14, 5, 100_000));
    }

    /** 3 tokens short at 2 per second: 1.5 s. */
    @Test
    void aBucketOfMutationsInDebtThrottles() {
        rates.tokens("g", 5);
        tick(500, rates);
        rates.tokens("g", -3);
        tick(1000, rates);
        rates.tokens("g", 5);
        tick(1500, rates);
        tick(2000, rates);
        rates.use("g", CONTROLLER_MUTATION, 10);
        GroupUsage usage = after(2000, "g");
        assertEquals(5, of(usage.used(), CONTROLLER_MUTATION));
        assertEquals(5, of(usage.throttled(), CONTROLLER_MUTATION), 1e-9);
        tick(2500, rates);
        assertEquals(0, of(after(3000, "g").throttled(), CONTROLLER_MUTATION), 1e-9);
    }

    @Test
    void aGroupThatComesBackBeginsAtZero() {
        rates.use("free", PRODUCE, 5000);
        tick(200, rates);
        after(1000, "free");
        FakeRates anew = new FakeRates();
        meter.take(2000, limits, anew);
        anew.use("free", PRODUCE, 700);
        tick(2200, anew);
        assertEquals(700, of(meter.take(3000, limits, anew).get("free").used(), PRODUCE));
    }

    @Test
    void twoReportsAtOnceSayNothing() {
        rates.use("free", PRODUCE, 5000);
        tick(200, rates);
        assertTrue(meter.take(0, limits, rates).isEmpty());
    }
}
