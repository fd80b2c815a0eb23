package io.quotaplane.kafka.edge;

import io.quotaplane.kafka.settings.PluginSettings;
import io.quotaplane.kafka.wire.AttachmentsMessage;
import io.quotaplane.kafka.wire.LimitsMessage;
import io.quotaplane.kafka.wire.RefusedMessageException;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.Arrays;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.concurrent.CompletableFuture;
import java.util.stream.Collectors;
import org.apache.kafka.clients.consumer.Consumer;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.TopicAuthorizationException;

/**
 * Reads limits and attachments. The attachments topic is read from its beginning. The limits topic
 * is read from where limits may still hold; if those do not say all of a group that clients are
 * attached to, once more from the beginning, for its safe limits. A topic that may not be read does
 * not keep it from the other one.
 */
final class TopicReader {
    private static final long DENIED_MS = 5000;

    /** The time in which a topic that is asked for again would be refused again. */
    private static final long TRIAL_MS = 2000;

    private final Consumer<byte[], byte[]> consumer;
    private final PluginSettings settings;
    private final Inbox inbox;
    private final byte[] key;

    /** Partitions that are not yet read up to the end they had, and that end. */
    private final Map<TopicPartition, Long> ends = new HashMap<>();

    /** When topics were refused last; they are not asked for until {@code DENIED_MS} later. */
    private final Map<String, Long> denied = new TreeMap<>();

    /** Whether limits are missing; null: not asked. */
    private CompletableFuture<Boolean> lacksLimits;

    /** Whether limits are read once more. */
    private boolean isAgain;

    TopicReader(Consumer<byte[], byte[]> consumer, PluginSettings settings, Inbox inbox) {
        this.consumer = consumer;
        this.settings = settings;
        this.inbox = inbox;
        this.key = settings.brokerName().getBytes(StandardCharsets.UTF_8);
    }

    /** Where to read a partition from, and its end. */
    record Span(long begin, long end) {}

    /** Read the given partitions from now on, in place of all others. */
    void assign(Map<TopicPartition, Span> spans) {
        consumer.assign(spans.keySet());
        consumer.resume(spans.keySet());
        denied.clear();
        ends.clear();
        lacksLimits = null;
        isAgain = false;
        spans.forEach(
                (partition, span) -> {
                    consumer.seek(partition, span.begin);
                    ends.put(partition, span.end);
                });
    }

    /** What is wrong with reading, in one line; "": nothing. */
    String trouble() {
        return denied.keySet().stream()
                .map(topic -> topic + ": the right Read is missing")
                .collect(Collectors.joining("; "));
    }

    /** Whether a topic is read, which is there. */
    boolean isAllowed(String topic) {
        return !denied.containsKey(topic);
    }

    /** Read what there is, for up to this long; returns the number of records. */
    int poll(Duration timeout, long nowMs) throws InterruptedException {
        askAgain(nowMs);
        int count = 0;
        for (ConsumerRecord<byte[], byte[]> record : allowed(timeout, nowMs)) {
            denied.remove(record.topic());
            take(record);
            count++;
        }
        if (!ends.isEmpty()) {
            ends.entrySet().removeIf(end -> consumer.position(end.getKey()) >= end.getValue());
            if (ends.isEmpty()) {
                endReached();
            }
        }
        if (lacksLimits != null && lacksLimits.isDone()) {
            if (lacksLimits.getNow(false)) {
                beginAgain();
            }
            lacksLimits = null;
        }
        return count;
    }

    private ConsumerRecords<byte[], byte[]> allowed(Duration timeout, long nowMs) {
        try {
            return consumer.poll(timeout);
        } catch (TopicAuthorizationException error) {
            for (String topic : error.unauthorizedTopics()) {
                denied.put(topic, nowMs);
                consumer.pause(partitions(topic));
            }
            return ConsumerRecords.empty();
        }
    }

    private void askAgain(long nowMs) {
        denied.values().removeIf(atMs -> nowMs - atMs >= DENIED_MS + TRIAL_MS);
        denied.forEach(
                (topic, atMs) -> {
                    if (nowMs - atMs >= DENIED_MS) {
                        consumer.resume(partitions(topic));
                    }
                });
    }

    private List<TopicPartition> partitions(String topic) {
        return consumer.assignment().stream().filter(at -> at.topic().equals(topic)).toList();
    }

    private void endReached() throws InterruptedException {
        if (isAgain) {
            inbox.readAgain();
        } else {
            lacksLimits = inbox.lacksLimits();
        }
    }

    private void beginAgain() {
        isAgain = true;
        for (TopicPartition partition : partitions(settings.limitsTopic())) {
            ends.put(partition, consumer.position(partition));
            consumer.seekToBeginning(List.of(partition));
        }
    }

    private void take(ConsumerRecord<byte[], byte[]> record) throws InterruptedException {
        byte[] value = record.value();
        if (value == null) {
            return;
        }
        try {
            if (record.topic().equals(settings.attachmentsTopic())) {
                inbox.attachments(AttachmentsMessage.decode(value, settings.keys()));
            } else if (Arrays.equals(record.key(), key)) {
                inbox.limits(LimitsMessage.decode(value, settings.keys()));
            }
        } catch (RefusedMessageException error) {
            inbox.refused(record.topic(), error.getMessage());
        }
    }
}
