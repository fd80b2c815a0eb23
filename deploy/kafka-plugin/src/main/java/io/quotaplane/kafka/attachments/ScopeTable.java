package io.quotaplane.kafka.attachments;

import static io.quotaplane.kafka.attachments.Scope.DEFAULT;

import java.util.Collection;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;

/**
 * Values by scope, and the one that applies to a request, by Kafka's rules: of eight levels the
 * most specific one gives the bucket that the request counts for, and the bucket gives the levels
 * whose value it may have. Any thread may call it.
 *
 * <p>Names of requests are encoded ({@code Scope.encode}); "" is none.
 */
public final class ScopeTable<V> {
    /** A user's, a client's, or a pair's; "" where all users or all clients share it. */
    public record Bucket(String user, String client) {}

    private final Map<Scope, V> values = new ConcurrentHashMap<>();

    /** Set a scope's value; returns the one before, or null. */
    public V put(Scope scope, V value) {
        return values.put(scope, value);
    }

    /** Remove a scope's value; returns it, or null. */
    public V remove(Scope scope) {
        return values.remove(scope);
    }

    /** The values of all scopes. */
    public Collection<V> values() {
        return values.values();
    }

    /** The bucket that a request counts for. */
    public Bucket bucket(String user, String client) {
        if (has(user, client) || has(user, DEFAULT)) {
            return new Bucket(user, client);
        }
        if (has(user, null)) {
            return new Bucket(user, "");
        }
        if (has(DEFAULT, client) || has(DEFAULT, DEFAULT)) {
            return new Bucket(user, client);
        }
        return has(DEFAULT, null) ? new Bucket(user, "") : new Bucket("", client);
    }

    /** The value that a bucket has; null: none. */
    public V of(Bucket bucket) {
        boolean hasUser = !bucket.user.isEmpty();
        boolean hasClient = !bucket.client.isEmpty();
        if (hasUser && hasClient) {
            V ofUser = first(bucket.user, bucket.client, bucket.user, DEFAULT);
            return ofUser != null ? ofUser : first(DEFAULT, bucket.client, DEFAULT, DEFAULT);
        }
        if (hasUser) {
            return first(bucket.user, null, DEFAULT, null);
        }
        return hasClient ? first(null, bucket.client, null, DEFAULT) : null;
    }

    private boolean has(String user, String client) {
        return values.containsKey(new Scope(user, client));
    }

    private V first(String user, String client, String otherUser, String otherClient) {
        V value = values.get(new Scope(user, client));
        return value != null ? value : values.get(new Scope(otherUser, otherClient));
    }
}
