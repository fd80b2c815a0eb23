package io.quotaplane.kafka.report;

import io.quotaplane.kafka.limits.LimitsInForce;
import io.quotaplane.kafka.limits.QuotaKind;
import io.quotaplane.kafka.limits.ReceivedLimits;
import io.quotaplane.kafka.usage.GroupUsage;
import io.quotaplane.kafka.wire.UsageReport;
import java.util.Collection;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.function.ToDoubleFunction;

/** Makes a broker's usage reports, numbered. Not for several threads at once. */
public final class ReportBuilder {
    /** Each group is in one of so many reports, also if nothing of it changed. */
    public static final int NAMED_EVERY = 16;

    /** Of the groups in one report: producers send, and topics take, 1 MB at most. */
    private static final long MOST_BYTES = 900_000;

    private final String broker;
    private final long startedAtMs;
    private final LightRule rule;
    private final boolean isStrict;
    private long sequence;

    public ReportBuilder(String broker, long startedAtMs, boolean strict) {
        this.broker = broker;
        this.startedAtMs = startedAtMs;
        this.rule = new LightRule(NAMED_EVERY, strict);
        this.isStrict = strict;
    }

    /** Number of the last report. */
    public long sequence() {
        return sequence;
    }

    /** Reports were lost: the next ones name all groups. */
    public void nameAll() {
        rule.reportsLost();
    }

    /**
     * The next report.
     *
     * @param usage in the window, by the tag of the group; groups that lack used nothing
     * @param applied newest version of limits; null: there are none
     */
    public byte[] next(
            int windowMs,
            Map<String, GroupUsage> usage,
            LimitsInForce limits,
            ReceivedLimits.Version applied) {
        sequence++;
        Map<String, LightRule.State> states = new HashMap<>();
        for (String tag : limits.tags()) {
            long seq = applied == null ? -1 : limits.appliedSeq(tag, applied.epoch());
            GroupUsage used = usage.getOrDefault(tag, GroupUsage.NONE);
            states.put(
                    limits.name(tag),
                    new LightRule.State(limits.id(tag), used, seq, inForce(tag, limits)));
        }
        Map<String, LightRule.State> named = rule.named(states, sequence, MOST_BYTES);
        List<String> groups = List.copyOf(named.keySet());
        UsageReport report =
                new UsageReport(broker, startedAtMs, sequence, windowMs, groups)
                        .namedEvery(NAMED_EVERY);
        var values = named.values();
        for (QuotaKind kind : QuotaKind.ALL) {
            int at = kind.ordinal();
            report.usage(kind.dimension, column(values, value -> value.usage().used()[at]));
            report.throttled(
                    kind.dimension, column(values, value -> value.usage().throttled()[at]));
            report.limits(kind.dimension, column(values, value -> value.limits()[at]));
        }
        if (applied != null) {
            report.applied(applied.epoch(), applied.seq());
            report.appliedSeqs(values.stream().mapToLong(LightRule.State::seq).toArray());
        }
        return report.encode();
    }

    /**
     * The limits to report; NaN while none are known, so that nobody takes it for a decision. In
     * strict transitions a cut counts when it is done; else what a waking group may use for a moment
     * is no limit that the job decided.
     */
    private double[] inForce(String tag, LimitsInForce limits) {
        double[] inForce = new double[QuotaKind.COUNT];
        for (QuotaKind kind : QuotaKind.ALL) {
            double limit = isStrict ? limits.limit(tag, kind) : limits.target(tag, kind);
            inForce[kind.ordinal()] = limits.isFallback(tag) ? Double.NaN : limit;
        }
        return inForce;
    }

    private static double[] column(
            Collection<LightRule.State> values, ToDoubleFunction<LightRule.State> value) {
        return values.stream().mapToDouble(value).toArray();
    }
}
