package io.quotaplane.kafka.usage;

import io.quotaplane.kafka.limits.Bounds;
import io.quotaplane.kafka.limits.LimitsInForce;
import io.quotaplane.kafka.limits.QuotaKind;
import io.quotaplane.kafka.limits.Rates;
import java.util.HashMap;
import java.util.Map;

/**
 * What groups used and wanted, from looks at the broker's rates every few hundred milliseconds. Not
 * for several threads at once.
 *
 * <p>Kafka does not count what it delays. While a group's rate O is above its limit L, Kafka mutes
 * the group's clients for (O - L) / L * W, where W is the window of the rate. If they were not muted
 * for the share u of an interval, they would have used 1/u as much without the limit.
 */
public final class UsageMeter {
    /** Kafka's metric of mutations is a mean over 30 to 60 s: before that it has old ones in it. */
    private static final long MUTATION_RATE_MS = 60_000;

    private final Bounds bounds;
    private final Map<String, Sums> sums = new HashMap<>();
    private long sinceMs;
    private long lastMs;

    public UsageMeter(Bounds bounds, long nowMs) {
        this.bounds = bounds;
        this.sinceMs = this.lastMs = nowMs;
    }

    private static final class Sums {
        /** Rates times seconds; of mutations that the tokens show, the number. */
        final double[] used = new double[QuotaKind.COUNT];

        final double[] mutedS = new double[QuotaKind.COUNT];
        final long[] mutedUntilMs = new long[QuotaKind.COUNT];
        double tokens = Double.NaN;
        /** When tokens last showed what was taken. */
        long countedMs = Long.MIN_VALUE / 2;
    }

    /** Look at the rates. */
    public void tick(long nowMs, Rates rates, LimitsInForce limits) {
        double elapsedS = (nowMs - lastMs) / 1000.0;
        if (elapsedS <= 0) {
            return;
        }
        for (String tag : rates.tags()) {
            Sums group = sums.computeIfAbsent(tag, any -> new Sums());
            for (QuotaKind kind : QuotaKind.ALL) {
                double limit = limits.limit(tag, kind);
                double used = rates.used(tag, kind);
                if (kind == QuotaKind.CONTROLLER_MUTATION) {
                    lookAtTokens(group, rates.tokens(tag), limit, used, elapsedS, nowMs);
                } else {
                    group.used[kind.ordinal()] += used * elapsedS;
                    lookAtRate(group, kind, limit, rates, tag, nowMs);
                }
                if (group.mutedUntilMs[kind.ordinal()] > nowMs) {
                    group.mutedS[kind.ordinal()] += elapsedS;
                }
            }
        }
        lastMs = nowMs;
    }

    private void lookAtRate(
            Sums group, QuotaKind kind, double limit, Rates rates, String tag, long nowMs) {
        if (Double.isInfinite(limit)) {
            group.mutedUntilMs[kind.ordinal()] = nowMs;
            return;
        }
        double above = rates.limited(tag, kind) - limit;
        if (above > 0) {
            double muteS = above / limit * rates.windowS(tag, kind);
            mute(group, kind, nowMs + Math.round(1000 * muteS));
        }
    }

    private static void mute(Sums group, QuotaKind kind, long untilMs) {
        int at = kind.ordinal();
        group.mutedUntilMs[at] = Math.max(group.mutedUntilMs[at], untilMs);
    }

    /**
     * Count mutations. The bucket gains limit tokens per second up to its size, so the tokens show
     * how many were taken while it is not full. Taken ones are whole numbers. A full bucket shows
     * nothing; if it has been full for long, Kafka's mean rate counts.
     */
    private void lookAtTokens(
            Sums group, double tokens, double limit, double rate, double elapsedS, long nowMs) {
        int at = QuotaKind.CONTROLLER_MUTATION.ordinal();
        if (Double.isInfinite(limit) || Double.isNaN(tokens)) {
            group.tokens = Double.NaN;
            group.mutedUntilMs[at] = nowMs;
            group.used[at] += rate * elapsedS;
            return;
        }
        double size = limit * bounds.mutationWindowS();
        boolean isFull = tokens >= size;
        boolean wasFull = !(group.tokens < size);
        if (isFull && wasFull) {
            boolean isOld = nowMs - group.countedMs > MUTATION_RATE_MS;
            group.used[at] += (isOld ? Math.min(rate, limit) : 0) * elapsedS;
        } else if (!isFull) {
            double gained = wasFull ? size : group.tokens + limit * elapsedS;
            // The clocks of both sides differ by a millisecond or so.
            double taken = gained - tokens;
            group.used[at] += Math.max(wasFull ? Math.ceil(taken - 0.01) : Math.rint(taken), 0);
            group.countedMs = nowMs;
        }
        group.tokens = tokens;
        if (tokens < 0) {
            mute(group, QuotaKind.CONTROLLER_MUTATION, nowMs + Math.round(-1000 * tokens / limit));
        }
    }

    /** Time in milliseconds since the last {@code take}. */
    public long windowMs(long nowMs) {
        return nowMs - sinceMs;
    }

    /** What was used since the last call, by the tag of the group; groups without any use lack. */
    public Map<String, GroupUsage> take(LimitsInForce limits, Rates rates) {
        double intervalS = (lastMs - sinceMs) / 1000.0;
        Map<String, GroupUsage> taken = new HashMap<>();
        if (intervalS <= 0) {
            return taken;
        }
        sums.forEach((tag, group) -> taken.put(tag, usage(tag, group, intervalS, limits)));
        sums.keySet().retainAll(rates.tags());
        sinceMs = lastMs;
        return taken;
    }

    private static GroupUsage usage(
            String tag, Sums group, double intervalS, LimitsInForce limits) {
        double[] used = new double[QuotaKind.COUNT];
        double[] throttled = new double[QuotaKind.COUNT];
        for (QuotaKind kind : QuotaKind.ALL) {
            int at = kind.ordinal();
            used[at] = Math.max(group.used[at] / intervalS, 0);
            double limit = limits.limit(tag, kind);
            if (group.mutedS[at] > 0 && !Double.isInfinite(limit)) {
                throttled[at] = throttled(used[at], limit, 1 - group.mutedS[at] / intervalS);
            }
            group.used[at] = group.mutedS[at] = 0;
        }
        return new GroupUsage(used, throttled);
    }

    /**
     * What clients would have used on top of what they used.
     *
     * @param free share of the time in which they were not muted
     */
    static double throttled(double used, double limit, double free) {
        double most = Math.max(used, limit);
        return free <= 0 ? most : Math.min(used * (1 - free) / free, most);
    }
}
