package io.quotaplane.kafka.wire;

import static io.quotaplane.kafka.wire.Messages.message;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.util.Arrays;
import java.util.HexFormat;
import java.util.List;
import java.util.Map;
import java.util.function.Consumer;
import org.junit.jupiter.api.Test;

class AttachmentsMessageTest {
    private static final String NAME = "user=alice";
    private static final int PART = AttachmentsMessage.partOf(NAME);

    private static AttachmentsMessage decode(byte[] value) throws RefusedMessageException {
        return AttachmentsMessage.decode(value, null);
    }

    private static byte[] update(Consumer<ProtoWriter> fields) {
        return message(
                "QPA1",
                out -> {
                    out.varint(2, PART);
                    fields.accept(out);
                });
    }

    private static String whyRefused(Consumer<ProtoWriter> fields) {
        return assertThrows(RefusedMessageException.class, () -> decode(update(fields)))
                .getMessage();
    }

    @Test
    void partsAreOfTheFirstByteOfTheDigest() {
        String digest = HexFormat.of().formatHex(Names.digest(NAME));
        assertEquals(Integer.parseInt(digest.substring(0, 2), 16) % 64, PART);
    }

    @Test
    void allFieldsAreRead() throws RefusedMessageException {
        byte[] value =
                update(
                        out -> {
                            out.varint(4, 1);
                            out.varint(5, 7);
                            out.varint(6, 1000);
                            out.text(8, NAME);
                            out.text(9, "orders");
                            out.varint(99, 1);
                        });
        assertEquals(
                new AttachmentsMessage(PART, 1, 7, 1000, List.of(NAME), List.of("orders")),
                decode(value));
        for (int length = 0; length < 5; length++) {
            byte[] begin = Arrays.copyOf(value, length);
            assertThrows(RefusedMessageException.class, () -> decode(begin));
        }
    }

    @Test
    void partsMayBeEmpty() throws RefusedMessageException {
        assertEquals(List.of(), decode(update(out -> {})).names());
    }

    @Test
    void otherMessagesAreRefused() {
        var error =
                assertThrows(
                        RefusedMessageException.class,
                        () -> decode(message("QPL1", out -> {})));
        assertTrue(error.getMessage().startsWith("no AttachmentsUpdate: begins with 0d 51 50"));
    }

    @Test
    void thereAre64Parts() {
        assertEquals(
                "AttachmentsUpdate: there is no part 64", whyRefused(out -> out.varint(2, 64)));
        assertEquals(
                "AttachmentsUpdate: there is no part 4294967295",
                whyRefused(out -> out.varint(2, -1)));
    }

    @Test
    void numbersHaveAtMost63Bits() {
        for (int field : new int[] {4, 5, 6}) {
            assertTrue(whyRefused(out -> out.varint(field, -1)).contains("more than 63 bits"));
        }
    }

    @Test
    void everyNameHasAGroup() {
        assertTrue(whyRefused(out -> out.text(8, NAME)).endsWith("1 names and 0 groups"));
    }

    @Test
    void namesAreOfTheirPart() {
        String why =
                whyRefused(
                        out -> {
                            out.text(8, "user=bob");
                            out.text(9, "g");
                        });
        assertTrue(why.endsWith("the name 'user=bob' is of another part"));
    }

    @Test
    void namesAreThereOnceAndNotEmpty() {
        String why =
                whyRefused(
                        out -> {
                            for (String group : new String[] {"g", "h"}) {
                                out.text(8, NAME);
                                out.text(9, group);
                            }
                        });
        assertTrue(why.endsWith("a name is there twice"));
        String noGroup =
                whyRefused(
                        out -> {
                            out.text(8, NAME);
                            out.text(9, "");
                        });
        assertTrue(noGroup.endsWith("an empty name of what is attached, or of a group"));
    }

    @Test
    void namesAreAtMost100000() {
        String why =
                whyRefused(
                        out -> {
                            for (int more = 100_001; more > 0; more--) {
                                out.text(9, "");
                            }
                        });
        assertEquals("AttachmentsUpdate: more than 100000 groups", why);
    }

    @Test
    void readersWithKeysWantASignature() throws RefusedMessageException {
        SigningKeys keys = SigningKeys.of(Map.of(Messages.ID, Messages.SECRET));
        byte[] plain = update(out -> {});
        byte[] once = Messages.signed(plain, Messages.ID, Messages.SECRET);
        assertEquals(PART, AttachmentsMessage.decode(once, keys).part());
        assertEquals(PART, decode(once).part());
        byte[] twice = Messages.signed(once, Messages.ID, Messages.SECRET);
        for (byte[] wrong : new byte[][] {plain, twice}) {
            assertThrows(
                    RefusedMessageException.class, () -> AttachmentsMessage.decode(wrong, keys));
        }
    }
}
