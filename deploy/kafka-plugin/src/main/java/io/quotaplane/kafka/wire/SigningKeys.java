package io.quotaplane.kafka.wire;

import java.nio.charset.StandardCharsets;
import java.security.GeneralSecurityException;
import java.security.MessageDigest;
import java.util.Arrays;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.Map;
import java.util.regex.Pattern;
import javax.crypto.Mac;
import javax.crypto.spec.SecretKeySpec;

/** Secrets by id that verify messages (docs/reference/wire.md); its text has no secret. */
public final class SigningKeys {
    private static final int ID_BYTES = 16;
    private static final int MAC_BYTES = 32;
    private static final int LEAST_SECRET = 32;
    /** The tag of field 28 (bytes), and its length: an id and an HMAC. */
    private static final byte[] FIELD = {(byte) 0xE2, 0x01, ID_BYTES + MAC_BYTES};
    private static final int SIGNATURE_BYTES = FIELD.length + ID_BYTES + MAC_BYTES;
    private static final byte[] PREFIX =
            "quotaplane message 1\0".getBytes(StandardCharsets.US_ASCII);
    private static final String ALGORITHM = "HmacSHA256";
    private static final Pattern ID = Pattern.compile("[a-z0-9-]{1," + ID_BYTES + "}");
    private static final Pattern SECRET = Pattern.compile("[!-~]*");

    private final Map<String, SecretKeySpec> keys;

    private SigningKeys(Map<String, SecretKeySpec> keys) {
        this.keys = keys;
    }

    /**
     * The keys with these secrets, by id.
     *
     * @throws IllegalArgumentException there are none; an id is not 1 to 16 of a to z, 0 to 9 and
     *     -; or a secret is shorter than 32, has other characters than visible ones of ASCII, or
     *     has two ids
     */
    public static SigningKeys of(Map<String, String> secretsById) {
        if (secretsById.isEmpty()) {
            throw new IllegalArgumentException("keys: there must be at least one");
        }
        var keys = new LinkedHashMap<String, SecretKeySpec>();
        var idOf = new HashMap<String, String>();
        secretsById.forEach(
                (id, secret) -> {
                    check(id, keys.size() + 1, secret);
                    String other = idOf.putIfAbsent(secret, id);
                    if (other != null) {
                        throw new IllegalArgumentException(
                                "keys." + id + ": is the same secret as keys." + other);
                    }
                    byte[] ascii = secret.getBytes(StandardCharsets.US_ASCII);
                    keys.put(id, new SecretKeySpec(ascii, ALGORITHM));
                });
        return new SigningKeys(keys);
    }

    /** Errors repeat no id that is wrong, as it may be a secret. */
    private static void check(String id, int number, String secret) {
        if (!ID.matcher(id).matches()) {
            throw new IllegalArgumentException(
                    "keys: the id of key " + number + " must be a text of 1 to " + ID_BYTES
                            + " characters: a to z, 0 to 9 and -");
        }
        if (!SECRET.matcher(secret).matches()) {
            throw new IllegalArgumentException(
                    "keys." + id + ": has a character that is not a visible one of ASCII, such as"
                            + " a space or the end of a line");
        }
        if (secret.length() < LEAST_SECRET) {
            throw new IllegalArgumentException(
                    "keys." + id + ": must have at least " + LEAST_SECRET + " characters, not "
                            + secret.length() + "; openssl rand -hex 32 makes one");
        }
    }

    /**
     * The length in bytes of the message in front of a signature by one of the keys.
     *
     * @throws RefusedMessageException it has no signature, or one that is not by one of the keys
     */
    int verify(byte[] value) throws RefusedMessageException {
        int length = value.length - SIGNATURE_BYTES;
        int idFrom = length + FIELD.length;
        int macFrom = idFrom + ID_BYTES;
        if (length < 0 || !Arrays.equals(value, length, idFrom, FIELD, 0, FIELD.length)) {
            throw new RefusedMessageException(
                    "not signed at its end: another program wrote it, or the job has no keys");
        }
        String padded = new String(value, idFrom, ID_BYTES, StandardCharsets.ISO_8859_1);
        String id = padded.replaceFirst("\0+$", "");
        SecretKeySpec key = keys.get(id);
        if (key == null) {
            throw new RefusedMessageException(
                    "signed with the key " + Names.shown(id) + ", and known here are: "
                            + String.join(", ", keys.keySet()));
        }
        byte[] mac = Arrays.copyOfRange(value, macFrom, value.length);
        if (!MessageDigest.isEqual(mac, macOf(key, value, macFrom))) {
            throw new RefusedMessageException(
                    "its signature is not by the key " + id + ": that id has another secret where"
                            + " it was signed, or somebody changed the message");
        }
        return length;
    }

    private static byte[] macOf(SecretKeySpec key, byte[] value, int length) {
        try {
            Mac mac = Mac.getInstance(ALGORITHM);
            mac.init(key);
            mac.update(PREFIX);
            mac.update(value, 0, length);
            return mac.doFinal();
        } catch (GeneralSecurityException error) {
            throw new IllegalStateException("every JVM has " + ALGORITHM, error);
        }
    }

    @Override
    public String toString() {
        return "SigningKeys of " + String.join(", ", keys.keySet());
    }
}
