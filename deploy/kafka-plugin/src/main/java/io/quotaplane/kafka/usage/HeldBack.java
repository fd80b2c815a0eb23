package io.quotaplane.kafka.usage;

/**
 * Whether a group's clients want more than their limit, from looks at whether they are muted. Not for
 * several threads at once.
 *
 * <p>Kafka mutes a client after each request that is above the limit, also one that wants less than
 * that on average; its later requests wait, and are counted when they come. So a mute alone says
 * nothing of demand. Clients are held back if they were muted all the time: for 0.4 s, or for 3 s if
 * their usage varies, as requests that come by chance, too, wait behind one another for that long.
 */
final class HeldBack {
    private static final double STEADY_S = 0.4;
    private static final double VARYING_S = 3.0;

    /** More than is needed, so that a look between two requests does not count at once. */
    private static final double SPARE_S = 1.0;

    /** A look may find clients between two requests: each takes back so many others. */
    private static final double FREE_LOOK_COUNTS = 4.0;

    /** Usage varies if that of two intervals differs by more than this part of the larger one. */
    private static final double STEADY = 0.1;

    /** Part by which the mean difference follows the last one. */
    private static final double GAIN = 0.2;

    /** In an interval with a larger part muted, the limit may be why usage is steady. */
    private static final double MOSTLY_FREE = 0.5;

    private static final double ROUNDING_S = 1e-6;

    private double heldS;
    private double mutedS;
    private double difference;
    private boolean isKnown;
    private boolean wasFree;
    private double lastUsed;

    /** One look, so long after the last one. */
    void look(boolean isMuted, double elapsedS) {
        if (isMuted) {
            mutedS += elapsedS;
            heldS = Math.min(heldS + elapsedS, neededS() + SPARE_S);
        } else {
            heldS = Math.max(heldS - FREE_LOOK_COUNTS * elapsedS, 0);
        }
    }

    /** An interval is over, in which so much was used per second. */
    void endInterval(double used, double intervalS) {
        boolean isFree = mutedS <= MOSTLY_FREE * intervalS;
        double larger = Math.max(used, lastUsed);
        if (isFree && wasFree && larger > 0) {
            double newest = Math.abs(used - lastUsed) / larger;
            difference += isKnown ? GAIN * (newest - difference) : newest;
            isKnown = true;
        }
        wasFree = isFree;
        lastUsed = used;
        mutedS = 0;
    }

    boolean wantsMore() {
        return heldS >= neededS() - ROUNDING_S;
    }

    private double neededS() {
        return difference > STEADY ? VARYING_S : STEADY_S;
    }
}
