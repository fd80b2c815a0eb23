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
        limits.tick(Set.of("g", "free"), 0, true, rates);
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
        meter.tick(200, rates, limits);
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
            meter.tick(now, rates, limits);
        }
        rates.use("g", PRODUCE, 100_000);
        assertEquals(0, of(after(1000, "g").throttled(), PRODUCE));
    }

    /** At 120 kB/s with 100 kB/s allowed it is mute for 0.2 * 2 s: two of five looks. */
    @Test
    void aMuteOfTwoFifthsHidesTwoThirdsOfTheUsage() {
        rates.rate("g", PRODUCE, 100_000);
        meter.tick(200, rates, limits);
        rates.rate("g", PRODUCE, 120_000);
        meter.tick(400, rates, limits);
        rates.rate("g", PRODUCE, 100_000);
        meter.tick(600, rates, limits);
        meter.tick(800, rates, limits);
        meter.tick(1000, rates, limits);
        rates.use("g", PRODUCE, 90_000);
        GroupUsage usage = after(1000, "g");
        assertEquals(90_000, of(usage.used(), PRODUCE));
        assertEquals(90_000 * 0.4 / 0.6, of(usage.throttled(), PRODUCE), 1e-6);
    }

    /** Kafka takes back what a delayed fetch would have added, so the rate is never above. */
    @Test
    void aConsumerAtItsLimitIsThrottled() {
        rates.fetchDelayS = 0.2;
        rates.rate("g", FETCH, 99_000);
        for (long now = 200; now <= 1000; now += 200) {
            meter.tick(now, rates, limits);
        }
        rates.use("g", FETCH, 99_000);
        assertEquals(100_000, of(after(1000, "g").throttled(), FETCH));

        // Far below the limit nobody would be delayed, however long others were before.
        rates.rate("g", FETCH, 50_000);
        for (long now = 1400; now <= 3000; now += 200) {
            meter.tick(now, rates, limits);
        }
        rates.use("g", FETCH, 50_000);
        assertEquals(0, of(after(3000, "g").throttled(), FETCH));

        rates.fetchDelayS = 0;
        rates.rate("g", FETCH, 99_000);
        meter.tick(3200, rates, limits);
        rates.use("g", FETCH, 99_000);
        assertEquals(0, of(after(4000, "g").throttled(), FETCH));
    }

    @Test
    void demandAtMostDoubles() {
        rates.rate("g", PRODUCE, 1_000_000);
        for (long now = 200; now <= 1000; now += 200) {
            meter.tick(now, rates, limits);
        }
        rates.use("g", PRODUCE, 30_000);
        assertEquals(100_000, of(after(1000, "g").throttled(), PRODUCE));
        rates.use("g", PRODUCE, 300_000);
        meter.tick(2000, rates, limits);
        assertEquals(300_000, of(after(2000, "g").throttled(), PRODUCE));
    }

    @Test
    void theShareThatIsFreeDecides() {
        assertEquals(50, UsageMeter.throttled(100, 10, 2 / 3.0), 1e-9);
        assertEquals(100, UsageMeter.throttled(100, 10, 0.5), 1e-9);
        assertEquals(100, UsageMeter.throttled(100, 10, 0.1));
        assertEquals(10, UsageMeter.throttled(0, 10, 0));
    }

    /** 3 tokens short at 2 per second: 1.5 s. */
    @Test
    void aBucketOfMutationsInDebtThrottles() {
        rates.tokens("g", 5);
        meter.tick(500, rates, limits);
        rates.tokens("g", -3);
        meter.tick(1000, rates, limits);
        rates.tokens("g", 5);
        meter.tick(1500, rates, limits);
        meter.tick(2000, rates, limits);
        meter.tick(2500, rates, limits);
        rates.use("g", CONTROLLER_MUTATION, 10);
        GroupUsage usage = after(2500, "g");
        assertEquals(4, of(usage.used(), CONTROLLER_MUTATION));
        // Seen mute at 1.0, 1.5 and 2.0 s: u = 0.4.
        assertEquals(4.0, of(usage.throttled(), CONTROLLER_MUTATION), 1e-9);
    }

    @Test
    void aGroupThatComesBackBeginsAtZero() {
        rates.use("free", PRODUCE, 5000);
        meter.tick(200, rates, limits);
        after(1000, "free");
        FakeRates anew = new FakeRates();
        meter.take(2000, limits, anew);
        anew.use("free", PRODUCE, 700);
        meter.tick(2200, anew, limits);
        assertEquals(700, of(meter.take(3000, limits, anew).get("free").used(), PRODUCE));
    }

    @Test
    void twoReportsAtOnceSayNothing() {
        rates.use("free", PRODUCE, 5000);
        meter.tick(200, rates, limits);
        assertTrue(meter.take(0, limits, rates).isEmpty());
    }
}
