package io.quotaplane.kafka.edge;

import java.lang.reflect.Field;
import java.util.Arrays;
import java.util.List;
import org.apache.kafka.common.metrics.KafkaMetric;
import org.apache.kafka.common.metrics.stats.Rate;
import org.apache.kafka.common.metrics.stats.SampledStat;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * What was recorded for one of Kafka's rates, exactly. Kafka shows only means over a window whose
 * length varies, and the mean of these means is up to a half too high for traffic in bursts. But a
 * rate keeps what was recorded in samples, each for longer than the time between two looks here.
 *
 * <p>The samples are no part of Kafka's interface, though they are the same from 3.9 to 4.4. Where
 * they can't be seen, rates times seconds count. Not for several threads at once.
 */
final class RecordedAmounts {
    private static final Logger LOG = LoggerFactory.getLogger("io.quotaplane.kafka");
    private static final Field LOCK = field(KafkaMetric.class, "lock");
    private static final Field STAT = field(Rate.class, "stat");
    private static final Field SAMPLES = field(SampledStat.class, "samples");
    private static final Field START = field("startTimeMs");
    private static final Field VALUE = field("value");

    private final KafkaMetric metric;

    /** Starts and values of the samples when they were last looked at. */
    private long[] starts = new long[0];

    private double[] values = new double[0];
    private long lastMs;

    RecordedAmounts(KafkaMetric metric, long nowMs) {
        this.metric = metric;
        this.lastMs = nowMs;
    }

    private static Field field(Class<?> owner, String name) {
        try {
            Field field = owner.getDeclaredField(name);
            field.setAccessible(true);
            return field;
        } catch (ReflectiveOperationException | RuntimeException error) {
            LOG.warn("quotaplane reports usage less exactly with this version of Kafka: {}", error.toString());
            return null;
        }
    }

    private static Field field(String name) {
        for (Class<?> inner : SampledStat.class.getDeclaredClasses()) {
            if (inner.getSimpleName().equals("Sample")) {
                return field(inner, name);
            }
        }
        return null;
    }

    /** The amount that was recorded since the last call, in Kafka's unit. */
    double more(long nowMs) {
        double elapsedS = (nowMs - lastMs) / 1000.0;
        lastMs = nowMs;
        if (VALUE != null && START != null && metric.measurable() instanceof Rate rate) {
            try {
                // The lock under which Kafka records.
                synchronized (LOCK.get(metric)) {
                    return moreInSamples((List<?>) SAMPLES.get(STAT.get(rate)));
                }
            } catch (IllegalAccessException error) {
                throw new IllegalStateException(error);
            }
        }
        return KafkaRates.value(metric) * elapsedS;
    }

    private double moreInSamples(List<?> samples) throws IllegalAccessException {
        if (samples.size() > starts.length) {
            starts = Arrays.copyOf(starts, samples.size());
            values = Arrays.copyOf(values, samples.size());
        }
        double more = 0;
        for (int at = 0; at < samples.size(); at++) {
            Object sample = samples.get(at);
            long start = START.getLong(sample);
            double value = VALUE.getDouble(sample);
            // Kafka uses a sample again for another time: then all that is in it is new.
            more += start == starts[at] ? value - values[at] : value;
            starts[at] = start;
            values[at] = value;
        }
        return more;
    }
}
