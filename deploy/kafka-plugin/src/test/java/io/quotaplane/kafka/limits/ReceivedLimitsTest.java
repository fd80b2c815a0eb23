package io.quotaplane.kafka.limits;

import static io.quotaplane.kafka.wire.Dimension.PUBLISH_BYTES;
import static io.quotaplane.kafka.wire.Dimension.REQUEST_MS;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.quotaplane.kafka.limits.ReceivedLimits.Version;
import io.quotaplane.kafka.wire.Dimension;
import io.quotaplane.kafka.wire.LimitsMessage;
import java.util.List;
import java.util.Set;
import java.util.stream.LongStream;
import org.junit.jupiter.api.Test;

class ReceivedLimitsTest {
    private static final double INFINITY = Double.POSITIVE_INFINITY;
    private static final long STARTED_MS = 77;
    private static final long LEASE_MS = 5000;
    private static final long G = 1;
    private static final long H = 2;
    private static final long[] NONE = {};

    private final ReceivedLimits limits = new ReceivedLimits("b1", STARTED_MS, INFINITY, INFINITY);

    /** A message of epoch 1 that limits {@code PUBLISH_BYTES}. */
    private static LimitsMessage message(
            long seq, long issuedAtMs, long[] ids, double[] limits, double[] safe, long[] removed) {
        return new LimitsMessage(
                "b1", 0, 1, seq, issuedAtMs, LEASE_MS, 0, ids, columns(limits),
                safe == null ? null : columns(safe), removed);
    }

    private static LimitsMessage listing(long seq, long issuedAtMs, double limit) {
        return message(seq, issuedAtMs, new long[] {G}, new double[] {limit}, null, NONE);
    }

    private static LimitsMessage safe(long seq, long issuedAtMs, double limit, double safe) {
        return message(
                seq, issuedAtMs, new long[] {G}, new double[] {limit}, new double[] {safe}, NONE);
    }

    private static LimitsMessage removing(long seq, long issuedAtMs, long... ids) {
        return message(seq, issuedAtMs, NONE, new double[0], null, ids);
    }

    private static LimitsMessage ofEpoch(long epoch, long seq, double limit) {
        return new LimitsMessage(
                "b1", 0, epoch, seq, 0, LEASE_MS, 0, new long[] {G},
                columns(new double[] {limit}), null, NONE);
    }

    private static double[][] columns(double[] publishBytes) {
        double[][] columns = new double[Dimension.COUNT][];
        columns[PUBLISH_BYTES.ordinal()] = publishBytes;
        return columns;
    }

    private double limit(long steadyNowMs) {
        return limits.limit(G, PUBLISH_BYTES, steadyNowMs);
    }

    @Test
    void withoutMessagesNothingIsKnown() {
        var strict = new ReceivedLimits("b1", STARTED_MS, 0, 0);
        assertEquals(0, strict.limit(G, PUBLISH_BYTES, 0));
        assertEquals(INFINITY, limit(Long.MAX_VALUE));
        assertFalse(limits.isKnown(G));
        assertFalse(limits.isOver(G, Long.MAX_VALUE));
        assertEquals(Long.MAX_VALUE, limits.leaseEndMs(G));
        assertNull(limits.acknowledged());
        assertNull(limits.version(G));
    }

    @Test
    void aLimitHoldsForItsLeaseThenTheSafeOne() {
        assertEquals(1, limits.apply(safe(7, 0, 20, 10), 0, 0));
        assertEquals(20, limit(5000));
        assertFalse(limits.isOver(G, 5000));
        assertEquals(10, limit(5001));
        assertTrue(limits.isOver(G, 5001));
        assertEquals(5000, limits.leaseEndMs(G));
        assertTrue(limits.isKnown(G));
        assertFalse(limits.isKnown(H));
        assertEquals(INFINITY, limits.limit(G, REQUEST_MS, 0));
    }

    @Test
    void theLeaseCountsOnTheSteadyClockFromTheArrivalAtTheLatest() {
        limits.apply(listing(1, 1_000_000, 20), 1_002_000, 100);
        assertEquals(100 - 2000 + 5000, limits.leaseEndMs(G));
        // A message from the future of this broker's clock.
        limits.apply(listing(2, 1_000_000, 20), 900_000, 100);
        assertEquals(100 + 5000, limits.leaseEndMs(G));
    }

    @Test
    void onlyNewerMessagesChangeSomething() {
        assertEquals(1, limits.apply(listing(7, 0, 20), 0, 0));
        assertEquals(0, limits.apply(listing(7, 0, 21), 0, 0));
        assertEquals(0, limits.apply(listing(6, 0, 22), 0, 0));
        assertEquals(20, limit(0));
        assertEquals(1, limits.apply(listing(8, 0, 23), 0, 0));
        assertEquals(0, limits.apply(listing(9, 0, 23), 0, 0));
        assertEquals(new Version(1, 9), limits.version(G));
        assertEquals(1, limits.apply(ofEpoch(2, 1, 24), 0, 0));
        assertEquals(0, limits.apply(listing(10, 0, 25), 0, 0));
        assertEquals(24, limit(0));
    }

    @Test
    void aLeaseThatIsNotOverBeatsOneThatIs() {
        limits.apply(listing(1_000_000, 0, 20), 0, 0);
        assertEquals(0, limits.apply(listing(1, 4999, 30), 4999, 5000));
        assertEquals(1, limits.apply(listing(1, 5001, 30), 5001, 5001));
        assertEquals(new Version(1, 1), limits.acknowledged());
        // One whose lease is over loses against one whose lease is not, and is used after another.
        assertEquals(0, limits.apply(listing(9, 0, 40), 5002, 5002));
        assertEquals(30, limit(5002));
        assertEquals(0, limits.apply(safe(10, 0, 40, 50), 10_001, 10_001));
        assertEquals(1, limits.apply(safe(10, 0, 40, 50), 10_002, 10_002));
        assertEquals(50, limit(10_002));
    }

    @Test
    void aLeaseThatEndsNowIsNotOver() {
        limits.apply(listing(7, 0, 20), 0, 0);
        assertEquals(1, limits.apply(listing(6, 1, 30), 5001, 5001));
        assertEquals(5001, limits.leaseEndMs(G));
    }

    @Test
    void ofANewGroupAMessageWithAnOverLeaseIsUsed() {
        limits.apply(safe(7, 0, 20, 10), 60_000, 60_000);
        assertEquals(10, limit(60_000));
        assertTrue(limits.isOver(G, 60_000));
    }

    @Test
    void safeLimitsHoldUntilOthersAreThere() {
        limits.apply(safe(1, 0, 20, 10), 0, 0);
        limits.apply(listing(2, 0, 30), 0, 0);
        assertEquals(10, limit(5001));
        limits.apply(safe(3, 0, 30, 11), 0, 0);
        assertEquals(11, limit(5001));
        var withSetting = new ReceivedLimits("b1", STARTED_MS, INFINITY, 3);
        withSetting.apply(listing(1, 0, 20), 0, 0);
        assertEquals(3, withSetting.limit(G, PUBLISH_BYTES, 5001));
    }

    @Test
    void removedGroupsAreRemembered() {
        limits.apply(safe(1, 0, 20, 10), 0, 0);
        assertEquals(1, limits.apply(removing(3, 0, G), 0, 0));
        assertEquals(INFINITY, limit(0));
        assertEquals(INFINITY, limit(5001));
        assertEquals(Long.MAX_VALUE, limits.leaseEndMs(G));
        assertFalse(limits.isOver(G, 5001));
        assertTrue(limits.isKnown(G));
        assertEquals(new Version(1, 3), limits.version(G));
        assertEquals(0, limits.apply(listing(2, 0, 20), 0, 0));
        assertEquals(INFINITY, limit(0));
        assertEquals(1, limits.apply(listing(4, 0, 20), 0, 0));
        assertEquals(20, limit(0));
        assertEquals(INFINITY, limit(5001)); // the safe limit of before is gone
    }

    @Test
    void aGroupThatIsListedAgainBeginsWithTheSettingAsSafeLimit() {
        var withSetting = new ReceivedLimits("b1", STARTED_MS, INFINITY, 3);
        withSetting.apply(safe(1, 0, 20, 10), 0, 0);
        withSetting.apply(removing(2, 0, G), 0, 0);
        assertEquals(INFINITY, withSetting.limit(G, PUBLISH_BYTES, 5001));
        withSetting.apply(listing(3, 0, 20), 0, 0);
        assertEquals(3, withSetting.limit(G, PUBLISH_BYTES, 5001));
    }

    @Test
    void aGroupThatNoMessageListedCanBeRemoved() {
        assertEquals(2, limits.apply(removing(3, 0, G, H), 0, 0));
        assertTrue(limits.isKnown(H));
        assertEquals(0, limits.apply(listing(2, 0, 20), 0, 0));
    }

    @Test
    void ofAGroupThatIsListedAndRemovedTheListingHolds() {
        var both = message(1, 0, new long[] {G}, new double[] {20}, null, new long[] {G});
        assertEquals(1, limits.apply(both, 0, 0));
        assertEquals(20, limit(0));
    }

    @Test
    void ofAGroupThatIsListedTwiceTheLastEntryHolds() {
        limits.apply(message(1, 0, new long[] {G, G}, new double[] {20, 30}, null, NONE), 0, 0);
        assertEquals(30, limit(0));
    }

    @Test
    void messagesForOthersChangeNothing() {
        var message =
                new LimitsMessage(
                        "b1", 0, 1, 1, 0, LEASE_MS, STARTED_MS, new long[] {G},
                        columns(new double[] {20}), null, NONE);
        var otherBroker = new ReceivedLimits("b2", STARTED_MS, INFINITY, INFINITY);
        var otherStart = new ReceivedLimits("b1", STARTED_MS + 1, INFINITY, INFINITY);
        for (ReceivedLimits other : List.of(otherBroker, otherStart)) {
            assertEquals(0, other.apply(message, 0, 0));
            assertFalse(other.isKnown(G));
        }
        assertEquals(1, limits.apply(message, 0, 0));
    }

    @Test
    void theNewestVersionIsAcknowledged() {
        limits.apply(ofEpoch(1, 9, 20), 0, 0);
        limits.apply(removing(10, 0, H), 0, 0);
        assertEquals(new Version(1, 10), limits.acknowledged());
        assertEquals(new Version(1, 9), limits.version(G));
        limits.apply(ofEpoch(2, 3, 20), 0, 0);
        assertEquals(new Version(2, 3), limits.acknowledged());
        assertEquals(new Version(2, 3), limits.version(G));
        assertEquals(new Version(1, 10), limits.version(H));
    }

    @Test
    void onlyGroupsOfMessagesThatChangeSomethingAreNews() {
        limits.apply(listing(7, 0, 20), 0, 0);
        limits.apply(removing(8, 0, H), 0, 0);
        assertEquals(Set.of(G, H), limits.takeNews());
        limits.apply(listing(6, 0, 20), 0, 0);
        assertEquals(Set.of(), limits.takeNews());
    }

    @Test
    void groupsWhoseLeaseEndedAreForgotten() {
        limits.apply(ofEpoch(3, 1, 20), 0, 0);
        limits.apply(removing(1, 0, H), 0, 0);
        limits.forget(5000, Set.of());
        assertTrue(limits.isKnown(G) && limits.isKnown(H));
        limits.forget(5001, Set.of(H));
        assertFalse(limits.isKnown(G));
        assertTrue(limits.isKnown(H));
        assertEquals(new Version(1, 1), limits.acknowledged());
        limits.forget(5001, Set.of());
        assertNull(limits.acknowledged());
    }

    @Test
    void idsThatNoGroupHasAreIgnored() {
        long[] none = {-1};
        var message = message(1, 0, new long[] {-1, G}, new double[] {5, 20}, null, none);
        assertEquals(1, limits.apply(message, 0, 0));
        assertFalse(limits.isKnown(-1));
    }

    @Test
    void memoryIsBounded() {
        long[] ids = LongStream.range(0, ReceivedLimits.MOST_GROUPS + 5).toArray();
        var message =
                new LimitsMessage(
                        "b1", 0, 1, 1, 0, LEASE_MS, 0, ids, columns(new double[ids.length]), null,
                        NONE);
        assertEquals(ReceivedLimits.MOST_GROUPS, limits.apply(message, 0, 0));
        assertEquals(5, limits.unused());
        limits.forget(6000, Set.of());
        assertEquals(1, limits.apply(listing(1, 0, 20), 0, 0));
    }
}
