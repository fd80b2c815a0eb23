package io.quotaplane.kafka.wire;

import java.util.Map;

/** Secrets by id that verify messages; its text has no secret. */
public final class SigningKeys {
    private SigningKeys() {}

    /**
     * The keys with these secrets, by id.
     *
     * @throws IllegalArgumentException an id is not 1 to 16 of a to z, 0 to 9 and -; or a secret is
     *     shorter than 32, has other characters than visible ones of ASCII, or has two ids
     */
    public static SigningKeys of(Map<String, String> secretsById) {
        throw new UnsupportedOperationException();
    }

    /**
     * The length in bytes of the message in front of a signature by one of the keys.
     *
     * @throws RefusedMessageException it has no signature, or one that is not by one of the keys
     */
    int verify(byte[] value) throws RefusedMessageException {
        throw new UnsupportedOperationException();
    }
}
