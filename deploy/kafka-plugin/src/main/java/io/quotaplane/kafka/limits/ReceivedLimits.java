package io.quotaplane.kafka.limits;

import io.quotaplane.kafka.wire.Dimension;
import io.quotaplane.kafka.wire.LimitsMessage;
import java.util.Arrays;
import java.util.HashMap;
import java.util.HashSet;
import java.util.Map;
import java.util.Set;

/**
 * One broker's limits: the newest of each group; late and repeated messages change nothing
 * (docs/reference/wire.md has the rules). Not for several threads at once.
 */
public final class ReceivedLimits {
    /** A version of limits; the greater epoch is newer, in the same epoch the greater seq. */
    public record Version(long epoch, long seq) {
        private static final Version NONE = new Version(-1, -1);

        private boolean isNewerThan(Version other) {
            return epoch > other.epoch || epoch == other.epoch && seq > other.seq;
        }
    }

    /** Most groups, some 60 MB; limits of further ones are not used until others are forgotten. */
    public static final int MOST_GROUPS = 200_000;

    private static final long NO_END = Long.MAX_VALUE;

    private final String broker;
    private final long startedAtMs;
    private final double unset;
    private final double unsetSafe;
    private final Map<Long, Entry> entries = new HashMap<>();
    private Set<Long> news = new HashSet<>();
    private long unused;
    private Version newest;
    private boolean isNewestKnown = true;

    /**
     * Begin without any message.
     *
     * @param startedAtMs when the broker process started, in epoch milliseconds, as in its reports
     * @param unset limit per second of a group that no message listed, or that one removed
     * @param unsetSafe safe limit before any message had one
     */
    public ReceivedLimits(String broker, long startedAtMs, double unset, double unsetSafe) {
        this.broker = broker;
        this.startedAtMs = startedAtMs;
        this.unset = unset;
        this.unsetSafe = unsetSafe;
    }

    /** A group's limits, and the message that they came from. */
    private static final class Entry {
        private final double[] limit = new double[Dimension.COUNT];
        private final double[] safe = new double[Dimension.COUNT];
        private long untilMs = NO_END;
        private Version version = Version.NONE;
        private boolean isRemoved;

        /** Whether the safe limit is known, as a message had it. */
        private boolean isWhole;

        private void stamp(Arrival arrival, boolean removed) {
            version = arrival.version;
            untilMs = arrival.untilMs;
            isRemoved = removed;
        }
    }

    /** A message's version, its lease end, and now, both on the steady clock. */
    private record Arrival(Version version, long untilMs, long nowMs) {
        /** Whether it replaces what an entry has: a lease that is not over beats one that is. */
        boolean beats(Entry entry) {
            boolean isNewer = version.isNewerThan(entry.version);
            boolean isOver = entry.untilMs < nowMs;
            return untilMs >= nowMs
                    ? isNewer || isOver
                    : isNewer && (isOver || entry.version == Version.NONE);
        }
    }

    /**
     * Apply a message to those groups for which it is newer than the last one applied; returns how
     * many limits changed, removals included. A message for another broker or incarnation changes
     * nothing.
     *
     * @param wallNowMs epoch milliseconds, which show how old the message is
     * @param steadyNowMs milliseconds of a clock that can't be set, as in all calls
     */
    public int apply(LimitsMessage message, long wallNowMs, long steadyNowMs) {
        boolean isForThisStart =
                message.brokerStartedAtMs() == 0 || message.brokerStartedAtMs() == startedAtMs;
        if (!message.broker().equals(broker) || !isForThisStart) {
            return 0;
        }
        long untilMs = message.issuedOn(wallNowMs, steadyNowMs) + message.leaseMs();
        var version = new Version(message.epoch(), message.seq());
        var arrival = new Arrival(version, untilMs, steadyNowMs);
        isNewestKnown = false;
        int changed = list(message, arrival);
        return changed + remove(message, arrival);
    }

    private int list(LimitsMessage message, Arrival arrival) {
        Entry[] beaten = beaten(message.groupIds(), arrival);
        int changed = 0;
        for (int at = 0; at < beaten.length; at++) {
            if (beaten[at] != null && differs(beaten[at].limit, message, at)) {
                changed++;
            }
        }
        // Only now, as a message may list a group twice: then the last entry holds.
        for (int at = 0; at < beaten.length; at++) {
            if (beaten[at] != null) {
                set(beaten[at], message, at);
                beaten[at].stamp(arrival, false);
                news.add(message.groupIds()[at]);
            }
        }
        return changed;
    }

    private int remove(LimitsMessage message, Arrival arrival) {
        Entry[] beaten = beaten(message.removedGroupIds(), arrival);
        int removed = 0;
        for (int at = 0; at < beaten.length; at++) {
            if (beaten[at] != null) {
                Arrays.fill(beaten[at].limit, unset);
                Arrays.fill(beaten[at].safe, unset);
                beaten[at].stamp(arrival, true);
                beaten[at].isWhole = true;
                news.add(message.removedGroupIds()[at]);
                removed++;
            }
        }
        return removed;
    }

    /** (n) The entries of groups, new ones too, for which a message is newer; else null. */
    private Entry[] beaten(long[] ids, Arrival arrival) {
        Entry[] beaten = new Entry[ids.length];
        for (int at = 0; at < ids.length; at++) {
            Entry entry = entryOf(ids[at]);
            if (entry != null && arrival.beats(entry)) {
                beaten[at] = entry;
            }
        }
        return beaten;
    }

    private Entry entryOf(long id) {
        Entry entry = entries.get(id);
        if (entry != null || id < 0) {
            return entry;
        }
        if (entries.size() == MOST_GROUPS) {
            unused++;
            return null;
        }
        entry = new Entry();
        Arrays.fill(entry.limit, unset);
        Arrays.fill(entry.safe, unsetSafe);
        entries.put(id, entry);
        return entry;
    }

    private static boolean differs(double[] limit, LimitsMessage message, int at) {
        for (Dimension dimension : Dimension.values()) {
            if (limit[dimension.ordinal()] != message.limit(at, dimension)) {
                return true;
            }
        }
        return false;
    }

    private void set(Entry entry, LimitsMessage message, int at) {
        if (message.safeLimits() == null && entry.isRemoved) {
            Arrays.fill(entry.safe, unsetSafe);
            entry.isWhole = false;
        }
        entry.isWhole |= message.safeLimits() != null;
        for (Dimension dimension : Dimension.values()) {
            entry.limit[dimension.ordinal()] = message.limit(at, dimension);
            if (message.safeLimits() != null) {
                entry.safe[dimension.ordinal()] = message.safeLimit(at, dimension);
            }
        }
    }

    /** Ids of the groups that messages listed or removed since the last call. */
    public Set<Long> takeNews() {
        Set<Long> taken = news;
        news = new HashSet<>();
        return taken;
    }

    /** A group's limit in force per second: infinity is unlimited. */
    public double limit(long groupId, Dimension dimension, long steadyNowMs) {
        Entry entry = entries.get(groupId);
        if (entry == null) {
            return unset;
        }
        double[] inForce = entry.untilMs < steadyNowMs ? entry.safe : entry.limit;
        return inForce[dimension.ordinal()];
    }

    /** Whether any message listed or removed the group. */
    public boolean isKnown(long groupId) {
        return entries.containsKey(groupId);
    }

    /** Whether messages had the group's limit and its safe limit, or one removed the group. */
    public boolean isWhole(long groupId) {
        Entry entry = entries.get(groupId);
        return entry != null && entry.isWhole;
    }

    /** Whether the group's lease is over, so that its safe limit holds; false if it was removed. */
    public boolean isOver(long groupId, long steadyNowMs) {
        return leaseEndMs(groupId) < steadyNowMs;
    }

    /**
     * When the group's lease ends, on the steady clock; the greatest long if no message listed the
     * group, or the last one removed it.
     */
    public long leaseEndMs(long groupId) {
        Entry entry = entries.get(groupId);
        return entry == null || entry.isRemoved ? NO_END : entry.untilMs;
    }

    /** The newest version of all groups; null without any. */
    public Version acknowledged() {
        if (!isNewestKnown) {
            newest = null;
            for (Entry entry : entries.values()) {
                if (newest == null || entry.version.isNewerThan(newest)) {
                    newest = entry.version;
                }
            }
            isNewestKnown = true;
        }
        return newest;
    }

    /** The version of the group's limit; null without any. */
    public Version version(long groupId) {
        Entry entry = entries.get(groupId);
        return entry == null ? null : entry.version;
    }

    /** How often a limit was not used, as there were {@code MOST_GROUPS} already. */
    public long unused() {
        return unused;
    }

    /**
     * Forget groups whose leases ended before a time of the steady clock, except the kept ones. Of
     * a removed group the lease of the message that removed it counts.
     */
    public void forget(long endedBeforeMs, Set<Long> keptIds) {
        boolean some =
                entries.entrySet()
                        .removeIf(
                                entry ->
                                        entry.getValue().untilMs < endedBeforeMs
                                                && !keptIds.contains(entry.getKey()));
        isNewestKnown &= !some;
    }
}
