package io.quotaplane.kafka.wire;

import static io.quotaplane.kafka.wire.ProtoReader.LENGTH;
import static io.quotaplane.kafka.wire.ProtoReader.VARINT;

import java.util.ArrayList;
import java.util.HashSet;
import java.util.List;

/** Decodes one {@code AttachmentsUpdate}. */
final class AttachmentsDecoder {
    private static final String TYPE = "AttachmentsUpdate";
    private static final byte[] HEAD = Envelope.head("QPA1");
    private static final long UINT32 = 0xFFFF_FFFFL;

    private final List<String> names = new ArrayList<>();
    private final List<String> groups = new ArrayList<>();
    private long part;
    private long epoch;
    private long seq;
    private long issuedAtMs;
    private int signatureLength;

    AttachmentsMessage decode(byte[] value, SigningKeys keys) throws RefusedMessageException {
        ProtoReader in = Envelope.open(TYPE, HEAD, value, keys);
        while (in.next()) {
            read(in);
        }
        if (keys != null && signatureLength > 0) {
            throw new RefusedMessageException("signed more than once");
        }
        if (part >= AttachmentsMessage.PARTS) {
            throw new RefusedMessageException(TYPE + ": there is no part " + part);
        }
        if (epoch < 0 || seq < 0 || issuedAtMs < 0) {
            throw refused("epoch, seq or issued_at_ms needs more than 63 bits");
        }
        if (names.size() != groups.size()) {
            throw refused(names.size() + " names and " + groups.size() + " groups");
        }
        checkNames();
        return new AttachmentsMessage(
                (int) part, epoch, seq, issuedAtMs, List.copyOf(names), List.copyOf(groups));
    }

    /** A name must be in one part only, and there once: else two messages could contradict. */
    private void checkNames() throws RefusedMessageException {
        if (names.contains("") || groups.contains("")) {
            throw refused("an empty name of what is attached, or of a group");
        }
        if (new HashSet<>(names).size() < names.size()) {
            throw refused("a name is there twice");
        }
        for (String name : names) {
            if (AttachmentsMessage.partOf(name) != part) {
                throw refused("the name " + Names.shown(name) + " is of another part");
            }
        }
    }

    private void read(ProtoReader in) throws RefusedMessageException {
        switch (in.tag()) {
            case 2 << 3 | VARINT -> part = in.varint() & UINT32;
            case 4 << 3 | VARINT -> epoch = in.varint();
            case 5 << 3 | VARINT -> seq = in.varint();
            case 6 << 3 | VARINT -> issuedAtMs = in.varint();
            case 8 << 3 | LENGTH -> add("names", names, in);
            case 9 << 3 | LENGTH -> add("groups", groups, in);
            case Envelope.SIGNATURE << 3 | LENGTH -> signatureLength = in.skipBytes();
            default -> in.skip();
        }
    }

    private static void add(String what, List<String> names, ProtoReader in)
            throws RefusedMessageException {
        if (names.size() == Envelope.MOST_NAMES) {
            throw new RefusedMessageException(
                    TYPE + ": more than " + Envelope.MOST_NAMES + " " + what);
        }
        names.add(in.text());
    }

    private RefusedMessageException refused(String why) {
        return new RefusedMessageException(TYPE + " of part " + part + ": " + why);
    }
}
