package io.quotaplane.kafka.edge;

import io.quotaplane.kafka.wire.AttachmentsMessage;
import io.quotaplane.kafka.wire.LimitsMessage;
import java.util.concurrent.CompletableFuture;

/** Where messages from the topics go. Each call may wait until there is room. */
interface Inbox {
    void limits(LimitsMessage message) throws InterruptedException;

    void attachments(AttachmentsMessage message) throws InterruptedException;

    /**
     * Ask whether any group that clients are attached to has no known limits, after all messages so
     * far; the answer comes later.
     */
    CompletableFuture<Boolean> lacksLimits() throws InterruptedException;

    /** A message was refused, for this reason. */
    void refused(String topic, String why);
}
