package io.quotaplane.kafka.limits;

import io.quotaplane.kafka.limits.GroupLimits.Source;
import java.util.Collection;
import java.util.Collections;
import java.util.EnumSet;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.stream.Collectors;

/**
 * The limits that the broker holds the attached groups to: the received ones, cut in steps. One
 * thread ticks; any may ask for limits.
 */
public final class LimitsInForce {
    private static final long NEVER = Long.MAX_VALUE;

    private ReceivedLimits received;
    private final Bounds bounds;
    private final Map<String, GroupLimits> byTag = new ConcurrentHashMap<>();
    private Map<Long, List<GroupLimits>> byId = Map.of();
    private Set<String> attached = Set.of();

    /** Limits that are not at their targets yet. */
    private Set<GroupLimits> cut = new HashSet<>();

    private long nextEndMs = NEVER;
    private long lastMs;

    /** False: the last tick failed, and nobody knows what it changed. */
    private boolean isDone = true;

    public LimitsInForce(ReceivedLimits received, Bounds bounds) {
        this.received = received;
        this.bounds = bounds;
    }

    /** Hold groups to these from the next tick on. */
    public void follow(ReceivedLimits other) {
        received = other;
        nextEndMs = Long.MIN_VALUE;
    }

    /** A group's limit per second; infinity: none, also if the group is not attached. */
    public double limit(String tag, QuotaKind kind) {
        GroupLimits group = byTag.get(tag);
        return group == null ? Double.POSITIVE_INFINITY : group.inForce[kind.ordinal()];
    }

    /** Whether no limit of the group is known, or its safe limit is no longer valid. */
    public boolean isFallback(String tag) {
        GroupLimits group = byTag.get(tag);
        return group != null && group.source == Source.FALLBACK;
    }

    /** The limit per second that {@code limit} steps to. */
    public double target(String tag, QuotaKind kind) {
        GroupLimits group = byTag.get(tag);
        return group == null ? Double.POSITIVE_INFINITY : group.target[kind.ordinal()];
    }

    /** The seq of the limits that hold wholly, if it is of an epoch; else -1. */
    public long appliedSeq(String tag, long epoch) {
        GroupLimits group = byTag.get(tag);
        boolean isOfIt = group != null && group.applied != null && group.applied.epoch() == epoch;
        return isOfIt ? group.applied.seq() : -1;
    }

    /** Tags of the attached groups. */
    public Set<String> tags() {
        return Collections.unmodifiableSet(byTag.keySet());
    }

    /** Ids of the attached groups. */
    public Set<Long> ids() {
        return byId.keySet();
    }

    /** A group's name by its tag; null: it is not attached. */
    public String name(String tag) {
        GroupLimits group = byTag.get(tag);
        return group == null ? null : group.name;
    }

    /** An attached group's id. */
    public long id(String tag) {
        return byTag.get(tag).id;
    }

    /** Number of attached groups without a known limit. */
    public int fallbacks() {
        return (int) byTag.values().stream().filter(g -> g.source == Source.FALLBACK).count();
    }

    /**
     * Put in force what holds now. Only groups that messages came for, those whose limits are on
     * their way to the target and those that are looked at take time.
     *
     * @param groups all attached groups
     * @param nowMs on the steady clock
     * @param looked tags of groups that may have begun or ended to be idle
     */
    public Changes tick(Set<String> groups, long nowMs, Collection<String> looked, Rates rates) {
        boolean isAnew = !isDone || !attached.equals(groups);
        isDone = false;
        if (isAnew) {
            attach(groups);
        }
        boolean isOther = isAnew;
        for (GroupLimits group : withNews(isAnew || nowMs > nextEndMs)) {
            cut.add(group);
            isOther |= aim(group, nowMs);
        }
        looked.stream().map(byTag::get).filter(Objects::nonNull).forEach(cut::add);
        var kinds = isOther ? EnumSet.allOf(QuotaKind.class) : EnumSet.noneOf(QuotaKind.class);
        boolean tags = stepAll(rates, nowMs, kinds);
        lastMs = nowMs;
        isDone = true;
        return new Changes(kinds, tags || isOther);
    }

    private Collection<GroupLimits> withNews(boolean all) {
        Set<Long> ids = received.takeNews();
        if (all) {
            nextEndMs = NEVER;
            return byTag.values();
        }
        return ids.stream().flatMap(id -> byId.getOrDefault(id, List.of()).stream()).toList();
    }

    private void attach(Set<String> groups) {
        attached = groups;
        Map<String, GroupLimits> now = new ConcurrentHashMap<>();
        for (String name : groups) {
            GroupLimits fresh = new GroupLimits(name);
            GroupLimits known = byTag.get(fresh.tag);
            now.put(fresh.tag, known == null ? fresh : known);
        }
        byTag.keySet().retainAll(now.keySet());
        byTag.putAll(now);
        byId = byTag.values().stream().collect(Collectors.groupingBy(group -> group.id));
        cut.clear();
    }

    /** Find a group's targets; returns whether it began or ended to be without known limits. */
    private boolean aim(GroupLimits group, long nowMs) {
        Source before = group.source;
        group.source = source(group.id, nowMs);
        double[] target = new double[QuotaKind.COUNT];
        double[] safe = new double[QuotaKind.COUNT];
        for (QuotaKind kind : QuotaKind.ALL) {
            double limit = bounds.strict() ? 0 : Double.POSITIVE_INFINITY;
            if (group.source != Source.FALLBACK) {
                limit = received.limit(group.id, kind.dimension, nowMs);
            }
            target[kind.ordinal()] = Math.max(limit, bounds.least(kind));
            safe[kind.ordinal()] = received.limit(group.id, kind.dimension, NEVER);
        }
        group.target = target;
        group.safe = safe;
        group.targetVersion = received.version(group.id);
        return (group.source == Source.FALLBACK) != (before == Source.FALLBACK);
    }

    private Source source(long id, long nowMs) {
        if (!received.isKnown(id)) {
            return Source.FALLBACK;
        }
        long endMs = received.leaseEndMs(id);
        if (!received.isOver(id, nowMs)) {
            nextEndMs = Math.min(nextEndMs, endMs);
            return Source.LIMITS;
        }
        if (!received.isWhole(id)) {
            return Source.FALLBACK;
        }
        if (bounds.safeValidityMs() < 0) {
            return Source.SAFE_LIMITS;
        }
        if (nowMs > endMs + bounds.safeValidityMs()) {
            return Source.FALLBACK;
        }
        nextEndMs = Math.min(nextEndMs, endMs + bounds.safeValidityMs());
        return Source.SAFE_LIMITS;
    }

    /** Step towards the targets; keeps those in {@code cut} that are not there yet. */
    private boolean stepAll(Rates rates, long nowMs, Set<QuotaKind> changed) {
        double elapsedS = (nowMs - lastMs) / 1000.0;
        boolean tags = false;
        Set<GroupLimits> onTheWay = new HashSet<>();
        for (GroupLimits group : cut) {
            double[] next = new double[QuotaKind.COUNT];
            boolean isThere = true;
            for (QuotaKind kind : QuotaKind.ALL) {
                int at = kind.ordinal();
                double now = group.inForce[at];
                double aim = group.target[at];
                double limit = aim;
                if (kind.isBytes()) {
                    Rates.Limited bucket = rates.limited(group.tag, kind);
                    aim = aimOf(group, at, bucket, nowMs);
                    limit = group.steps.get(at).step(aim, bucket, elapsedS, bounds);
                }
                next[at] = limit;
                isThere &= limit == aim;
                if (limit != now) {
                    changed.add(kind);
                    tags |= Double.isInfinite(limit) != Double.isInfinite(now);
                }
            }
            group.inForce = next;
            if (isThere) {
                group.applied = group.targetVersion;
            } else {
                onTheWay.add(group);
            }
        }
        cut = onTheWay;
        return tags;
    }

    /** The limit in bytes to step to: the target, or what a group may use that was idle. */
    private double aimOf(GroupLimits group, int at, Rates.Limited bucket, long nowMs) {
        double target = group.target[at];
        if (group.source != Source.LIMITS) {
            return target;
        }
        double observed = bucket == null ? 0 : bucket.rate();
        return group.waking.get(at).aim(target, group.safe[at], observed, nowMs, bounds);
    }
}
