package io.quotaplane.kafka.report;

import io.quotaplane.kafka.limits.QuotaKind;
import io.quotaplane.kafka.usage.GroupUsage;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Comparator;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;

/**
 * Which groups a report names: those that changed, and each one at least once in so many reports.
 * Not for several threads at once.
 *
 * <p>docs/reference/wire.md, Light reports, has the rule; quotaplane.client.light_reports names the
 * same groups in the same reports.
 */
public final class LightRule {
    /** Part of a rate by which it may change without being reported again. */
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
    public record State(long id, GroupUsage usage, long seq, double[] limits) {
        /** It is not this broker's any more. */
        private State left() {
            double[] unknown = new double[QuotaKind.COUNT];
            Arrays.fill(unknown, Double.NaN);
            return new State(id, GroupUsage.NONE, -1, unknown);
        }
    }

    /** What reports said of a group. */
    private static final class Said {
        /** Null: none named it. */
        State state;

        /** Number of the last one; those that waited longest come first. */
        long report;

        /** Reports since it changed. */
        int quiet;

        /** The report that said it may be lost. */
        boolean isLost;

        Said(int quiet) {
            this.quiet = quiet;
        }
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
     * The groups to name in the next report, and what to say of them; one that left the broker is
     * among them once.
     *
     * @param states by group
     * @param report number of the report
     * @param mostBytes that the named groups may take; those beyond it come with the next reports
     */
    public Map<String, State> named(Map<String, State> states, long report, long mostBytes) {
        Map<String, State> named = left(states);
        List<String> due = new ArrayList<>();
        states.forEach(
                (group, state) -> {
                    Said said = last.computeIfAbsent(group, any -> new Said(settled));
                    if (isNews(said, state) || isInTurn(said, state, report)) {
                        due.add(group);
                    }
                });
        due.sort(Comparator.comparingLong(group -> last.get(group).report));
        due.forEach(group -> named.put(group, states.get(group)));
        keepFitting(named, mostBytes);
        named.forEach((group, state) -> say(group, state, report, states.containsKey(group)));
        return named;
    }

    private Map<String, State> left(Map<String, State> states) {
        Map<String, State> left = new LinkedHashMap<>();
        last.entrySet()
                .removeIf(it -> it.getValue().state == null && !states.containsKey(it.getKey()));
        last.forEach(
                (group, said) -> {
                    if (!states.containsKey(group)) {
                        left.put(group, said.state.left());
                    }
                });
        return left;
    }

    private static void keepFitting(Map<String, State> groups, long mostBytes) {
        long bytes = 0;
        for (var names = groups.keySet().iterator(); names.hasNext(); ) {
            bytes += BYTES_OF_VALUES + (long) MOST_BYTES_OF_CHAR * names.next().length();
            if (bytes > mostBytes) {
                names.remove();
            }
        }
    }

    private void say(String group, State state, long report, boolean stays) {
        if (!stays) {
            last.remove(group);
            return;
        }
        Said said = last.get(group);
        said.state = state;
        said.report = report;
        said.isLost = false;
    }

    /** Reports were lost: the next ones name all groups. */
    public void reportsLost() {
        last.values().forEach(said -> said.isLost = true);
    }

    /** Groups take turns by their ids; one that did not fit in its turn comes after it. */
    private boolean isInTurn(Said said, State now, long report) {
        boolean isTurn = Math.floorMod(report - now.id, namedEvery) == 0;
        return isTurn || report - said.report >= namedEvery;
    }

    private boolean isNews(Said said, State now) {
        GroupUsage before = said.state == null ? GroupUsage.NONE : said.state.usage;
        said.quiet = isChanged(before, now) ? 0 : Math.min(said.quiet + 1, settled);
        return said.state == null
                || said.isLost
                || said.quiet < settled
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
