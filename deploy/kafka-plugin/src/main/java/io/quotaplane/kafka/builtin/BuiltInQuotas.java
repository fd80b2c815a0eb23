package io.quotaplane.kafka.builtin;

import io.quotaplane.kafka.attachments.Scope;
import io.quotaplane.kafka.attachments.ScopeTable;
import io.quotaplane.kafka.attachments.ScopeTable.Bucket;
import java.util.Collections;
import java.util.LinkedHashMap;
import java.util.Map;

/**
 * Kafka's own quotas of users and clients in one quota type, as a broker without a callback applies
 * them. Any thread may call it.
 */
public final class BuiltInQuotas {
    /** Name of the tag with the user, as Kafka's own. */
    public static final String USER_TAG = "user";

    /** Name of the tag with the client id, as Kafka's own. */
    public static final String CLIENT_ID_TAG = "client-id";

    /** Which kinds of quotas there ever were; Kafka forgets none, and its tags show it. */
    private enum Kinds {
        NONE,
        CLIENTS,
        USERS,
        PAIRS,
        SEVERAL
    }

    private final ScopeTable<Double> quotas = new ScopeTable<>();
    private volatile Kinds kinds = Kinds.NONE;

    /** The quota of a scope from now on. */
    public void update(Scope scope, double quota) {
        saw(scope);
        quotas.put(scope, quota);
    }

    /** The scope has no quota any more. */
    public void remove(Scope scope) {
        saw(scope);
        quotas.remove(scope);
    }

    private synchronized void saw(Scope scope) {
        Kinds kind =
                scope.user() == null
                        ? Kinds.CLIENTS
                        : scope.client() == null ? Kinds.USERS : Kinds.PAIRS;
        kinds = kinds == Kinds.NONE || kinds == kind ? kind : Kinds.SEVERAL;
    }

    /**
     * The tags of the bucket that a request counts for: the values of both are encoded ({@code
     * Scope.encode}), "" where all users or all client ids share the bucket. The user is first.
     *
     * @param user not encoded
     * @param clientId not encoded
     */
    public Map<String, String> tags(String user, String clientId) {
        Bucket bucket = bucket(Scope.encode(user), Scope.encode(clientId));
        var tags = new LinkedHashMap<String, String>();
        tags.put(USER_TAG, bucket.user());
        tags.put(CLIENT_ID_TAG, bucket.client());
        return Collections.unmodifiableMap(tags);
    }

    private Bucket bucket(String user, String client) {
        return switch (kinds) {
            case NONE, CLIENTS -> new Bucket("", client);
            case USERS -> new Bucket(user, "");
            case PAIRS -> new Bucket(user, client);
            case SEVERAL -> quotas.bucket(user, client);
        };
    }

    /** The quota of a bucket with such tags (others beside them don't matter); null: none. */
    public Double quota(Map<String, String> tags) {
        String user = tags.get(USER_TAG);
        String client = tags.get(CLIENT_ID_TAG);
        return user == null || client == null ? null : quotas.of(new Bucket(user, client));
    }
}
