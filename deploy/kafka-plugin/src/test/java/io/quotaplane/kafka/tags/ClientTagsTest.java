package io.quotaplane.kafka.tags;

import static io.quotaplane.kafka.limits.QuotaKind.FETCH;
import static io.quotaplane.kafka.limits.QuotaKind.PRODUCE;
import static io.quotaplane.kafka.limits.QuotaKind.REQUEST;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNull;

import io.quotaplane.kafka.attachments.Scope;
import io.quotaplane.kafka.builtin.BuiltInQuotas;
import io.quotaplane.kafka.limits.Bounds;
import io.quotaplane.kafka.limits.FakeRates;
import io.quotaplane.kafka.limits.LimitsInForce;
import io.quotaplane.kafka.limits.QuotaKind;
import io.quotaplane.kafka.limits.ReceivedLimits;
import io.quotaplane.kafka.wire.Dimension;
import io.quotaplane.kafka.wire.GroupIds;
import io.quotaplane.kafka.wire.LimitsMessage;
import java.util.EnumMap;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;

class ClientTagsTest {
    private static final double FACTOR = 0.5;

    /** Groups by user; carol's has an odd name, and no limits are known of dave's. */
    private static final Map<String, String> GROUPS =
            Map.of("alice", "acme", "carol", "a:b c", "dave", "new");

    private final Map<QuotaKind, BuiltInQuotas> builtIn = new EnumMap<>(QuotaKind.class);
    private final Map<String, Integer> asked = new HashMap<>();
    private ClientTags tags;

    @BeforeEach
    void limitAcmesPublishing() {
        QuotaKind.ALL.forEach(kind -> builtIn.put(kind, new BuiltInQuotas()));
        double unset = Double.POSITIVE_INFINITY;
        ReceivedLimits received = new ReceivedLimits("b1", 1, unset, unset);
        double[][] limit = new double[Dimension.COUNT][];
        limit[Dimension.PUBLISH_BYTES.ordinal()] = new double[] {100_000, 30_000};
        limit[Dimension.REQUEST_MS.ordinal()] = new double[] {50, unset};
        long[] ids = {GroupIds.idOf("acme"), GroupIds.idOf("a:b c")};
        received.apply(
                new LimitsMessage("b1", 0, 1, 1, 0, 60_000, 0, ids, limit, null, new long[0]), 0, 0);
        LimitsInForce limits = new LimitsInForce(received, new Bounds(false, 10_000, 5, 3, -1, 2000));
        limits.tick(Set.of("acme", "a:b c", "new"), 0, Set.of(), new FakeRates());
        tags = new ClientTags(this::groupOf, limits, builtIn, FACTOR);
    }

    private String groupOf(String user, String clientId) {
        asked.merge(user, 1, Integer::sum);
        return GROUPS.get(user);
    }

    @Test
    void clientsOfALimitedGroupShareItsBucket() {
        Map<String, String> bucket = tags.tags(PRODUCE, "alice", "app-1");
        assertEquals(Map.of("group", "acme"), bucket);
        assertEquals(100_000, tags.limit(PRODUCE, bucket));
    }

    @Test
    void requestTimeIsAPercentageForKafka() {
        assertEquals(5.0, tags.limit(REQUEST, tags.tags(REQUEST, "alice", "app-1")));
    }

    @Test
    void aGroupWithoutALimitInATypeLeavesKafkasOwnQuota() {
        builtIn.get(FETCH).update(Scope.parse("user=alice"), 700);
        Map<String, String> bucket = tags.tags(FETCH, "alice", "app-1");
        assertEquals(List.of("group", "user", "client-id"), List.copyOf(bucket.keySet()));
        assertEquals(List.of("acme", "alice", ""), List.copyOf(bucket.values()));
        assertEquals(700, tags.limit(FETCH, bucket));
        builtIn.get(FETCH).remove(Scope.parse("user=alice"));
        assertNull(tags.limit(FETCH, bucket));
    }

    @Test
    void whileNoLimitsAreKnownKafkasOwnQuotaIsMultiplied() {
        builtIn.get(PRODUCE).update(Scope.parse("user=dave"), 700);
        assertEquals(350, tags.limit(PRODUCE, tags.tags(PRODUCE, "dave", "app-1")));
    }

    @Test
    void clientsWithoutAGroupCountAsInKafka() {
        builtIn.get(PRODUCE).update(Scope.parse("client=app-1"), 900);
        Map<String, String> bucket = tags.tags(PRODUCE, "bob", "app-1");
        assertEquals(List.of("", "app-1"), List.copyOf(bucket.values()));
        assertEquals(900, tags.limit(PRODUCE, bucket));
    }

    @Test
    void excludedClientsHaveNoLimit() {
        assertNull(tags.limit(PRODUCE, Map.of()));
    }

    @Test
    void aBucketThatIsNoLongerUsedHasNoLimit() {
        assertNull(tags.limit(FETCH, Map.of("group", "acme")));
        assertNull(tags.limit(PRODUCE, Map.of("group", "gone")));
        // A limit for the whole group came: the buckets of its clients are out of use.
        builtIn.get(PRODUCE).update(Scope.parse("user=alice"), 700);
        assertNull(
                tags.limit(PRODUCE, Map.of("group", "acme", "user", "alice", "client-id", "")));
    }

    @Test
    void noValueHasAColon() {
        assertEquals(Map.of("group", "a%3Ab%20c"), tags.tags(PRODUCE, "carol", "x"));
        assertEquals(30_000, tags.limit(PRODUCE, tags.tags(PRODUCE, "carol", "x")));
        for (String odd : List.of("a:b", "\"q\"", "ü ", "<default>", "*?,=", "")) {
            Map<String, String> bucket = tags.tags(FETCH, "alice", odd);
            assertFalse(String.join("", bucket.values()).contains(":"));
        }
    }

    @Test
    void answersAreRememberedUntilSomethingChanges() {
        TagCache cache = new TagCache(tags, 2);
        for (int request = 0; request < 5; request++) {
            for (QuotaKind kind : QuotaKind.ALL) {
                assertEquals(
                        tags.tags(kind, "bob", "a"), cache.tags(kind, "CN=bob", "a", p -> "bob"));
            }
        }
        // Twenty times without the cache; with it once for all kinds.
        assertEquals(24, asked.get("bob"));
        cache.expire();
        cache.tags(PRODUCE, "CN=bob", "a", p -> "bob");
        assertEquals(28, asked.get("bob"));
    }

    @Test
    void clientsThatInventIdsDoNotFillTheMemory() {
        TagCache cache = new TagCache(tags, 100);
        for (int client = 0; client < 1000; client++) {
            cache.tags(PRODUCE, "bob", "id-" + client, p -> p);
        }
        assertEquals(100, cache.size());
    }
}
