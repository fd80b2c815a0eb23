package io.quotaplane.kafka.wire;

import java.util.Arrays;
import java.util.List;

/**
 * Builds a {@code UsageReport} for n groups. A column has one value per group; a dimension that is
 * not given, or NaN for all groups, is left out of the report.
 */
public final class UsageReport {
    private static final int MAGIC = 'Q' | 'P' << 8 | 'R' << 16 | '1' << 24;

    private final ProtoWriter out = new ProtoWriter();
    private final int count;

    /**
     * Begin a report.
     *
     * @param broker the sender's name
     * @param startedAtMs when the broker process started, in epoch milliseconds
     * @param sequence number of the report since then
     * @param windowMs time that the rates are averaged over
     * @param groups names (n)
     */
    public UsageReport(
            String broker, long startedAtMs, long sequence, int windowMs, List<String> groups) {
        count = groups.size();
        out.fixed32(1, MAGIC);
        out.text(2, broker);
        out.varint(3, startedAtMs);
        out.varint(4, sequence);
        out.varint(5, windowMs);
        groups.forEach(group -> out.text(8, group));
    }

    /** What the groups used (n) per second; NaN: unchanged since the last report. */
    public UsageReport usage(Dimension dimension, double[] perSecond) {
        return column(dimension.reportUsage, perSecond);
    }

    /** What was delayed or refused on top of the usage (n) per second. */
    public UsageReport throttled(Dimension dimension, double[] perSecond) {
        return column(dimension.reportThrottled, perSecond);
    }

    /** The limits in force (n) per second; infinity is unlimited, NaN is not said. */
    public UsageReport limits(Dimension dimension, double[] perSecond) {
        return column(dimension.reportLimit, perSecond);
    }

    /** The newest version of limits in force. */
    public UsageReport applied(long epoch, long seq) {
        out.varint(6, epoch);
        out.varint(7, seq);
        return this;
    }

    /** (n) The seq of each group's limit in force; -1: none of the applied epoch. */
    public UsageReport appliedSeqs(long[] seqs) {
        check(seqs.length);
        out.column(18, seqs);
        return this;
    }

    /** Each group is named in at least one of so many consecutive reports; 0: in each. */
    public UsageReport namedEvery(int reports) {
        out.varint(42, reports);
        return this;
    }

    /** The serialized report. */
    public byte[] encode() {
        return out.bytes();
    }

    private UsageReport column(int field, double[] values) {
        check(values.length);
        if (!Arrays.stream(values).allMatch(Double::isNaN)) {
            out.column(field, values);
        }
        return this;
    }

    private void check(int length) {
        if (length != count) {
            throw new IllegalArgumentException(length + " values for " + count + " groups");
        }
    }
}
