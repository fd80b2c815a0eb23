package io.quotaplane.kafka.wire;

import java.util.Locale;

/**
 * What quotas limit, in the order of all arrays by dimension. Values are per second, in the unit
 * that the name ends with; {@code REQUEST_MS} is of request handler and network threads.
 *
 * <p>The numbers are those of the fields in schemas/quotaplane.proto.
 */
public enum Dimension {
    PUBLISH_MESSAGES(10, 14, 19, 10, 17),
    PUBLISH_BYTES(11, 15, 20, 11, 18),
    DISPATCH_MESSAGES(12, 16, 21, 12, 19),
    DISPATCH_BYTES(13, 17, 22, 13, 20),
    TOTAL_MESSAGES(23, 26, 29, 21, 24),
    TOTAL_BYTES(24, 27, 30, 22, 25),
    CONTROLLER_MUTATIONS(25, 28, 31, 23, 26),
    REQUEST_MS(38, 39, 40, 29, 30);

    /** Number of dimensions: the length of arrays by {@code ordinal}. */
    public static final int COUNT = values().length;

    final int reportUsage;
    final int reportThrottled;
    final int reportLimit;
    final int limitsLimit;
    final int limitsSafe;

    Dimension(
            int reportUsage,
            int reportThrottled,
            int reportLimit,
            int limitsLimit,
            int limitsSafe) {
        this.reportUsage = reportUsage;
        this.reportThrottled = reportThrottled;
        this.reportLimit = reportLimit;
        this.limitsLimit = limitsLimit;
        this.limitsSafe = limitsSafe;
    }

    /** The dimension's name in settings, tables and messages, such as {@code publish_bytes}. */
    public String label() {
        return name().toLowerCase(Locale.ROOT);
    }
}
