package io.quotaplane.kafka.wire;

import static io.quotaplane.kafka.wire.Messages.hex;
import static io.quotaplane.kafka.wire.Messages.joined;
import static io.quotaplane.kafka.wire.Messages.limits;
import static io.quotaplane.kafka.wire.Messages.signed;
import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.util.Arrays;
import java.util.Map;
import java.util.function.Consumer;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

class LimitsMessageTest {
    private static final double INFINITY = Double.POSITIVE_INFINITY;

    private static LimitsMessage decode(byte[] value) throws RefusedMessageException {
        return LimitsMessage.decode(value, null);
    }

    private static String whyRefused(byte[] value) {
        return assertThrows(RefusedMessageException.class, () -> decode(value)).getMessage();
    }

    private static String whyRefused(Consumer<ProtoWriter> fields) {
        return whyRefused(limits(fields));
    }

    @Test
    void allFieldsAreRead() throws RefusedMessageException {
        byte[] value =
                limits(
                        out -> {
                            out.varint(3, 5);
                            out.varint(6, 1000);
                            out.text(8, "g");
                            out.text(8, "h");
                            out.column(10, new double[] {20, INFINITY});
                            out.column(17, new double[] {10, 0});
                            out.text(14, "acme");
                            out.column(15, new long[] {3});
                            out.varint(16, 77);
                            out.text(27, "");
                            out.text(27, "{}");
                        });
        LimitsMessage message = decode(value);
        assertEquals("b1", message.broker());
        assertEquals(5, message.shard());
        assertEquals(1, message.epoch());
        assertEquals(7, message.seq());
        assertEquals(1000, message.issuedAtMs());
        assertEquals(5000, message.leaseMs());
        assertEquals(77, message.brokerStartedAtMs());
        assertArrayEquals(
                new long[] {GroupIds.idOf("g"), GroupIds.idOf("h")}, message.groupIds());
        assertEquals(20, message.limit(0, Dimension.PUBLISH_MESSAGES));
        assertEquals(INFINITY, message.limit(1, Dimension.PUBLISH_MESSAGES));
        assertEquals(INFINITY, message.limit(0, Dimension.PUBLISH_BYTES));
        assertEquals(10, message.safeLimit(0, Dimension.PUBLISH_MESSAGES));
        assertEquals(INFINITY, message.safeLimit(1, Dimension.REQUEST_MS));
        assertArrayEquals(new long[] {4689823734664569936L, 3}, message.removedGroupIds());
    }

    @Test
    void everyDimensionHasItsFields() throws RefusedMessageException {
        int[] limitFields = {10, 11, 12, 13, 21, 22, 23, 29};
        int[] safeFields = {17, 18, 19, 20, 24, 25, 26, 30};
        LimitsMessage message =
                decode(
                        limits(
                                out -> {
                                    out.column(9, new long[] {1});
                                    for (int at = 0; at < Dimension.COUNT; at++) {
                                        out.column(limitFields[at], new double[] {at});
                                        out.column(safeFields[at], new double[] {at + 100});
                                    }
                                }));
        for (Dimension dimension : Dimension.values()) {
            assertEquals(dimension.ordinal(), message.limit(0, dimension));
            assertEquals(dimension.ordinal() + 100, message.safeLimit(0, dimension));
        }
        assertEquals("request_ms", Dimension.REQUEST_MS.label());
    }

    @Test
    void withoutSafeColumnsSafeLimitsAreUnchanged() throws RefusedMessageException {
        LimitsMessage message = decode(limits(out -> out.column(9, new long[] {1, 2})));
        assertNull(message.safeLimits());
        assertEquals(2, message.groupIds().length);
    }

    @Test
    void unknownFieldsAndKnownOnesOfAnotherKindAreSkipped() throws RefusedMessageException {
        byte[] more = hex("0a00 1500000000 f2070101 4008 500a ca030107 12026232");
        LimitsMessage message = decode(joined(limits(out -> {}), more));
        assertEquals("b2", message.broker());
        assertEquals(0, message.groupIds().length);
    }

    @Test
    void lastOfARepeatedScalarHolds() throws RefusedMessageException {
        assertEquals(9, decode(limits(out -> out.varint(5, 9))).seq());
    }

    @Test
    void uint32HasTheLower32Bits() throws RefusedMessageException {
        LimitsMessage message = decode(limits(out -> out.varint(7, -1)));
        assertEquals(0xFFFF_FFFFL, message.leaseMs());
    }

    @Test
    void otherMessagesAreRefused() {
        assertEquals("no LimitsUpdate: begins with nothing", whyRefused(new byte[0]));
        assertEquals(
                "no LimitsUpdate: begins with 0d 51 50 52 31",
                whyRefused(hex("0d51505231 12026231")));
        assertEquals("no LimitsUpdate: begins with 0d 51", whyRefused(hex("0d51")));
    }

    @Test
    void largeMessagesAreRefusedUnread() throws RefusedMessageException {
        byte[] value = limits(out -> out.text(99, "x".repeat(2 * 1024 * 1024 - 21)));
        assertEquals(2 * 1024 * 1024, value.length);
        decode(value);
        assertEquals(
                "LimitsUpdate of 2097153 bytes (at most 2097152)",
                whyRefused(Arrays.copyOf(value, value.length + 1)));
    }

    @Test
    void truncatedMessagesAreRefused() throws RefusedMessageException {
        byte[] value = limits(out -> out.column(10, new double[] {}));
        byte[] more = joined(value, hex("420167 5208 0000000000003440"));
        decode(more);
        assertEquals(
                "no LimitsUpdate, or truncated: " + (more.length - 1) + " bytes",
                whyRefused(Arrays.copyOf(more, more.length - 1)));
    }

    @ParameterizedTest
    @ValueSource(ints = {4, 5, 6, 16})
    void numbersOfMoreThan63BitsAreRefused(int field) {
        assertTrue(whyRefused(out -> out.varint(field, -1)).endsWith(" is 18446744073709551615"));
    }

    @Test
    void leasesMustNotEndAfter63Bits() throws RefusedMessageException {
        decode(limits(out -> out.varint(6, Long.MAX_VALUE - 5000)));
        assertTrue(
                whyRefused(out -> out.varint(6, Long.MAX_VALUE - 4999))
                        .endsWith("the lease end in ms is 9223372036854775808"));
    }

    @Test
    void idsMustNotBeNegative() {
        String why = "LimitsUpdate for 'b1': a negative id among ";
        assertEquals(why + "group_ids", whyRefused(out -> out.column(9, new long[] {1, -1})));
        assertEquals(
                why + "removed_group_ids", whyRefused(out -> out.column(15, new long[] {-5})));
    }

    @ParameterizedTest
    @ValueSource(ints = {10, 13, 17, 20, 21, 23, 24, 26, 29, 30})
    void limitsMustNotBeNanOrNegativeAndAsManyAsGroups(int field) {
        for (double rate : new double[] {Double.NaN, -1, -INFINITY}) {
            String why =
                    whyRefused(
                            out -> {
                                out.text(8, "g");
                                out.column(field, new double[] {rate});
                            });
            assertTrue(why.endsWith("a limit is NaN or negative"));
        }
        String why =
                whyRefused(
                        out -> {
                            out.text(8, "g");
                            out.column(field, new double[] {1, 2});
                        });
        assertEquals(
                "LimitsUpdate for 'b1': field " + field + " has 2 values for 1 groups", why);
    }

    @Test
    void minusZeroIsNotNegative() throws RefusedMessageException {
        byte[] value =
                limits(
                        out -> {
                            out.text(8, "g");
                            out.column(10, new double[] {-0.0});
                        });
        assertEquals(-0.0, decode(value).limit(0, Dimension.PUBLISH_MESSAGES));
    }

    @Test
    void throttlesMustBeAsManyAsGroups() {
        String why =
                whyRefused(
                        out -> {
                            out.text(8, "g");
                            out.text(27, "");
                            out.text(27, "");
                        });
        assertTrue(why.endsWith("2 throttles for 1 groups"));
    }

    @Test
    void groupsAreNamedEitherWay() {
        String why =
                whyRefused(
                        out -> {
                            out.text(8, "g");
                            out.column(9, new long[] {1});
                        });
        assertTrue(why.endsWith("has both group names and group ids"));
    }

    @Test
    void brokersHavePrintableNames() throws RefusedMessageException {
        for (String name : new String[] {"", "a\nb", "x".repeat(513)}) {
            String why = whyRefused(out -> out.text(2, name));
            assertTrue(why.startsWith("the broker's name is empty, longer than 512"));
            assertFalse(why.contains("\n"));
        }
        String longest = "😀".repeat(512);
        assertEquals(longest, decode(limits(out -> out.text(2, longest))).broker());
    }

    @ParameterizedTest
    @ValueSource(ints = {8, 14, 27})
    void namesAreAtMost100000(int field) {
        String why =
                whyRefused(
                        out -> {
                            for (int more = 100_001; more > 0; more--) {
                                out.text(field, "");
                            }
                        });
        assertTrue(why.startsWith("LimitsUpdate: more than 100000 "));
    }

    @Test
    void namesThatNoGroupCanHaveGetNoId() throws RefusedMessageException {
        LimitsMessage message = decode(limits(out -> out.text(8, "\t")));
        assertArrayEquals(new long[] {GroupIds.NO_ID}, message.groupIds());
    }

    @Test
    void readersWithKeysWantASignature() throws RefusedMessageException {
        SigningKeys keys = SigningKeys.of(Map.of(Messages.ID, Messages.SECRET));
        byte[] plain = limits(out -> {});
        byte[] once = signed(plain, Messages.ID, Messages.SECRET);
        assertEquals("b1", LimitsMessage.decode(once, keys).broker());
        assertEquals("b1", decode(once).broker());
        assertThrows(RefusedMessageException.class, () -> LimitsMessage.decode(plain, keys));
        byte[] twice = signed(once, Messages.ID, Messages.SECRET);
        var error =
                assertThrows(
                        RefusedMessageException.class, () -> LimitsMessage.decode(twice, keys));
        assertEquals("signed more than once", error.getMessage());
        assertEquals("b1", decode(twice).broker());
    }

    @Test
    void timesAreOfTheReadersClockThatCannotBeSet() throws RefusedMessageException {
        LimitsMessage message = decode(limits(out -> out.varint(6, 1000)));
        assertEquals(50, message.issuedOn(900, 50));
        assertEquals(-50, message.issuedOn(1100, 50));
        assertFalse(message.isOver(6000));
        assertTrue(message.isOver(6001));
    }
}
