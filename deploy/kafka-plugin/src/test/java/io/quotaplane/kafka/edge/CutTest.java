package io.quotaplane.kafka.edge;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.quotaplane.kafka.limits.Bounds;
import io.quotaplane.kafka.limits.LimitsInForce;
import io.quotaplane.kafka.limits.QuotaKind;
import io.quotaplane.kafka.limits.ReceivedLimits;
import io.quotaplane.kafka.wire.Dimension;
import io.quotaplane.kafka.wire.GroupIds;
import io.quotaplane.kafka.wire.LimitsMessage;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.TimeUnit;
import org.apache.kafka.common.metrics.KafkaMetric;
import org.apache.kafka.common.metrics.MetricConfig;
import org.apache.kafka.common.metrics.Metrics;
import org.apache.kafka.common.metrics.Quota;
import org.apache.kafka.common.metrics.QuotaViolationException;
import org.apache.kafka.common.metrics.Sensor;
import org.apache.kafka.common.metrics.stats.Rate;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

/**
 * A client that sends all it may, beside Kafka's own rate and quota: muted as Kafka's brokers mute,
 * while a limit is cut to a quarter.
 */
class CutTest {
    private static final int REQUEST_BYTES = 20_000;
    private static final double BEFORE = 4e6;
    private static final double AFTER = 1e6;
    private static final long TICK_MS = 200;

    private final FakeTime time = new FakeTime();
    private final Metrics metrics = new Metrics(new MetricConfig(), List.of(), time);
    private final ReceivedLimits received =
            new ReceivedLimits("b1", 1, Double.POSITIVE_INFINITY, Double.POSITIVE_INFINITY);
    private KafkaRates rates;
    private LimitsInForce limits;
    private Sensor sensor;
    private KafkaMetric metric;
    private int samples;
    private long seq;
    private long mutedUntilMs;
    private long longestMs;

    private void begin(int windows) {
        samples = windows;
        rates = new KafkaRates(windows + 1, time::milliseconds);
        limits = new LimitsInForce(received, new Bounds(false, 10_000, 5, windows + 1, -1, 0));
        limit(BEFORE);
        limits.tick(Set.of("g"), time.nowMs, Set.of(), rates);
        sensor = metrics.sensor("Produce-g");
        var name = metrics.metricName("byte-rate", "Produce", "", Map.of("group", "g"));
        sensor.add(name, new Rate(), config(BEFORE));
        metric = metrics.metric(name);
        rates.add(metric);
    }

    private MetricConfig config(double bytesPerS) {
        return new MetricConfig()
                .timeWindow(1, TimeUnit.SECONDS)
                .samples(samples)
                .quota(new Quota(bytesPerS, true));
    }

    private void limit(double publishBytes) {
        double[][] limit = new double[Dimension.COUNT][];
        limit[Dimension.PUBLISH_BYTES.ordinal()] = new double[] {publishBytes};
        long[] ids = {GroupIds.idOf("g")};
        received.apply(
                new LimitsMessage(
                        "b1", 0, 1, ++seq, time.nowMs, 600_000, 0, ids, limit, null, new long[0]),
                time.nowMs,
                time.nowMs);
    }

    /** Bytes per second that the client sends, which could send one request in each time. */
    private double run(double seconds, long everyMs) {
        long sent = 0;
        long beganMs = time.nowMs;
        longestMs = 0;
        while (time.nowMs < beganMs + 1000 * seconds) {
            time.nowMs++;
            if (time.nowMs % TICK_MS == 0) {
                limits.tick(Set.of("g"), time.nowMs, rates.tags(), rates);
                metric.config(config(limits.limit("g", QuotaKind.PRODUCE)));
            }
            if (time.nowMs >= mutedUntilMs && time.nowMs % everyMs == 0) {
                sent += REQUEST_BYTES;
                request();
            }
        }
        return sent / seconds;
    }

    private void request() {
        try {
            sensor.record(REQUEST_BYTES, time.nowMs, true);
        } catch (QuotaViolationException error) {
            long windowMs = ((Rate) metric.measurable()).windowSize(metric.config(), time.nowMs);
            long muteMs = Math.round((error.value() - error.bound()) / error.bound() * windowMs);
            mutedUntilMs = time.nowMs + muteMs;
            longestMs = Math.max(longestMs, muteMs);
        }
    }

    /** At 20 MB/s the client fills the window in a burst, and waits for the next one. */
    @ParameterizedTest
    @ValueSource(ints = {1, 2, 4, 11})
    void aGreedyClientIsAtTheNewLimitAtOnce(int windows) {
        for (int phase = 0; phase < 12; phase++) {
            metrics.removeSensor("Produce-g");
            mutedUntilMs = 0;
            begin(windows);
            run(3 * windows + phase, 1);
            limit(AFTER);
            double first = run(windows + 1, 1);
            String what = "phase " + phase + ": " + first + ", mute for " + longestMs + " ms";
            // Some of a burst is still to come with the shortest window.
            assertTrue(first > 0.9 * AFTER && first < 1.7 * AFTER && longestMs < 3500, what);
            assertEquals(AFTER, run(2 * windows, 1), 0.15 * AFTER);
        }
    }

    @ParameterizedTest
    @ValueSource(ints = {1, 2, 4, 11})
    void aSteadyClientIsAtTheNewLimitAtOnce(int windows) {
        begin(windows);
        assertEquals(BEFORE, run(3 * windows, 5), 0.01 * BEFORE);
        limit(AFTER);
        assertEquals(AFTER, run(windows + 1, 5), 0.35 * AFTER);
        assertTrue(longestMs < 500, longestMs + " ms");
    }
}
