package io.quotaplane.kafka.edge;

import static io.quotaplane.kafka.limits.QuotaKind.CONTROLLER_MUTATION;
import static io.quotaplane.kafka.limits.QuotaKind.FETCH;
import static io.quotaplane.kafka.limits.QuotaKind.PRODUCE;
import static io.quotaplane.kafka.limits.QuotaKind.REQUEST;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.util.List;
import java.util.Map;
import java.util.Random;
import java.util.Set;
import java.util.concurrent.TimeUnit;
import org.apache.kafka.common.MetricName;
import org.apache.kafka.common.metrics.KafkaMetric;
import org.apache.kafka.common.metrics.MetricConfig;
import org.apache.kafka.common.metrics.Metrics;
import org.apache.kafka.common.metrics.MetricsReporter;
import org.apache.kafka.common.metrics.Quota;
import org.apache.kafka.common.metrics.Sensor;
import org.apache.kafka.common.metrics.stats.Avg;
import org.apache.kafka.common.metrics.stats.Rate;
import org.apache.kafka.common.metrics.stats.TokenBucket;
import org.junit.jupiter.api.Test;

/** Beside Kafka's own metrics, made as its {@code ClientQuotaManager} makes them. */
class KafkaRatesTest {
    private final FakeTime time = new FakeTime();
    private final KafkaRates rates = new KafkaRates(2, time::milliseconds);
    private final Metrics metrics =
            new Metrics(new MetricConfig(), List.of(new Shower()), time);

    /** As the plugin's reporter. */
    private final class Shower implements MetricsReporter {
        @Override
        public void configure(Map<String, ?> configs) {}

        @Override
        public void init(List<KafkaMetric> all) {
            all.forEach(rates::add);
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
        public void close() {}
    }

    private static MetricConfig config(int samples, double quota) {
        return new MetricConfig()
                .timeWindow(1, TimeUnit.SECONDS)
                .samples(samples)
                .quota(new Quota(quota, true));
    }

    private Sensor sensor(String metric, String group, Map<String, String> tags, int samples) {
        Sensor sensor = metrics.sensor(group + String.join(":", tags.values()));
        MetricName name = metrics.metricName(metric, group, "", tags);
        sensor.add(name, new Rate(), config(samples, 1e15));
        return sensor;
    }

    private double looked() {
        rates.look(time.nowMs);
        return rates.amount("g", PRODUCE);
    }

    @Test
    void amountsAreExactHoweverTheyCome() {
        for (int samples : new int[] {1, 2, 11}) {
            Map<String, String> tags = Map.of("group", "g" + samples);
            Sensor sensor = sensor("byte-rate", "Produce", tags, samples);
            Random random = new Random(samples);
            double sum = 0;
            for (int look = 0; look < 500; look++) {
                int requests = random.nextInt(4) == 0 ? random.nextInt(20) : 0;
                for (int request = 0; request < requests; request++) {
                    int bytes = random.nextInt(10_000);
                    sensor.record(bytes, time.nowMs, true);
                    sum += bytes;
                    time.nowMs += random.nextInt(20);
                }
                time.nowMs += 150;
                rates.look(time.nowMs);
                assertEquals(sum, rates.amount("g" + samples, PRODUCE), 1e-3);
            }
        }
    }

    /** With ticks of 200 ms, and the next one half a second late at times. */
    @Test
    void looksAreOftenEnoughForAllWindows() {
        for (int samples : new int[] {1, 2, 11}) {
            Map<String, String> tags = Map.of("group", "g");
            KafkaRates own = new KafkaRates(samples + 1, time::milliseconds);
            MetricName name = metrics.metricName("byte-rate", "Produce", "", tags);
            Sensor sensor = metrics.sensor("s" + samples);
            sensor.add(name, new Rate(), config(samples, 1e15));
            own.add(metrics.metric(name));
            Random random = new Random(samples);
            double sum = 0;
            for (int tick = 0; tick < 2000; tick++) {
                if (random.nextInt(6) == 0) {
                    sensor.record(1, time.nowMs, true);
                    sum++;
                }
                time.nowMs += 200 + (random.nextInt(20) == 0 ? 290 : 0);
                metrics.metric(name).metricValue();
                own.lookInTime(time.nowMs);
            }
            own.look(time.nowMs);
            assertEquals(sum, own.amount("g", PRODUCE));
            metrics.removeSensor("s" + samples);
        }
    }

    @Test
    void whatKafkaTakesBackIsNotCounted() {
        Sensor sensor = sensor("byte-rate", "Produce", Map.of("group", "g"), 2);
        sensor.record(700, time.nowMs, false);
        assertEquals(700, looked());
        sensor.record(-700, time.nowMs, false);
        sensor.record(50, time.nowMs, false);
        assertEquals(50, looked());
    }

    @Test
    void aLongPauseBetweenRequestsLosesNothing() {
        Sensor sensor = sensor("byte-rate", "Produce", Map.of("group", "g"), 2);
        sensor.record(100, time.nowMs, true);
        assertEquals(100, looked());
        time.nowMs += 3_600_000;
        assertEquals(100, looked());
        sensor.record(100, time.nowMs, true);
        assertEquals(200, looked());
    }

    @Test
    void allBucketsOfAGroupCountAndOneIsLimited() {
        Map<String, String> ofClient = Map.of("group", "g", "user", "u", "client-id", "c");
        sensor("byte-rate", "Produce", Map.of("group", "g"), 2).record(300, time.nowMs, true);
        sensor("byte-rate", "Produce", ofClient, 2).record(40, time.nowMs, true);
        sensor("byte-rate", "Produce", Map.of("user", "u", "client-id", ""), 2)
                .record(5, time.nowMs, true);
        assertEquals(340, looked());
        // Nothing of a window has passed: Kafka takes the other sample's second as passed.
        time.nowMs += 500;
        assertEquals(200, rates.limited("g", PRODUCE).rate());
        assertEquals(Set.of("g"), rates.tags());
    }

    @Test
    void requestTimeIsInMilliseconds() {
        sensor("request-time", "Request", Map.of("group", "g"), 2).record(7, time.nowMs, true);
        rates.look(time.nowMs);
        assertEquals(70, rates.amount("g", REQUEST));
    }

    @Test
    void mutationsAndTokens() {
        Map<String, String> tags = Map.of("group", "g");
        Sensor sensor = metrics.sensor("m");
        sensor.add(metrics.metricName("mutation-rate", "ControllerMutation", "", tags), new Rate());
        sensor.add(
                metrics.metricName("tokens", "ControllerMutation", "", tags),
                new TokenBucket(),
                config(11, 2));
        sensor.record(25, time.nowMs, false);
        rates.look(time.nowMs);
        assertEquals(25, rates.amount("g", CONTROLLER_MUTATION));
        assertEquals(22 - 25, rates.tokens("g"));
        assertTrue(Double.isNaN(rates.tokens("other")));
    }

    @Test
    void delaysOfFetchesAreSeenWhileThereAreAny() {
        Map<String, String> tags = Map.of("group", "g");
        sensor("byte-rate", "Fetch", tags, 1).record(100, time.nowMs, true);
        Sensor delays = metrics.sensor("delays");
        delays.add(metrics.metricName("throttle-time", "Fetch", "", tags), new Avg());
        rates.look(time.nowMs);
        assertEquals(0, rates.limited("g", FETCH).takenBackS());
        delays.record(300, time.nowMs, false);
        delays.record(100, time.nowMs, false);
        rates.look(time.nowMs);
        assertEquals(0.2, rates.limited("g", FETCH).takenBackS());
        time.nowMs += 500;
        rates.look(time.nowMs);
        assertEquals(0, rates.limited("g", FETCH).takenBackS());
        metrics.removeSensor("delays");
        metrics.removeSensor("Fetchg");
        assertEquals(Set.of(), rates.tags());
    }

    @Test
    void delaysOfOthersAreInTheirRates() {
        Map<String, String> tags = Map.of("group", "g");
        sensor("byte-rate", "Produce", tags, 1).record(100, time.nowMs, true);
        Sensor delays = metrics.sensor("delays");
        delays.add(metrics.metricName("throttle-time", "Produce", "", tags), new Avg());
        delays.record(300, time.nowMs, false);
        rates.look(time.nowMs);
        assertEquals(0, rates.limited("g", PRODUCE).takenBackS());
    }

    @Test
    void whatIsKeptGoesSampleBySample() {
        Sensor sensor = sensor("byte-rate", "Produce", Map.of("group", "g"), 2);
        sensor.record(100, time.nowMs, true);
        time.nowMs += 1100;
        sensor.record(30, time.nowMs, true);
        var kept = rates.limited("g", PRODUCE).keep();
        time.nowMs += 500;
        sensor.record(7, time.nowMs, true);
        assertEquals(130, kept.left());
        // Kafka drops a sample once it is two seconds since its last record.
        time.nowMs += 500;
        rates.limited("g", PRODUCE).rate();
        assertEquals(30, kept.left());
        time.nowMs += 1500;
        rates.limited("g", PRODUCE).rate();
        assertEquals(0, kept.left());
    }

    @Test
    void aDroppedMetricIsForgotten() {
        sensor("byte-rate", "Produce", Map.of("group", "g"), 2).record(300, time.nowMs, true);
        looked();
        metrics.removeSensor("Produceg");
        assertEquals(Set.of(), rates.tags());
        assertNull(rates.limited("g", PRODUCE));
    }
}
