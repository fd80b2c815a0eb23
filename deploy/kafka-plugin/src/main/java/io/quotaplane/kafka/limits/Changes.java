package io.quotaplane.kafka.limits;

import java.util.Set;

/**
 * What a tick changed.
 *
 * @param kinds in which any group's limit is another one now
 * @param tags whether clients count for other buckets now
 */
public record Changes(Set<QuotaKind> kinds, boolean tags) {}
