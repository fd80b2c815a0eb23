package io.quotaplane.kafka.edge;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.quotaplane.kafka.edge.TopicReader.Span;
import io.quotaplane.kafka.settings.PluginSettings;
import io.quotaplane.kafka.wire.AttachmentsMessage;
import io.quotaplane.kafka.wire.LimitsMessage;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.HexFormat;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.CompletableFuture;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.MockConsumer;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.TopicAuthorizationException;
import org.junit.jupiter.api.Test;

class TopicReaderTest {
    private static final TopicPartition LIMITS = new TopicPartition("quotaplane-limits", 0);
    private static final TopicPartition ATTACHED = new TopicPartition("quotaplane-attachments", 0);

    /** Limits for b1 without a group. */
    private static final String OF_B1 = "0d51504c31 12026231 2001 2807 388827";

    private final MockConsumer<byte[], byte[]> consumer = new MockConsumer<>("earliest");
    private long nowMs;
    private final CompletableFuture<Boolean> answer = new CompletableFuture<>();
    private final List<String> got = new ArrayList<>();
    private final TopicReader reader =
            new TopicReader(
                    consumer,
                    PluginSettings.of(
                            Map.of(
                                    "quotaplane.bootstrap.servers", "a:1",
                                    "quotaplane.broker.name", "b1")),
                    new Kept());

    private final class Kept implements Inbox {
        @Override
        public void limits(LimitsMessage message) {
            got.add("limits " + message.seq());
        }

        @Override
        public void attachments(AttachmentsMessage message) {
            got.add("part " + message.part());
        }

        @Override
        public CompletableFuture<Boolean> lacksLimits() {
            got.add("asked");
            return answer;
        }

        @Override
        public void readAgain() {
            got.add("again");
        }

        @Override
        public void refused(String topic, String why) {
            got.add("refused " + topic);
        }
    }

    private void add(TopicPartition at, long offset, String key, String hex) {
        byte[] value = hex == null ? null : HexFormat.of().parseHex(hex.replace(" ", ""));
        consumer.addRecord(
                new ConsumerRecord<>(
                        at.topic(), 0, offset, key.getBytes(StandardCharsets.UTF_8), value));
    }

    private void assign(Map<TopicPartition, Span> spans) {
        reader.assign(spans);
        Map<TopicPartition, Long> zero = Map.of(LIMITS, 0L, ATTACHED, 0L);
        consumer.updateBeginningOffsets(zero);
    }

    private int poll() throws InterruptedException {
        return reader.poll(Duration.ZERO, nowMs);
    }

    @Test
    void onlyMessagesForThisBrokerAreRead() throws InterruptedException {
        assign(Map.of(LIMITS, new Span(0, 3)));
        add(LIMITS, 0, "b1", OF_B1);
        add(LIMITS, 1, "b2", "00");
        add(LIMITS, 2, "b1", null);
        assertEquals(3, poll());
        assertEquals(List.of("limits 7", "asked"), got);
    }

    @Test
    void aMessageThatIsNoneIsRefused() throws InterruptedException {
        assign(Map.of(LIMITS, new Span(0, 1), ATTACHED, new Span(0, 1)));
        add(LIMITS, 0, "b1", "00");
        add(ATTACHED, 0, "3", "0d51504131 1003 2001 2802");
        add(ATTACHED, 1, "4", "0d51504c31");
        poll();
        assertTrue(got.contains("refused quotaplane-limits"));
        assertTrue(got.contains("part 3"));
        assertTrue(got.contains("refused quotaplane-attachments"));
    }

    @Test
    void whileAGroupLacksRecentLimitsAllAreRead() throws InterruptedException {
        assign(Map.of(LIMITS, new Span(5, 6), ATTACHED, new Span(0, 1)));
        add(LIMITS, 5, "b1", OF_B1);
        poll();
        assertEquals(List.of("limits 7"), got); // the groups are not known yet
        add(ATTACHED, 0, "3", "0d51504131 1003 2001 2802");
        poll();
        assertEquals(List.of("limits 7", "part 3", "asked"), got);
        assertEquals(6, consumer.position(LIMITS));
        answer.complete(true);
        poll();
        for (int offset = 0; offset < 5; offset++) {
            add(LIMITS, offset, "b1", OF_B1);
        }
        add(LIMITS, 5, "b2", "00");
        assertEquals(6, poll());
        assertEquals(9, got.size());
        assertEquals("again", got.get(8));
        poll();
        assertEquals(6, consumer.position(LIMITS));
        assertEquals(9, got.size());
    }

    @Test
    void recentLimitsOfAllGroupsAreEnough() throws InterruptedException {
        assign(Map.of(LIMITS, new Span(5, 6)));
        add(LIMITS, 5, "b1", OF_B1);
        answer.complete(false);
        poll();
        poll();
        assertEquals(6, consumer.position(LIMITS));
        assertEquals(List.of("limits 7", "asked"), got);
    }

    @Test
    void aTopicThatMayNotBeReadDoesNotHideTheOther() throws InterruptedException {
        assign(Map.of(LIMITS, new Span(0, 1), ATTACHED, new Span(0, 1)));
        consumer.setPollException(new TopicAuthorizationException(Set.of(LIMITS.topic())));
        assertEquals(0, poll());
        assertEquals("quotaplane-limits: the right Read is missing", reader.trouble());
        assertFalse(reader.isAllowed(LIMITS.topic()));
        assertTrue(reader.isAllowed(ATTACHED.topic()));
        assertEquals(Set.of(LIMITS), consumer.paused());
        add(ATTACHED, 0, "3", "0d51504131 1003 2001 2802");
        poll();
        assertEquals(List.of("part 3"), got);

        nowMs += 5000;
        poll();
        assertEquals(Set.of(), consumer.paused());
        assertFalse(reader.isAllowed(LIMITS.topic()));
        nowMs += 2000;
        poll();
        assertTrue(reader.isAllowed(LIMITS.topic()));
        assertEquals("", reader.trouble());
    }

    @Test
    void aTopicIsAllowedAgainAsSoonAsARecordComes() throws InterruptedException {
        assign(Map.of(LIMITS, new Span(0, 1)));
        consumer.setPollException(new TopicAuthorizationException(Set.of(LIMITS.topic())));
        poll();
        nowMs += 5000;
        add(LIMITS, 0, "b1", OF_B1);
        poll();
        assertTrue(reader.isAllowed(LIMITS.topic()));
        assertEquals(List.of("limits 7", "asked"), got);
    }

    @Test
    void anEmptyTopicIsReadAtOnce() throws InterruptedException {
        assign(Map.of(LIMITS, new Span(0, 0)));
        poll();
        assertEquals(List.of("asked"), got);
    }
}
