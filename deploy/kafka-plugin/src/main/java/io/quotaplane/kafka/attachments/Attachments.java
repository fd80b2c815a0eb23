package io.quotaplane.kafka.attachments;

import io.quotaplane.kafka.wire.AttachmentsMessage;
import java.util.Arrays;
import java.util.HashMap;
import java.util.Map;
import java.util.Set;

/**
 * Which group the clients of Kafka belong to, from attachments of users and client ids; others
 * (tenants, namespaces, topics) are not kept. One thread applies messages, any may read.
 */
public final class Attachments {
    private final ScopeTable<String> groups = new ScopeTable<>();
    private final Part[] parts = new Part[AttachmentsMessage.PARTS];
    private volatile long version;
    private volatile Groups all = new Groups(0, Set.of());

    /** What the newest message of a part said. */
    private record Part(long epoch, long seq, Map<Scope, String> groups) {
        boolean isOlderThan(AttachmentsMessage message) {
            return message.epoch() > epoch || message.epoch() == epoch && message.seq() > seq;
        }
    }

    private record Groups(long version, Set<String> names) {}

    /** Begin without any message. */
    public Attachments() {
        Arrays.fill(parts, new Part(-1, -1, Map.of()));
    }

    /** Apply a message if it is newer than the last of its part; returns whether it changed any. */
    public boolean apply(AttachmentsMessage message) {
        Part before = parts[message.part()];
        if (!before.isOlderThan(message)) {
            return false;
        }
        Map<Scope, String> now = scopes(message);
        parts[message.part()] = new Part(message.epoch(), message.seq(), now);
        if (now.equals(before.groups)) {
            return false;
        }
        now.forEach(groups::put);
        before.groups.keySet().stream()
                .filter(scope -> !now.containsKey(scope))
                .forEach(groups::remove);
        version = version + 1;
        return true;
    }

    private static Map<Scope, String> scopes(AttachmentsMessage message) {
        var scopes = new HashMap<Scope, String>();
        for (int at = 0; at < message.names().size(); at++) {
            Scope scope = Scope.parse(message.names().get(at));
            if (scope != null) {
                scopes.put(scope, message.groups().get(at));
            }
        }
        return scopes;
    }

    /**
     * The group of a client, by Kafka's precedence of scopes; null: none. Kafka calls a user who
     * has not logged in ANONYMOUS.
     *
     * @param user not encoded; "" or null: none
     * @param clientId not encoded; "" or null: none
     */
    public String groupOf(String user, String clientId) {
        return groups.of(groups.bucket(encoded(user), encoded(clientId)));
    }

    private static String encoded(String name) {
        return name == null ? "" : Scope.encode(name);
    }

    /** All groups that clients are attached to; unmodifiable. */
    public Set<String> groups() {
        Groups known = all;
        long now = version;
        if (known.version != now) {
            known = new Groups(now, Set.copyOf(groups.values()));
            all = known;
        }
        return known.names;
    }

    /**
     * Grows after each change of an attachment: an answer may be cached with the version that was
     * read before it was asked for.
     */
    public long version() {
        return version;
    }
}
