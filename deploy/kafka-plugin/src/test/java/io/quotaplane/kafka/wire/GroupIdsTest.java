package io.quotaplane.kafka.wire;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNotEquals;

import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;
import org.junit.jupiter.params.provider.ValueSource;

class GroupIdsTest {
    /** Examples of docs/reference/wire.md. */
    @ParameterizedTest
    @CsvSource({
        "tenant-a/orders, 3895966954609217153",
        "acme, 4689823734664569936",
        "acme::orders, 4689822960636026023",
    })
    void idsAreDigestsOfNames(String name, long id) {
        assertEquals(id, GroupIds.idOf(name));
    }

    @ParameterizedTest
    @ValueSource(
            strings = {
                "", "a\tb", "a\nb", "\u0000", "a\u00a0b", "\u200b", "\u2028", "\u2029", "\ue000",
                "\ud800"
            })
    void emptyAndUnprintableNamesHaveNone(String name) {
        assertEquals(GroupIds.NO_ID, GroupIds.idOf(name));
    }

    @ParameterizedTest
    @ValueSource(strings = {"jürgen", "a b", "組", "😀", "::", "user=<default>"})
    void otherNamesHaveOne(String name) {
        assertNotEquals(GroupIds.NO_ID, GroupIds.idOf(name));
    }

    @Test
    void namesHaveAtMost1024Characters() {
        assertNotEquals(GroupIds.NO_ID, GroupIds.idOf("😀".repeat(1024)));
        assertEquals(GroupIds.NO_ID, GroupIds.idOf("a".repeat(1025)));
    }
}
