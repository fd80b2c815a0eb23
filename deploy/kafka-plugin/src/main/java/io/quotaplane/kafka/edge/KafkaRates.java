package io.quotaplane.kafka.edge;

import io.quotaplane.kafka.builtin.BuiltInQuotas;
import io.quotaplane.kafka.limits.QuotaKind;
import io.quotaplane.kafka.limits.Rates;
import io.quotaplane.kafka.tags.ClientTags;
import java.util.Collections;
import java.util.ConcurrentModificationException;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.stream.Collectors;
import org.apache.kafka.common.MetricName;
import org.apache.kafka.common.metrics.KafkaMetric;
import org.apache.kafka.common.metrics.stats.Rate;

/**
 * The broker's own metrics of groups: Kafka keeps one for each bucket while it is in use, and for an
 * hour after that. Any thread may call it.
 */
public final class KafkaRates implements Rates {
    private static final String TOKENS = "tokens";
    private static final Map<String, QuotaKind> KINDS =
            QuotaKind.ALL.stream().collect(Collectors.toMap(kind -> kind.metricGroup, kind -> kind));

    private final Map<String, Buckets> byTag = new ConcurrentHashMap<>();
    private final double nominalWindowS;

    private static final class Buckets {
        /** The rates of all buckets of the group's clients, by kind. */
        final List<Set<KafkaMetric>> used =
                QuotaKind.ALL.stream().map(Buckets::newSet).toList();

        /** The bucket that the limit is for, by kind. */
        final Map<QuotaKind, KafkaMetric> limited = new ConcurrentHashMap<>();

        volatile KafkaMetric tokens;

        private static Set<KafkaMetric> newSet(QuotaKind kind) {
            return ConcurrentHashMap.newKeySet();
        }

        boolean isEmpty() {
            return tokens == null && used.stream().allMatch(Set::isEmpty);
        }
    }

    /**
     * @param nominalWindowS of the broker's rates, in seconds
     */
    public KafkaRates(double nominalWindowS) {
        this.nominalWindowS = nominalWindowS;
    }

    /** The broker has this metric from now on. */
    public void add(KafkaMetric metric) {
        QuotaKind kind = kindOf(metric.metricName());
        if (kind != null) {
            // One at a time with remove, which drops groups without metrics.
            byTag.compute(
                    metric.metricName().tags().get(ClientTags.GROUP_TAG),
                    (tag, known) -> {
                        Buckets group = known == null ? new Buckets() : known;
                        put(group, kind, metric);
                        return group;
                    });
        }
    }

    private static void put(Buckets group, QuotaKind kind, KafkaMetric metric) {
        MetricName name = metric.metricName();
        boolean isShared = !name.tags().containsKey(BuiltInQuotas.USER_TAG);
        if (!name.name().equals(TOKENS)) {
            group.used.get(kind.ordinal()).add(metric);
            if (isShared) {
                group.limited.put(kind, metric);
            }
        } else if (isShared) {
            group.tokens = metric;
        }
    }

    /** The broker dropped this metric. */
    public void remove(KafkaMetric metric) {
        QuotaKind kind = kindOf(metric.metricName());
        if (kind != null) {
            byTag.computeIfPresent(
                    metric.metricName().tags().get(ClientTags.GROUP_TAG),
                    (tag, group) -> {
                        group.used.get(kind.ordinal()).remove(metric);
                        group.limited.remove(kind, metric);
                        group.tokens = group.tokens == metric ? null : group.tokens;
                        return group.isEmpty() ? null : group;
                    });
        }
    }

    /** The kind of a metric of a group; null: it is none that is looked at. */
    private static QuotaKind kindOf(MetricName name) {
        QuotaKind kind = KINDS.get(name.group());
        if (kind == null || !name.tags().containsKey(ClientTags.GROUP_TAG)) {
            return null;
        }
        boolean isTokens = kind == QuotaKind.CONTROLLER_MUTATION && name.name().equals(TOKENS);
        return isTokens || name.name().equals(kind.rateMetric) ? kind : null;
    }

    @Override
    public Set<String> tags() {
        return Collections.unmodifiableSet(byTag.keySet());
    }

    @Override
    public double used(String tag, QuotaKind kind) {
        Buckets group = byTag.get(tag);
        double sum = 0;
        if (group != null) {
            for (KafkaMetric metric : group.used.get(kind.ordinal())) {
                sum += kind.fromKafka(value(metric));
            }
        }
        return sum;
    }

    @Override
    public double limited(String tag, QuotaKind kind) {
        Buckets group = byTag.get(tag);
        KafkaMetric metric = group == null ? null : group.limited.get(kind);
        return metric == null ? Double.NaN : kind.fromKafka(value(metric));
    }

    @Override
    public double windowS(String tag, QuotaKind kind) {
        Buckets group = byTag.get(tag);
        KafkaMetric metric = group == null ? null : group.limited.get(kind);
        if (metric != null && metric.measurable() instanceof Rate rate) {
            try {
                // Without the metric's lock, as Kafka's own QuotaUtils asks for it.
                return rate.windowSize(metric.config(), System.currentTimeMillis()) / 1000.0;
            } catch (ConcurrentModificationException firstSamplesOfTheWindow) {
                return nominalWindowS;
            }
        }
        return nominalWindowS;
    }

    @Override
    public double tokens(String tag) {
        Buckets group = byTag.get(tag);
        KafkaMetric metric = group == null ? null : group.tokens;
        return metric == null ? Double.NaN : value(metric);
    }

    private static double value(KafkaMetric metric) {
        return metric.metricValue() instanceof Double value && Double.isFinite(value) ? value : 0;
    }
}
