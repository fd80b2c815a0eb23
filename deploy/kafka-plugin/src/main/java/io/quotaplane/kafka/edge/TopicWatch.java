package io.quotaplane.kafka.edge;

import io.quotaplane.kafka.edge.TopicReader.Span;
import java.util.Collection;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeMap;
import java.util.concurrent.ExecutionException;
import java.util.function.Function;
import java.util.stream.Collectors;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.ListOffsetsResult.ListOffsetsResultInfo;
import org.apache.kafka.clients.admin.OffsetSpec;
import org.apache.kafka.clients.admin.TopicDescription;
import org.apache.kafka.common.KafkaFuture;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.TopicAuthorizationException;
import org.apache.kafka.common.errors.UnknownTopicOrPartitionException;

/**
 * Asks which topics there are. It sees by their ids that topics were deleted and made anew. Nothing
 * here waits: answers are looked at once they have come.
 */
final class TopicWatch {
    private final Admin admin;
    private Map<String, KafkaFuture<TopicDescription>> asked = Map.of();

    /** Topics as last described; those that are not there lack. */
    private final Map<String, TopicDescription> topics = new HashMap<>();

    /** Those that the last answers described. */
    private final Set<String> described = new HashSet<>();

    private String trouble = "";
    private boolean isConnected;

    TopicWatch(Admin admin) {
        this.admin = admin;
    }

    /** Ask, unless an answer is still to come. */
    void ask(Collection<String> names) {
        if (asked.isEmpty()) {
            asked = admin.describeTopics(names).topicNameValues();
        }
    }

    /** Whether all answers have come since the last call. */
    boolean hasAnswers() throws InterruptedException {
        if (asked.isEmpty() || !asked.values().stream().allMatch(KafkaFuture::isDone)) {
            return false;
        }
        Map<String, String> troubles = new TreeMap<>();
        described.clear();
        for (Map.Entry<String, KafkaFuture<TopicDescription>> answer : asked.entrySet()) {
            try {
                topics.put(answer.getKey(), answer.getValue().get());
                described.add(answer.getKey());
                isConnected = true;
            } catch (ExecutionException error) {
                boolean isGone = error.getCause() instanceof UnknownTopicOrPartitionException;
                if (isGone) {
                    topics.remove(answer.getKey());
                }
                boolean isDenied = error.getCause() instanceof TopicAuthorizationException;
                isConnected |= isGone || isDenied;
                String why = error.getCause().getMessage();
                troubles.put(answer.getKey(), isDenied ? "the right Describe is missing" : why);
            }
        }
        asked = Map.of();
        trouble =
                troubles.entrySet().stream()
                        .map(entry -> entry.getKey() + ": " + entry.getValue())
                        .collect(Collectors.joining("; "));
        return true;
    }

    /** Whether the cluster ever answered. */
    boolean isConnected() {
        return isConnected;
    }

    /** What is wrong with the topics, in one line; "": nothing. */
    String trouble() {
        return trouble;
    }

    /** Whether a topic is there, as far as is known. */
    boolean isThere(String topic) {
        return topics.containsKey(topic);
    }

    /** Whether the last answers described a topic. */
    boolean isDescribed(String topic) {
        return described.contains(topic);
    }

    /** The id and the number of partitions of each of the topics that are there. */
    Map<String, List<Object>> identities(Collection<String> names) {
        return names.stream()
                .filter(topics::containsKey)
                .collect(Collectors.toMap(Function.identity(), this::identity));
    }

    private List<Object> identity(String name) {
        TopicDescription topic = topics.get(name);
        return List.of(topic.topicId(), topic.partitions().size());
    }

    /** Ask where to begin to read these topics, and where they end. */
    SpanQuery spans(Map<String, List<Object>> of, Function<String, OffsetSpec> begin) {
        Map<TopicPartition, OffsetSpec> begins = new HashMap<>();
        Map<TopicPartition, OffsetSpec> ends = new HashMap<>();
        for (String name : of.keySet()) {
            topics.get(name)
                    .partitions()
                    .forEach(
                            partition -> {
                                var at = new TopicPartition(name, partition.partition());
                                begins.put(at, begin.apply(name));
                                ends.put(at, OffsetSpec.latest());
                            });
        }
        return new SpanQuery(of, admin.listOffsets(begins).all(), admin.listOffsets(ends).all());
    }

    /**
     * A question for spans.
     *
     * @param of the topics that it is about, as {@code identities}
     */
    record SpanQuery(
            Map<String, List<Object>> of,
            KafkaFuture<Map<TopicPartition, ListOffsetsResultInfo>> begins,
            KafkaFuture<Map<TopicPartition, ListOffsetsResultInfo>> ends) {
        boolean isDone() {
            return begins.isDone() && ends.isDone();
        }

        /** The answer: a partition without records since the time of its beginning begins at its end. */
        Map<TopicPartition, Span> get() throws ExecutionException, InterruptedException {
            Map<TopicPartition, ListOffsetsResultInfo> last = ends.get();
            Map<TopicPartition, Span> spans = new HashMap<>();
            for (Map.Entry<TopicPartition, ListOffsetsResultInfo> begin : begins.get().entrySet()) {
                long end = last.get(begin.getKey()).offset();
                long first = begin.getValue().offset();
                spans.put(begin.getKey(), new Span(first < 0 ? end : first, end));
            }
            return spans;
        }
    }
}
