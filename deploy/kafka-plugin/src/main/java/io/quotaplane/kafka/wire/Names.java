package io.quotaplane.kafka.wire;

import java.nio.charset.StandardCharsets;
import java.security.MessageDigest;
import java.security.NoSuchAlgorithmException;

/** Rules for names of brokers and groups, as the control plane's. */
final class Names {
    static final int MOST_BROKER_CHARACTERS = 512;
    static final int MOST_GROUP_CHARACTERS = 1024;

    private static final int SHOWN = 60;

    private Names() {}

    /** Whether a name has 1 to that many characters, all of them printable. */
    static boolean isUsable(String name, int mostCharacters) {
        return !name.isEmpty()
                && name.codePointCount(0, name.length()) <= mostCharacters
                && name.codePoints().allMatch(Names::isPrintable);
    }

    /**
     * Whether a character is none of Unicode's "other" ones and no separator but the space. One
     * that this JVM's Unicode does not know yet counts as printable: the control plane may know it.
     */
    private static boolean isPrintable(int character) {
        return switch (Character.getType(character)) {
            case Character.CONTROL,
                            Character.FORMAT,
                            Character.SURROGATE,
                            Character.PRIVATE_USE,
                            Character.LINE_SEPARATOR,
                            Character.PARAGRAPH_SEPARATOR ->
                    false;
            case Character.SPACE_SEPARATOR -> character == ' ';
            default -> true;
        };
    }

    /** A name from outside, in a form that fits into one line of a log. */
    static String shown(String name) {
        boolean isLong = name.length() > SHOWN;
        var line = new StringBuilder("'");
        name.codePoints()
                .limit(SHOWN)
                .forEach(
                        character -> {
                            if (isPrintable(character)) {
                                line.appendCodePoint(character);
                            } else {
                                line.append(String.format("\\u{%x}", character));
                            }
                        });
        return line.append(isLong ? "'..." : "'").toString();
    }

    /** The SHA-256 (32 bytes) of a name. */
    static byte[] digest(String name) {
        try {
            return MessageDigest.getInstance("SHA-256")
                    .digest(name.getBytes(StandardCharsets.UTF_8));
        } catch (NoSuchAlgorithmException error) {
            throw new IllegalStateException("every JVM has SHA-256", error);
        }
    }
}
