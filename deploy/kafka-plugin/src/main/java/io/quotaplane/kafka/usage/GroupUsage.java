package io.quotaplane.kafka.usage;

/**
 * What a group used in an interval, by kind and per second.
 *
 * @param used in the unit of the kind's dimension
 * @param throttled what clients would have used on top of it without the limit
 */
public record GroupUsage(double[] used, double[] throttled) {}
