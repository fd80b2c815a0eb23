package io.quotaplane.kafka.wire;

import static io.quotaplane.kafka.wire.ProtoReader.LENGTH;
import static io.quotaplane.kafka.wire.ProtoReader.VARINT;

import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.function.ToIntFunction;

/** Decodes one {@code LimitsUpdate} (docs/reference/wire.md). */
final class LimitsDecoder {
    private static final String TYPE = "LimitsUpdate";
    private static final byte[] HEAD = Envelope.head("QPL1");
    private static final int GROUP_IDS = 9;
    private static final int REMOVED_GROUP_IDS = 15;
    private static final long UINT32 = 0xFFFF_FFFFL;

    private final List<String> groups = new ArrayList<>();
    private final List<String> removedGroups = new ArrayList<>();
    private final Map<Integer, Fixed64Column> columns = new HashMap<>();
    private String broker = "";
    private long shard;
    private long epoch;
    private long seq;
    private long issuedAtMs;
    private long leaseMs;
    private long brokerStartedAtMs;
    private int throttles;
    private int signatureLength;

    LimitsDecoder() {
        columns.put(GROUP_IDS, new Fixed64Column());
        columns.put(REMOVED_GROUP_IDS, new Fixed64Column());
        for (Dimension dimension : Dimension.values()) {
            columns.put(dimension.limitsLimit, new Fixed64Column());
            columns.put(dimension.limitsSafe, new Fixed64Column());
        }
    }

    LimitsMessage decode(byte[] value, SigningKeys keys) throws RefusedMessageException {
        ProtoReader in = Envelope.open(TYPE, HEAD, value, keys);
        while (in.next()) {
            read(in);
        }
        if (keys != null && signatureLength > 0) {
            throw new RefusedMessageException("signed more than once");
        }
        checkBroker();
        checkNumbers();
        long[] ids = ids("group_ids", GROUP_IDS);
        if (!groups.isEmpty() && ids.length > 0) {
            throw refused("has both group names and group ids");
        }
        int count = groups.size() + ids.length;
        double[][] limits = rates(count, dimension -> dimension.limitsLimit);
        double[][] safeLimits = rates(count, dimension -> dimension.limitsSafe);
        if (throttles > 0 && throttles != count) {
            throw refused(throttles + " throttles for " + count + " groups");
        }
        return new LimitsMessage(
                broker,
                shard,
                epoch,
                seq,
                issuedAtMs,
                leaseMs,
                brokerStartedAtMs,
                joined(groups, ids),
                limits,
                isAnyGiven(safeLimits) ? safeLimits : null,
                joined(removedGroups, ids("removed_group_ids", REMOVED_GROUP_IDS)));
    }

    private void read(ProtoReader in) throws RefusedMessageException {
        switch (in.tag()) {
            case 2 << 3 | LENGTH -> broker = in.text();
            case 3 << 3 | VARINT -> shard = in.varint() & UINT32;
            case 4 << 3 | VARINT -> epoch = in.varint();
            case 5 << 3 | VARINT -> seq = in.varint();
            case 6 << 3 | VARINT -> issuedAtMs = in.varint();
            case 7 << 3 | VARINT -> leaseMs = in.varint() & UINT32;
            case 8 << 3 | LENGTH -> add("groups", groups, in);
            case 14 << 3 | LENGTH -> add("removed_groups", removedGroups, in);
            case 16 << 3 | VARINT -> brokerStartedAtMs = in.varint();
            case 27 << 3 | LENGTH -> {
                checkCount("throttles", ++throttles);
                in.text();
            }
            case Envelope.SIGNATURE << 3 | LENGTH -> signatureLength = in.skipBytes();
            default -> {
                Fixed64Column column = columns.get(in.field());
                if (column == null || !column.read(in)) {
                    in.skip();
                }
            }
        }
    }

    private static void add(String what, List<String> names, ProtoReader in)
            throws RefusedMessageException {
        checkCount(what, names.size() + 1);
        names.add(in.text());
    }

    private static void checkCount(String what, int count) throws RefusedMessageException {
        if (count > Envelope.MOST_NAMES) {
            throw new RefusedMessageException(
                    TYPE + ": more than " + Envelope.MOST_NAMES + " " + what);
        }
    }

    private void checkBroker() throws RefusedMessageException {
        if (!Names.isUsable(broker, Names.MOST_BROKER_CHARACTERS)) {
            throw new RefusedMessageException(
                    "the broker's name is empty, longer than " + Names.MOST_BROKER_CHARACTERS
                            + " characters or not printable: " + Names.shown(broker));
        }
    }

    private void checkNumbers() throws RefusedMessageException {
        checkNumber("epoch", epoch);
        checkNumber("seq", seq);
        checkNumber("issued_at_ms", issuedAtMs);
        checkNumber("broker_started_at_ms", brokerStartedAtMs);
        checkNumber("the lease end in ms", issuedAtMs + leaseMs);
    }

    /** Refuse a number that needs more than 63 bits. */
    private void checkNumber(String what, long number) throws RefusedMessageException {
        if (number < 0) {
            throw refused(what + " is " + Long.toUnsignedString(number));
        }
    }

    private long[] ids(String what, int field) throws RefusedMessageException {
        long[] ids = columns.get(field).longs();
        for (long id : ids) {
            if (id < 0) {
                throw refused("a negative id among " + what);
            }
        }
        return ids;
    }

    /** Columns by dimension; null for one that is not there. */
    private double[][] rates(int count, ToIntFunction<Dimension> field)
            throws RefusedMessageException {
        double[][] rates = new double[Dimension.COUNT][];
        for (Dimension dimension : Dimension.values()) {
            double[] column = columns.get(field.applyAsInt(dimension)).doubles();
            if (column.length == 0) {
                continue;
            }
            if (column.length != count) {
                throw refused(
                        "field " + field.applyAsInt(dimension) + " has " + column.length
                                + " values for " + count + " groups");
            }
            for (double rate : column) {
                if (!(rate >= 0)) {
                    throw refused("a limit is NaN or negative");
                }
            }
            rates[dimension.ordinal()] = column;
        }
        return rates;
    }

    private static boolean isAnyGiven(double[][] columns) {
        for (double[] column : columns) {
            if (column != null) {
                return true;
            }
        }
        return false;
    }

    /** Ids of names, followed by other ids. */
    private static long[] joined(List<String> names, long[] ids) {
        long[] joined = new long[names.size() + ids.length];
        for (int at = 0; at < names.size(); at++) {
            joined[at] = GroupIds.idOf(names.get(at));
        }
        System.arraycopy(ids, 0, joined, names.size(), ids.length);
        return joined;
    }

    private RefusedMessageException refused(String why) {
        return new RefusedMessageException(
                TYPE + " for " + Names.shown(broker) + ": " + why);
    }
}
