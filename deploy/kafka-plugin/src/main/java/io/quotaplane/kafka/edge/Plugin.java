package io.quotaplane.kafka.edge;

import io.quotaplane.kafka.BrokerQuotas;
import io.quotaplane.kafka.limits.Changes;
import io.quotaplane.kafka.settings.PluginSettings;
import io.quotaplane.kafka.wire.AttachmentsMessage;
import io.quotaplane.kafka.wire.LimitsMessage;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ArrayBlockingQueue;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CopyOnWriteArrayList;
import java.util.concurrent.TimeUnit;
import java.util.function.Consumer;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * The plugin of one broker. The broker makes one callback and one reporter of metrics, in combined
 * mode two callbacks; all share one object. Two threads work for it: one puts limits in force and
 * never waits for the network, the other reads and writes topics.
 */
public final class Plugin {
    private static final Logger LOG = LoggerFactory.getLogger("io.quotaplane.kafka");
    private static final long TICK_MS = 200;

    /** Messages come in bursts: what they change is put in force at most so often. */
    private static final long TICK_AT_MOST_EVERY_MS = 20;

    private static final int WAITING_MESSAGES = 16;
    private static final long REPORTER_WITHIN_MS = 60_000;

    /** Waits among the messages: all limits of the topic came before it. */
    private static final Object ALL_READ = new Object();

    private static final Map<String, Plugin> BY_BROKER = new HashMap<>();

    private final PluginSettings settings;
    private final BrokerQuotas quotas;
    private final KafkaRates rates;
    private final Inbox inbox = new Queue();
    private final TopicThread topics;
    private final Gauges gauges;
    private final List<Thread> threads;
    private final BlockingQueue<Object> messages = new ArrayBlockingQueue<>(WAITING_MESSAGES);
    private final List<Consumer<Changes>> listeners = new CopyOnWriteArrayList<>();
    private final Refusals refusals = new Refusals();
    private volatile boolean isClosed;
    private volatile boolean hasReporter;
    private int users;
    private long failedBefore;
    private boolean isMissed;
    private final long startedMs = TopicThread.steadyMs();

    private Plugin(PluginSettings settings) {
        this.settings = settings;
        quotas = new BrokerQuotas(settings, System.currentTimeMillis(), TopicThread.steadyMs());
        rates = new KafkaRates(settings.bounds().longestWindowS(), System::currentTimeMillis);
        topics = new TopicThread(settings, inbox);
        gauges = new Gauges(this);
        threads = List.of(daemon("quotaplane-ticks", this::run), daemon("quotaplane-topics", topics));
    }

    private static Thread daemon(String name, Runnable task) {
        Thread thread = new Thread(task, name);
        thread.setDaemon(true);
        return thread;
    }

    /** The plugin of the broker with these settings, which starts with its first user. */
    public static Plugin acquire(PluginSettings settings) {
        synchronized (BY_BROKER) {
            Plugin plugin = BY_BROKER.computeIfAbsent(settings.brokerName(), any -> start(settings));
            plugin.users++;
            return plugin;
        }
    }

    private static Plugin start(PluginSettings settings) {
        LOG.info(
                "quotaplane starts for {}: limits from {}, attachments from {}, reports to {}",
                settings.brokerName(),
                settings.limitsTopic(),
                settings.attachmentsTopic(),
                settings.reportsTopic());
        Plugin plugin = new Plugin(settings);
        plugin.threads.forEach(Thread::start);
        return plugin;
    }

    /** A user needs it no more; with the last one it ends. */
    public void release() {
        synchronized (BY_BROKER) {
            users--;
            if (users == 0) {
                BY_BROKER.remove(settings.brokerName(), this);
                isClosed = true;
                topics.close();
                gauges.close();
            }
        }
    }

    /** Its settings. */
    public PluginSettings settings() {
        return settings;
    }

    /** What it knows; only groups and limits may be asked for. */
    public BrokerQuotas quotas() {
        return quotas;
    }

    /** What the broker measures; the reporter of metrics fills it. */
    public KafkaRates rates() {
        hasReporter = true;
        return rates;
    }

    /** Its own metrics. */
    public Gauges gauges() {
        return gauges;
    }

    /** Call this after each change, from the plugin's thread. */
    public void onChange(Consumer<Changes> listener) {
        listeners.add(listener);
    }

    /** Do not call it any more. */
    public void forget(Consumer<Changes> listener) {
        listeners.remove(listener);
    }

    long refused() {
        return refusals.count();
    }

    TopicThread topics() {
        return topics;
    }

    Inbox inbox() {
        return inbox;
    }

    /** Waits among the messages for its answer. */
    private record Question(CompletableFuture<Boolean> lacksLimits) {}

    private final class Queue implements Inbox {
        @Override
        public void limits(LimitsMessage message) throws InterruptedException {
            put(message);
        }

        @Override
        public void attachments(AttachmentsMessage message) throws InterruptedException {
            put(message);
        }

        @Override
        public void readAgain() throws InterruptedException {
            put(ALL_READ);
        }

        @Override
        public CompletableFuture<Boolean> lacksLimits() throws InterruptedException {
            var question = new Question(new CompletableFuture<>());
            put(question);
            return question.lacksLimits;
        }

        private void put(Object message) throws InterruptedException {
            boolean isIn = false;
            while (!isIn && !isClosed) {
                isIn = messages.offer(message, TICK_MS, TimeUnit.MILLISECONDS);
            }
        }

        @Override
        public void refused(String topic, String why) {
            if (refusals.add(topic, why, TopicThread.steadyMs())) {
                LOG.warn("quotaplane refuses a message on {}: {}", topic, why);
            }
        }
    }

    private void run() {
        long tickMs = TopicThread.steadyMs();
        long reportMs = tickMs + settings.reportIntervalMs();
        boolean isNews = false;
        while (!isClosed) {
            try {
                isNews |= receive(isNews ? TICK_AT_MOST_EVERY_MS : TICK_MS, tickMs);
                long nowMs = TopicThread.steadyMs();
                if (nowMs - tickMs >= (isNews ? TICK_AT_MOST_EVERY_MS : TICK_MS)) {
                    tickMs = nowMs;
                    isNews = false;
                    tick(nowMs);
                }
                if (nowMs >= reportMs) {
                    // Whole intervals later, so that the reports of a broker keep their phase.
                    long late = (nowMs - reportMs) / settings.reportIntervalMs();
                    reportMs += (late + 1) * settings.reportIntervalMs();
                    report(nowMs);
                }
            } catch (InterruptedException error) {
                return;
            } catch (RuntimeException error) {
                LOG.error("quotaplane could not put limits in force; it tries again", error);
            }
        }
    }

    /** Wait for messages until the next tick is due; returns whether any came. */
    private boolean receive(long everyMs, long tickMs) throws InterruptedException {
        long waitMs = Math.max(tickMs + everyMs - TopicThread.steadyMs(), 0);
        Object message = messages.poll(waitMs, TimeUnit.MILLISECONDS);
        boolean any = message != null;
        for (int count = 0; message != null; count++) {
            long nowMs = TopicThread.steadyMs();
            if (message instanceof LimitsMessage limits) {
                quotas.receive(limits, System.currentTimeMillis(), nowMs);
            } else if (message instanceof AttachmentsMessage attachments) {
                quotas.receive(attachments);
            } else if (message instanceof Question question) {
                question.lacksLimits.complete(quotas.lacksLimits());
            } else {
                quotas.readAgain();
            }
            message = count + 1 < WAITING_MESSAGES ? messages.poll() : null;
        }
        return any;
    }

    private void tick(long nowMs) {
        rates.lookInTime(nowMs);
        Changes changes = quotas.tick(nowMs, rates);
        if (changes.tags() || !changes.kinds().isEmpty()) {
            listeners.forEach(listener -> listener.accept(changes));
        }
    }

    private void report(long nowMs) {
        if (!hasReporter) {
            // The broker makes it at the end of its start.
            if (!isMissed && nowMs - startedMs > REPORTER_WITHIN_MS) {
                isMissed = true;
                LOG.warn(
                        "quotaplane sends no reports, and lower limits hold at once: metric.reporters"
                                + " lacks io.quotaplane.kafka.QuotaplaneMetricsReporter");
            }
            return;
        }
        long failed = topics.failed();
        if (failed != failedBefore) {
            quotas.reportsLost();
        }
        failedBefore = failed;
        rates.look(nowMs);
        topics.send(quotas.report(nowMs, rates));
        gauges.follow();
    }
}
