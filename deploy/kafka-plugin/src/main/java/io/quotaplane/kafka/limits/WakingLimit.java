package io.quotaplane.kafka.limits;

/**
 * The limit in bytes of a group that was idle here. The job leaves an idle broker about 1 percent of
 * its even share. The first request of a client that wakes up is often larger than that, and Kafka
 * would mute the client for request / limit seconds, long after the job has raised the limit.
 *
 * <p>So an idle group has its safe limit, and keeps it for the first moments of use, until the job can
 * have answered the first report of it. In strict transitions the safe limit is 0, and nothing is
 * added.
 */
final class WakingLimit {
    private boolean isIdle = true;
    private long wokeMs;

    /**
     * The limit per second to aim at.
     *
     * @param target the received limit
     * @param safe the safe limit
     * @param observed rate that Kafka compares with the limit; 0: idle for a whole window
     */
    double aim(double target, double safe, double observed, long nowMs, Bounds bounds) {
        if (observed <= 0) {
            isIdle = true;
        } else if (isIdle) {
            isIdle = false;
            wokeMs = nowMs;
        }
        boolean isWaking = isIdle || nowMs - wokeMs < bounds.wakingMs();
        return isWaking && !Double.isInfinite(safe) ? Math.max(target, safe) : target;
    }
}
