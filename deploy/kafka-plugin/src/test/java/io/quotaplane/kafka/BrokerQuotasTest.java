package io.quotaplane.kafka;

import static io.quotaplane.kafka.limits.QuotaKind.PRODUCE;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.quotaplane.kafka.attachments.Scope;
import io.quotaplane.kafka.limits.FakeRates;
import io.quotaplane.kafka.settings.PluginSettings;
import io.quotaplane.kafka.wire.AttachmentsMessage;
import io.quotaplane.kafka.wire.Dimension;
import io.quotaplane.kafka.wire.GroupIds;
import io.quotaplane.kafka.wire.LimitsMessage;
import java.nio.charset.StandardCharsets;
import java.util.List;
import java.util.Map;
import java.util.stream.IntStream;
import org.junit.jupiter.api.Test;

class BrokerQuotasTest {
    private static final long WALL_MS = 1_800_000_000_000L;
    private static final long LEASE_MS = 5000;

    private final FakeRates rates = new FakeRates();
    private final BrokerQuotas quotas =
            new BrokerQuotas(
                    PluginSettings.of(
                            Map.of(
                                    "quotaplane.bootstrap.servers", "a:1",
                                    "quotaplane.broker.name", "b1")),
                    WALL_MS,
                    0);

    private void attach(String scope, String group) {
        quotas.receive(new AttachmentsMessage(0, 1, 1, 0, List.of(scope), List.of(group)));
    }

    private void limit(String broker, long issuedMs, long nowMs, double publishBytes) {
        limit(broker, 7, issuedMs, nowMs, publishBytes, null);
    }

    private void limit(
            String broker, long seq, long issuedMs, long nowMs, double publishBytes, Double safe) {
        double[][] limits = safe == null ? null : column(safe);
        long[] ids = {GroupIds.idOf("g")};
        quotas.receive(
                new LimitsMessage(
                        broker,
                        0,
                        1,
                        seq,
                        issuedMs,
                        LEASE_MS,
                        0,
                        ids,
                        column(publishBytes),
                        limits,
                        new long[0]),
                WALL_MS + nowMs,
                nowMs);
    }

    private static double[][] column(double publishBytes) {
        double[][] column = new double[Dimension.COUNT][];
        column[Dimension.PUBLISH_BYTES.ordinal()] = new double[] {publishBytes};
        return column;
    }

    /** The report, as text: names of groups are in it as they are. */
    private String report(long nowMs) {
        return new String(quotas.report(nowMs, rates), StandardCharsets.ISO_8859_1);
    }

    @Test
    void itKnowsWhetherAnAttachedGroupLacksLimits() {
        assertFalse(quotas.lacksLimits());
        attach("client=app", "g");
        assertTrue(quotas.lacksLimits());
        limit("b1", WALL_MS, 100, 50_000);
        assertTrue(quotas.lacksLimits()); // a message without the safe limit
        limit("b1", 8, WALL_MS - 2 * LEASE_MS, 100, 50_000, 20_000.0);
        assertTrue(quotas.lacksLimits()); // its lease is over
        limit("b1", 9, WALL_MS, 100, 50_000, 20_000.0);
        assertFalse(quotas.lacksLimits());
    }

    @Test
    void safeLimitsOfEarlierMessagesAreFoundIfAllAreReadAgain() {
        attach("client=app", "g");
        limit("b1", 7, WALL_MS - 100, 100, 50_000, null);
        assertTrue(quotas.lacksLimits());
        limit("b1", 5, WALL_MS - 2 * LEASE_MS, 200, 60_000, 30_000.0);
        limit("b1", 6, WALL_MS - 200, 200, 60_000, 20_000.0);
        quotas.tick(300, rates);
        assertEquals(50_000, quotas.limits().limit("g", PRODUCE));
        limit("b1", 7, WALL_MS - 100, 400, 50_000, null);
        quotas.readAgain();
        quotas.tick(500, rates);
        assertEquals(50_000, quotas.limits().limit("g", PRODUCE));
        quotas.tick(LEASE_MS + 1, rates);
        assertEquals(20_000, quotas.limits().limit("g", PRODUCE));
        assertFalse(quotas.lacksLimits());
    }

    @Test
    void aLimitHoldsFromTheTickAfterItCame() {
        attach("client=app", "g");
        limit("b1", WALL_MS, 100, 50_000);
        assertEquals("g", quotas.groupOf("alice", "app"));
        assertNull(quotas.groupOf("alice", "other"));
        assertEquals(Double.POSITIVE_INFINITY, quotas.limits().limit("g", PRODUCE));
        assertTrue(quotas.tick(200, rates).tags());
        assertEquals(50_000, quotas.limits().limit("g", PRODUCE));
        assertEquals(200, quotas.limitsAgeMs(200));
    }

    @Test
    void limitsForAnotherBrokerChangeNothing() {
        attach("client=app", "g");
        limit("b2", WALL_MS, 100, 50_000);
        quotas.tick(200, rates);
        assertEquals(Double.POSITIVE_INFINITY, quotas.limits().limit("g", PRODUCE));
        assertEquals(-1, quotas.limitsAgeMs(200));
    }

    /** A clock an hour ahead of the job's: the limit is over when it comes, and is counted. */
    @Test
    void limitsThatAreOverWhenTheyComeAreCounted() {
        attach("client=app", "g");
        limit("b1", 7, WALL_MS - 3_600_000, 100, 50_000, 20_000.0);
        quotas.tick(200, rates);
        assertEquals(1, quotas.overOnArrival());
        assertEquals(20_000, quotas.limits().limit("g", PRODUCE));
        assertFalse(quotas.limits().isFallback("g"));
    }

    /** A clock an hour behind: the lease begins when the limit comes. */
    @Test
    void aLimitFromTheFutureHoldsForItsLease() {
        attach("client=app", "g");
        limit("b1", WALL_MS + 3_600_000, 100, 50_000);
        quotas.tick(200, rates);
        assertEquals(50_000, quotas.limits().limit("g", PRODUCE));
        quotas.tick(100 + LEASE_MS + 1, rates);
        assertEquals(Double.POSITIVE_INFINITY, quotas.limits().limit("g", PRODUCE));
    }

    @Test
    void ofManyGroupsInUseATickLooksAtAPart() {
        List<String> names = IntStream.range(0, 5000).mapToObj(n -> "client=" + n).toList();
        quotas.receive(new AttachmentsMessage(0, 1, 1, 0, names, names));
        names.forEach(name -> rates.use(Scope.encode(name), PRODUCE, 1));
        quotas.tick(200, rates);
        int ofAll = 2 * 5000;
        for (int round = 0; round < 2; round++) {
            rates.looks = 0;
            for (int tick = 0; tick < 3; tick++) {
                int before = rates.looks;
                quotas.tick(400, rates);
                assertTrue(rates.looks - before < ofAll / 2, "as many as " + rates.looks);
            }
            assertEquals(ofAll, rates.looks);
        }
    }

    @Test
    void reportsNameAttachedGroupsThatChanged() {
        assertFalse(report(1000).contains("idle"));
        attach("client=app", "idle");
        quotas.tick(1200, rates);
        assertTrue(report(2000).contains("idle"));
        assertFalse(report(3000).contains("idle"));
        rates.use("idle", PRODUCE, 100);
        quotas.tick(3200, rates);
        assertTrue(report(4000).contains("idle"));
        quotas.reportsLost();
        assertTrue(report(5000).contains("idle"));
    }
}
