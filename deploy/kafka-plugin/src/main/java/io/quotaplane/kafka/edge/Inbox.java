package io.quotaplane.kafka.edge;

import io.quotaplane.kafka.wire.AttachmentsMessage;
import io.quotaplane.kafka.wire.LimitsMessage;
import java.util.concurrent.CompletableFuture;

/** Where messages from the topics go. Each call may wait until there is room. */
interface Inbox {
    void limits(LimitsMessage message) throws InterruptedException;

    void attachments(AttachmentsMessage message) throws InterruptedException;

    /**
     * Ask whether limits or safe limits of any group that clients are attached to are unknown, after
     * all messages so far; the answer comes later. If it is true, all limits of the topic must
     * follow, then {@code readAgain}.
     */
    CompletableFuture<Boolean> lacksLimits() throws InterruptedException;

    /** All limits of the topic came. */
    void readAgain() throws InterruptedException;

    /** A message was refused, for this reason. */
    void refused(String topic, String why);
}
