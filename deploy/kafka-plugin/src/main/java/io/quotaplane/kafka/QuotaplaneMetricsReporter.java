package io.quotaplane.kafka;

import io.quotaplane.kafka.edge.KafkaRates;
import io.quotaplane.kafka.edge.Plugin;
import io.quotaplane.kafka.settings.PluginSettings;
import java.util.List;
import java.util.Map;
import org.apache.kafka.common.metrics.KafkaMetric;
import org.apache.kafka.common.metrics.MetricsReporter;

/**
 * Shows the broker's metrics of groups to the plugin, in {@code metric.reporters}: without it there
 * are no reports, and lower limits come into force at once.
 */
public final class QuotaplaneMetricsReporter implements MetricsReporter {
    private Plugin plugin;
    private KafkaRates rates;

    /** Made by the broker. */
    public QuotaplaneMetricsReporter() {}

    @Override
    public void configure(Map<String, ?> configs) {
        plugin = Plugin.acquire(PluginSettings.of(configs));
        rates = plugin.rates();
    }

    @Override
    public void init(List<KafkaMetric> metrics) {
        metrics.forEach(rates::add);
    }

    @Override
    public void metricChange(KafkaMetric metric) {
        rates.add(metric);
    }

    @Override
    public void metricRemoval(KafkaMetric metric) {
        rates.remove(metric);
    }

    @Override
    public void close() {
        if (plugin != null) {
            plugin.release();
        }
    }
}
