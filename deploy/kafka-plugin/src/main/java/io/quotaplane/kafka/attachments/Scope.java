package io.quotaplane.kafka.attachments;

/**
 * Which user and client something is for, by name encoded as Kafka's Sanitizer does it, or {@code
 * DEFAULT}; null: it does not name one. Not both are null.
 */
public record Scope(String user, String client) {
    /** All users (or clients) without a scope of their own. */
    public static final String DEFAULT = "<default>";

    /** A name percent-encoded as Kafka's Sanitizer does it. */
    public static String encode(String name) {
        throw new UnsupportedOperationException();
    }

    /** The scope that a name such as {@code user=alice,client=app-1} stands for; null: none. */
    public static Scope parse(String name) {
        throw new UnsupportedOperationException();
    }
}
