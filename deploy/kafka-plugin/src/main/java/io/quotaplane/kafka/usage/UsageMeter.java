package io.quotaplane.kafka.usage;

import io.quotaplane.kafka.limits.LimitsInForce;
import io.quotaplane.kafka.limits.QuotaKind;
import io.quotaplane.kafka.limits.Rates;
import java.util.Collection;
import java.util.HashMap;
import java.util.List;
import java.util.Map;

/**
 * What groups used and wanted, from looks at what the broker measures every few hundred
 * milliseconds. Not for several threads at once.
 *
 * <p>Kafka does not count what it delays. While a group's rate O is above its limit L, Kafka mutes
 * the group's clients for (O - L) / L * W, where W is the window of the rate; for -T / L while its
 * bucket of mutations has T &lt; 0 tokens. A fetch that would exceed the limit is answered without
 * records and counts for nothing, so O is what it would be with one more of those that were delayed.
 * Of clients that are held back ({@link HeldBack}) nobody sees how much they want: they count as if
 * they wanted twice as much.
 */
public final class UsageMeter {
    private final Map<String, Group> groups = new HashMap<>();
    private long sinceMs;

    private static final class Group {
        final double[] amounts = new double[QuotaKind.COUNT];
        final long[] mutedUntilMs = new long[QuotaKind.COUNT];
        final List<HeldBack> heldBack = QuotaKind.ALL.stream().map(kind -> new HeldBack()).toList();
        long lastMs;

        Group(long nowMs) {
            lastMs = nowMs;
        }
    }

    public UsageMeter(long nowMs) {
        this.sinceMs = nowMs;
    }

    /** Look which of the groups' clients are muted. */
    public void tick(long nowMs, Collection<String> tags, Rates rates, LimitsInForce limits) {
        for (String tag : tags) {
            Group group = groups.computeIfAbsent(tag, any -> new Group(sinceMs));
            look(tag, group, nowMs, rates, limits);
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
            } else {
                long untilMs = nowMs + Math.round(1000 * muteS(tag, kind, limit, rates));
                group.mutedUntilMs[at] = Math.max(group.mutedUntilMs[at], untilMs);
            }
            group.heldBack.get(at).look(group.mutedUntilMs[at] > nowMs, limit, elapsedS);
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
            boolean wantsMore = group.heldBack.get(at).endInterval(used[at], intervalS);
            if (wantsMore && !Double.isInfinite(limit)) {
                // So demand doubles from report to report.
                throttled[at] = Math.max(used[at], limit);
            }
            group.amounts[at] = amount;
        }
        return new GroupUsage(used, throttled);
    }
}
