package io.quotaplane.kafka.wire;

import static io.quotaplane.kafka.wire.Messages.ID;
import static io.quotaplane.kafka.wire.Messages.SECRET;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.util.Arrays;
import java.util.LinkedHashMap;
import java.util.Map;
import org.junit.jupiter.api.Test;

class SigningKeysTest {
    /** The example of docs/reference/wire.md. */
    private static final byte[] SIGNED =
            Messages.hex(
                    "0d51504c31 12026231 2001 2807 388827 420167 5208 0000000000003440 e20130"
                            + "323032362d3131000000000000000000"
                            + "e43bf2cbbfdafcbf5a12340d011ac07abd198644678d147393be790856 8f940a");

    private final SigningKeys keys = SigningKeys.of(Map.of(ID, SECRET));

    private static String whyRefused(SigningKeys keys, byte[] value) {
        return assertThrows(RefusedMessageException.class, () -> keys.verify(value)).getMessage();
    }

    private static String wrong(Map<String, String> secrets) {
        return assertThrows(IllegalArgumentException.class, () -> SigningKeys.of(secrets))
                .getMessage();
    }

    @Test
    void theExampleOfTheDocumentationIsSigned() throws RefusedMessageException {
        assertEquals(SIGNED.length - 51, keys.verify(SIGNED));
    }

    @Test
    void anyOfSeveralKeysIsAccepted() throws RefusedMessageException {
        var secrets = new LinkedHashMap<String, String>();
        secrets.put("a", "x".repeat(32));
        secrets.put("b-1234567890abcd", "y".repeat(40));
        SigningKeys both = SigningKeys.of(secrets);
        secrets.forEach(
                (id, secret) -> {
                    byte[] signed = Messages.signed(new byte[] {1, 2}, id, secret);
                    try {
                        assertEquals(2, both.verify(signed));
                    } catch (RefusedMessageException error) {
                        throw new AssertionError(error);
                    }
                });
        assertEquals(
                "signed with the key '2026-11', and known here are: a, b-1234567890abcd",
                whyRefused(both, SIGNED));
    }

    @Test
    void everyChangedByteIsSeen() {
        for (int at = 0; at < SIGNED.length; at++) {
            byte[] changed = SIGNED.clone();
            changed[at] ^= 1;
            whyRefused(keys, changed);
        }
    }

    @Test
    void unsignedAndTruncatedMessagesAreRefused() {
        for (int length = 0; length < SIGNED.length; length++) {
            byte[] begin = Arrays.copyOf(SIGNED, length);
            assertTrue(whyRefused(keys, begin).startsWith("not signed at its end"));
        }
    }

    @Test
    void anotherSecretWithTheSameIdIsRefused() {
        SigningKeys other = SigningKeys.of(Map.of(ID, "x".repeat(32)));
        assertTrue(whyRefused(other, SIGNED).startsWith("its signature is not by the key 2026-11"));
    }

    @Test
    void anIdWithZeroBytesInItIsNone() {
        byte[] changed = SIGNED.clone();
        changed[changed.length - 40] = 'x';
        assertTrue(whyRefused(keys, changed).startsWith("signed with the key '2026-11\\u{0}"));
    }

    @Test
    void secretsAndIdsHaveRules() {
        assertTrue(wrong(Map.of()).contains("at least one"));
        for (String id : new String[] {"", "A", "a_b", "a".repeat(17)}) {
            assertTrue(wrong(Map.of(id, SECRET)).startsWith("keys: the id of key 1 must be"));
        }
        assertTrue(wrong(Map.of("a", "x".repeat(31))).contains("at least 32 characters, not 31"));
        assertTrue(wrong(Map.of("a", "x".repeat(32) + " ")).contains("a space"));
        assertTrue(wrong(Map.of("a", "ü".repeat(32))).contains("not a visible one"));
        assertTrue(wrong(Map.of("a", SECRET, "b", SECRET)).contains("is the same secret as"));
    }

    @Test
    void textsShowNoSecret() {
        assertEquals("SigningKeys of 2026-11", keys.toString());
        assertFalse(wrong(Map.of(SECRET.toUpperCase(), SECRET)).contains(SECRET.toUpperCase()));
    }
}
