package io.quotaplane.kafka.attachments;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.quotaplane.kafka.wire.AttachmentsMessage;
import java.util.ArrayList;
import java.util.List;
import java.util.Set;
import org.junit.jupiter.api.Test;

class AttachmentsTest {
    private static final String[] LEVELS = {
        "user=alice,client=app",
        "user=alice,client=<default>",
        "user=alice",
        "user=<default>,client=app",
        "user=<default>,client=<default>",
        "user=<default>",
        "client=app",
        "client=<default>",
    };

    private final Attachments attachments = new Attachments();

    /** Names and groups in turn. */
    private static AttachmentsMessage message(int part, long seq, String... pairs) {
        return ofEpoch(1, part, seq, pairs);
    }

    private static AttachmentsMessage ofEpoch(long epoch, int part, long seq, String... pairs) {
        var names = new ArrayList<String>();
        var groups = new ArrayList<String>();
        for (int at = 0; at < pairs.length; at += 2) {
            names.add(pairs[at]);
            groups.add(pairs[at + 1]);
        }
        return new AttachmentsMessage(part, epoch, seq, 0, names, groups);
    }

    /** The group of alice's app, if only some levels are attached, each to a group of its name. */
    private static String groupWith(String... names) {
        var some = new Attachments();
        int part = 0;
        for (String name : names) {
            some.apply(message(part++, 1, name, name));
        }
        return some.groupOf("alice", "app");
    }

    @Test
    void theMostSpecificLevelCounts() {
        for (int from = 0; from < LEVELS.length; from++) {
            String[] rest = List.of(LEVELS).subList(from, LEVELS.length).toArray(new String[0]);
            assertEquals(LEVELS[from], groupWith(rest));
            assertEquals(LEVELS[from], groupWith(LEVELS[from]));
        }
    }

    @Test
    void othersAreInNoGroup() {
        attachments.apply(message(0, 1, LEVELS[0], "g", LEVELS[2], "h", LEVELS[6], "i"));
        assertEquals("g", attachments.groupOf("alice", "app"));
        assertEquals("h", attachments.groupOf("alice", "x"));
        assertEquals("i", attachments.groupOf("bob", "app"));
        assertNull(attachments.groupOf("bob", "x"));
    }

    @Test
    void defaultsDoNotMatchAnAbsentName() {
        attachments.apply(message(0, 1, "client=<default>", "g", "user=<default>", "h"));
        assertNull(new Attachments().groupOf("", ""));
        assertNull(attachments.groupOf("", ""));
        assertEquals("h", attachments.groupOf("alice", null));
        // Kafka's rule: the level of the user gives a bucket that a request without a user has not.
        assertNull(attachments.groupOf(null, "app"));
    }

    @Test
    void namesAreComparedEncoded() {
        attachments.apply(message(0, 1, "user=%3Cdefault%3E", "g", "client=CN%3Dapp%201", "h"));
        assertEquals("g", attachments.groupOf("<default>", "x"));
        assertEquals("h", attachments.groupOf("bob", "CN=app 1"));
        assertNull(attachments.groupOf("bob", "x"));
    }

    @Test
    void onlyNewerMessagesOfAPartCount() {
        assertTrue(attachments.apply(message(3, 7, "user=a", "g")));
        assertFalse(attachments.apply(message(3, 7, "user=a", "h")));
        assertFalse(attachments.apply(message(3, 6, "user=a", "h")));
        assertEquals("g", attachments.groupOf("a", "x"));
        assertTrue(attachments.apply(message(4, 1, "user=b", "h")));
        assertTrue(attachments.apply(ofEpoch(2, 3, 1, "user=a", "i")));
        assertEquals("i", attachments.groupOf("a", "x"));
        assertFalse(attachments.apply(message(3, 8, "user=a", "g")));
    }

    @Test
    void aMessageHasAllAttachmentsOfItsPart() {
        attachments.apply(message(3, 1, "user=a", "g", "user=b", "g"));
        attachments.apply(message(4, 1, "user=c", "h"));
        assertTrue(attachments.apply(message(3, 2, "user=b", "g")));
        assertNull(attachments.groupOf("a", "x"));
        assertEquals("g", attachments.groupOf("b", "x"));
        assertTrue(attachments.apply(message(3, 3)));
        assertNull(attachments.groupOf("b", "x"));
        assertEquals(Set.of("h"), attachments.groups());
    }

    @Test
    void versionsGrowWithChangesOnly() {
        attachments.apply(message(3, 1, "user=a", "g"));
        long before = attachments.version();
        assertFalse(attachments.apply(message(3, 2, "user=a", "g")));
        assertEquals(before, attachments.version());
        // It was newer, though nothing changed.
        assertFalse(attachments.apply(message(3, 1, "user=a", "h")));
        assertTrue(attachments.apply(message(3, 3, "user=a", "h")));
        assertTrue(attachments.version() > before);
    }

    @Test
    void otherKindsAreKeptOut() {
        assertFalse(
                attachments.apply(
                        message(0, 1, "tenant=a", "g", "namespace=a/b", "g", "topic=a-", "g")));
        assertEquals(Set.of(), attachments.groups());
    }

    @Test
    void theGroupsAreThoseOfAllParts() {
        attachments.apply(message(0, 1, "user=a", "g", "user=b", "h"));
        attachments.apply(message(1, 1, "client=a", "g", "client=b", "i"));
        assertEquals(Set.of("g", "h", "i"), attachments.groups());
        assertThrows(
                UnsupportedOperationException.class, () -> attachments.groups().remove("g"));
    }
}
