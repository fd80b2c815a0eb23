package io.quotaplane.kafka.report;

import io.quotaplane.kafka.limits.QuotaKind;
import io.quotaplane.kafka.usage.GroupUsage;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.SortedMap;

/**
 * Which groups a report names: those that changed, and each one at least once in so many reports.
 * Not for several threads at once.
 *
 * <p>A usage or a limit changed if it differs by more than 5 percent from the one reported last, or
 * became 0 or was; a group also if it began or ceased to be throttled. With strict transitions also
 * if the limits in force are a newer version of the same.
 */
public final class LightRule {
    private static final double SIGNIFICANT = 0.05;

    /** Thirteen numbers, and what is around the name. */
    static final int BYTES_OF_VALUES = 110;

    private static final int MOST_BYTES_OF_CHAR = 3;

    private final int namedEvery;
    private final boolean strict;
    private final Map<String, Named> last = new HashMap<>();

    /**
     * What a report may say of a group.
     *
     * @param seq of the limits in force; -1: they are not of the newest epoch
     * @param limits in force by kind; NaN: not known
     */
    public record State(GroupUsage usage, long seq, double[] limits) {}

    private record Named(State state, long report) {}

    public LightRule(int namedEvery, boolean strict) {
        this.namedEvery = namedEvery;
        this.strict = strict;
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
                    Named before = last.get(group);
                    if (before == null || isChanged(before.state, state)) {
                        changed.add(group);
                    } else if (isDue(group, before, report)) {
                        named.add(group);
                    }
                });
        named.addAll(changed);
        List<String> first = named.subList(0, fitting(named, mostBytes));
        first.forEach(group -> last.put(group, new Named(states.get(group), report)));
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
    private boolean isDue(String group, Named before, long report) {
        boolean isTurn = Math.floorMod(report + group.hashCode(), namedEvery) == 0;
        return isTurn || report - before.report >= namedEvery;
    }

    private boolean isChanged(State before, State now) {
        if (strict && before.seq != now.seq) {
            return true;
        }
        for (int kind = 0; kind < QuotaKind.COUNT; kind++) {
            boolean wasThrottled = before.usage.throttled()[kind] > 0;
            if (differs(before.usage.used()[kind], now.usage.used()[kind])
                    || differs(before.limits[kind], now.limits[kind])
                    || wasThrottled != now.usage.throttled()[kind] > 0) {
                return true;
            }
        }
        return false;
    }

    private static boolean differs(double was, double is) {
        if (!Double.isFinite(was) || !Double.isFinite(is)) {
            return Double.compare(was, is) != 0;
        }
        return Math.abs(is - was) > SIGNIFICANT * was;
    }
}
