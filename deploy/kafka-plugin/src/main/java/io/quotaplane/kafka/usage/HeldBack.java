package io.quotaplane.kafka.usage;

/**
 * Whether a group's clients want more than their limit. Not for several threads at once.
 *
 * <p>Kafka mutes a client after each request that is above the limit, also one that wants less than
 * that on average; its later requests wait, and are counted when they come. So a mute alone says
 * nothing of demand. Clients are held back in an interval in which they were muted at most looks, or
 * at many and used up the limit. That may still be chance where usage varies: requests that fit the
 * limit on average wait for one another, too. Then it counts after three seconds.
 */
final class HeldBack {
    private static final double VARYING_S = 3.0;

    /** Parts of an interval in which looks found clients muted. */
    private static final double MOST = 0.8;

    private static final double MANY = 0.4;

    /** Part of what a limit allows from which on it is used up. */
    private static final double USED_UP = 0.95;

    /** Usage varies if that of two intervals differs by more than this part of the larger one. */
    private static final double STEADY = 0.1;

    /** Part by which the mean difference follows the last one. */
    private static final double GAIN = 0.2;

    /** In an interval with a larger part muted, the limit may be why usage is steady. */
    private static final double MOSTLY_FREE = 0.5;

    /** Clients may begin in the midst of the first interval; the next two can be compared. */
    private static final int BEGUN = 3;

    private static final double ROUNDING = 1e-6;

    private double mutedS;
    private double allowed;
    private double heldS;
    private double difference;
    private int intervalsInUse;
    private boolean wasFree;
    private double lastUsed;

    /** One look, so long after the last one; {@code limit} per second. */
    void look(boolean isMuted, double limit, double elapsedS) {
        mutedS += isMuted ? elapsedS : 0;
        allowed += limit * elapsedS;
    }

    /** An interval is over, in which so much was used per second; returns whether more is wanted. */
    boolean endInterval(double used, double intervalS) {
        double muted = mutedS / intervalS + ROUNDING;
        boolean isUsedUp = used * intervalS >= USED_UP * allowed;
        boolean isHeld = muted >= MOST || muted >= MANY && isUsedUp;
        heldS = isHeld ? heldS + intervalS : 0;
        learn(used, muted <= MOSTLY_FREE);
        mutedS = 0;
        allowed = 0;
        return isHeld && heldS >= (difference > STEADY ? VARYING_S : 0) - ROUNDING;
    }

    private void learn(double used, boolean isFree) {
        intervalsInUse = used > 0 ? Math.min(intervalsInUse + 1, BEGUN) : 0;
        if (intervalsInUse == 0) {
            difference = 0;
        } else if (isFree && wasFree && intervalsInUse == BEGUN) {
            double newest = Math.abs(used - lastUsed) / Math.max(used, lastUsed);
            difference += GAIN * (newest - difference);
        }
        wasFree = isFree;
        lastUsed = used;
    }
}
