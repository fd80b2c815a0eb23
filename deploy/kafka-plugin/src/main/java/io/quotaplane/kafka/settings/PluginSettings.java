package io.quotaplane.kafka.settings;

import io.quotaplane.kafka.limits.Bounds;
import io.quotaplane.kafka.wire.SigningKeys;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeMap;
import org.apache.kafka.common.config.AbstractConfig;
import org.apache.kafka.common.config.ConfigDef;
import org.apache.kafka.common.config.ConfigDef.Importance;
import org.apache.kafka.common.config.ConfigDef.Range;
import org.apache.kafka.common.config.ConfigDef.Type;
import org.apache.kafka.common.config.ConfigDef.ValidString;
import org.apache.kafka.common.config.ConfigException;
import org.apache.kafka.common.config.types.Password;

/**
 * The plugin's settings: the lines of server.properties that begin with {@code quotaplane.}, and
 * what the plugin needs to know of the broker's own.
 *
 * @param brokerName in limits and reports
 * @param limitsTopic topic with the limits of all brokers
 * @param attachmentsTopic topic that says which clients are in which group
 * @param reportsTopic topic for usage reports
 * @param reportIntervalMs between two reports
 * @param leaseMs for which limits hold; older ones are not read at the start
 * @param bounds what limits are held to
 * @param keys that messages must be signed with; null: signatures are not looked at
 * @param excludedPrincipals that are never limited, as {@code User:name}
 * @param principalNames the name of a principal in attachments
 * @param fallbackFactor that Kafka's own quotas are multiplied with in place of unknown limits
 * @param client settings of the plugin's own clients
 */
public record PluginSettings(
        String brokerName,
        String limitsTopic,
        String attachmentsTopic,
        String reportsTopic,
        long reportIntervalMs,
        long leaseMs,
        Bounds bounds,
        SigningKeys keys,
        Set<String> excludedPrincipals,
        PrincipalNames principalNames,
        double fallbackFactor,
        Map<String, Object> client) {
    /** All settings begin with it. */
    public static final String PREFIX = "quotaplane.";

    /** Settings of the plugin's own clients begin with it. */
    public static final String CLIENT_PREFIX = PREFIX + "client.";

    /** The client ids of the plugin's own clients begin with it. */
    public static final String CLIENT_ID = PREFIX.replace('.', '-') + "plugin-";

    private static final String BOOTSTRAP = PREFIX + "bootstrap.servers";
    private static final String LIMITS = PREFIX + "limits.topic";
    private static final String ATTACHMENTS = PREFIX + "attachments.topic";
    private static final String REPORTS = PREFIX + "reports.topic";
    private static final String BROKER_NAME = PREFIX + "broker.name";
    private static final String INTERVAL = PREFIX + "report.interval.ms";
    private static final String LEASE = PREFIX + "limits.lease.ms";
    private static final String TRANSITION = PREFIX + "transition";
    private static final String KEYS = PREFIX + "signing.keys";
    private static final String EXCLUDED = PREFIX + "excluded.principals";
    private static final String MAPPING = PREFIX + "principal.mapping.rules";
    private static final String MUTE = PREFIX + "mute.max.ms";
    private static final String LEAST = PREFIX + "least.bytes.per.second";
    private static final String VALIDITY = PREFIX + "safe.validity.ms";
    private static final String FACTOR = PREFIX + "fallback.factor";

    private static final String NODE_ID = "node.id";
    private static final String WINDOWS = "quota.window.num";
    private static final String WINDOW_S = "quota.window.size.seconds";

    private static final Object REQUIRED = ConfigDef.NO_DEFAULT_VALUE;

    /** The settings, for documentation and checks. */
    public static final ConfigDef DEFINITION =
            new ConfigDef()
                    .define(BOOTSTRAP, Type.LIST, REQUIRED, Importance.HIGH,
                            "Kafka cluster with quotaplane's topics, as host:port,host:port.")
                    .define(LIMITS, Type.STRING, "quotaplane-limits", Importance.HIGH,
                            "Topic with the limits of all brokers.")
                    .define(ATTACHMENTS, Type.STRING, "quotaplane-attachments", Importance.HIGH,
                            "Compacted topic that says which clients are in which group.")
                    .define(REPORTS, Type.STRING, "quotaplane-reports", Importance.HIGH,
                            "Topic for usage reports; {broker} in it is the broker's name.")
                    .define(BROKER_NAME, Type.STRING, "", Importance.MEDIUM,
                            "Name in limits and reports; empty: broker-<node.id>.")
                    .define(INTERVAL, Type.LONG, 5000, Range.atLeast(200), Importance.MEDIUM,
                            "Milliseconds between two reports.")
                    .define(LEASE, Type.LONG, 120_000, Range.atLeast(1000), Importance.MEDIUM,
                            "The job's limits.lease_s, in milliseconds.")
                    .define(TRANSITION, Type.STRING, "fast", ValidString.in("fast", "strict"),
                            Importance.MEDIUM, "The job's limits.transition.")
                    .define(KEYS, Type.PASSWORD, "", Importance.MEDIUM,
                            "Secrets of limits.signing, as id:secret,id:secret; empty: signatures are"
                                    + " not looked at.")
                    .define(EXCLUDED, Type.STRING, "", Importance.MEDIUM,
                            "Principals that are never limited, as User:name;User:name.")
                    .define(MAPPING, Type.STRING, "DEFAULT", Importance.LOW,
                            "Names of principals in attachments; syntax of"
                                    + " ssl.principal.mapping.rules.")
                    .define(MUTE, Type.LONG, 5000, Range.atLeast(100), Importance.MEDIUM,
                            "Milliseconds for which a lower limit may mute a client.")
                    .define(LEAST, Type.DOUBLE, 10_000, Range.atLeast(1), Importance.LOW,
                            "No limit in bytes per second is lower.")
                    .define(VALIDITY, Type.LONG, -1, Range.atLeast(-1), Importance.LOW,
                            "Milliseconds after the lease end for which the safe limit holds; -1: for"
                                    + " ever.")
                    .define(FACTOR, Type.DOUBLE, 1.0, Range.atLeast(0.001), Importance.LOW,
                            "Kafka's own quotas are multiplied with it for clients whose group has no"
                                    + " known limit.")
                    .define(NODE_ID, Type.INT, -1, Importance.HIGH, "The broker's own.")
                    .define(WINDOWS, Type.INT, 11, Range.atLeast(1), Importance.LOW,
                            "The broker's own.")
                    .define(WINDOW_S, Type.INT, 1, Range.atLeast(1), Importance.LOW,
                            "The broker's own.");

    /**
     * From the broker's properties.
     *
     * @throws ConfigException one of them is wrong; the message says which, and why
     */
    public static PluginSettings of(Map<String, ?> properties) {
        checkNames(properties);
        AbstractConfig config = new AbstractConfig(DEFINITION, properties, false);
        String name = config.getString(BROKER_NAME);
        if (name.isEmpty()) {
            if (config.getInt(NODE_ID) < 0) {
                throw new ConfigException(BROKER_NAME + " must be set: the broker has no node.id");
            }
            name = "broker-" + config.getInt(NODE_ID);
        }
        return new PluginSettings(
                name,
                config.getString(LIMITS),
                config.getString(ATTACHMENTS),
                config.getString(REPORTS).replace("{broker}", name),
                config.getLong(INTERVAL),
                config.getLong(LEASE),
                bounds(config),
                keys(config.getPassword(KEYS)),
                excluded(config.getString(EXCLUDED)),
                names(config.getString(MAPPING)),
                config.getDouble(FACTOR),
                client(config));
    }

    private static void checkNames(Map<String, ?> properties) {
        for (String name : new TreeMap<>(properties).keySet()) {
            boolean isOurs = name.startsWith(PREFIX) && !name.startsWith(CLIENT_PREFIX);
            if (isOurs && !DEFINITION.names().contains(name)) {
                throw new ConfigException("There is no setting " + name);
            }
        }
    }

    private static Bounds bounds(AbstractConfig config) {
        return new Bounds(
                config.getString(TRANSITION).equals("strict"),
                config.getDouble(LEAST),
                config.getLong(MUTE) / 1000.0,
                // With the sample that is being filled.
                (config.getInt(WINDOWS) + 1.0) * config.getInt(WINDOW_S),
                config.getLong(VALIDITY),
                3 * config.getLong(INTERVAL));
    }

    private static SigningKeys keys(Password setting) {
        if (setting.value().isBlank()) {
            return null;
        }
        Map<String, String> secrets = new HashMap<>();
        // A secret may have any visible character but the comma in it.
        for (String entry : setting.value().split(",")) {
            int colon = entry.indexOf(':');
            if (colon < 1) {
                throw new ConfigException(KEYS + " must be id:secret,id:secret");
            }
            String secret = entry.substring(colon + 1).strip();
            if (secrets.put(entry.substring(0, colon).strip(), secret) != null) {
                throw new ConfigException(KEYS + " has an id twice");
            }
        }
        try {
            return SigningKeys.of(secrets);
        } catch (IllegalArgumentException error) {
            throw new ConfigException(KEYS + ": " + error.getMessage());
        }
    }

    private static Set<String> excluded(String setting) {
        Set<String> principals =
                Set.copyOf(List.of(setting.split(";")).stream()
                        .map(String::strip)
                        .filter(principal -> !principal.isEmpty())
                        .toList());
        for (String principal : principals) {
            if (principal.indexOf(':') < 1) {
                throw new ConfigException(
                        EXCLUDED + " must be User:name;User:name, and has " + principal);
            }
        }
        return principals;
    }

    private static PrincipalNames names(String rules) {
        try {
            return new PrincipalNames(rules);
        } catch (IllegalArgumentException error) {
            throw new ConfigException(MAPPING + ": " + error.getMessage());
        }
    }

    private static Map<String, Object> client(AbstractConfig config) {
        Map<String, Object> client = new HashMap<>(config.originalsWithPrefix(CLIENT_PREFIX));
        client.put("bootstrap.servers", config.getList(BOOTSTRAP));
        return Map.copyOf(client);
    }

    /** Whether the plugin's own clients prove who they are. */
    public boolean hasLogin() {
        return !"PLAINTEXT".equals(client.getOrDefault("security.protocol", "PLAINTEXT"));
    }

    /** The client id of the plugin's own clients. */
    public String clientId() {
        return CLIENT_ID + brokerName;
    }
}
