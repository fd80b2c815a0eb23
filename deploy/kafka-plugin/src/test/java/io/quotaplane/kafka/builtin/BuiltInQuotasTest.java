package io.quotaplane.kafka.builtin;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNull;

import io.quotaplane.kafka.attachments.Scope;
import java.util.List;
import java.util.Map;
import org.junit.jupiter.api.Test;

class BuiltInQuotasTest {
    private static final List<Scope> LEVELS =
            List.of(
                    new Scope("alice", "app"),
                    new Scope("alice", Scope.DEFAULT),
                    new Scope("alice", null),
                    new Scope(Scope.DEFAULT, "app"),
                    new Scope(Scope.DEFAULT, Scope.DEFAULT),
                    new Scope(Scope.DEFAULT, null),
                    new Scope(null, "app"),
                    new Scope(null, Scope.DEFAULT));

    private final BuiltInQuotas quotas = new BuiltInQuotas();

    private Double quotaOf(String user, String clientId) {
        return quotas.quota(quotas.tags(user, clientId));
    }

    private static Map<String, String> tags(String user, String clientId) {
        return Map.of("user", user, "client-id", clientId);
    }

    @Test
    void withoutQuotasClientIdsAreTold() {
        assertEquals(tags("", "app"), quotas.tags("alice", "app"));
        assertNull(quotaOf("alice", "app"));
    }

    @Test
    void theMostSpecificLevelCounts() {
        for (int level = LEVELS.size() - 1; level >= 0; level--) {
            quotas.update(LEVELS.get(level), level);
            assertEquals(level, quotaOf("alice", "app"));
        }
        for (int level = 0; level < LEVELS.size(); level++) {
            assertEquals(level, quotaOf("alice", "app"));
            quotas.remove(LEVELS.get(level));
        }
        assertNull(quotaOf("alice", "app"));
    }

    @Test
    void theLevelSaysWhoSharesABucket() {
        for (int level = LEVELS.size() - 1; level >= 0; level--) {
            Scope scope = LEVELS.get(level);
            quotas.update(scope, level);
            String user = scope.user() == null ? "" : "alice";
            String client = scope.client() == null ? "" : "app";
            assertEquals(tags(user, client), quotas.tags("alice", "app"));
        }
    }

    @Test
    void withOneKindOfQuotasAllTagsAreOfThatKind() {
        quotas.update(new Scope("alice", null), 1);
        assertEquals(tags("bob", ""), quotas.tags("bob", "app"));
        var pairs = new BuiltInQuotas();
        pairs.update(new Scope("alice", "app"), 1);
        assertEquals(tags("bob", "x"), pairs.tags("bob", "x"));
        assertNull(pairs.quota(pairs.tags("bob", "x")));
    }

    @Test
    void kindsAreNotForgotten() {
        quotas.update(new Scope("alice", null), 1);
        quotas.update(new Scope("alice", "app"), 2);
        quotas.remove(new Scope("alice", "app"));
        assertEquals(tags("", "app"), quotas.tags("bob", "app"));
        quotas.remove(new Scope("alice", null));
        assertEquals(tags("", "app"), quotas.tags("alice", "app"));
    }

    @Test
    void tagsAreEncodedAndInOrder() {
        quotas.update(new Scope("CN%3Da", "x%3Ay"), 5);
        Map<String, String> tags = quotas.tags("CN=a", "x:y");
        assertEquals(tags("CN%3Da", "x%3Ay"), tags);
        assertEquals(List.of("user", "client-id"), List.copyOf(tags.keySet()));
        assertEquals(5, quotas.quota(tags));
    }

    @Test
    void otherTagsHaveNoQuota() {
        quotas.update(new Scope(null, Scope.DEFAULT), 5);
        assertNull(quotas.quota(Map.of("group", "g")));
        assertNull(quotas.quota(Map.of("client-id", "app")));
        assertEquals(5, quotas.quota(Map.of("group", "", "user", "", "client-id", "app")));
    }

    @Test
    void aClientWithoutAnIdHasTheQuotaOfItsUserAlone() {
        quotas.update(new Scope("alice", Scope.DEFAULT), 1);
        quotas.update(new Scope(Scope.DEFAULT, null), 2);
        assertEquals(2, quotaOf("alice", ""));
        assertEquals(1, quotaOf("alice", "app"));
    }
}
