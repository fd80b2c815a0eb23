package io.quotaplane.kafka.limits;

import io.quotaplane.kafka.wire.Dimension;
import java.util.List;

/** Kafka's types of client quotas, in the order of all arrays by kind, and our dimension of each. */
public enum QuotaKind {
    PRODUCE(Dimension.PUBLISH_BYTES, "Produce", "byte-rate", 1.0),
    FETCH(Dimension.DISPATCH_BYTES, "Fetch", "byte-rate", 1.0),
    /** Kafka counts percent of one thread's time: 1 percent is 10 ms per second. */
    REQUEST(Dimension.REQUEST_MS, "Request", "request-time", 10.0),
    CONTROLLER_MUTATION(
            Dimension.CONTROLLER_MUTATIONS, "ControllerMutation", "mutation-rate", 1.0);

    /** All kinds. */
    public static final List<QuotaKind> ALL = List.of(values());

    /** Number of kinds. */
    public static final int COUNT = ALL.size();

    /** What it limits. */
    public final Dimension dimension;

    /** The group of the broker's metrics, which is also the name of Kafka's quota type. */
    public final String metricGroup;

    /** The metric with the rate that is used. */
    public final String rateMetric;

    private final double perKafkaUnit;

    QuotaKind(Dimension dimension, String metricGroup, String rateMetric, double perKafkaUnit) {
        this.dimension = dimension;
        this.metricGroup = metricGroup;
        this.rateMetric = rateMetric;
        this.perKafkaUnit = perKafkaUnit;
    }

    /** A rate in Kafka's unit, from one in the dimension's unit. */
    public double toKafka(double perSecond) {
        return perSecond / perKafkaUnit;
    }

    /** A rate in the dimension's unit, from one in Kafka's unit. */
    public double fromKafka(double rate) {
        return rate * perKafkaUnit;
    }

    /** Whether its limit is a windowed rate of bytes, which may mute a client for any time. */
    public boolean isBytes() {
        return this == PRODUCE || this == FETCH;
    }
}
