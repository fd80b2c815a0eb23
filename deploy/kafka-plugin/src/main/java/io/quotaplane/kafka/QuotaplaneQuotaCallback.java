package io.quotaplane.kafka;

import io.quotaplane.kafka.attachments.Scope;
import io.quotaplane.kafka.builtin.BuiltInQuotas;
import io.quotaplane.kafka.edge.Plugin;
import io.quotaplane.kafka.limits.Changes;
import io.quotaplane.kafka.limits.QuotaKind;
import io.quotaplane.kafka.settings.PluginSettings;
import io.quotaplane.kafka.tags.ClientTags;
import io.quotaplane.kafka.tags.TagCache;
import java.util.EnumMap;
import java.util.Map;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.function.Consumer;
import org.apache.kafka.common.Cluster;
import org.apache.kafka.common.security.auth.KafkaPrincipal;
import org.apache.kafka.server.quota.ClientQuotaCallback;
import org.apache.kafka.server.quota.ClientQuotaEntity;
import org.apache.kafka.server.quota.ClientQuotaType;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * Kafka's callback for client quotas, of which a broker has one: {@code client.quota.callback.class}.
 * {@code MonitoredQuotaCallback} is the same for brokers of 4.1 and later.
 */
public class QuotaplaneQuotaCallback implements ClientQuotaCallback {
    private static final Logger LOG = LoggerFactory.getLogger("io.quotaplane.kafka");
    private static final int MOST_CLIENTS = 50_000;

    private final Map<QuotaKind, BuiltInQuotas> builtIn = new EnumMap<>(QuotaKind.class);
    private final Map<QuotaKind, AtomicBoolean> resets = new EnumMap<>(QuotaKind.class);
    private final Consumer<Changes> onChange = this::changed;
    private Plugin plugin;
    private ClientTags tags;
    private TagCache cache;

    /** Made by the broker. */
    public QuotaplaneQuotaCallback() {
        for (QuotaKind kind : QuotaKind.ALL) {
            builtIn.put(kind, new BuiltInQuotas());
            resets.put(kind, new AtomicBoolean());
        }
    }

    @Override
    public void configure(Map<String, ?> configs) {
        PluginSettings settings = PluginSettings.of(configs);
        plugin = Plugin.acquire(settings);
        BrokerQuotas quotas = plugin.quotas();
        tags =
                new ClientTags(
                        quotas::groupOf, quotas.limits(), builtIn, settings.fallbackFactor());
        cache = new TagCache(tags, MOST_CLIENTS);
        plugin.onChange(onChange);
        LOG.warn(
                "Kafka's own quotas of users and client ids do not work by themselves with a"
                        + " client.quota.callback.class. quotaplane applies them to all clients whose"
                        + " group has no limit from quotaplane.");
        if (settings.hasLogin() && settings.excludedPrincipals().isEmpty()) {
            LOG.warn(
                    "quotaplane.excluded.principals is empty: quotas may delay what quotaplane itself"
                            + " reads and reports.");
        }
    }

    final Plugin plugin() {
        return plugin;
    }

    private void changed(Changes changes) {
        if (changes.tags()) {
            cache.expire();
        }
        // After the tags: a thread that sees the flag finds the new tags.
        changes.kinds().forEach(kind -> resets.get(kind).set(true));
    }

    @Override
    public Map<String, String> quotaMetricTags(
            ClientQuotaType type, KafkaPrincipal principal, String clientId) {
        PluginSettings settings = plugin.settings();
        String id = clientId == null ? "" : clientId;
        if (isExcluded(settings, principal, id)) {
            return Map.of();
        }
        return cache.tags(kindOf(type), principal.getName(), id, settings.principalNames()::of);
    }

    /**
     * Whether a client is never limited. Its id is its own choice, so the plugin's clients are known
     * by it only where nobody proves who he is; elsewhere their principal has to be excluded.
     */
    private static boolean isExcluded(
            PluginSettings settings, KafkaPrincipal principal, String clientId) {
        boolean isPlugin =
                clientId.startsWith(PluginSettings.CLIENT_ID)
                        && KafkaPrincipal.ANONYMOUS.equals(principal);
        return isPlugin
                || !settings.excludedPrincipals().isEmpty()
                        && settings.excludedPrincipals().contains(principal.toString());
    }

    @Override
    public Double quotaLimit(ClientQuotaType type, Map<String, String> metricTags) {
        return tags.limit(kindOf(type), metricTags);
    }

    @Override
    public void updateQuota(ClientQuotaType type, ClientQuotaEntity entity, double newValue) {
        builtIn.get(kindOf(type)).update(scopeOf(entity), newValue);
        cache.expire();
    }

    @Override
    public void removeQuota(ClientQuotaType type, ClientQuotaEntity entity) {
        builtIn.get(kindOf(type)).remove(scopeOf(entity));
        cache.expire();
    }

    @Override
    public boolean quotaResetRequired(ClientQuotaType type) {
        AtomicBoolean reset = resets.get(kindOf(type));
        return reset.get() && reset.compareAndSet(true, false);
    }

    @Override
    public boolean updateClusterMetadata(Cluster cluster) {
        return false;
    }

    @Override
    public void close() {
        if (plugin != null) {
            plugin.forget(onChange);
            plugin.release();
        }
    }

    private static QuotaKind kindOf(ClientQuotaType type) {
        return switch (type) {
            case PRODUCE -> QuotaKind.PRODUCE;
            case FETCH -> QuotaKind.FETCH;
            case REQUEST -> QuotaKind.REQUEST;
            case CONTROLLER_MUTATION -> QuotaKind.CONTROLLER_MUTATION;
        };
    }

    private static Scope scopeOf(ClientQuotaEntity entity) {
        String user = null;
        String client = null;
        for (ClientQuotaEntity.ConfigEntity part : entity.configEntities()) {
            switch (part.entityType()) {
                case USER -> user = Scope.encode(part.name());
                case DEFAULT_USER -> user = Scope.DEFAULT;
                case CLIENT_ID -> client = Scope.encode(part.name());
                case DEFAULT_CLIENT_ID -> client = Scope.DEFAULT;
            }
        }
        return new Scope(user, client);
    }
}
