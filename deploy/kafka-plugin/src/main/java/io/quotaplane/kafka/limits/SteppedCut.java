package io.quotaplane.kafka.limits;

/**
 * How far a limit may be cut at once. Kafka compares a limit with the mean rate over a window; a
 * client above it is muted until the mean has fallen to the limit: for (observed - limit) / limit
 * times the window. So a limit of at least observed * window / (window + mute) mutes for no longer
 * than mute.
 */
public final class SteppedCut {
    private SteppedCut() {}

    /**
     * The limit to put in force now, on the way from a limit to a lower one.
     *
     * @param inForce now
     * @param target not above it
     * @param observed rate now, over the window; NaN: not known, so the cut is not stepped
     * @param windowS length of the window in seconds
     * @param longestMuteS for which clients may be muted, in seconds
     */
    public static double next(
            double inForce, double target, double observed, double windowS, double longestMuteS) {
        double least = observed * windowS / (windowS + longestMuteS);
        return Double.isNaN(least) ? target : Math.min(inForce, Math.max(target, least));
    }
}
