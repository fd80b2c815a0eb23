package io.quotaplane.kafka.builtin;

import io.quotaplane.kafka.attachments.Scope;
import java.util.Map;

/**
 * Kafka's own quotas of users and clients in one quota type, as the broker applies them without a
 * callback. Any thread may call it.
 */
public final class BuiltInQuotas {
    /** Names of the tags, as Kafka's own. */
    public static final String USER_TAG = "user";

    public static final String CLIENT_ID_TAG = "client-id";

    /** The quota of a scope from now on. */
    public void update(Scope scope, double quota) {
        throw new UnsupportedOperationException();
    }

    /** The scope has no quota any more. */
    public void remove(Scope scope) {
        throw new UnsupportedOperationException();
    }

    /**
     * The tags of the bucket that a request counts for: the values of both are encoded ({@code
     * Scope.encode}), "" where all users or all client ids share the bucket.
     *
     * @param user not encoded
     * @param clientId not encoded
     */
    public Map<String, String> tags(String user, String clientId) {
        throw new UnsupportedOperationException();
    }

    /** The quota of a bucket with such tags (others beside them don't matter); null: none. */
    public Double quota(Map<String, String> tags) {
        throw new UnsupportedOperationException();
    }
}
