package io.quotaplane.kafka.wire;

/**
 * A decoded {@code LimitsUpdate}: one broker's limits for n groups.
 *
 * @param epoch of the job that sent it; with seq its version
 * @param brokerStartedAtMs start of the broker process that it is for; 0: any
 * @param groupIds (n); {@code GroupIds.NO_ID} for a name that can't be one of a group
 * @param limits (dimensions, n) per second, infinity is unlimited; null for a dimension in which all
 *     groups are
 * @param safeLimits as limits, for the time after the lease end; null: unchanged
 * @param removedGroupIds groups that the broker no longer has limits for, as groupIds
 */
public record LimitsMessage(
        String broker,
        long shard,
        long epoch,
        long seq,
        long issuedAtMs,
        long leaseMs,
        long brokerStartedAtMs,
        long[] groupIds,
        double[][] limits,
        double[][] safeLimits,
        long[] removedGroupIds) {
    /** A longer message is refused unread. */
    public static final int MAX_BYTES = 2 * 1024 * 1024;

    /**
     * Decode one message.
     *
     * @param keys one of them must have signed it; null: a signature is not looked at
     * @throws RefusedMessageException it is no such message, or is not signed
     */
    public static LimitsMessage decode(byte[] value, SigningKeys keys)
            throws RefusedMessageException {
        throw new UnsupportedOperationException();
    }

    /** Whether its lease is over, by a clock in epoch milliseconds. */
    public boolean isOver(long wallNowMs) {
        return issuedAtMs + leaseMs < wallNowMs;
    }

    /**
     * When it was issued, as it arrives now, on a clock that can't be set; not later than now.
     */
    public long issuedOn(long wallNowMs, long steadyNowMs) {
        return steadyNowMs - Math.max(wallNowMs - issuedAtMs, 0);
    }
}
