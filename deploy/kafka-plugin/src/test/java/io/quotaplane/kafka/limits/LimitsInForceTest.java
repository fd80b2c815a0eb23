package io.quotaplane.kafka.limits;

import static io.quotaplane.kafka.limits.QuotaKind.CONTROLLER_MUTATION;
import static io.quotaplane.kafka.limits.QuotaKind.FETCH;
import static io.quotaplane.kafka.limits.QuotaKind.PRODUCE;
import static io.quotaplane.kafka.limits.QuotaKind.REQUEST;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.quotaplane.kafka.wire.Dimension;
import io.quotaplane.kafka.wire.GroupIds;
import io.quotaplane.kafka.wire.LimitsMessage;
import java.util.Arrays;
import java.util.List;
import java.util.Set;
import java.util.stream.IntStream;
import java.util.stream.Stream;
import org.junit.jupiter.api.Test;

class LimitsInForceTest {
    private static final double INFINITY = Double.POSITIVE_INFINITY;
    private static final long LEASE_MS = 5000;
    private static final Set<String> G = Set.of("g");

    private final FakeRates rates = new FakeRates();
    private ReceivedLimits received;
    private LimitsInForce limits;
    private long seq;

    private void begin(boolean strict, long safeValidityMs) {
        double unset = strict ? 0 : INFINITY;
        received = new ReceivedLimits("b1", 1, unset, unset);
        limits = new LimitsInForce(received, new Bounds(strict, 10_000, 5, 3, safeValidityMs, 2000));
    }

    private void limit(long nowMs, double publishBytes, double safe) {
        limit(nowMs, publishBytes, safe, "g");
    }

    private void limit(long nowMs, double publishBytes, double safe, String... groups) {
        double[][] limit = new double[Dimension.COUNT][];
        limit[Dimension.PUBLISH_BYTES.ordinal()] = new double[groups.length];
        Arrays.fill(limit[Dimension.PUBLISH_BYTES.ordinal()], publishBytes);
        double[][] safeLimit = new double[Dimension.COUNT][];
        safeLimit[Dimension.PUBLISH_BYTES.ordinal()] = new double[groups.length];
        Arrays.fill(safeLimit[Dimension.PUBLISH_BYTES.ordinal()], safe);
        long[] ids = Stream.of(groups).mapToLong(GroupIds::idOf).toArray();
        received.apply(message(nowMs, ids, limit, safeLimit, new long[0]), nowMs, nowMs);
    }

    private LimitsMessage message(
            long nowMs, long[] ids, double[][] limit, double[][] safe, long[] removed) {
        return new LimitsMessage("b1", 0, 1, ++seq, nowMs, LEASE_MS, 0, ids, limit, safe, removed);
    }

    private Changes tick(long nowMs) {
        return limits.tick(G, nowMs, rates.tags(), rates);
    }

    @Test
    void aGroupWithoutAMessageHasNoLimit() {
        begin(false, -1);
        Changes changes = tick(0);
        assertTrue(changes.tags());
        assertEquals(INFINITY, limits.limit("g", PRODUCE));
        assertTrue(limits.isFallback("g"));
        assertEquals(1, limits.fallbacks());
        assertEquals(new Changes(Set.of(), false), tick(200));
    }

    @Test
    void strictlyAGroupWithoutAMessageHasTheLeast() {
        begin(true, -1);
        tick(0);
        assertEquals(10_000, limits.limit("g", PRODUCE));
        assertEquals(10_000, limits.limit("g", FETCH));
        assertEquals(1, limits.limit("g", REQUEST));
        assertEquals(0.01, limits.limit("g", CONTROLLER_MUTATION));
    }

    @Test
    void aGroupWhoseSafeLimitIsNotKnownHasNoneAfterItsLease() {
        begin(false, -1);
        double[][] limit = new double[Dimension.COUNT][];
        limit[Dimension.PUBLISH_BYTES.ordinal()] = new double[] {50_000};
        long[] ids = {GroupIds.idOf("g")};
        received.apply(message(0, ids, limit, null, new long[0]), 0, 0);
        tick(5000);
        assertEquals(50_000, limits.limit("g", PRODUCE));
        assertTrue(tick(5001).tags());
        assertTrue(limits.isFallback("g"));
    }

    @Test
    void aLimitHoldsThenTheSafeLimitThenNone() {
        begin(false, 3000);
        limit(0, 50_000, 20_000);
        tick(0);
        assertEquals(50_000, limits.limit("g", PRODUCE));
        assertEquals(INFINITY, limits.limit("g", FETCH));
        tick(5000);
        assertEquals(50_000, limits.limit("g", PRODUCE));
        assertEquals(Set.of(PRODUCE), tick(5001).kinds());
        assertEquals(20_000, limits.limit("g", PRODUCE));
        assertFalse(limits.isFallback("g"));
        tick(8000);
        assertEquals(20_000, limits.limit("g", PRODUCE));
        assertTrue(tick(8001).tags());
        assertEquals(INFINITY, limits.limit("g", PRODUCE));
        assertTrue(limits.isFallback("g"));
    }

    @Test
    void aSafeLimitHoldsForEverUnlessItsValidityIsSet() {
        begin(false, -1);
        limit(0, 50_000, 20_000);
        tick(0);
        tick(Long.MAX_VALUE / 2);
        assertEquals(20_000, limits.limit("g", PRODUCE));
    }

    @Test
    void noLimitIsBelowTheLeast() {
        begin(false, -1);
        limit(0, 0, 0);
        tick(0);
        assertEquals(10_000, limits.limit("g", PRODUCE));
    }

    @Test
    void aRemovedGroupHasNoLimit() {
        begin(false, -1);
        limit(0, 50_000, 20_000);
        tick(0);
        long[] ids = {GroupIds.idOf("g")};
        double[][] none = new double[Dimension.COUNT][];
        received.apply(message(100, new long[0], none, null, ids), 100, 100);
        assertEquals(new Changes(Set.of(PRODUCE), true), tick(200));
        assertEquals(INFINITY, limits.limit("g", PRODUCE));
    }

    @Test
    void aDetachedGroupHasNoLimitAndIsNotNamed() {
        begin(false, -1);
        limit(0, 50_000, 20_000);
        tick(0);
        assertTrue(limits.tick(Set.of(), 200, rates.tags(), rates).tags());
        assertEquals(INFINITY, limits.limit("g", PRODUCE));
        assertEquals(Set.of(), limits.tags());
        // The limit is still known when clients come back.
        tick(400);
        assertEquals(50_000, limits.limit("g", PRODUCE));
    }

    @Test
    void aSteppedCutIsAcknowledgedAtItsEnd() {
        begin(false, -1);
        limit(0, 100_000, 20_000);
        tick(0);
        assertEquals(1, limits.appliedSeq("g", 1));
        rates.rate("g", PRODUCE, 100_000);
        limit(200, 50_000, 20_000);
        tick(200);
        assertEquals(1, limits.appliedSeq("g", 1));
        assertEquals(50_000, limits.target("g", PRODUCE));
        rates.gone = 100_000;
        tick(1200);
        assertEquals(75_000, limits.limit("g", PRODUCE));
        assertEquals(1, limits.appliedSeq("g", 1));
        rates.gone = 200_000;
        tick(2200);
        assertEquals(50_000, limits.limit("g", PRODUCE));
        assertEquals(2, limits.appliedSeq("g", 1));
        assertEquals(-1, limits.appliedSeq("g", 2));
    }

    @Test
    void aRenewalIsAcknowledgedAtOnce() {
        begin(false, -1);
        limit(0, 100_000, 20_000);
        tick(0);
        limit(1000, 100_000, 20_000);
        assertEquals(new Changes(Set.of(), false), tick(1000));
        assertEquals(2, limits.appliedSeq("g", 1));
    }

    @Test
    void anIdleGroupWakesWithItsSafeLimitUntilTheJobCanHaveAnswered() {
        begin(false, -1);
        limit(0, 20_000, 200_000);
        tick(0);
        assertEquals(200_000, limits.limit("g", PRODUCE));
        assertEquals(20_000, limits.target("g", PRODUCE));
        assertEquals(1, limits.appliedSeq("g", 1));
        rates.rate("g", PRODUCE, 100_000);
        tick(1000);
        tick(2800);
        assertEquals(200_000, limits.limit("g", PRODUCE));
        // After two seconds it falls to the received limit, over a window.
        tick(3000);
        rates.gone = 100_000;
        tick(4000);
        assertTrue(limits.limit("g", PRODUCE) < 100_000);
        rates.rate("g", PRODUCE, 20_000);
        tick(4800);
        assertEquals(20_000, limits.limit("g", PRODUCE));
        // Idle again: also without a job that sends news.
        rates.rate("g", PRODUCE, 0);
        tick(4900);
        assertEquals(200_000, limits.limit("g", PRODUCE));
    }

    /** The safe limits of a thousand idle groups are in force, and cost nothing. */
    @Test
    void ticksLookOnlyAtGroupsWithNewsAndThoseInUse() {
        begin(false, -1);
        String[] names = IntStream.range(0, 1000).mapToObj(n -> "g" + n).toArray(String[]::new);
        Set<String> groups = Set.of(names);
        int bytesKinds = 2;
        limit(0, 20_000, 200_000, names);
        limits.tick(groups, 0, List.of(), rates);
        assertEquals(bytesKinds * 1000, rates.looks);
        assertEquals(200_000, limits.limit("g5", PRODUCE));
        limits.tick(groups, 200, List.of(), rates);
        assertEquals(bytesKinds * 1000, rates.looks);
        limit(300, 300_000, 200_000, "g5", "g6", "other");
        limits.tick(groups, 400, List.of("g6", "g7", "unknown"), rates);
        assertEquals(bytesKinds * 1003, rates.looks);
        assertEquals(300_000, limits.limit("g5", PRODUCE));
        assertEquals(2, limits.appliedSeq("g5", 1));
        assertEquals(1, limits.appliedSeq("g7", 1));
        // The lease of all but two ends.
        limits.tick(groups, LEASE_MS + 1, List.of(), rates);
        assertEquals(bytesKinds * 2003, rates.looks);
    }

    @Test
    void afterATickThatFailedTheNextOnePutsAllInForceAndSaysSo() {
        begin(false, -1);
        limit(0, 50_000, 20_000);
        tick(0);
        limit(100, 40_000, 20_000);
        Rates broken = broken();
        assertThrows(IllegalStateException.class, () -> limits.tick(G, 200, List.of(), broken));
        assertEquals(new Changes(Set.copyOf(QuotaKind.ALL), true), tick(400));
        assertEquals(40_000, limits.limit("g", PRODUCE));
        assertEquals(2, limits.appliedSeq("g", 1));
        assertEquals(new Changes(Set.of(), false), tick(600));
    }

    private static Rates broken() {
        return new FakeRates() {
            @Override
            public Limited limited(String tag, QuotaKind kind) {
                throw new IllegalStateException("a metric that changes");
            }
        };
    }

    @Test
    void strictlyAnIdleGroupHasItsLimitOnly() {
        begin(true, -1);
        limit(0, 20_000, 0);
        tick(0);
        assertEquals(20_000, limits.limit("g", PRODUCE));
    }
}
