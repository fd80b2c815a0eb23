package io.quotaplane.kafka.limits;

/**
 * What limits are held to.
 *
 * @param strict a group without a known limit may use the least only
 * @param leastBytesPerS no limit in bytes is lower
 * @param longestMuteS for which a cut may mute clients, in seconds
 * @param longestWindowS longest time in seconds over which Kafka takes the mean of a rate
 * @param safeValidityMs time after a lease end for which the safe limit holds; negative: for ever
 * @param wakingMs time from a group's first use on for which its safe limit may be used
 */
public record Bounds(
        boolean strict,
        double leastBytesPerS,
        double longestMuteS,
        double longestWindowS,
        long safeValidityMs,
        long wakingMs) {
    private static final double LEAST_REQUEST_MS_PER_S = 1.0;
    private static final double LEAST_MUTATIONS_PER_S = 0.01;

    /** The least limit per second: a limit of 0 would mute clients for ever. */
    public double least(QuotaKind kind) {
        return switch (kind) {
            case PRODUCE, FETCH -> leastBytesPerS;
            case REQUEST -> LEAST_REQUEST_MS_PER_S;
            case CONTROLLER_MUTATION -> LEAST_MUTATIONS_PER_S;
        };
    }
}
