package io.quotaplane.kafka;

import io.quotaplane.kafka.edge.Gauges;
import java.util.LinkedHashMap;
import org.apache.kafka.common.metrics.Gauge;
import org.apache.kafka.common.metrics.Monitorable;
import org.apache.kafka.common.metrics.PluginMetrics;

/** The callback with its metrics among those of the broker's plugins: Kafka 4.1 and later. */
public final class MonitoredQuotaCallback extends QuotaplaneQuotaCallback implements Monitorable {
    /** Made by the broker. */
    public MonitoredQuotaCallback() {}

    @Override
    public void withPluginMetrics(PluginMetrics metrics) {
        for (Gauges.Shown shown : plugin().gauges().shown()) {
            Gauge<Double> gauge = (config, now) -> shown.value().getAsDouble();
            metrics.addMetric(
                    metrics.metricName(shown.name(), shown.description(), new LinkedHashMap<>()),
                    gauge);
        }
    }
}
