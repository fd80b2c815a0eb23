package io.quotaplane.kafka.limits;

import io.quotaplane.kafka.attachments.Scope;
import io.quotaplane.kafka.wire.GroupIds;
import java.util.Arrays;
import java.util.List;

/** The limits of one group by kind, per second; infinity: none. One thread changes them. */
final class GroupLimits {
    /** Where the limits come from. */
    enum Source {
        LIMITS,
        SAFE_LIMITS,
        FALLBACK
    }

    final String name;
    final String tag;
    final long id;

    /** Never changed, but replaced: any thread may read. */
    volatile double[] inForce = unlimited();

    volatile Source source = Source.FALLBACK;
    double[] target = unlimited();
    double[] safe = unlimited();
    final List<SteppedLimit> steps = QuotaKind.ALL.stream().map(SteppedLimit::of).toList();

    final List<WakingLimit> waking = QuotaKind.ALL.stream().map(kind -> new WakingLimit()).toList();

    /** Version that the targets came from, and the last one that was wholly in force; null: none. */
    ReceivedLimits.Version targetVersion;

    ReceivedLimits.Version applied;

    GroupLimits(String name) {
        this.name = name;
        this.tag = Scope.encode(name);
        this.id = GroupIds.idOf(name);
    }

    private static double[] unlimited() {
        double[] none = new double[QuotaKind.COUNT];
        Arrays.fill(none, Double.POSITIVE_INFINITY);
        return none;
    }
}
