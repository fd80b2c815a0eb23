package io.quotaplane.kafka.limits;

import io.quotaplane.kafka.limits.Rates.Kept;
import io.quotaplane.kafka.limits.Rates.Limited;

/**
 * A limit in bytes that is cut in small steps. Kafka compares a limit with the mean rate over a
 * window, and mutes a client above it until the mean has fallen to the limit: for (observed - limit)
 * / limit * window. A client that was at the old limit would be mute for three windows after a cut
 * to a quarter.
 *
 * <p>So while anything of the time before the cut is in the window, the limit is the mean of that
 * and of the new limit since then: a client can use the new limit from the cut on. Also, no step is
 * so large that it mutes for longer than allowed.
 */
final class SteppedLimit {
    private double inForce = Double.POSITIVE_INFINITY;
    private double target = Double.POSITIVE_INFINITY;

    /** What was in the window when the target fell; null: the target is in force. */
    private Kept kept;

    /** The amount that the target has allowed since then. */
    private double allowed;

    /** The limit that was in force then. */
    private double highest;

    /** None yet. */
    static SteppedLimit of(QuotaKind kind) {
        return new SteppedLimit();
    }

    /**
     * Step towards a target.
     *
     * @param to the target
     * @param bucket that the limit is for; null: there is none
     * @param elapsedS seconds since the last step
     */
    double step(double to, Limited bucket, double elapsedS, Bounds bounds) {
        // Without a limit before, Kafka's window begins empty.
        boolean isFirst = Double.isInfinite(inForce) || bucket == null;
        double observed = isFirst || to >= inForce ? 0 : bucket.rate();
        if (observed <= to) {
            kept = null;
            target = inForce = to;
            return to;
        }
        if (kept == null || to < target) {
            kept = bucket.keep();
            allowed = 0;
            highest = inForce;
        } else {
            allowed += to * elapsedS;
        }
        target = to;
        double left = kept.left();
        double mean = left > 0 ? (left + allowed) / bucket.windowS() : to;
        double longest = bounds.longestWindowS();
        double least = observed * longest / (longest + bounds.longestMuteS());
        inForce = Math.min(highest, Math.max(to, Math.max(mean, least)));
        return inForce;
    }
}
