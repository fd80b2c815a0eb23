package io.quotaplane.kafka.wire;

import java.io.ByteArrayOutputStream;
import java.nio.charset.StandardCharsets;
import java.util.function.IntToLongFunction;

/** Writes the fields of a protobuf message. */
final class ProtoWriter {
    private final ByteArrayOutputStream out = new ByteArrayOutputStream();

    byte[] bytes() {
        return out.toByteArray();
    }

    void fixed32(int field, int value) {
        tag(field, ProtoReader.FIXED32);
        littleEndian(value, 4);
    }

    void varint(int field, long value) {
        tag(field, ProtoReader.VARINT);
        varint(value);
    }

    void text(int field, String value) {
        byte[] utf8 = value.getBytes(StandardCharsets.UTF_8);
        tag(field, ProtoReader.LENGTH);
        varint(utf8.length);
        out.writeBytes(utf8);
    }

    /** A packed column; an empty one is left out. */
    void column(int field, double[] values) {
        column(field, values.length, at -> Double.doubleToLongBits(values[at]));
    }

    /** A packed column of sfixed64; an empty one is left out. */
    void column(int field, long[] values) {
        column(field, values.length, at -> values[at]);
    }

    private void column(int field, int count, IntToLongFunction bits) {
        if (count == 0) {
            return;
        }
        tag(field, ProtoReader.LENGTH);
        varint(8L * count);
        for (int at = 0; at < count; at++) {
            littleEndian(bits.applyAsLong(at), 8);
        }
    }

    private void tag(int field, int wireType) {
        varint((long) field << 3 | wireType);
    }

    private void varint(long value) {
        long rest = value;
        for (; (rest & ~0x7FL) != 0; rest >>>= 7) {
            out.write((int) rest & 0x7F | 0x80);
        }
        out.write((int) rest);
    }

    private void littleEndian(long value, int bytes) {
        for (int at = 0; at < bytes; at++) {
            out.write((int) (value >>> 8 * at));
        }
    }
}
