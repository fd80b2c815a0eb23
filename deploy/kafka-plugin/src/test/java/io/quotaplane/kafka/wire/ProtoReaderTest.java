package io.quotaplane.kafka.wire;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

class ProtoReaderTest {
    private static ProtoReader reader(String hex) {
        byte[] bytes = Messages.hex(hex);
        return new ProtoReader("Test", bytes, bytes.length);
    }

    private static void readAll(ProtoReader in) throws RefusedMessageException {
        while (in.next()) {
            in.skip();
        }
    }

    @Test
    void whatWasWrittenIsRead() throws RefusedMessageException {
        var out = new ProtoWriter();
        out.varint(1, Long.MAX_VALUE);
        out.varint(2, -1);
        out.varint(16, 300);
        out.text(3, "jürgen😀");
        out.column(4, new double[] {1.5, Double.POSITIVE_INFINITY});
        byte[] bytes = out.bytes();
        var in = new ProtoReader("Test", bytes, bytes.length);
        for (long number : new long[] {Long.MAX_VALUE, -1, 300}) {
            assertTrue(in.next());
            assertEquals(number, in.varint());
        }
        assertEquals(16, in.field());
        assertTrue(in.next());
        assertEquals("jürgen😀", in.text());
        assertTrue(in.next());
        var column = new Fixed64Column();
        assertTrue(column.read(in));
        assertArrayEquals(new double[] {1.5, Double.POSITIVE_INFINITY}, column.doubles());
        assertFalse(in.next());
    }

    @Test
    void everyKindOfUnknownFieldIsSkipped() throws RefusedMessageException {
        // A varint, a fixed64, 2 bytes, a group with a group in it, a fixed32.
        readAll(reader("08ac02 110102030405060708 1a02ffff 23 2b 0801 2c 24 2d01020304"));
    }

    @ParameterizedTest
    @ValueSource(
            strings = {
                "08", // no value
                "08ff", // a varint without an end
                "08ffffffffffffffffffff01", // of more than 10 bytes
                "0900", // a fixed64 of one byte
                "0d0000", // a fixed32 of two
                "1205ffffffff", // 5 bytes, of which 4 are there
                "12ffffffff0f", // 4 GB
                "12ffffffffffffffffff01", // a negative length
                "0001", // field 0
                "808080808001", // a tag of 6 bytes
                "888080801001", // a tag beyond 32 bits
                "0e", // wire type 6
                "0f", // wire type 7
                "0c", // the end of a group that did not begin
                "0b", // a group without an end
                "0b14", // the end of another group
            })
    void malformedMessagesAreRefused(String hex) {
        var error = assertThrows(RefusedMessageException.class, () -> readAll(reader(hex)));
        assertTrue(error.getMessage().startsWith("no Test, or truncated: "));
    }

    @Test
    void groupsMayBeAHundredDeep() throws RefusedMessageException {
        readAll(reader("0b".repeat(100) + "0c".repeat(100)));
        assertThrows(
                RefusedMessageException.class,
                () -> readAll(reader("0b".repeat(101) + "0c".repeat(101))));
        assertThrows(
                RefusedMessageException.class, () -> readAll(reader("0b".repeat(1_000_000))));
    }

    @ParameterizedTest
    @ValueSource(strings = {"0a01ff", "0a02c080", "0a03eda080", "0a04f4908080", "0a01c3"})
    void textsMustBeValidUtf8(String hex) throws RefusedMessageException {
        ProtoReader in = reader(hex);
        assertTrue(in.next());
        assertThrows(RefusedMessageException.class, in::text);
    }

    @Test
    void columnsMayComeInPiecesAndSingleValues() throws RefusedMessageException {
        ProtoReader in =
                reader(
                        "0a08 0100000000000000"
                                + "09 0200000000000000"
                                + "0a00"
                                + "0a10 0300000000000000 0400000000000000");
        var column = new Fixed64Column();
        while (in.next()) {
            assertTrue(column.read(in));
        }
        assertArrayEquals(new long[] {1, 2, 3, 4}, column.longs());
        assertEquals(4, column.size());
    }

    @Test
    void columnsOfOtherKindsAreLeftToTheCaller() throws RefusedMessageException {
        ProtoReader in = reader("0801");
        assertTrue(in.next());
        assertFalse(new Fixed64Column().read(in));
        in.skip();
        assertFalse(in.next());
    }

    @ParameterizedTest
    @ValueSource(strings = {"0a8080808008", "0af8ffffff07", "0af8ffffff0f", "0a08"})
    void columnsMustBeAsLongAsTheySay(String hex) throws RefusedMessageException {
        ProtoReader in = reader(hex);
        assertTrue(in.next());
        assertThrows(RefusedMessageException.class, () -> new Fixed64Column().read(in));
    }

    @Test
    void columnsMustHaveWholeNumbersOfValues() throws RefusedMessageException {
        ProtoReader in = reader("0a09 010000000000000001");
        assertTrue(in.next());
        assertThrows(RefusedMessageException.class, () -> new Fixed64Column().read(in));
    }
}
