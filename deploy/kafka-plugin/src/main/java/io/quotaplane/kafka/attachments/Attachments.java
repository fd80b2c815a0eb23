package io.quotaplane.kafka.attachments;

import io.quotaplane.kafka.wire.AttachmentsMessage;
import java.util.Set;

/**
 * Which group the clients of Kafka belong to, from attachments of users and client ids; others are
 * not kept. One thread applies messages, any may read.
 */
public final class Attachments {
    /** Apply a message if it is newer than the last one of its part; returns whether anything changed. */
    public boolean apply(AttachmentsMessage message) {
        throw new UnsupportedOperationException();
    }

    /**
     * The group of a client, by Kafka's precedence of scopes; null: none.
     *
     * @param user not encoded; "" or null: none
     * @param clientId not encoded; "" or null: none
     */
    public String groupOf(String user, String clientId) {
        throw new UnsupportedOperationException();
    }

    /** All groups that clients are attached to; unmodifiable. */
    public Set<String> groups() {
        throw new UnsupportedOperationException();
    }

    /** Grows after each change of an attachment, so that answers can be cached. */
    public long version() {
        throw new UnsupportedOperationException();
    }
}
