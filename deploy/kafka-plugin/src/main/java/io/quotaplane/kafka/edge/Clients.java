package io.quotaplane.kafka.edge;

import io.quotaplane.kafka.settings.PluginSettings;
import java.util.HashMap;
import java.util.Map;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.AdminClientConfig;
import org.apache.kafka.clients.consumer.ConsumerConfig;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerConfig;
import org.apache.kafka.common.config.ConfigDef;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/** Makes the plugin's own clients of Kafka. What {@code quotaplane.client.*} says replaces ours. */
final class Clients {
    private static final Map<String, Object> COMMON =
            Map.of(
                    // The plugin's metrics are its own; a broker's may be as many as before.
                    "metric.reporters", "",
                    "auto.include.jmx.reporter", "false",
                    "enable.metrics.push", "false",
                    // A leader that is silent: after this the client asks who leads now.
                    "request.timeout.ms", "5000",
                    "default.api.timeout.ms", "10000",
                    "reconnect.backoff.max.ms", "1000");

    private Clients() {}

    static Admin admin(PluginSettings settings) {
        return Admin.create(config(settings, Map.of(), AdminClientConfig.configDef()));
    }

    static KafkaConsumer<byte[], byte[]> consumer(PluginSettings settings) {
        Map<String, Object> own =
                Map.of(
                        "enable.auto.commit", "false",
                        "allow.auto.create.topics", "false",
                        "auto.offset.reset", "earliest",
                        "fetch.max.wait.ms", "100");
        return new KafkaConsumer<>(
                config(settings, own, ConsumerConfig.configDef()),
                new ByteArrayDeserializer(),
                new ByteArrayDeserializer());
    }

    static KafkaProducer<byte[], byte[]> producer(PluginSettings settings) {
        // A report is of use for one interval only, and the next one says all again.
        Map<String, Object> own =
                Map.of(
                        "acks", "1",
                        "enable.idempotence", "false",
                        "compression.type", "lz4",
                        "max.block.ms", "200",
                        "linger.ms", "0",
                        "delivery.timeout.ms", "10000");
        return new KafkaProducer<>(
                config(settings, own, ProducerConfig.configDef()),
                new ByteArraySerializer(),
                new ByteArraySerializer());
    }

    /** Only what the client knows, so that it warns of none: settings are for all three. */
    private static Map<String, Object> config(
            PluginSettings settings, Map<String, Object> own, ConfigDef known) {
        Map<String, Object> config = new HashMap<>(COMMON);
        config.put("client.id", settings.clientId());
        config.putAll(own);
        config.putAll(settings.client());
        config.keySet().removeIf(name -> !isKnown(name, known));
        return config;
    }

    private static boolean isKnown(String name, ConfigDef known) {
        // Settings of login modules and of mechanisms are not in the definition.
        return known.names().contains(name) || name.startsWith("sasl.") || name.startsWith("ssl.");
    }
}
