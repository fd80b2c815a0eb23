package io.quotaplane.kafka.wire;

/**
 * A decoded {@code LimitsUpdate}: one broker's limits for n groups. Terms of throttling are checked
 * and left out, as Kafka's quotas have their own.
 *
 * @param epoch of the job that sent it; with seq its version
 * @param issuedAtMs epoch milliseconds
 * @param brokerStartedAtMs start of the broker process that it is for, in epoch milliseconds; 0:
 *     any
 * @param groupIds (n); {@code GroupIds.NO_ID} for a name that can't be one of a group
 * @param limits (dimensions, n) per second, infinity is unlimited; null for a dimension in which
 *     all groups are
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
    /**
     * Decode one message.
     *
     * @param keys one of them must have signed it; null: a signature is not looked at
     * @throws RefusedMessageException it is no such message, a value is invalid, or the signature
     *     is missing or wrong
     */
    public static LimitsMessage decode(byte[] value, SigningKeys keys)
            throws RefusedMessageException {
        return new LimitsDecoder().decode(value, keys);
    }

    /** The limit of the group at an index, per second. */
    public double limit(int index, Dimension dimension) {
        return of(limits, index, dimension);
    }

    /** The safe limit of the group at an index, per second; only if there are safe limits. */
    public double safeLimit(int index, Dimension dimension) {
        return of(safeLimits, index, dimension);
    }

    private static double of(double[][] columns, int index, Dimension dimension) {
        double[] column = columns[dimension.ordinal()];
        return column == null ? Double.POSITIVE_INFINITY : column[index];
    }

    /** Whether its lease is over, by a clock in epoch milliseconds. */
    public boolean isOver(long wallNowMs) {
        return issuedAtMs + leaseMs < wallNowMs;
    }

    /**
     * When it was issued, as it arrives now, on a clock that can't be set. Not later than now, so
     * no limit holds for longer than a lease after it arrived, however wrong the clocks are.
     */
    public long issuedOn(long wallNowMs, long steadyNowMs) {
        return steadyNowMs - Math.max(wallNowMs - issuedAtMs, 0);
    }
}
