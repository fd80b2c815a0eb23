package io.quotaplane.kafka.wire;

import java.nio.ByteBuffer;

/**
 * Ids of groups: the upper 63 bits of the SHA-256 of the name. A path such as {@code acme::orders}
 * has the upper 23 of them from its root, so that the groups of a tree are neighbours.
 */
public final class GroupIds {
    /** In place of an id: the name can't be one of a group. */
    public static final long NO_ID = -1;

    private static final String SEPARATOR = "::";
    private static final long OWN_BITS = (1L << 40) - 1;

    private GroupIds() {}

    /** The id of a group; {@code NO_ID} if the name is empty, longer than 1024 or not printable. */
    public static long idOf(String name) {
        if (!Names.isUsable(name, Names.MOST_GROUP_CHARACTERS)) {
            return NO_ID;
        }
        int rootEnd = name.indexOf(SEPARATOR);
        if (rootEnd < 0) {
            return upperBits(name);
        }
        return upperBits(name.substring(0, rootEnd)) & ~OWN_BITS | upperBits(name) & OWN_BITS;
    }

    private static long upperBits(String name) {
        return ByteBuffer.wrap(Names.digest(name)).getLong() >>> 1;
    }
}
