package io.quotaplane.kafka.usage;

import io.quotaplane.kafka.limits.LimitsInForce;
import io.quotaplane.kafka.limits.QuotaKind;
import io.quotaplane.kafka.limits.Rates;
import java.util.HashMap;
import java.util.Map;

/**
 * What groups used and wanted, from looks at what the broker measures every few hundred
 * milliseconds. Not for several threads at once.
 *
 * <p>Kafka does not count what it delays. While a group's rate O is above its limit L, Kafka mutes
 * the group's clients for (O - L) / L * W, where W is the window of the rate; for -T / L while its
 * bucket of mutations has T &lt; 0 tokens. A fetch that would exceed the limit is answered without
 * records and counts for nothing, so O is what it would be with one more of those that were delayed.
 *
 * <p>Clients that were not muted for the share u of an interval would have used 1/u as much without
 * the limit.
 */
public final class UsageMeter {
    /** Groups that one tick looks at. */
    private static final int MOST_LOOKS = 2000;

    private final Map<String, Group> groups = new HashMap<>();
    private long sinceMs;
    private long ticks;

    private static final class Group {
        final double[] amounts = new double[QuotaKind.COUNT];
        final double[] mutedS = new double[QuotaKind.COUNT];
        final long[] mutedUntilMs = new long[QuotaKind.COUNT];
        long lastMs;

        Group(long nowMs) {
            lastMs = nowMs;
        }
    }

    public UsageMeter(long nowMs) {
        this.sinceMs = nowMs;
    }

    /** Look whose clients are muted; of very many groups at a part in turn. */
    public void tick(long nowMs, Rates rates, LimitsInForce limits) {
        int turns = 1 + rates.tags().size() / MOST_LOOKS;
        ticks++;
        for (String tag : rates.tags()) {
            if (Math.floorMod(tag.hashCode() + ticks, turns) == 0) {
                Group group = groups.computeIfAbsent(tag, any -> new Group(sinceMs));
                look(tag, group, nowMs, rates, limits);
            }
        }
    }

    private static void look(
            String tag, Group group, long nowMs, Rates rates, LimitsInForce limits) {
        double elapsedS = (nowMs - group.lastMs) / 1000.0;
        group.lastMs = nowMs;
        for (QuotaKind kind : QuotaKind.ALL) {
            int at = kind.ordinal();
            double limit = limits.limit(tag, kind);
            if (Double.isInfinite(limit)) {
                group.mutedUntilMs[at] = nowMs;
                continue;
            }
            long untilMs = nowMs + Math.round(1000 * muteS(tag, kind, limit, rates));
            group.mutedUntilMs[at] = Math.max(group.mutedUntilMs[at], untilMs);
            if (group.mutedUntilMs[at] > nowMs) {
                group.mutedS[at] += elapsedS;
            }
        }
    }

    /** For how long in seconds the group's clients would be muted if one of them asked now. */
    private static double muteS(String tag, QuotaKind kind, double limit, Rates rates) {
        if (kind == QuotaKind.CONTROLLER_MUTATION) {
            double tokens = rates.tokens(tag);
            return tokens < 0 ? -tokens / limit : 0;
        }
        Rates.Limited bucket = rates.limited(tag, kind);
        if (bucket == null) {
            return 0;
        }
        double aboveS = (bucket.rate() - limit) / limit * bucket.windowS();
        return Math.max(aboveS + bucket.takenBackS(), 0);
    }

    /** Time in milliseconds since the last {@code take}. */
    public long windowMs(long nowMs) {
        return nowMs - sinceMs;
    }

    /** What was used since the last call, by the tag of the group; groups without any use lack. */
    public Map<String, GroupUsage> take(long nowMs, LimitsInForce limits, Rates rates) {
        double intervalS = (nowMs - sinceMs) / 1000.0;
        Map<String, GroupUsage> taken = new HashMap<>();
        if (intervalS > 0) {
            rates.tags().forEach(tag -> groups.computeIfAbsent(tag, any -> new Group(sinceMs)));
            groups.forEach(
                    (tag, group) -> taken.put(tag, usage(tag, group, intervalS, limits, rates)));
            groups.keySet().retainAll(rates.tags());
            sinceMs = nowMs;
        }
        return taken;
    }

    private static GroupUsage usage(
            String tag, Group group, double intervalS, LimitsInForce limits, Rates rates) {
        double[] used = new double[QuotaKind.COUNT];
        double[] throttled = new double[QuotaKind.COUNT];
        for (QuotaKind kind : QuotaKind.ALL) {
            int at = kind.ordinal();
            double amount = rates.amount(tag, kind);
            used[at] = Math.max(amount - group.amounts[at], 0) / intervalS;
            double limit = limits.limit(tag, kind);
            if (group.mutedS[at] > 0 && !Double.isInfinite(limit)) {
                throttled[at] = throttled(used[at], limit, 1 - group.mutedS[at] / intervalS);
            }
            group.amounts[at] = amount;
            group.mutedS[at] = 0;
        }
        return new GroupUsage(used, throttled);
    }

    /**
     * What clients would have used on top of what they used; at most that, or the limit if it is
     * more: so demand doubles from report to report, however short the time was that shows it.
     *
     * @param free share of the time in which they were not muted
     */
    static double throttled(double used, double limit, double free) {
        double most = Math.max(used, limit);
        return free <= 0 ? most : Math.min(used * (1 - free) / free, most);
    }
}
