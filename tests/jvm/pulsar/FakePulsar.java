import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.google.common.hash.Hashing;
import java.lang.reflect.Field;
import java.lang.reflect.Proxy;
import java.util.AbstractMap;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.HashSet;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.atomic.AtomicReference;
import org.apache.pulsar.broker.PulsarService;
import org.apache.pulsar.broker.ServiceConfiguration;
import org.apache.pulsar.broker.loadbalance.LeaderElectionService;
import org.apache.pulsar.broker.loadbalance.LoadManager;
import org.apache.pulsar.broker.loadbalance.extensions.ExtensibleLoadManagerImpl;
import org.apache.pulsar.broker.loadbalance.extensions.ExtensibleLoadManagerWrapper;
import org.apache.pulsar.broker.loadbalance.extensions.channel.ServiceUnitState;
import org.apache.pulsar.broker.loadbalance.extensions.channel.ServiceUnitStateChannel;
import org.apache.pulsar.broker.loadbalance.extensions.channel.ServiceUnitStateData;
import org.apache.pulsar.broker.namespace.NamespaceService;
import org.apache.pulsar.broker.resources.PulsarResources;
import org.apache.pulsar.broker.service.BrokerService;
import org.apache.pulsar.common.naming.NamespaceBundle;
import org.apache.pulsar.common.naming.NamespaceBundleFactory;
import org.apache.pulsar.common.naming.NamespaceName;
import org.apache.pulsar.common.policies.data.stats.TopicStatsImpl;
import org.apache.pulsar.policies.data.loadbalancer.NamespaceBundleStats;
import sun.misc.Unsafe;

/** A broker's services without a broker: only what the load balancing classes ask them. */
final class FakePulsar {
    static final ObjectMapper JSON = new ObjectMapper();
    private static final Unsafe UNSAFE = unsafe();

    final ServiceConfiguration conf;
    final Service service = make(Service.class);
    final Names names = make(Names.class);
    final Stats stats = make(Stats.class);
    final Map<String, String> owners = new LinkedHashMap<>();
    final Set<String> splitting = new HashSet<>();

    FakePulsar(JsonNode settings, JsonNode policies) throws Exception {
        conf = configuration(settings);
        service.conf = conf;
        service.resources = FakeResources.of(policies);
        service.names = names;
        service.stats = stats;
        names.factory = make(Factory.class);
        set(NamespaceBundleFactory.class, names.factory, "hashFunc", Hashing.crc32());
        names.counts = new HashMap<>();
        names.topics = new HashMap<>();
        set(NamespaceService.class, names, "config", conf);
        set(NamespaceService.class, names, "pulsar", service);
        stats.topics = new HashMap<>();
        var manager = make(ExtensibleLoadManagerImpl.class);
        set(ExtensibleLoadManagerImpl.class, manager, "serviceUnitStateChannel", channel());
        service.manager = new AtomicReference<>(new ExtensibleLoadManagerWrapper(manager));
    }

    /** A channel that knows the owners. */
    ServiceUnitStateChannel channel() {
        return (ServiceUnitStateChannel)
                Proxy.newProxyInstance(
                        FakePulsar.class.getClassLoader(),
                        new Class<?>[] {ServiceUnitStateChannel.class},
                        (proxy, method, args) ->
                                switch (method.getName()) {
                                    case "isOwner" ->
                                            args.length == 1
                                                    || args[1].equals(owners.get((String) args[0]));
                                    case "getOwnershipEntrySet" -> entries();
                                    default -> throw new IllegalStateException(method.getName());
                                });
    }

    private Set<Map.Entry<String, ServiceUnitStateData>> entries() {
        var found = new HashSet<Map.Entry<String, ServiceUnitStateData>>();
        owners.forEach(
                (bundle, broker) ->
                        found.add(
                                new AbstractMap.SimpleEntry<>(
                                        bundle,
                                        new ServiceUnitStateData(
                                                ServiceUnitState.Owned, broker, 1L))));
        splitting.forEach(
                bundle ->
                        found.add(
                                new AbstractMap.SimpleEntry<>(
                                        bundle,
                                        new ServiceUnitStateData(
                                                ServiceUnitState.Splitting, null, "b", 1L))));
        return found;
    }

    static ServiceConfiguration configuration(JsonNode settings) throws Exception {
        var conf = new ServiceConfiguration();
        conf.setClusterName("test");
        var fields = settings.fields();
        while (fields.hasNext()) {
            var entry = fields.next();
            Field field = ServiceConfiguration.class.getDeclaredField(entry.getKey());
            field.setAccessible(true);
            field.set(conf, JSON.treeToValue(entry.getValue(), field.getType()));
        }
        return conf;
    }

    static List<String> texts(JsonNode list) {
        var found = new ArrayList<String>();
        list.forEach(text -> found.add(text.asText()));
        return found;
    }

    /** The failure domain of each broker. */
    static Map<String, String> failureDomains(JsonNode policies) {
        var found = new HashMap<String, String>();
        policies.path("failure_domains")
                .fields()
                .forEachRemaining(
                        e -> texts(e.getValue()).forEach(broker -> found.put(broker, e.getKey())));
        return found;
    }

    /** Columns: bytes in and out, messages in and out, topics, sessions. */
    static NamespaceBundleStats stats(JsonNode columns) {
        var stats = new NamespaceBundleStats();
        stats.msgThroughputIn = columns.get(0).asDouble();
        stats.msgThroughputOut = columns.get(1).asDouble();
        stats.msgRateIn = columns.get(2).asDouble();
        stats.msgRateOut = columns.get(3).asDouble();
        stats.topics = columns.path(4).asLong(0);
        stats.consumerCount = columns.path(5).asInt(0) / 2;
        stats.producerCount = columns.path(5).asInt(0) - stats.consumerCount;
        return stats;
    }

    /** Topics of a bundle with their rates: bytes in and out, messages in and out. */
    void putTopics(String bundle, JsonNode given) {
        var found = new HashMap<String, TopicStatsImpl>();
        var listed = new ArrayList<String>();
        given.fields()
                .forEachRemaining(
                        e -> {
                            listed.add(e.getKey());
                            var of = new TopicStatsImpl();
                            of.msgThroughputIn = e.getValue().get(0).asDouble();
                            of.msgThroughputOut = e.getValue().get(1).asDouble();
                            of.msgRateIn = e.getValue().get(2).asDouble();
                            of.msgRateOut = e.getValue().get(3).asDouble();
                            found.put(e.getKey(), of);
                        });
        names.topics.put(bundle, listed);
        stats.topics.put(bundle, found);
    }

    @SuppressWarnings("unchecked")
    static <T> T make(Class<T> type) {
        try {
            return (T) UNSAFE.allocateInstance(type);
        } catch (InstantiationException e) {
            throw new IllegalStateException(e);
        }
    }

    static Object get(Class<?> type, Object of, String name) throws Exception {
        Field field = type.getDeclaredField(name);
        field.setAccessible(true);
        return field.get(of);
    }

    static void set(Class<?> type, Object of, String name, Object value) throws Exception {
        Field field = type.getDeclaredField(name);
        UNSAFE.putObject(of, UNSAFE.objectFieldOffset(field), value);
    }

    private static Unsafe unsafe() {
        try {
            Field field = Unsafe.class.getDeclaredField("theUnsafe");
            field.setAccessible(true);
            return (Unsafe) field.get(null);
        } catch (ReflectiveOperationException e) {
            throw new IllegalStateException(e);
        }
    }

    static final class Service extends PulsarService {
        ServiceConfiguration conf;
        FakeResources resources;
        Names names;
        Stats stats;
        AtomicReference<LoadManager> manager;

        Service() {
            super(null);
        }

        @Override
        public ServiceConfiguration getConfiguration() {
            return conf;
        }

        @Override
        public ServiceConfiguration getConfig() {
            return conf;
        }

        @Override
        public PulsarResources getPulsarResources() {
            return resources;
        }

        @Override
        public NamespaceService getNamespaceService() {
            return names;
        }

        @Override
        public BrokerService getBrokerService() {
            return stats;
        }

        @Override
        public LeaderElectionService getLeaderElectionService() {
            return null;
        }

        @Override
        public AtomicReference<LoadManager> getLoadManager() {
            return manager;
        }
    }

    static final class Names extends NamespaceService {
        NamespaceBundleFactory factory;
        Map<String, Integer> counts;
        Map<String, List<String>> topics;

        Names() {
            super(null);
        }

        @Override
        public NamespaceBundleFactory getNamespaceBundleFactory() {
            return factory;
        }

        @Override
        public int getBundleCount(NamespaceName namespace) {
            return counts.get(namespace.toString());
        }

        @Override
        public Set<NamespaceBundle> getOwnedServiceUnits() {
            return Set.of();
        }

        @Override
        public CompletableFuture<List<String>> getOwnedTopicListForNamespaceBundle(
                NamespaceBundle bundle) {
            return CompletableFuture.completedFuture(topics.get(bundle.toString()));
        }
    }

    static final class Factory extends NamespaceBundleFactory {
        Factory() {
            super(null, null);
        }

        @Override
        public void invalidateBundleCache(NamespaceName namespace) {}
    }

    static final class Stats extends BrokerService {
        Map<String, NamespaceBundleStats> bundles;
        Map<String, Map<String, TopicStatsImpl>> topics;

        Stats() throws Exception {
            super(null, null);
        }

        @Override
        public Map<String, NamespaceBundleStats> getBundleStats() {
            return bundles;
        }

        @Override
        public Map<String, TopicStatsImpl> getTopicStats(NamespaceBundle bundle) {
            return topics.get(bundle.toString());
        }
    }
}
