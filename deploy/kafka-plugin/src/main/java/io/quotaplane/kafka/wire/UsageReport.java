package io.quotaplane.kafka.wire;

import java.util.List;

/**
 * Builds a {@code UsageReport} for n groups. Columns have one value per group; a dimension that was
 * not given, or is NaN for all groups, is left out.
 */
public final class UsageReport {
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
            String broker, long startedAtMs, long sequence, int windowMs, List<String> groups) {}

    /** What the groups used (n) per second; NaN: unchanged since the last report. */
    public UsageReport usage(Dimension dimension, double[] perSecond) {
        throw new UnsupportedOperationException();
    }

    /** What was delayed or refused on top of the usage (n) per second. */
    public UsageReport throttled(Dimension dimension, double[] perSecond) {
        throw new UnsupportedOperationException();
    }

    /** The limits in force (n) per second; infinity is unlimited, NaN is not said. */
    public UsageReport limits(Dimension dimension, double[] perSecond) {
        throw new UnsupportedOperationException();
    }

    /** The newest version of limits in force. */
    public UsageReport applied(long epoch, long seq) {
        throw new UnsupportedOperationException();
    }

    /** (n) The seq of each group's limit in force; -1: none of the applied epoch. */
    public UsageReport appliedSeqs(long[] seqs) {
        throw new UnsupportedOperationException();
    }

    /** Each group is named in at least one of so many consecutive reports; 0: in each. */
    public UsageReport namedEvery(int reports) {
        throw new UnsupportedOperationException();
    }

    /** The serialized report. */
    public byte[] encode() {
        throw new UnsupportedOperationException();
    }
}
