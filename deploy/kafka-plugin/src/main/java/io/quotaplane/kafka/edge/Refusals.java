package io.quotaplane.kafka.edge;

import java.util.HashMap;
import java.util.Map;
import java.util.concurrent.atomic.AtomicLong;

/**
 * Messages that were refused. All are counted and few are logged: whoever may write to a topic could
 * fill the log, as a reason shows a part of the message. Any thread may ask for the count, one adds.
 */
final class Refusals {
    private static final long LOG_EVERY_MS = 10_000;

    private final AtomicLong count = new AtomicLong();
    private final Map<String, Logged> last = new HashMap<>();

    private record Logged(String why, long atMs) {}

    /**
     * Count a message; returns whether it is to be logged: if the reason is another one than the topic's
     * last line had, and that line is at least ten seconds old.
     */
    boolean add(String topic, String why, long nowMs) {
        count.incrementAndGet();
        Logged before = last.get(topic);
        if (before != null && (before.why.equals(why) || nowMs - before.atMs < LOG_EVERY_MS)) {
            return false;
        }
        last.put(topic, new Logged(why, nowMs));
        return true;
    }

    long count() {
        return count.get();
    }
}
