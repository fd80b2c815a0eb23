package io.quotaplane.kafka.limits;

/**
 * A limit in bytes that is cut in small steps. Kafka compares a limit with the mean rate over a
 * window, and mutes a client above it until the mean has fallen to the limit: for (observed - limit)
 * / limit * window. A client that was at the old limit would be mute for three windows after a cut
 * to a quarter.
 *
 * <p>So the limit falls evenly over the length of one window: then it is at any time the mean of
 * what was used before the cut and the new limit since, and a client can use the new limit from the
 * cut on. Also, no step is so large that it mutes for longer than allowed.
 */
final class SteppedLimit {
    private double inForce = Double.POSITIVE_INFINITY;
    private double target = Double.POSITIVE_INFINITY;

    /** Time in which the limit in force falls to the target. */
    private double remainingS;

    /** None yet. */
    static SteppedLimit of(QuotaKind kind) {
        return new SteppedLimit();
    }

    /**
     * Step towards a target.
     *
     * @param to the target
     * @param observed rate that Kafka compares with the limit; NaN: none
     * @param elapsedS seconds since the last step
     */
    double step(double to, double observed, double elapsedS, Bounds bounds) {
        // Without a limit before, Kafka's window begins empty.
        boolean isFirst = Double.isInfinite(inForce) || Double.isNaN(observed);
        if (isFirst || to >= inForce || observed <= to) {
            target = inForce = to;
            return to;
        }
        double before = inForce;
        double fallen = Math.min(inForce, observed);
        if (target == inForce) {
            remainingS = bounds.windowS();
        } else {
            if (to < target) {
                // What is new of the way gets a whole window.
                double known = (inForce - target) / (inForce - to);
                remainingS = known * remainingS + (1 - known) * bounds.windowS();
            }
            double left = Math.max(1 - elapsedS / remainingS, 0);
            fallen = to + left * (inForce - to);
            remainingS *= left;
        }
        double longest = bounds.longestWindowS();
        double least = observed * longest / (longest + bounds.longestMuteS());
        target = to;
        inForce = Math.min(before, Math.max(fallen, least));
        return inForce;
    }
}
