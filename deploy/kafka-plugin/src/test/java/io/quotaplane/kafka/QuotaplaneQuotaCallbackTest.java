package io.quotaplane.kafka;

import static org.apache.kafka.server.quota.ClientQuotaType.PRODUCE;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNotSame;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertSame;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.lang.management.ManagementFactory;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import javax.management.JMException;
import javax.management.ObjectName;
import org.apache.kafka.common.MetricName;
import org.apache.kafka.common.config.ConfigException;
import org.apache.kafka.common.metrics.MetricValueProvider;
import org.apache.kafka.common.metrics.PluginMetrics;
import org.apache.kafka.common.metrics.Sensor;
import org.apache.kafka.common.security.auth.KafkaPrincipal;
import org.apache.kafka.server.quota.ClientQuotaEntity;
import org.apache.kafka.server.quota.ClientQuotaType;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.Test;

/** The callback as a broker makes it, while the cluster with the topics can't be reached. */
class QuotaplaneQuotaCallbackTest {
    private static final KafkaPrincipal ALICE = new KafkaPrincipal("User", "alice");

    private final List<QuotaplaneQuotaCallback> callbacks = new ArrayList<>();

    private QuotaplaneQuotaCallback callback(String... pairs) {
        Map<String, String> configs = new HashMap<>();
        configs.put("node.id", "1");
        configs.put("quotaplane.bootstrap.servers", "127.0.0.1:1");
        for (int at = 0; at < pairs.length; at += 2) {
            configs.put(pairs[at], pairs[at + 1]);
        }
        MonitoredQuotaCallback callback = new MonitoredQuotaCallback();
        callback.configure(configs);
        callbacks.add(callback);
        return callback;
    }

    @AfterEach
    void close() {
        callbacks.forEach(QuotaplaneQuotaCallback::close);
    }

    private static ClientQuotaEntity user(String name) {
        return () -> List.of(part(ClientQuotaEntity.ConfigEntityType.USER, name));
    }

    private static ClientQuotaEntity.ConfigEntity part(
            ClientQuotaEntity.ConfigEntityType type, String name) {
        return new ClientQuotaEntity.ConfigEntity() {
            @Override
            public String name() {
                return name;
            }

            @Override
            public ClientQuotaEntity.ConfigEntityType entityType() {
                return type;
            }
        };
    }

    @Test
    void inCombinedModeBothRolesShareOnePlugin() {
        QuotaplaneQuotaCallback broker = callback();
        QuotaplaneQuotaCallback controller = callback();
        assertSame(broker.plugin(), controller.plugin());
        assertNotSame(broker.plugin(), callback("node.id", "2").plugin());
    }

    @Test
    void afterTheLastUserAnotherPluginStarts() {
        QuotaplaneQuotaCallback first = callback();
        close();
        callbacks.clear();
        assertNotSame(first.plugin(), callback().plugin());
    }

    @Test
    void kafkasOwnQuotasHold() {
        QuotaplaneQuotaCallback callback = callback();
        callback.updateQuota(PRODUCE, user("alice"), 700);
        Map<String, String> tags = callback.quotaMetricTags(PRODUCE, ALICE, "app");
        assertEquals(Map.of("user", "alice", "client-id", ""), tags);
        assertEquals(700, callback.quotaLimit(PRODUCE, tags));
        assertNull(callback.quotaLimit(ClientQuotaType.FETCH, tags));
        callback.removeQuota(PRODUCE, user("alice"));
        assertNull(callback.quotaLimit(PRODUCE, tags));
        assertFalse(callback.quotaResetRequired(PRODUCE));
        assertFalse(callback.updateClusterMetadata(null));
    }

    @Test
    void excludedPrincipalsHaveNoTags() {
        QuotaplaneQuotaCallback callback =
                callback("quotaplane.excluded.principals", "User:alice;User:CN=b,O=c");
        assertEquals(Map.of(), callback.quotaMetricTags(PRODUCE, ALICE, "app"));
        KafkaPrincipal named = new KafkaPrincipal("User", "CN=b,O=c");
        assertEquals(Map.of(), callback.quotaMetricTags(PRODUCE, named, "app"));
        KafkaPrincipal group = new KafkaPrincipal("Group", "alice");
        assertFalse(callback.quotaMetricTags(PRODUCE, group, "app").isEmpty());
    }

    /** Else each client could name itself as the plugin does. */
    @Test
    void thePluginsClientsAreKnownByTheirIdOnlyWhereNobodyLogsIn() {
        QuotaplaneQuotaCallback callback = callback();
        String id = callback.plugin().settings().clientId();
        assertEquals(Map.of(), callback.quotaMetricTags(PRODUCE, KafkaPrincipal.ANONYMOUS, id));
        assertFalse(callback.quotaMetricTags(PRODUCE, ALICE, id).isEmpty());
    }

    @Test
    void aClientWithoutAnIdHasTags() {
        assertEquals(
                Map.of("user", "", "client-id", ""),
                callback().quotaMetricTags(PRODUCE, ALICE, null));
    }

    @Test
    void aWrongSettingIsRefused() {
        assertThrows(ConfigException.class, () -> callback("quotaplane.transition", "slow"));
    }

    @Test
    void metricsAreInJmxUntilTheEnd() throws JMException {
        callback();
        var server = ManagementFactory.getPlatformMBeanServer();
        ObjectName name = new ObjectName("kafka.server:type=quotaplane");
        assertEquals(0.0, server.getAttribute(name, "groups-attached"));
        assertEquals(-1.0, server.getAttribute(name, "limits-age-seconds"));
        assertEquals(-1.0, server.getAttribute(name, "limits-topic-age-seconds"));
        close();
        callbacks.clear();
        assertFalse(server.isRegistered(name));
    }

    @Test
    void metricsAreAmongThoseOfPlugins() {
        Map<String, MetricValueProvider<?>> added = new HashMap<>();
        MonitoredQuotaCallback callback = (MonitoredQuotaCallback) callback();
        callback.withPluginMetrics(
                new PluginMetrics() {
                    @Override
                    public MetricName metricName(
                            String name, String what, LinkedHashMap<String, String> tags) {
                        return new MetricName(name, "plugins", what, tags);
                    }

                    @Override
                    public void addMetric(MetricName name, MetricValueProvider<?> value) {
                        added.put(name.name(), value);
                    }

                    @Override
                    public void removeMetric(MetricName name) {}

                    @Override
                    public Sensor addSensor(String name) {
                        throw new UnsupportedOperationException();
                    }

                    @Override
                    public void removeSensor(String name) {}
                });
        assertTrue(added.containsKey("reports-failed"));
        assertEquals(8, added.size());
    }
}
