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
import java.util.stream.Collectors;
import org.apache.kafka.clients.consumer.Consumer;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.TopicAuthorizationException;

/**
 * Reads limits and attachments. The attachments topic is read from its beginning. The limits topic
 * is read from where limits may still hold; if there were none for this broker, once more from the
 * beginning, for its safe limits. A topic that may not be read does not keep it from the other one.
 */
final class TopicReader {
    private static final long DENIED_MS = 5000;

    /** The time in which a topic that is asked for again would be refused again. */
    private static final long TRIAL_MS = 2000;

    private final Consumer<byte[], byte[]> consumer;
    private final PluginSettings settings;
    private final Inbox inbox;
    private final byte[] key;

    /** Partitions of the limits topic that are not yet read up to the end they had, and that end. */
    private final Map<TopicPartition, Long> ends = new HashMap<>();

    /** When topics were refused last; they are not asked for until {@code DENIED_MS} later. */
    private final Map<String, Long> denied = new TreeMap<>();

    private boolean isFromBeginning;
    private boolean hasLimits;
    private volatile boolean isRead;

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
        isFromBeginning = hasLimits = false;
        spans.forEach(
                (partition, span) -> {
                    seek(partition, span.begin);
                    if (partition.topic().equals(settings.limitsTopic())) {
                        ends.put(partition, span.end);
                    }
                });
    }

    private void seek(TopicPartition partition, long begin) {
        if (begin < 0) {
            consumer.seekToBeginning(List.of(partition));
        } else {
            consumer.seek(partition, begin);
        }
    }

    /** Whether all limits were read that were there at the start. */
    boolean isRead() {
        return isRead;
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

    private void endReached() {
        if (hasLimits || isFromBeginning) {
            isRead = true;
            return;
        }
        isFromBeginning = true;
        for (TopicPartition partition : partitions(settings.limitsTopic())) {
            ends.put(partition, consumer.position(partition));
            seek(partition, -1);
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
                LimitsMessage message = LimitsMessage.decode(value, settings.keys());
                hasLimits |= message.broker().equals(settings.brokerName());
                inbox.limits(message);
            }
        } catch (RefusedMessageException error) {
            inbox.refused(record.topic(), error.getMessage());
        }
    }
}
