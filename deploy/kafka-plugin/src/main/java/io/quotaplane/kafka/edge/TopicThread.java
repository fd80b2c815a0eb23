package io.quotaplane.kafka.edge;

import io.quotaplane.kafka.edge.TopicWatch.SpanQuery;
import io.quotaplane.kafka.settings.PluginSettings;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.atomic.AtomicLong;
import java.util.concurrent.atomic.AtomicReference;
import java.util.stream.Collectors;
import java.util.stream.Stream;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.OffsetSpec;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.errors.InterruptException;
import org.apache.kafka.common.errors.TopicAuthorizationException;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/** The thread with the plugin's clients of Kafka: the only one that waits for the network. */
final class TopicThread implements Runnable {
    private static final Logger LOG = LoggerFactory.getLogger("io.quotaplane.kafka");
    private static final Duration POLL = Duration.ofMillis(200);
    private static final long ASK_EVERY_MS = 5000;
    private static final long ASK_AGAIN_AFTER_MS = 500;
    private static final long RETRY_AFTER_MS = 5000;

    private final PluginSettings settings;
    private final Inbox inbox;
    private final byte[] key;
    private final AtomicReference<byte[]> report = new AtomicReference<>();
    private final AtomicLong sent = new AtomicLong();
    private final AtomicLong failed = new AtomicLong();
    private volatile boolean isClosed;
    private volatile long readMs = -1;
    private volatile String reportTrouble = "";
    private String trouble = "";

    TopicThread(PluginSettings settings, Inbox inbox) {
        this.settings = settings;
        this.inbox = inbox;
        this.key = settings.brokerName().getBytes(StandardCharsets.UTF_8);
    }

    /** Send a report soon; one that waits is dropped. */
    void send(byte[] value) {
        if (report.getAndSet(value) != null) {
            failed.incrementAndGet();
        }
    }

    long sent() {
        return sent.get();
    }

    long failed() {
        return failed.get();
    }

    /** When the limits topic could last be read; -1: never. */
    long readMs() {
        return readMs;
    }

    /** End soon. */
    void close() {
        isClosed = true;
    }

    static long steadyMs() {
        return System.nanoTime() / 1_000_000;
    }

    @Override
    public void run() {
        while (!isClosed) {
            try (Admin admin = Clients.admin(settings)) {
                TopicWatch watch = new TopicWatch(admin);
                awaitCluster(watch);
                follow(watch);
            } catch (InterruptException | InterruptedException error) {
                return;
            } catch (KafkaException error) {
                say(whole(error));
                pause(RETRY_AFTER_MS);
            } catch (RuntimeException error) {
                LOG.error("quotaplane's reader of topics failed and begins anew", error);
                pause(RETRY_AFTER_MS);
            }
        }
    }

    /** Wait until the cluster answers: in a broker's own cluster it does at the end of its start. */
    private void awaitCluster(TopicWatch watch) throws InterruptedException {
        while (!isClosed && !watch.isConnected()) {
            watch.ask(topics());
            Thread.sleep(POLL.toMillis() / 4);
            if (watch.hasAnswers()) {
                say(watch.trouble());
                Thread.sleep(watch.isConnected() ? 0 : ASK_AGAIN_AFTER_MS);
            }
        }
    }

    private List<String> topics() {
        return List.of(
                settings.limitsTopic(), settings.attachmentsTopic(), settings.reportsTopic());
    }

    private void follow(TopicWatch watch) throws InterruptedException {
        try (KafkaConsumer<byte[], byte[]> consumer = Clients.consumer(settings);
                KafkaProducer<byte[], byte[]> producer = Clients.producer(settings)) {
            follow(watch, new TopicReader(consumer, settings, inbox), producer);
            producer.close(Duration.ZERO);
        }
    }

    private void follow(
            TopicWatch watch, TopicReader reader, KafkaProducer<byte[], byte[]> producer)
            throws InterruptedException {
        List<String> read = List.of(settings.limitsTopic(), settings.attachmentsTopic());
        Map<String, List<Object>> reading = Map.of();
        Map<String, List<Object>> wanted = Map.of();
        SpanQuery query = null;
        String queryTrouble = "";
        long askMs = steadyMs();
        long answeredMs = askMs;
        while (!isClosed) {
            long nowMs = steadyMs();
            if (nowMs >= askMs) {
                watch.ask(topics());
                askMs = nowMs + ASK_EVERY_MS;
            }
            if (watch.hasAnswers()) {
                if (!watch.trouble().isEmpty()) {
                    askMs = nowMs + ASK_AGAIN_AFTER_MS;
                }
                wanted = watch.identities(read);
                answeredMs = nowMs;
            }
            if (query == null && !wanted.equals(reading)) {
                query = watch.spans(wanted, this::begin);
            }
            if (query != null && query.isDone()) {
                try {
                    reader.assign(query.get());
                    reading = query.of();
                    queryTrouble = "";
                } catch (ExecutionException error) {
                    queryTrouble = whole(error.getCause());
                    pause(POLL.toMillis());
                }
                query = null;
            }
            String limits = settings.limitsTopic();
            if (watch.isDescribed(limits) && reading.containsKey(limits) && reader.isAllowed(limits)) {
                readMs = answeredMs;
            }
            say(joined(watch.trouble(), reader.trouble(), queryTrouble));
            sendReport(producer, watch);
            if (reading.isEmpty()) {
                Thread.sleep(POLL.toMillis() / 4);
            } else {
                reader.poll(query == null ? POLL : POLL.dividedBy(4), steadyMs());
            }
        }
    }

    private OffsetSpec begin(String topic) {
        return topic.equals(settings.limitsTopic())
                ? OffsetSpec.forTimestamp(System.currentTimeMillis() - settings.leaseMs())
                : OffsetSpec.earliest();
    }

    private void sendReport(KafkaProducer<byte[], byte[]> producer, TopicWatch watch) {
        byte[] value = report.getAndSet(null);
        if (value == null) {
            return;
        }
        if (!watch.isThere(settings.reportsTopic())) {
            failed.incrementAndGet();
            return;
        }
        producer.send(
                new ProducerRecord<>(settings.reportsTopic(), key, value),
                (at, error) -> {
                    (error == null ? sent : failed).incrementAndGet();
                    sayOfReports(error == null ? "" : why(error));
                });
    }

    private String why(Exception error) {
        return error instanceof TopicAuthorizationException
                ? settings.reportsTopic() + ": the right Write is missing"
                : error.toString();
    }

    /** Log why reports are not sent, once. */
    private void sayOfReports(String now) {
        if (now.isEmpty() != reportTrouble.isEmpty()) {
            if (now.isEmpty()) {
                LOG.info("quotaplane's reports are sent again");
            } else {
                LOG.warn("quotaplane's reports are not sent: {}", now);
            }
        }
        reportTrouble = now;
    }

    /** Log what is wrong, once. */
    private void say(String now) {
        if (!now.equals(trouble)) {
            if (now.isEmpty()) {
                LOG.info("quotaplane's topics are there: limits are followed");
            } else {
                LOG.warn("quotaplane's topics can't be followed: {}", now);
            }
        }
        trouble = now;
    }

    private static String joined(String... troubles) {
        return Stream.of(troubles).filter(each -> !each.isEmpty()).collect(Collectors.joining("; "));
    }

    private static String whole(Throwable error) {
        Throwable cause = error.getCause();
        return error.getMessage() + (cause == null ? "" : " (" + cause.getMessage() + ")");
    }

    private static void pause(long millis) {
        try {
            Thread.sleep(millis);
        } catch (InterruptedException error) {
            Thread.currentThread().interrupt();
        }
    }
}
