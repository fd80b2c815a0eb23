package io.quotaplane.kafka.wire;

import java.util.Arrays;

/** A repeated field of doubles or sfixed64, packed or not; grows only by what the message has. */
final class Fixed64Column {
    private long[] bits = {};
    private int size;

    int size() {
        return size;
    }

    /** Read one more field, packed or a single value; false if it is neither. */
    boolean read(ProtoReader in) throws RefusedMessageException {
        switch (in.tag() & 7) {
            case ProtoReader.FIXED64 -> {
                makeRoom(1, true);
                bits[size++] = in.fixed64();
            }
            case ProtoReader.LENGTH -> {
                int length = in.length();
                if (length % 8 != 0) {
                    throw in.malformed();
                }
                makeRoom(length / 8, false);
                for (int more = length / 8; more > 0; more--) {
                    bits[size++] = in.fixed64();
                }
            }
            default -> {
                return false;
            }
        }
        return true;
    }

    private void makeRoom(int more, boolean ahead) {
        if (size + more > bits.length) {
            bits = Arrays.copyOf(bits, size + Math.max(more, ahead ? size : 0));
        }
    }

    long[] longs() {
        return Arrays.copyOf(bits, size);
    }

    double[] doubles() {
        return Arrays.stream(bits, 0, size).mapToDouble(Double::longBitsToDouble).toArray();
    }
}
