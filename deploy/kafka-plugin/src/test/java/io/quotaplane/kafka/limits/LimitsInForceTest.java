package io.quotaplane.kafka.limits;

import static io.quotaplane.kafka.limits.QuotaKind.CONTROLLER_MUTATION;
import static io.quotaplane.kafka.limits.QuotaKind.FETCH;
import static io.quotaplane.kafka.limits.QuotaKind.PRODUCE;
import static io.quotaplane.kafka.limits.QuotaKind.REQUEST;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.quotaplane.kafka.wire.Dimension;
import io.quotaplane.kafka.wire.GroupIds;
import io.quotaplane.kafka.wire.LimitsMessage;
import java.util.Set;
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

    private void limit(long nowMs, double publishBytes, Double safe) {
        double[][] limit = column(publishBytes);
        double[][] safeLimit = safe == null ? null : column(safe);
        long[] ids = {GroupIds.idOf("g")};
        received.apply(message(nowMs, ids, limit, safeLimit, new long[0]), nowMs, nowMs);
    }

    private static double[][] column(double publishBytes) {
        double[][] column = new double[Dimension.COUNT][];
        column[Dimension.PUBLISH_BYTES.ordinal()] = new double[] {publishBytes};
        return column;
    }

    private LimitsMessage message(
            long nowMs, long[] ids, double[][] limit, double[][] safe, long[] removed) {
        return new LimitsMessage("b1", 0, 1, ++seq, nowMs, LEASE_MS, 0, ids, limit, safe, removed);
    }

    private Changes tick(long nowMs, boolean isNews) {
        return limits.tick(G, nowMs, isNews, rates);
    }

    @Test
    void aGroupWithoutAMessageHasNoLimit() {
        begin(false, -1);
        Changes changes = tick(0, false);
        assertTrue(changes.tags());
        assertEquals(INFINITY, limits.limit("g", PRODUCE));
        assertTrue(limits.isFallback("g"));
        assertEquals(1, limits.fallbacks());
        assertEquals(new Changes(Set.of(), false), tick(200, false));
    }

    @Test
    void strictlyAGroupWithoutAMessageHasTheLeast() {
        begin(true, -1);
        tick(0, false);
        assertEquals(10_000, limits.limit("g", PRODUCE));
        assertEquals(10_000, limits.limit("g", FETCH));
        assertEquals(1, limits.limit("g", REQUEST));
        assertEquals(0.01, limits.limit("g", CONTROLLER_MUTATION));
    }

    @Test
    void aGroupWhoseSafeLimitIsNotKnownHasNoneAfterItsLease() {
        begin(false, -1);
        limit(0, 50_000, null);
        tick(5000, true);
        assertEquals(50_000, limits.limit("g", PRODUCE));
        assertTrue(tick(5001, false).tags());
        assertTrue(limits.isFallback("g"));
    }

    @Test
    void aLimitHoldsThenTheSafeLimitThenNone() {
        begin(false, 3000);
        limit(0, 50_000, 20_000.0);
        tick(0, true);
        assertEquals(50_000, limits.limit("g", PRODUCE));
        assertEquals(INFINITY, limits.limit("g", FETCH));
        tick(5000, false);
        assertEquals(50_000, limits.limit("g", PRODUCE));
        assertEquals(Set.of(PRODUCE), tick(5001, false).kinds());
        assertEquals(20_000, limits.limit("g", PRODUCE));
        assertFalse(limits.isFallback("g"));
        tick(8000, false);
        assertEquals(20_000, limits.limit("g", PRODUCE));
        assertTrue(tick(8001, false).tags());
        assertEquals(INFINITY, limits.limit("g", PRODUCE));
        assertTrue(limits.isFallback("g"));
    }

    @Test
    void aSafeLimitHoldsForEverUnlessItsValidityIsSet() {
        begin(false, -1);
        limit(0, 50_000, 20_000.0);
        tick(0, true);
        tick(Long.MAX_VALUE / 2, false);
        assertEquals(20_000, limits.limit("g", PRODUCE));
    }

    @Test
    void noLimitIsBelowTheLeast() {
        begin(false, -1);
        limit(0, 0, 0.0);
        tick(0, true);
        assertEquals(10_000, limits.limit("g", PRODUCE));
    }

    @Test
    void aRemovedGroupHasNoLimit() {
        begin(false, -1);
        limit(0, 50_000, 20_000.0);
        tick(0, true);
        long[] ids = {GroupIds.idOf("g")};
        double[][] none = new double[Dimension.COUNT][];
        received.apply(message(100, new long[0], none, null, ids), 100, 100);
        assertEquals(new Changes(Set.of(PRODUCE), true), tick(200, true));
        assertEquals(INFINITY, limits.limit("g", PRODUCE));
    }

    @Test
    void aDetachedGroupHasNoLimitAndIsNotNamed() {
        begin(false, -1);
        limit(0, 50_000, 20_000.0);
        tick(0, true);
        assertTrue(limits.tick(Set.of(), 200, false, rates).tags());
        assertEquals(INFINITY, limits.limit("g", PRODUCE));
        assertEquals(Set.of(), limits.tags());
        // The limit is still known when clients come back.
        tick(400, false);
        assertEquals(50_000, limits.limit("g", PRODUCE));
    }

    @Test
    void aSteppedCutIsAcknowledgedAtItsEnd() {
        begin(false, -1);
        limit(0, 100_000, 20_000.0);
        tick(0, true);
        assertEquals(1, limits.appliedSeq("g", 1));
        rates.rate("g", PRODUCE, 100_000);
        limit(200, 50_000, 20_000.0);
        tick(200, true);
        assertEquals(1, limits.appliedSeq("g", 1));
        assertEquals(50_000, limits.target("g", PRODUCE));
        rates.gone = 100_000;
        tick(1200, false);
        assertEquals(75_000, limits.limit("g", PRODUCE));
        assertEquals(1, limits.appliedSeq("g", 1));
        rates.gone = 200_000;
        tick(2200, false);
        assertEquals(50_000, limits.limit("g", PRODUCE));
        assertEquals(2, limits.appliedSeq("g", 1));
        assertEquals(-1, limits.appliedSeq("g", 2));
    }

    @Test
    void aRenewalIsAcknowledgedAtOnce() {
        begin(false, -1);
        limit(0, 100_000, 20_000.0);
        tick(0, true);
        limit(1000, 100_000, 20_000.0);
        assertEquals(new Changes(Set.of(), false), tick(1000, true));
        assertEquals(2, limits.appliedSeq("g", 1));
    }

    @Test
    void anIdleGroupWakesWithItsSafeLimitUntilTheJobCanHaveAnswered() {
        begin(false, -1);
        limit(0, 20_000, 200_000.0);
        tick(0, true);
        assertEquals(200_000, limits.limit("g", PRODUCE));
        assertEquals(20_000, limits.target("g", PRODUCE));
        assertEquals(1, limits.appliedSeq("g", 1));
        rates.rate("g", PRODUCE, 100_000);
        tick(1000, false);
        tick(2800, false);
        assertEquals(200_000, limits.limit("g", PRODUCE));
        // After two seconds it falls to the received limit, over a window.
        tick(3000, false);
        rates.gone = 100_000;
        tick(4000, false);
        assertTrue(limits.limit("g", PRODUCE) < 100_000);
        rates.rate("g", PRODUCE, 20_000);
        tick(4800, false);
        assertEquals(20_000, limits.limit("g", PRODUCE));
        // Idle again.
        rates.rate("g", PRODUCE, 0);
        tick(4900, true);
        assertEquals(200_000, limits.limit("g", PRODUCE));
    }

    @Test
    void strictlyAnIdleGroupHasItsLimitOnly() {
        begin(true, -1);
        limit(0, 20_000, 0.0);
        tick(0, true);
        assertEquals(20_000, limits.limit("g", PRODUCE));
    }
}
