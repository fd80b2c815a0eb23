package io.quotaplane.kafka.wire;

import java.util.List;

/**
 * A decoded {@code AttachmentsUpdate}: all n attachments of one part of the names.
 *
 * @param part 0 to 63: the first byte of the SHA-256 of each name, modulo 64
 * @param epoch with seq the version
 * @param names (n) scopes, tenants, namespaces or prefixes of topics
 * @param groups (n) the group that each name is attached to
 */
public record AttachmentsMessage(
        int part, long epoch, long seq, long issuedAtMs, List<String> names, List<String> groups) {
    /** Number of parts. */
    public static final int PARTS = 64;

    /**
     * Decode one message.
     *
     * @param keys one of them must have signed it; null: a signature is not looked at
     * @throws RefusedMessageException it is no such message, a value is invalid, or the signature
     *     is missing or wrong
     */
    public static AttachmentsMessage decode(byte[] value, SigningKeys keys)
            throws RefusedMessageException {
        return new AttachmentsDecoder().decode(value, keys);
    }

    /** The part that a name is in. */
    public static int partOf(String name) {
        return Names.digest(name)[0] & PARTS - 1;
    }
}
