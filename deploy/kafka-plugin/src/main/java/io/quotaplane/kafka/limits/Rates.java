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

    /** The rate that Kafka compares with the group's limit; null if it does not. */
    Limited limited(String tag, QuotaKind kind);

    /** Controller mutations that the group may make before it must wait; NaN: not limited. */
    double tokens(String tag);

    /** A mean over a window that Kafka compares with a limit. */
    interface Limited {
        /** The mean now, per second. */
        double rate();

        /** Length of the window now, in seconds. */
        double windowS();

        /**
         * What requests that Kafka delayed just now would have added to the mean, as the time in
         * seconds in which the limit allows it; 0 if none were, or if the mean has it.
         */
        double takenBackS();

        /** What is in the window now. */
        Kept keep();
    }

    /** What was in a window at some time. */
    interface Kept {
        /** How much of it still is. */
        double left();
    }
}
