package io.quotaplane.kafka.wire;

/** Ids of groups: digests of their names. */
public final class GroupIds {
    /** In place of an id: the name can't be one of a group. */
    public static final long NO_ID = -1;

    private GroupIds() {}

    /** The id of a group; {@code NO_ID} if the name is empty, longer than 1024 or not printable. */
    public static long idOf(String name) {
        throw new UnsupportedOperationException();
    }
}
