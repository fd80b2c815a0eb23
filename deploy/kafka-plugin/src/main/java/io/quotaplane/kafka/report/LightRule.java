package io.quotaplane.kafka.report;

import io.quotaplane.kafka.limits.QuotaKind;
import io.quotaplane.kafka.usage.GroupUsage;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.SortedMap;

/**
 * Which groups a report names: those that changed, and each one at least once in so many reports.
 * Not for several threads at once.
 *
 * <p>It is the rule of quotaplane.client.light_reports. A usage changed if it differs by more than 5
 * percent from the one reported last, or became 0 or was; after that the group is named in 32 reports,
 * as the job learns from several windows what is wanted. Named are, too: a group that is throttled, as
 * others may have to give it some of theirs; one above its limit; and one whose limit changed, with
 * strict transitions also if it is a newer version of the same.
 */
public final class LightRule {
    private static final double SIGNIFICANT = 0.05;

    /** Reports that name a group after it changed. */
    private static final int SETTLED = 32;

    /** Thirteen numbers, and what is around the name. */
    static final int BYTES_OF_VALUES = 110;

    private static final int MOST_BYTES_OF_CHAR = 3;

    private final int namedEvery;
    private final boolean strict;
    private final int settled;
    private final Map<String, Said> last = new HashMap<>();

    /**
     * What a report may say of a group.
     *
     * @param seq of the limits in force; -1: they are not of the newest epoch
     * @param limits in force by kind; NaN: not known
     */
    public record State(GroupUsage usage, long seq, double[] limits) {}

    /** What reports said of a group. */
    private static final class Said {
        /** Null: none named it. */
        State state;

        long report;

        /** Reports since it changed. */
        int quiet = Integer.MAX_VALUE - 1;
    }

    public LightRule(int namedEvery, boolean strict) {
        this(namedEvery, strict, SETTLED);
    }

    LightRule(int namedEvery, boolean strict, int settled) {
        this.namedEvery = namedEvery;
        this.strict = strict;
        this.settled = settled;
    }

    /**
     * The groups to name in the next report.
     *
     * @param states by group
     * @param report number of the report
     * @param mostBytes that the named groups may take; those beyond it come with the next reports
     */
    public List<String> named(SortedMap<String, State> states, long report, long mostBytes) {
        last.keySet().retainAll(states.keySet());
        List<String> named = new ArrayList<>();
        List<String> changed = new ArrayList<>();
        states.forEach(
                (group, state) -> {
                    Said said = last.computeIfAbsent(group, any -> new Said());
                    if (isNews(said, state)) {
                        changed.add(group);
                    } else if (isDue(group, said, report)) {
                        named.add(group);
                    }
                });
        named.addAll(changed);
        List<String> first = named.subList(0, fitting(named, mostBytes));
        for (String group : first) {
            Said said = last.get(group);
            said.state = states.get(group);
            said.report = report;
        }
        return List.copyOf(first);
    }

    private static int fitting(List<String> groups, long mostBytes) {
        long bytes = 0;
        for (int count = 0; count < groups.size(); count++) {
            bytes += BYTES_OF_VALUES + (long) MOST_BYTES_OF_CHAR * groups.get(count).length();
            if (bytes > mostBytes) {
                return count;
            }
        }
        return groups.size();
    }

    /** Reports were lost: all groups are named anew. */
    public void forget() {
        last.clear();
    }

    /** Groups take turns by their names, so that those that came together are not due together. */
    private boolean isDue(String group, Said before, long report) {
        boolean isTurn = Math.floorMod(report + group.hashCode(), namedEvery) == 0;
        return isTurn || report - before.report >= namedEvery;
    }

    private boolean isNews(Said said, State now) {
        if (said.state == null) {
            return true;
        }
        said.quiet = isChanged(said.state.usage, now) ? 0 : Math.min(said.quiet + 1, settled);
        return said.quiet < settled
                || !Arrays.equals(said.state.limits, now.limits)
                || strict && said.state.seq != now.seq;
    }

    private static boolean isChanged(GroupUsage before, State now) {
        for (int kind = 0; kind < QuotaKind.COUNT; kind++) {
            double used = now.usage.used()[kind];
            boolean isHeld = now.usage.throttled()[kind] > 0 || used > now.limits[kind];
            if (isHeld || differs(before.used()[kind], used)) {
                return true;
            }
        }
        return false;
    }

    private static boolean differs(double was, double is) {
        return Math.abs(is - was) > SIGNIFICANT * was;
    }
}
