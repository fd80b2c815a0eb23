package io.quotaplane.kafka.wire;

import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.charset.CharacterCodingException;
import java.nio.charset.CharsetDecoder;
import java.nio.charset.CodingErrorAction;
import java.nio.charset.StandardCharsets;

/**
 * Reads a protobuf message field by field: {@code next}, then one call for the value. Everything
 * wrong is refused as protobuf's own parsers do it; nothing is allocated by an unchecked length.
 */
final class ProtoReader {
    static final int VARINT = 0;
    static final int FIXED64 = 1;
    static final int LENGTH = 2;
    static final int FIXED32 = 5;

    private static final int BEGIN_GROUP = 3;
    private static final int END_GROUP = 4;
    private static final int DEEPEST = 100;

    private final String type;
    private final byte[] bytes;
    private final int end;
    private final CharsetDecoder utf8 =
            StandardCharsets.UTF_8
                    .newDecoder()
                    .onMalformedInput(CodingErrorAction.REPORT)
                    .onUnmappableCharacter(CodingErrorAction.REPORT);
    private int at;
    private int tag;

    /**
     * Begin with the first field.
     *
     * @param type name of the message, for refusals
     * @param end length in bytes of the message, which may be less than that of the array
     */
    ProtoReader(String type, byte[] bytes, int end) {
        this.type = type;
        this.bytes = bytes;
        this.end = end;
    }

    /** Read the tag of the next field; false at the end. */
    boolean next() throws RefusedMessageException {
        if (at == end) {
            return false;
        }
        long number = varint(5);
        tag = (int) number;
        if (number >>> 32 != 0 || field() == 0) {
            throw malformed();
        }
        return true;
    }

    /** The number of the field. */
    int field() {
        return tag >>> 3;
    }

    /** The number of the field, times eight, and its wire type. */
    int tag() {
        return tag;
    }

    long varint() throws RefusedMessageException {
        return varint(10);
    }

    long fixed64() throws RefusedMessageException {
        int from = advance(8);
        return ByteBuffer.wrap(bytes, from, 8).order(ByteOrder.LITTLE_ENDIAN).getLong();
    }

    String text() throws RefusedMessageException {
        int length = length();
        try {
            return utf8.decode(ByteBuffer.wrap(bytes, advance(length), length)).toString();
        } catch (CharacterCodingException error) {
            throw malformed();
        }
    }

    /** The length of a field of bytes or packed numbers, which the message really has. */
    int length() throws RefusedMessageException {
        long length = varint(5);
        if (length > end - at) {
            throw malformed();
        }
        return (int) length;
    }

    /** Skip the value of a field of bytes; returns its length. */
    int skipBytes() throws RefusedMessageException {
        int length = length();
        advance(length);
        return length;
    }

    /** Skip the value of a field. */
    void skip() throws RefusedMessageException {
        skip(0);
    }

    private void skip(int depth) throws RefusedMessageException {
        switch (tag & 7) {
            case VARINT -> varint();
            case FIXED64 -> advance(8);
            case LENGTH -> skipBytes();
            case FIXED32 -> advance(4);
            case BEGIN_GROUP -> skipGroup(depth + 1);
            default -> throw malformed();
        }
    }

    private void skipGroup(int depth) throws RefusedMessageException {
        int groupEnd = tag - BEGIN_GROUP + END_GROUP;
        while (depth <= DEEPEST && next()) {
            if (tag == groupEnd) {
                return;
            }
            skip(depth);
        }
        throw malformed();
    }

    private long varint(int most) throws RefusedMessageException {
        long number = 0;
        for (int count = 0; count < most && at < end; count++) {
            byte next = bytes[at++];
            number |= (long) (next & 0x7F) << 7 * count;
            if (next >= 0) {
                return number;
            }
        }
        throw malformed();
    }

    /** Go on by so many bytes; returns where they begin. */
    private int advance(int count) throws RefusedMessageException {
        if (count > end - at) {
            throw malformed();
        }
        at += count;
        return at - count;
    }

    RefusedMessageException malformed() {
        return new RefusedMessageException(
                "no " + type + ", or truncated: " + end + " bytes");
    }
}
