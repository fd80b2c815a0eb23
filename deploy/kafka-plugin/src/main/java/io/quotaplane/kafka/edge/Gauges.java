package io.quotaplane.kafka.edge;

import io.quotaplane.kafka.limits.LimitsInForce;
import io.quotaplane.kafka.limits.QuotaKind;
import io.quotaplane.kafka.usage.GroupUsage;
import java.util.HashSet;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeSet;
import java.util.function.DoubleSupplier;
import org.apache.kafka.common.MetricName;
import org.apache.kafka.common.metrics.Gauge;
import org.apache.kafka.common.metrics.JmxReporter;
import org.apache.kafka.common.metrics.KafkaMetricsContext;
import org.apache.kafka.common.metrics.MetricConfig;
import org.apache.kafka.common.metrics.Metrics;
import org.apache.kafka.common.utils.Time;

/** The plugin's own metrics, in JMX as {@code kafka.server:type=quotaplane}. */
public final class Gauges {
    /** Groups with metrics of their own; a broker with more limited groups has them of the first. */
    static final int MOST_GROUPS = 1000;

    private static final String TYPE = "quotaplane";

    private final Plugin plugin;
    private final Metrics metrics;
    private Set<Bucket> followed = Set.of();

    private record Bucket(String tag, QuotaKind kind) {}

    /** A number that the plugin shows. */
    public record Shown(String name, String description, DoubleSupplier value) {}

    Gauges(Plugin plugin) {
        this.plugin = plugin;
        metrics =
                new Metrics(
                        new MetricConfig(),
                        List.of(new JmxReporter()),
                        Time.SYSTEM,
                        new KafkaMetricsContext("kafka.server"));
        for (Shown shown : shown()) {
            add(metrics.metricName(shown.name, TYPE, shown.description), shown.value);
        }
    }

    /** Those that are not of one group. */
    public List<Shown> shown() {
        return List.of(
                new Shown(
                        "groups-attached",
                        "Groups that clients are attached to",
                        () -> plugin.quotas().groups().size()),
                new Shown(
                        "groups-without-known-limits",
                        "Attached groups for which the fallback holds",
                        () -> plugin.quotas().limits().fallbacks()),
                new Shown(
                        "limits-age-seconds",
                        "Age of the newest limits; -1: there were none",
                        () -> seconds(plugin.quotas().limitsAgeMs(TopicThread.steadyMs()))),
                new Shown(
                        "limits-topic-age-seconds",
                        "Seconds since the limits topic could be read; -1: it never could",
                        () -> {
                            long readMs = plugin.topics().readMs();
                            return readMs < 0 ? -1 : seconds(TopicThread.steadyMs() - readMs);
                        }),
                new Shown(
                        "messages-refused",
                        "Limits and attachments that were refused",
                        plugin::refused),
                new Shown(
                        "limits-over-on-arrival",
                        "Limits whose lease was over when they came",
                        () -> plugin.quotas().overOnArrival()),
                new Shown("reports-sent", "Usage reports", () -> plugin.topics().sent()),
                new Shown(
                        "reports-failed",
                        "Usage reports that were not sent",
                        () -> plugin.topics().failed()));
    }

    private static double seconds(long millis) {
        return millis < 0 ? -1 : millis / 1000.0;
    }

    /** Show the groups that have a limit now, and no others. */
    void follow() {
        LimitsInForce limits = plugin.quotas().limits();
        Set<Bucket> now = new HashSet<>();
        int groups = 0;
        for (String tag : new TreeSet<>(limits.tags())) {
            int before = now.size();
            for (QuotaKind kind : QuotaKind.ALL) {
                if (!Double.isInfinite(limits.limit(tag, kind))) {
                    now.add(new Bucket(tag, kind));
                }
            }
            groups += now.size() > before ? 1 : 0;
            if (groups == MOST_GROUPS) {
                break;
            }
        }
        for (Bucket gone : followed) {
            if (!now.contains(gone)) {
                of(gone).keySet().forEach(metrics::removeMetric);
            }
        }
        for (Bucket fresh : now) {
            if (!followed.contains(fresh)) {
                of(fresh).forEach(this::add);
            }
        }
        followed = now;
    }

    private Map<MetricName, DoubleSupplier> of(Bucket of) {
        LimitsInForce limits = plugin.quotas().limits();
        return Map.of(
                name("limit", "Limit in force per second", of),
                () -> limits.limit(of.tag, of.kind),
                name("limit-target", "Limit per second that the one in force steps to", of),
                () -> limits.target(of.tag, of.kind),
                name("rate", "Use per second in the last report", of),
                () -> last(of).used()[of.kind.ordinal()],
                name("throttled-rate", "Use per second that the limit prevents", of),
                () -> last(of).throttled()[of.kind.ordinal()]);
    }

    private GroupUsage last(Bucket of) {
        return plugin.quotas().lastUsage().getOrDefault(of.tag, GroupUsage.NONE);
    }

    private MetricName name(String name, String description, Bucket of) {
        Map<String, String> tags = new LinkedHashMap<>();
        tags.put("group", of.tag);
        tags.put("quota", of.kind.metricGroup);
        return metrics.metricName(name, TYPE, description, tags);
    }

    private void add(MetricName name, DoubleSupplier value) {
        Gauge<Double> gauge = (config, now) -> value.getAsDouble();
        metrics.addMetric(name, gauge);
    }

    void close() {
        metrics.close();
    }
}
