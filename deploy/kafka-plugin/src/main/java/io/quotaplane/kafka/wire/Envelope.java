package io.quotaplane.kafka.wire;

import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import java.util.HexFormat;

/** What all of the control plane's messages have in common. */
final class Envelope {
    /** A longer message is refused unread. */
    static final int MOST_BYTES = 2 * 1024 * 1024;

    /**
     * A message with more names in one field is refused while it is read: an empty name has two
     * bytes, and takes a hundred times as much memory.
     */
    static final int MOST_NAMES = 100_000;

    static final int SIGNATURE = 28;

    private static final int HEAD_BYTES = 5;

    private Envelope() {}

    /**
     * Open a message to be read.
     *
     * @param type its name
     * @param head the five bytes that it begins with
     * @param keys one of them must have signed it; null: none
     */
    static ProtoReader open(String type, byte[] head, byte[] value, SigningKeys keys)
            throws RefusedMessageException {
        if (value.length > MOST_BYTES) {
            throw new RefusedMessageException(
                    type + " of " + value.length + " bytes (at most " + MOST_BYTES + ")");
        }
        byte[] begin = Arrays.copyOf(value, Math.min(value.length, HEAD_BYTES));
        if (!Arrays.equals(begin, head)) {
            String shown = HexFormat.ofDelimiter(" ").formatHex(begin);
            throw new RefusedMessageException(
                    "no " + type + ": begins with " + (shown.isEmpty() ? "nothing" : shown));
        }
        return new ProtoReader(type, value, keys == null ? value.length : keys.verify(value));
    }

    /** The five bytes that a message begins with: the tag of field 1, and four letters. */
    static byte[] head(String letters) {
        return ("\r" + letters).getBytes(StandardCharsets.US_ASCII);
    }
}
