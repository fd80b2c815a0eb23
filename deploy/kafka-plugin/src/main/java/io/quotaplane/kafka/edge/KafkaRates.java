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
import java.util.function.LongSupplier;
import java.util.stream.Collectors;
import org.apache.kafka.common.MetricName;
import org.apache.kafka.common.metrics.KafkaMetric;
import org.apache.kafka.common.metrics.stats.Rate;

/**
 * The broker's own metrics of groups: Kafka keeps one for each bucket while it is in use, and for an
 * hour after that. One thread looks; any may do the rest.
 */
public final class KafkaRates implements Rates {
    private static final String TOKENS = "tokens";

    /** Mean time in milliseconds for which Kafka delayed requests, over up to a minute. */
    private static final String DELAYS = "throttle-time";
    private static final Map<String, QuotaKind> KINDS =
            QuotaKind.ALL.stream().collect(Collectors.toMap(kind -> kind.metricGroup, kind -> kind));

    private static final long LOOK_EVERY_MS = 1000;

    private final Map<String, Group> byTag = new ConcurrentHashMap<>();
    private final double nominalWindowS;
    private final LongSupplier clockMs;
    private long lookedMs = Long.MIN_VALUE / 2;

    private final class Group {
        /** What is recorded in all buckets of the group's clients, by kind. */
        final List<Map<KafkaMetric, RecordedAmounts>> buckets =
                QuotaKind.ALL.stream().map(KafkaRates::none).toList();

        /** The bucket that the limit is for, by kind. */
        final Map<QuotaKind, Bucket> limited = new ConcurrentHashMap<>();

        /** Written by the thread that looks. */
        final double[] amounts = new double[QuotaKind.COUNT];

        volatile KafkaMetric tokens;

        /** Delays of fetches. */
        volatile KafkaMetric delays;

        private volatile RecordedAmounts delayed;

        /** Whether fetches were delayed between the last two looks. */
        volatile boolean isDelayed;

        void add(QuotaKind kind, KafkaMetric metric) {
            boolean isShared = !metric.metricName().tags().containsKey(BuiltInQuotas.USER_TAG);
            if (metric.metricName().name().equals(DELAYS)) {
                if (isShared) {
                    delayed = new RecordedAmounts(metric, TopicThread.steadyMs());
                    delays = metric;
                }
            } else if (!metric.metricName().name().equals(TOKENS)) {
                var amounts = new RecordedAmounts(metric, TopicThread.steadyMs());
                buckets.get(kind.ordinal()).putIfAbsent(metric, amounts);
                if (isShared) {
                    limited.put(kind, new Bucket(kind, metric, amounts, this));
                }
            } else if (isShared) {
                tokens = metric;
            }
        }

        void lookAtDelays(long nowMs) {
            isDelayed = delays != null && delayed.more(nowMs) > 0;
        }

        /** Returns whether nothing is left. */
        boolean remove(QuotaKind kind, KafkaMetric metric) {
            buckets.get(kind.ordinal()).remove(metric);
            limited.computeIfPresent(kind, (any, it) -> it.metric == metric ? null : it);
            tokens = tokens == metric ? null : tokens;
            delays = delays == metric ? null : delays;
            return tokens == null && delays == null && buckets.stream().allMatch(Map::isEmpty);
        }
    }

    private static Map<KafkaMetric, RecordedAmounts> none(QuotaKind kind) {
        return new ConcurrentHashMap<>();
    }

    /**
     * @param nominalWindowS of the broker's rates, in seconds
     * @param clockMs the clock of the broker's metrics
     */
    KafkaRates(double nominalWindowS, LongSupplier clockMs) {
        this.nominalWindowS = nominalWindowS;
        this.clockMs = clockMs;
    }

    /** The broker has this metric from now on. */
    public void add(KafkaMetric metric) {
        QuotaKind kind = kindOf(metric.metricName());
        if (kind != null) {
            // One at a time with remove, which drops groups without metrics.
            byTag.compute(
                    metric.metricName().tags().get(ClientTags.GROUP_TAG),
                    (tag, known) -> {
                        Group group = known == null ? new Group() : known;
                        group.add(kind, metric);
                        return group;
                    });
        }
    }

    /** The broker dropped this metric. */
    public void remove(KafkaMetric metric) {
        QuotaKind kind = kindOf(metric.metricName());
        if (kind != null) {
            byTag.computeIfPresent(
                    metric.metricName().tags().get(ClientTags.GROUP_TAG),
                    (tag, group) -> group.remove(kind, metric) ? null : group);
        }
    }

    /** The kind of a metric of a group; null: it is none that is looked at. */
    private static QuotaKind kindOf(MetricName name) {
        QuotaKind kind = KINDS.get(name.group());
        if (kind == null || !name.tags().containsKey(ClientTags.GROUP_TAG)) {
            return null;
        }
        boolean isTokens = kind == QuotaKind.CONTROLLER_MUTATION && name.name().equals(TOKENS);
        boolean isDelays = kind == QuotaKind.FETCH && name.name().equals(DELAYS);
        return isTokens || isDelays || name.name().equals(kind.rateMetric) ? kind : null;
    }

    /** Look if it is time to: Kafka keeps what was recorded for a window. */
    void lookInTime(long nowMs) {
        if (nowMs - lookedMs >= Math.min(LOOK_EVERY_MS, 250 * nominalWindowS)) {
            look(nowMs);
        }
    }

    /** Count what was recorded since the last look. */
    void look(long nowMs) {
        lookedMs = nowMs;
        for (Group group : byTag.values()) {
            group.lookAtDelays(nowMs);
            for (QuotaKind kind : QuotaKind.ALL) {
                double more = 0;
                for (RecordedAmounts bucket : group.buckets.get(kind.ordinal()).values()) {
                    more += bucket.more(nowMs);
                }
                group.amounts[kind.ordinal()] += kind.fromKafka(more);
            }
        }
    }

    @Override
    public Set<String> tags() {
        return Collections.unmodifiableSet(byTag.keySet());
    }

    @Override
    public double amount(String tag, QuotaKind kind) {
        Group group = byTag.get(tag);
        return group == null ? 0 : group.amounts[kind.ordinal()];
    }

    @Override
    public Limited limited(String tag, QuotaKind kind) {
        Group group = byTag.get(tag);
        return group == null ? null : group.limited.get(kind);
    }

    private final class Bucket implements Limited {
        private final QuotaKind kind;
        private final KafkaMetric metric;
        private final RecordedAmounts amounts;
        private final Group group;

        Bucket(QuotaKind kind, KafkaMetric metric, RecordedAmounts amounts, Group group) {
            this.kind = kind;
            this.metric = metric;
            this.amounts = amounts;
            this.group = group;
        }

        @Override
        public double rate() {
            return kind.fromKafka(value(metric));
        }

        @Override
        public double windowS() {
            try {
                // Without the metric's lock, as Kafka's own QuotaUtils asks for it.
                return metric.measurable() instanceof Rate rate
                        ? rate.windowSize(metric.config(), clockMs.getAsLong()) / 1000.0
                        : nominalWindowS;
            } catch (ConcurrentModificationException firstSamplesOfTheRate) {
                return nominalWindowS;
            }
        }

        /** Kafka takes back what it recorded for a fetch that it delays. */
        @Override
        public double takenBackS() {
            KafkaMetric delays = group.delays;
            boolean isFetch = kind == QuotaKind.FETCH && group.isDelayed && delays != null;
            return isFetch ? value(delays) / 1000 : 0;
        }

        @Override
        public Kept keep() {
            Kept kept = amounts.keep();
            return () -> kind.fromKafka(kept.left());
        }
    }

    @Override
    public double tokens(String tag) {
        Group group = byTag.get(tag);
        KafkaMetric metric = group == null ? null : group.tokens;
        return metric == null ? Double.NaN : value(metric);
    }

    static double value(KafkaMetric metric) {
        return metric.metricValue() instanceof Double value && Double.isFinite(value) ? value : 0;
    }
}
