package io.quotaplane.kafka.edge;

import io.quotaplane.kafka.limits.Rates.Kept;
import java.lang.invoke.MethodHandles;
import java.lang.invoke.VarHandle;
import java.util.Arrays;
import java.util.List;
import java.util.Objects;
import java.util.stream.Stream;
import org.apache.kafka.common.metrics.KafkaMetric;
import org.apache.kafka.common.metrics.Measurable;
import org.apache.kafka.common.metrics.stats.Rate;
import org.apache.kafka.common.metrics.stats.SampledStat;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * What was recorded for one of Kafka's rates or means, exactly. Kafka shows only means over a window
 * whose length varies, and the mean of these means is up to a half too high for traffic in bursts.
 * But Kafka keeps what was recorded in samples, each for longer than the time between two looks here.
 *
 * <p>The samples are no part of Kafka's interface, though they are the same from 3.9 to 4.4. Where
 * they can't be seen, rates times seconds count, and cuts are larger. Not for several threads at once.
 */
final class RecordedAmounts {
    private static final Logger LOG = LoggerFactory.getLogger("io.quotaplane.kafka");
    private static final Class<?> SAMPLE = sample();
    private static final VarHandle LOCK = field(KafkaMetric.class, "lock", Object.class);
    private static final VarHandle STAT = field(Rate.class, "stat", SampledStat.class);
    private static final VarHandle SAMPLES = field(SampledStat.class, "samples", List.class);
    private static final VarHandle START = field(SAMPLE, "startTimeMs", long.class);
    private static final VarHandle VALUE = field(SAMPLE, "value", double.class);
    private static final boolean IS_EXACT =
            Stream.of(LOCK, STAT, SAMPLES, START, VALUE).allMatch(Objects::nonNull);

    private final KafkaMetric metric;

    /** Starts and values of the samples when they were last looked at. */
    private long[] starts = new long[0];

    private double[] values = new double[0];
    private long lastMs;

    RecordedAmounts(KafkaMetric metric, long nowMs) {
        this.metric = metric;
        this.lastMs = nowMs;
    }

    private static VarHandle field(Class<?> owner, String name, Class<?> type) {
        try {
            return MethodHandles.privateLookupIn(owner, MethodHandles.lookup())
                    .findVarHandle(owner, name, type);
        } catch (ReflectiveOperationException | RuntimeException error) {
            LOG.warn("quotaplane reports usage less exactly with this Kafka: {}", error.toString());
            return null;
        }
    }

    private static Class<?> sample() {
        return Stream.of(SampledStat.class.getDeclaredClasses())
                .filter(inner -> inner.getSimpleName().equals("Sample"))
                .findFirst()
                .orElse(Object.class);
    }

    /** The amount that was recorded since the last call, in Kafka's unit. */
    double more(long nowMs) {
        double elapsedS = (nowMs - lastMs) / 1000.0;
        lastMs = nowMs;
        if (!isExact()) {
            return KafkaRates.value(metric) * elapsedS;
        }
        // The lock under which Kafka records.
        synchronized (LOCK.get(metric)) {
            return moreInSamples(samples());
        }
    }

    private boolean isExact() {
        Measurable stat = metric.measurable();
        return IS_EXACT && (stat instanceof Rate || stat instanceof SampledStat);
    }

    private List<?> samples() {
        Measurable stat = metric.measurable();
        SampledStat sampled = (SampledStat) (stat instanceof Rate rate ? STAT.get(rate) : stat);
        return (List<?>) SAMPLES.get(sampled);
    }

    /** What is in the window now, in Kafka's unit. */
    Kept keep() {
        if (!isExact()) {
            return () -> 0;
        }
        synchronized (LOCK.get(metric)) {
            List<?> samples = samples();
            long[] keptStarts = samples.stream().mapToLong(it -> (long) START.get(it)).toArray();
            double[] kept = samples.stream().mapToDouble(it -> (double) VALUE.get(it)).toArray();
            return () -> left(keptStarts, kept);
        }
    }

    /** How much is left of samples with these starts and values. */
    private double left(long[] keptStarts, double[] kept) {
        double left = 0;
        synchronized (LOCK.get(metric)) {
            List<?> samples = samples();
            for (int at = 0; at < kept.length; at++) {
                left += (long) START.get(samples.get(at)) == keptStarts[at] ? kept[at] : 0;
            }
        }
        return left;
    }

    private double moreInSamples(List<?> samples) {
        if (samples.size() > starts.length) {
            starts = Arrays.copyOf(starts, samples.size());
            values = Arrays.copyOf(values, samples.size());
        }
        double more = 0;
        for (int at = 0; at < samples.size(); at++) {
            Object sample = samples.get(at);
            long start = (long) START.get(sample);
            double value = (double) VALUE.get(sample);
            // Kafka uses a sample again for another time: then all that is in it is new.
            more += start == starts[at] ? value - values[at] : value;
            starts[at] = start;
            values[at] = value;
        }
        return more;
    }
}
