package io.quotaplane.kafka.edge;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;

import org.junit.jupiter.api.Test;

class RefusalsTest {
    private final Refusals refusals = new Refusals();

    @Test
    void aReasonIsLoggedOnceOfEachTopic() {
        assertTrue(refusals.add("limits", "not signed", 0));
        assertFalse(refusals.add("limits", "not signed", 60_000));
        assertTrue(refusals.add("attachments", "not signed", 0));
        assertEquals(3, refusals.count());
    }

    @Test
    void reasonsThatSenderInventsDoNotFillTheLog() {
        int logged = 0;
        for (int message = 0; message < 10_000; message++) {
            logged += refusals.add("limits", "signed with the key " + message, message) ? 1 : 0;
        }
        assertEquals(1, logged);
        assertTrue(refusals.add("limits", "signed with the key k", 10_000));
        assertEquals(10_001, refusals.count());
    }
}
