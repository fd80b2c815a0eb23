import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.net.InetAddress;
import java.nio.charset.StandardCharsets;
import kafka.server.ClientQuotaManager;
import org.apache.kafka.common.metrics.Metrics;
import org.apache.kafka.common.metrics.Quota;
import org.apache.kafka.common.security.auth.KafkaPrincipal;
import org.apache.kafka.common.utils.Sanitizer;
import org.apache.kafka.common.utils.Time;
import org.apache.kafka.network.Session;
import org.apache.kafka.server.config.ClientQuotaManagerConfig;
import org.apache.kafka.server.quota.ClientQuotaEntity;
import org.apache.kafka.server.quota.QuotaType;
import scala.Option;

/**
 * Lets Kafka's own ClientQuotaManager say which quota holds: lines on stdin, answers on stdout.
 *
 * <p>Lines, with tabs between: {@code new}; {@code put USER CLIENT QUOTA}; {@code ask USER CLIENT}.
 * Names are sanitized; in puts "" is none and {@code <default>} the default, and as a quota ""
 * removes it. An answer to an ask has the quota and the tags of user and client, sanitized.
 */
public final class KafkaScopes {
    private static final String DEFAULT = "<default>";

    public static void main(String[] args) throws IOException {
        var in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        var out = new PrintStream(System.out, false, StandardCharsets.UTF_8);
        ClientQuotaManager manager = null;
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            String[] words = line.split("\t", -1);
            switch (words[0]) {
                case "new" -> {
                    if (manager != null) {
                        manager.initiateShutdown();
                    }
                    manager =
                            new ClientQuotaManager(
                                    new ClientQuotaManagerConfig(),
                                    new Metrics(),
                                    QuotaType.PRODUCE,
                                    Time.SYSTEM,
                                    "",
                                    Option.empty());
                }
                case "put" ->
                        manager.updateQuota(
                                Option.apply(user(words[1])),
                                Option.apply(client(words[2])),
                                quota(words[3]));
                default -> out.println(answer(manager, words[1], words[2]));
            }
        }
        out.flush();
        // Threads of the managers may still be waiting.
        System.exit(0);
    }

    private static ClientQuotaManager.BaseUserEntity user(String name) {
        return switch (name) {
            case "" -> null;
            case DEFAULT -> ClientQuotaManager.DefaultUserEntity$.MODULE$;
            default -> new ClientQuotaManager.UserEntity(name);
        };
    }

    private static ClientQuotaEntity.ConfigEntity client(String name) {
        return switch (name) {
            case "" -> null;
            case DEFAULT -> ClientQuotaManager.DefaultClientIdEntity$.MODULE$;
            default -> new ClientQuotaManager.ClientIdEntity(Sanitizer.desanitize(name));
        };
    }

    private static Option<Quota> quota(String bound) {
        return bound.isEmpty()
                ? Option.empty()
                : Option.apply(Quota.upperBound(Double.parseDouble(bound)));
    }

    private static String answer(ClientQuotaManager manager, String user, String client)
            throws IOException {
        var principal = new KafkaPrincipal(KafkaPrincipal.USER_TYPE, Sanitizer.desanitize(user));
        String clientId = Sanitizer.desanitize(client);
        var session = new Session(principal, InetAddress.getLoopbackAddress());
        var tags = manager.getOrCreateQuotaSensors(session, clientId).metricTags();
        return String.join(
                "\t",
                Double.toString(manager.quota(principal, clientId).bound()),
                tags.apply("user"),
                Sanitizer.sanitize(tags.apply("client-id")));
    }
}
