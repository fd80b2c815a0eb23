package io.quotaplane.kafka.tags;

import io.quotaplane.kafka.limits.QuotaKind;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.atomic.AtomicLong;
import java.util.function.Function;

/**
 * Remembers the tags of clients until something changes. Any thread may call it.
 *
 * <p>Clients choose their ids, so there may be any number of them: once there are too many, all are
 * looked up again.
 */
public final class TagCache {
    private record Client(String user, String clientId) {}

    private record Known(long version, List<Map<String, String>> tags) {}

    private final ClientTags tags;
    private final int mostClients;
    private final Map<Client, Known> known = new ConcurrentHashMap<>();
    private final AtomicLong version = new AtomicLong();

    public TagCache(ClientTags tags, int mostClients) {
        this.tags = tags;
        this.mostClients = mostClients;
    }

    /**
     * The tags of a client's bucket.
     *
     * @param principal as the broker has it
     * @param name the user's name of a principal, asked for only if the client is not known
     */
    public Map<String, String> tags(
            QuotaKind kind, String principal, String clientId, Function<String, String> name) {
        Client client = new Client(principal, clientId);
        Known found = known.get(client);
        // Read before the tags: if something changes meanwhile, they are looked up once more.
        long now = version.get();
        if (found == null || found.version != now) {
            String user = name.apply(principal);
            found =
                    new Known(
                            now,
                            QuotaKind.ALL.stream().map(k -> tags.tags(k, user, clientId)).toList());
            if (known.size() >= mostClients) {
                known.clear();
            }
            known.put(client, found);
        }
        return found.tags.get(kind.ordinal());
    }

    /** All tags may be other ones from now on. */
    public void expire() {
        version.incrementAndGet();
    }

    /** Number of clients that are remembered. */
    public int size() {
        return known.size();
    }
}
