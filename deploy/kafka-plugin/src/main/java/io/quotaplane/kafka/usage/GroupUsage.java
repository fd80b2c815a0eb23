package io.quotaplane.kafka.usage;

import io.quotaplane.kafka.limits.QuotaKind;

/**
 * What a group used in an interval, by kind and per second.
 *
 * @param used in the unit of the kind's dimension
 * @param throttled what clients would have used on top of it without the limit
 */
public record GroupUsage(double[] used, double[] throttled) {
    /** Nothing. */
    public static final GroupUsage NONE =
            new GroupUsage(new double[QuotaKind.COUNT], new double[QuotaKind.COUNT]);
}
