import java.io.BufferedInputStream;
import java.io.BufferedOutputStream;
import java.io.DataInputStream;
import java.io.DataOutputStream;
import java.io.EOFException;
import java.io.IOException;
import java.util.Map;
import java.util.concurrent.TimeUnit;
import org.apache.kafka.common.metrics.MeasurableStat;
import org.apache.kafka.common.metrics.MetricConfig;
import org.apache.kafka.common.metrics.Metrics;
import org.apache.kafka.common.metrics.Quota;
import org.apache.kafka.common.metrics.QuotaViolationException;
import org.apache.kafka.common.metrics.Sensor;
import org.apache.kafka.common.metrics.stats.Rate;
import org.apache.kafka.common.metrics.stats.TokenBucket;

/**
 * Lets Kafka's own classes answer requests: batches on stdin, answers on stdout, until stdin ends.
 *
 * <p>A batch, big-endian: int stat (0 TokenBucket, 1 Rate), int sensor (1: within a Sensor, as in a
 * broker; 0: the class alone), int passes, int e, int n; e times double quota, int samples, long
 * windowMs, byte hard; n times int entity, long timeMs, double units.
 *
 * <p>Its answer: for each pass double seconds, how long the n requests took new entities; then n
 * times byte admitted, long throttleMs, double value (tokens or rate), long windowMs (0: none),
 * from one more pass that nobody times.
 */
public final class KafkaThrottle {
    private static final long KEPT = -1;

    /** What a request meets: KEPT, or the throttle time in milliseconds. */
    private interface Entity {
        long ask(double units, long timeMs);
    }

    private record Alone(MeasurableStat stat, MetricConfig config, boolean hard) implements Entity {
        @Override
        public long ask(double units, long timeMs) {
            if (!hard) {
                stat.record(config, units, timeMs);
            }
            double value = stat.measure(config, timeMs);
            double bound = config.quota().bound();
            if (stat instanceof TokenBucket ? value < 0 : value > bound) {
                return throttleMs(stat, config, value, bound, timeMs);
            }
            if (hard) {
                stat.record(config, units, timeMs);
            }
            return KEPT;
        }
    }

    private record Sensed(Sensor sensor, MeasurableStat stat, MetricConfig config, boolean hard)
            implements Entity {
        @Override
        public long ask(double units, long timeMs) {
            try {
                if (hard) {
                    synchronized (sensor) {
                        sensor.checkQuotas(timeMs);
                        sensor.record(units, timeMs, false);
                    }
                } else {
                    sensor.record(units, timeMs, true);
                }
                return KEPT;
            } catch (QuotaViolationException e) {
                return throttleMs(stat, config, e.value(), e.bound(), timeMs);
            }
        }
    }

    /** The formulas of Kafka's quota managers, which are in jars of its server. */
    private static long throttleMs(
            MeasurableStat stat, MetricConfig config, double value, double bound, long timeMs) {
        if (stat instanceof Rate rate) {
            return Math.round((value - bound) / bound * rate.windowSize(config, timeMs));
        }
        return Math.round(-value / bound * 1000);
    }

    private final MeasurableStat[] stats;
    private final MetricConfig[] configs;
    private final Entity[] entities;
    private final Metrics metrics = new Metrics();

    private KafkaThrottle(boolean rate, boolean inSensor, MetricConfig[] configs, boolean[] hard) {
        this.configs = configs;
        stats = new MeasurableStat[configs.length];
        entities = new Entity[configs.length];
        for (int i = 0; i < configs.length; i++) {
            stats[i] = rate ? new Rate() : new TokenBucket();
            if (inSensor) {
                String name = Integer.toString(i);
                Sensor sensor = metrics.sensor(name);
                sensor.add(
                        metrics.metricName("measured", "test", Map.of("entity", name)),
                        stats[i],
                        configs[i]);
                entities[i] = new Sensed(sensor, stats[i], configs[i], hard[i]);
            } else {
                entities[i] = new Alone(stats[i], configs[i], hard[i]);
            }
        }
    }

    public static void main(String[] args) throws IOException {
        var in = new DataInputStream(new BufferedInputStream(System.in, 1 << 20));
        var out = new DataOutputStream(new BufferedOutputStream(System.out, 1 << 20));
        while (true) {
            int stat;
            try {
                stat = in.readInt();
            } catch (EOFException over) {
                break;
            }
            answer(stat == 1, in, out);
        }
        out.flush();
    }

    private static void answer(boolean rate, DataInputStream in, DataOutputStream out)
            throws IOException {
        boolean inSensor = in.readInt() == 1;
        int passes = in.readInt();
        var configs = new MetricConfig[in.readInt()];
        var hard = new boolean[configs.length];
        int n = in.readInt();
        for (int i = 0; i < configs.length; i++) {
            configs[i] =
                    new MetricConfig()
                            .quota(Quota.upperBound(in.readDouble()))
                            .samples(in.readInt())
                            .timeWindow(in.readLong(), TimeUnit.MILLISECONDS);
            hard[i] = in.readByte() == 1;
        }
        var entity = new int[n];
        var timeMs = new long[n];
        var units = new double[n];
        for (int i = 0; i < n; i++) {
            entity[i] = in.readInt();
            timeMs[i] = in.readLong();
            units[i] = in.readDouble();
        }
        var said = new long[n];
        for (int pass = 0; pass < passes; pass++) {
            var fresh = new KafkaThrottle(rate, inSensor, configs, hard);
            long begun = System.nanoTime();
            for (int i = 0; i < n; i++) {
                said[i] = fresh.entities[entity[i]].ask(units[i], timeMs[i]);
            }
            out.writeDouble((System.nanoTime() - begun) / 1e9);
            fresh.metrics.close();
        }
        var fresh = new KafkaThrottle(rate, inSensor, configs, hard);
        for (int i = 0; i < n; i++) {
            int one = entity[i];
            long throttleMs = fresh.entities[one].ask(units[i], timeMs[i]);
            if (passes > 0 && throttleMs != said[i]) {
                throw new IllegalStateException("request " + i + " was answered otherwise before");
            }
            MeasurableStat stat = fresh.stats[one];
            out.writeByte(throttleMs == KEPT || !hard[one] ? 1 : 0);
            out.writeLong(Math.max(throttleMs, 0));
            out.writeDouble(stat.measure(configs[one], timeMs[i]));
            out.writeLong(stat instanceof Rate r ? r.windowSize(configs[one], timeMs[i]) : 0);
        }
        fresh.metrics.close();
    }
}
