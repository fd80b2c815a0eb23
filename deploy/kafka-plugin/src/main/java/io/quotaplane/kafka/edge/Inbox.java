package io.quotaplane.kafka.edge;

import io.quotaplane.kafka.wire.AttachmentsMessage;
import io.quotaplane.kafka.wire.LimitsMessage;

/** Where messages from the topics go. Each call may wait until there is room. */
interface Inbox {
    void limits(LimitsMessage message) throws InterruptedException;

    void attachments(AttachmentsMessage message) throws InterruptedException;

    /** A message was refused, for this reason. */
    void refused(String topic, String why);
}
