package io.quotaplane.kafka.tags;

import io.quotaplane.kafka.attachments.Scope;
import io.quotaplane.kafka.builtin.BuiltInQuotas;
import io.quotaplane.kafka.limits.LimitsInForce;
import io.quotaplane.kafka.limits.QuotaKind;
import java.util.Collections;
import java.util.LinkedHashMap;
import java.util.Map;
import java.util.function.BinaryOperator;

/**
 * Which bucket the requests of a client count for, and its limit. Buckets are given by metric tags,
 * and Kafka names a bucket's sensor by the values of the tags, joined by colons: no value has one.
 *
 * <ul>
 *   <li>in a group that has a limit: {@code group}, which all clients of the group share;
 *   <li>in a group without a limit: {@code group, user, client-id}, the bucket that Kafka's own
 *       quotas have;
 *   <li>in no group: {@code user, client-id}, as Kafka's own quotas;
 *   <li>excluded clients: no tags and no limit.
 * </ul>
 *
 * <p>Any thread may call it.
 */
public final class ClientTags {
    /** Name of the tag with the group. */
    public static final String GROUP_TAG = "group";

    private final BinaryOperator<String> groups;
    private final LimitsInForce limits;
    private final Map<QuotaKind, BuiltInQuotas> builtIn;
    private final double fallbackFactor;

    /**
     * @param groups the group of a user and a client id; null: none
     * @param builtIn Kafka's own quotas, of every kind
     * @param fallbackFactor that Kafka's own quotas are multiplied with while no limit of a client's
     *     group is known
     */
    public ClientTags(
            BinaryOperator<String> groups,
            LimitsInForce limits,
            Map<QuotaKind, BuiltInQuotas> builtIn,
            double fallbackFactor) {
        this.groups = groups;
        this.limits = limits;
        this.builtIn = builtIn;
        this.fallbackFactor = fallbackFactor;
    }

    /** The tags of a client's bucket; names are not encoded. */
    public Map<String, String> tags(QuotaKind kind, String user, String clientId) {
        String group = groups.apply(user, clientId);
        if (group == null) {
            return builtIn.get(kind).tags(user, clientId);
        }
        // In this order: it is that of the values in the sensor's name.
        Map<String, String> tags = new LinkedHashMap<>(4);
        String tag = Scope.encode(group);
        tags.put(GROUP_TAG, tag);
        if (Double.isInfinite(limits.limit(tag, kind))) {
            tags.putAll(builtIn.get(kind).tags(user, clientId));
        }
        return Collections.unmodifiableMap(tags);
    }

    /** The limit of a bucket in Kafka's unit; null: unlimited, or no longer in use. */
    public Double limit(QuotaKind kind, Map<String, String> tags) {
        String tag = tags.get(GROUP_TAG);
        if (tag == null) {
            return tags.isEmpty() ? null : builtIn.get(kind).quota(tags);
        }
        double limit = limits.limit(tag, kind);
        if (!tags.containsKey(BuiltInQuotas.USER_TAG)) {
            return Double.isInfinite(limit) ? null : (Double) kind.toKafka(limit);
        }
        Double quota = Double.isInfinite(limit) ? builtIn.get(kind).quota(tags) : null;
        return quota == null || !limits.isFallback(tag) ? quota : (Double) (quota * fallbackFactor);
    }
}
