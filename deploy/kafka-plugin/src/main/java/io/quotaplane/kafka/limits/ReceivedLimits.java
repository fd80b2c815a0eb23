package io.quotaplane.kafka.limits;

import io.quotaplane.kafka.wire.Dimension;
import io.quotaplane.kafka.wire.LimitsMessage;
import java.util.Set;

/**
 * One broker's limits: the newest of each group; late and repeated messages change nothing. Not for
 * several threads at once.
 */
public final class ReceivedLimits {
    /** A version of limits. */
    public record Version(long epoch, long seq) {}

    /**
     * Begin without any message.
     *
     * @param unset limit per second of a group that no message listed, or that one removed
     * @param unsetSafe safe limit before any message had one
     */
    public ReceivedLimits(String broker, long startedAtMs, double unset, double unsetSafe) {}

    /**
     * Apply a message to those groups for which it is newer than the last one applied; returns how
     * many limits changed. A message for another broker or incarnation changes nothing.
     *
     * @param wallNowMs epoch milliseconds, which show how old the message is
     * @param steadyNowMs milliseconds of a clock that can't be set, as in all calls
     */
    public int apply(LimitsMessage message, long wallNowMs, long steadyNowMs) {
        throw new UnsupportedOperationException();
    }

    /** A group's limit in force per second: infinity is unlimited. */
    public double limit(long groupId, Dimension dimension, long steadyNowMs) {
        throw new UnsupportedOperationException();
    }

    /** Whether any message listed or removed the group. */
    public boolean isKnown(long groupId) {
        throw new UnsupportedOperationException();
    }

    /** Whether the group's lease is over, so that its safe limit holds. */
    public boolean isOver(long groupId, long steadyNowMs) {
        throw new UnsupportedOperationException();
    }

    /**
     * When the group's lease ends, on the steady clock; the greatest long if no message listed the
     * group, or the last one removed it.
     */
    public long leaseEndMs(long groupId) {
        throw new UnsupportedOperationException();
    }

    /** The newest version of all groups; null without any limit. */
    public Version acknowledged() {
        throw new UnsupportedOperationException();
    }

    /** The seq of the group's limit, if its epoch is that of {@code acknowledged}; else -1. */
    public long acknowledgedSeq(long groupId) {
        throw new UnsupportedOperationException();
    }

    /** Forget groups whose leases ended before a time of the steady clock, except the kept ones. */
    public void forget(long endedBeforeMs, Set<Long> keptIds) {
        throw new UnsupportedOperationException();
    }
}
