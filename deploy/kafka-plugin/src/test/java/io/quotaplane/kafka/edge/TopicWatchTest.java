package io.quotaplane.kafka.edge;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.lang.reflect.Proxy;
import java.util.List;
import java.util.Map;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.DescribeTopicsResult;
import org.apache.kafka.clients.admin.TopicDescription;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.KafkaFuture;
import org.apache.kafka.common.errors.TimeoutException;
import org.apache.kafka.common.errors.TopicAuthorizationException;
import org.apache.kafka.common.errors.UnknownTopicOrPartitionException;
import org.apache.kafka.common.internals.KafkaFutureImpl;
import org.junit.jupiter.api.Test;

class TopicWatchTest {
    private static final String TOPIC = "limits";

    /** The next answer: an error, or null for a topic that is there. */
    private KafkaException error;

    private final TopicWatch watch = new TopicWatch(admin());

    /** Answers one question, for topics, at once. */
    private Admin admin() {
        return (Admin)
                Proxy.newProxyInstance(
                        Admin.class.getClassLoader(),
                        new Class<?>[] {Admin.class},
                        (proxy, method, arguments) -> new Answer(future()));
    }

    private KafkaFuture<TopicDescription> future() {
        KafkaFutureImpl<TopicDescription> future = new KafkaFutureImpl<>();
        if (error == null) {
            future.complete(new TopicDescription(TOPIC, false, List.of()));
        } else {
            future.completeExceptionally(error);
        }
        return future;
    }

    private static final class Answer extends DescribeTopicsResult {
        Answer(KafkaFuture<TopicDescription> future) {
            super(null, Map.of(TOPIC, future));
        }
    }

    private void answer(KafkaException next) throws InterruptedException {
        error = next;
        watch.ask(List.of(TOPIC));
        assertTrue(watch.hasAnswers());
    }

    @Test
    void aTopicStaysKnownWhileTheClusterIsAwayButIsNotDescribed() throws InterruptedException {
        answer(null);
        assertTrue(watch.isConnected() && watch.isThere(TOPIC) && watch.isDescribed(TOPIC));
        answer(new TimeoutException("nobody answers"));
        assertTrue(watch.isThere(TOPIC));
        assertFalse(watch.isDescribed(TOPIC));
        assertEquals("limits: nobody answers", watch.trouble());
    }

    @Test
    void aTopicThatIsGoneIsNotThere() throws InterruptedException {
        answer(null);
        answer(new UnknownTopicOrPartitionException("none"));
        assertFalse(watch.isThere(TOPIC));
    }

    @Test
    void aMissingRightIsNamed() throws InterruptedException {
        answer(new TopicAuthorizationException(TOPIC));
        assertTrue(watch.isConnected());
        assertEquals("limits: the right Describe is missing", watch.trouble());
    }
}
