package io.quotaplane.kafka.attachments;

import java.net.URLDecoder;
import java.net.URLEncoder;
import java.nio.charset.StandardCharsets;
import java.util.regex.Matcher;
import java.util.regex.Pattern;

/**
 * Which users and clients something is for, by name encoded as Kafka's Sanitizer does it, or {@code
 * DEFAULT}; null: it does not name one. Not both are null.
 */
public record Scope(String user, String client) {
    /** All users (or clients) without a scope of their own. */
    public static final String DEFAULT = "<default>";

    private static final Pattern FORM =
            Pattern.compile(
                    "user=(?<user>[^,=]+)(,client=(?<both>[^,=]+))?|client=(?<client>[^,=]+)");

    /**
     * A name as it is in a scope: all but letters, digits and {@code .-_} of ASCII percent-encoded,
     * such as {@code CN%3Dapp%201}.
     */
    public static String encode(String name) {
        return URLEncoder.encode(name, StandardCharsets.UTF_8)
                .replace("+", "%20")
                .replace("*", "%2A");
    }

    /** The scope that a name such as {@code user=alice,client=app-1} stands for; null: none. */
    public static Scope parse(String name) {
        Matcher form = FORM.matcher(name);
        if (!form.matches()) {
            return null;
        }
        String user = form.group("user");
        String client = user == null ? form.group("client") : form.group("both");
        return isSpeltRight(user) && isSpeltRight(client) ? new Scope(user, client) : null;
    }

    private static boolean isSpeltRight(String name) {
        if (name == null || name.equals(DEFAULT)) {
            return true;
        }
        try {
            return encode(URLDecoder.decode(name, StandardCharsets.UTF_8)).equals(name);
        } catch (IllegalArgumentException error) {
            return false;
        }
    }

    /** Its name, such as {@code user=alice,client=<default>}. */
    @Override
    public String toString() {
        String ofUser = user == null ? "" : "user=" + user;
        String ofClient = client == null ? "" : "client=" + client;
        return ofUser + (user == null || client == null ? "" : ",") + ofClient;
    }
}
