package io.quotaplane.kafka.limits;

import java.util.Set;

/**
 * What the broker measures of groups, by the tag of the group, in the unit of the kind's dimension.
 */
public interface Rates {
    /** Groups that anything was measured of; may be read while it changes. */
    Set<String> tags();

    /** What all clients of a group together used since the broker's start; it may only grow. */
    double amount(String tag, QuotaKind kind);

    /** Rate per second that Kafka compares with the group's limit; NaN if it does not. */
    double limited(String tag, QuotaKind kind);

    /** Time in seconds over which Kafka takes the mean for {@code limited} now. */
    double windowS(String tag, QuotaKind kind);

    /** Controller mutations that the group may make before it must wait; NaN: not limited. */
    double tokens(String tag);
}
