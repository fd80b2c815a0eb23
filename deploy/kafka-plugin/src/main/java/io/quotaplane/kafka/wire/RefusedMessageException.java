package io.quotaplane.kafka.wire;

/** A message from a topic that is not used; the message is one line that says why. */
public final class RefusedMessageException extends Exception {
    private static final long serialVersionUID = 1L;

    public RefusedMessageException(String why) {
        super(why);
    }
}
