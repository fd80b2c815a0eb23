package io.quotaplane.kafka.wire;

import java.io.ByteArrayOutputStream;
import java.nio.charset.StandardCharsets;
import java.security.GeneralSecurityException;
import java.util.Arrays;
import java.util.HexFormat;
import java.util.function.Consumer;
import javax.crypto.Mac;
import javax.crypto.spec.SecretKeySpec;

/** Messages for tests, field by field. */
final class Messages {
    static final String ID = "2026-11";
    static final String SECRET = "0123456789abcdef0123456789abcdef";

    private Messages() {}

    /** A message that begins with a magic such as {@code QPL1}. */
    static byte[] message(String letters, Consumer<ProtoWriter> fields) {
        var out = new ProtoWriter();
        byte[] magic = letters.getBytes(StandardCharsets.US_ASCII);
        out.fixed32(1, magic[0] | magic[1] << 8 | magic[2] << 16 | magic[3] << 24);
        fields.accept(out);
        return out.bytes();
    }

    /** Limits for {@code b1}: epoch 1, seq 7, with more fields. */
    static byte[] limits(Consumer<ProtoWriter> fields) {
        return message(
                "QPL1",
                out -> {
                    out.text(2, "b1");
                    out.varint(4, 1);
                    out.varint(5, 7);
                    out.varint(7, 5000);
                    fields.accept(out);
                });
    }

    static byte[] hex(String text) {
        return HexFormat.of().parseHex(text.replaceAll("\\s", ""));
    }

    static byte[] joined(byte[]... parts) {
        var out = new ByteArrayOutputStream();
        for (byte[] part : parts) {
            out.writeBytes(part);
        }
        return out.toByteArray();
    }

    /** The message with its signature behind it. */
    static byte[] signed(byte[] message, String id, String secret) {
        byte[] padded = Arrays.copyOf(id.getBytes(StandardCharsets.US_ASCII), 16);
        byte[] head = joined(message, hex("e20130"), padded);
        byte[] key = secret.getBytes(StandardCharsets.US_ASCII);
        try {
            Mac mac = Mac.getInstance("HmacSHA256");
            mac.init(new SecretKeySpec(key, "HmacSHA256"));
            mac.update("quotaplane message 1\0".getBytes(StandardCharsets.US_ASCII));
            return joined(head, mac.doFinal(head));
        } catch (GeneralSecurityException error) {
            throw new IllegalStateException(error);
        }
    }
}
