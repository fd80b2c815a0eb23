import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.lang.management.ManagementFactory;
import java.lang.reflect.Proxy;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ConcurrentHashMap;
import org.apache.pulsar.broker.ServiceConfiguration;
import org.apache.pulsar.broker.loadbalance.extensions.BrokerRegistry;
import org.apache.pulsar.broker.loadbalance.extensions.LoadManagerContext;
import org.apache.pulsar.broker.loadbalance.extensions.data.BrokerLoadData;
import org.apache.pulsar.broker.loadbalance.extensions.data.BrokerLookupData;
import org.apache.pulsar.broker.loadbalance.extensions.data.TopBundlesLoadData;
import org.apache.pulsar.broker.loadbalance.extensions.filter.AntiAffinityGroupPolicyFilter;
import org.apache.pulsar.broker.loadbalance.extensions.filter.BrokerFilter;
import org.apache.pulsar.broker.loadbalance.extensions.filter.BrokerIsolationPoliciesFilter;
import org.apache.pulsar.broker.loadbalance.extensions.filter.BrokerLoadManagerClassFilter;
import org.apache.pulsar.broker.loadbalance.extensions.filter.BrokerMaxTopicCountFilter;
import org.apache.pulsar.broker.loadbalance.extensions.filter.BrokerVersionFilter;
import org.apache.pulsar.broker.loadbalance.extensions.models.TopKBundles;
import org.apache.pulsar.broker.loadbalance.extensions.models.UnloadCounter;
import org.apache.pulsar.broker.loadbalance.extensions.policies.AntiAffinityGroupPolicyHelper;
import org.apache.pulsar.broker.loadbalance.extensions.policies.IsolationPoliciesHelper;
import org.apache.pulsar.broker.loadbalance.extensions.scheduler.TransferShedder;
import org.apache.pulsar.broker.loadbalance.extensions.store.LoadDataStore;
import org.apache.pulsar.broker.loadbalance.extensions.strategy.LeastResourceUsageWithWeight;
import org.apache.pulsar.broker.loadbalance.impl.SimpleResourceAllocationPolicies;
import org.apache.pulsar.common.naming.NamespaceBundle;
import org.apache.pulsar.policies.data.loadbalancer.NamespaceBundleStats;
import org.apache.pulsar.policies.data.loadbalancer.ResourceUsage;
import org.apache.pulsar.policies.data.loadbalancer.SystemResourceUsage;

/** One TransferShedder through the rounds of a case, with the loads as brokers report them. */
final class StockTransfer {
    private final FakePulsar pulsar;
    private final UnloadCounter counter = new UnloadCounter();
    private final TransferShedder shedder = new TransferShedder(counter);
    private final Map<String, BrokerLoadData> loads = new ConcurrentHashMap<>();
    private final Map<String, TopBundlesLoadData> tops = new ConcurrentHashMap<>();
    private Map<String, BrokerLookupData> available;
    private final JsonNode versions;
    private final LeastResourceUsageWithWeight strategy = new LeastResourceUsageWithWeight();
    private List<BrokerFilter> filters = List.of();

    private StockTransfer(JsonNode given) throws Exception {
        JsonNode policies = given.path("policies");
        pulsar = new FakePulsar(given.get("conf"), policies);
        versions = policies.path("broker_versions");
        if (policies.isObject()) {
            var isolation =
                    new IsolationPoliciesHelper(
                            new SimpleResourceAllocationPolicies(pulsar.service));
            var channel = pulsar.channel();
            var groups = new AntiAffinityGroupPolicyHelper(pulsar.service, channel);
            var domains = FakePulsar.failureDomains(policies);
            FakePulsar.set(
                    AntiAffinityGroupPolicyHelper.class, groups, "brokerToFailureDomainMap", domains);
            var type = TransferShedder.class;
            FakePulsar.set(type, shedder, "pulsar", pulsar.service);
            FakePulsar.set(type, shedder, "isolationPoliciesHelper", isolation);
            FakePulsar.set(type, shedder, "antiAffinityGroupPolicyHelper", groups);
            FakePulsar.set(type, shedder, "channel", channel);
            filters =
                    List.of(
                            new BrokerLoadManagerClassFilter(),
                            new BrokerMaxTopicCountFilter(),
                            new BrokerVersionFilter(),
                            new AntiAffinityGroupPolicyFilter(groups),
                            new BrokerIsolationPoliciesFilter(isolation));
            FakePulsar.set(type, shedder, "brokerFilterPipeline", filters);
        }
    }

    static JsonNode answer(JsonNode given) throws Exception {
        var transfer = new StockTransfer(given);
        var answers = FakePulsar.JSON.createArrayNode();
        for (JsonNode round : given.get("rounds")) {
            answers.add(transfer.round(round));
        }
        return answers;
    }

    private ObjectNode round(JsonNode round) throws Exception {
        var unloadedBrokers = new HashMap<String, Long>();
        read(round, unloadedBrokers);
        var recent = new HashMap<String, Long>();
        FakePulsar.texts(round.get("recent")).forEach(bundle -> recent.put(bundle, 1L));
        Map<String, Long> before = counts();
        var answer = FakePulsar.JSON.createObjectNode();
        for (JsonNode bundle : round.path("place")) {
            var names = answer.withArray("choices").addArray();
            choices(bundle.asText()).stream().sorted().forEach(names::add);
        }
        var moves = new ArrayList<String>();
        var threads = ManagementFactory.getThreadMXBean();
        long begun = threads.getCurrentThreadCpuTime();
        var decisions = shedder.findBundlesForUnloading(context(), recent, unloadedBrokers);
        answer.put("seconds", (threads.getCurrentThreadCpuTime() - begun) / 1e9);
        for (var decision : decisions) {
            var unload = decision.getUnload();
            moves.add(
                    String.join(
                            " ",
                            unload.serviceUnit(),
                            unload.sourceBroker(),
                            unload.destBroker().orElse("-"),
                            decision.getReason().toString()));
        }
        moves.sort(null);
        moves.forEach(answer.putArray("moves")::add);
        String skip = "";
        for (var entry : counts().entrySet()) {
            if (entry.getValue() > before.get(entry.getKey())) {
                skip = entry.getKey();
            }
        }
        answer.put("skip", skip);
        var reported = answer.putObject("reported");
        for (var entry : tops.entrySet()) {
            var list = reported.putArray(entry.getKey());
            entry.getValue().getTopBundlesLoadData().forEach(b -> list.add(b.bundleName()));
        }
        return answer;
    }

    /** What LeastResourceUsageWithWeight draws from, after the filters (as selectAsync). */
    private List<String> choices(String name) throws Exception {
        NamespaceBundle bundle = bundle(name);
        var candidates = new ConcurrentHashMap<>(available);
        for (BrokerFilter filter : filters) {
            filter.filterAsync(candidates, bundle, context()).exceptionally(e -> null).get();
        }
        if (candidates.isEmpty()) {
            return List.of();
        }
        strategy.select(candidates.keySet(), bundle, context());
        var best =
                (ThreadLocal<?>)
                        FakePulsar.get(LeastResourceUsageWithWeight.class, strategy, "bestBrokers");
        var found = new ArrayList<String>();
        ((List<?>) best.get()).forEach(broker -> found.add((String) broker));
        return found;
    }

    private NamespaceBundle bundle(String name) {
        int slash = name.lastIndexOf('/');
        return pulsar.names.factory.getBundle(name.substring(0, slash), name.substring(slash + 1));
    }

    private Map<String, Long> counts() {
        var found = new HashMap<String, Long>();
        counter.getBreakdownCounters()
                .forEach(
                        (label, reasons) ->
                                reasons.forEach(
                                        (reason, count) ->
                                                found.put(label + " " + reason, count.get())));
        return found;
    }

    private void read(JsonNode round, Map<String, Long> unloadedBrokers) throws Exception {
        available = new ConcurrentHashMap<>();
        pulsar.owners.clear();
        round.get("brokers")
                .fields()
                .forEachRemaining(
                        e ->
                                e.getValue()
                                        .get("bundles")
                                        .fieldNames()
                                        .forEachRemaining(b -> pulsar.owners.put(b, e.getKey())));
        var fields = round.get("brokers").fields();
        while (fields.hasNext()) {
            var entry = fields.next();
            update(entry.getKey(), entry.getValue(), unloadedBrokers);
        }
        loads.keySet().retainAll(available.keySet());
        tops.keySet().retainAll(available.keySet());
        FakePulsar.texts(round.get("missing")).forEach(name -> available.put(name, lookup(name)));
    }

    private void update(String name, JsonNode broker, Map<String, Long> unloadedBrokers)
            throws Exception {
        available.put(name, lookup(name));
        Map<String, NamespaceBundleStats> stats = new ConcurrentHashMap<>();
        var sums = new double[4];
        long topics = 0;
        var bundles = broker.get("bundles").fields();
        while (bundles.hasNext()) {
            var bundle = bundles.next();
            for (int i = 0; i < 4; i++) {
                sums[i] += bundle.getValue().get(i).asDouble();
            }
            var of = FakePulsar.stats(bundle.getValue());
            topics += of.topics;
            stats.put(bundle.getKey(), of);
        }
        var load = loads.computeIfAbsent(name, n -> new BrokerLoadData());
        load.update(
                usage(broker), sums[0], sums[1], sums[2], sums[3], stats.size(), topics, pulsar.conf);
        long updated = load.getUpdatedAt() - (long) (1000 * broker.path("age_s").asDouble(0));
        var field = BrokerLoadData.class.getDeclaredField("updatedAt");
        field.setAccessible(true);
        field.setLong(load, updated);
        if (broker.has("since_unload_s")) {
            long since = (long) (1000 * broker.get("since_unload_s").asDouble());
            unloadedBrokers.put(name, updated - since);
        }
        var top = new TopKBundles(pulsar.service);
        top.update(stats, pulsar.conf.getLoadBalancerMaxNumberOfBundlesInBundleLoadReport());
        tops.put(name, top.getLoadData());
    }

    static SystemResourceUsage usage(JsonNode broker) {
        var usage = new SystemResourceUsage();
        usage.setCpu(resource(broker, 0));
        usage.setMemory(resource(broker, 1));
        usage.setDirectMemory(resource(broker, 2));
        usage.setBandwidthIn(resource(broker, 3));
        usage.setBandwidthOut(resource(broker, 4));
        return usage;
    }

    private static ResourceUsage resource(JsonNode broker, int column) {
        return new ResourceUsage(
                broker.get("usage").get(column).asDouble(),
                broker.get("limit").get(column).asDouble());
    }

    private BrokerLookupData lookup(String name) {
        return new BrokerLookupData(
                "", "", "", "", Map.of(), Map.of(), true, true,
                pulsar.conf.getLoadManagerClassName(), 1L,
                versions.path(name).asText(null), Map.of());
    }

    private LoadManagerContext context() {
        return proxy(
                LoadManagerContext.class,
                Map.of(
                        "brokerConfiguration", (ServiceConfiguration) pulsar.conf,
                        "brokerLoadDataStore", store(loads),
                        "topBundleLoadDataStore", store(tops),
                        "brokerRegistry",
                                proxy(
                                        BrokerRegistry.class,
                                        Map.of(
                                                "getAvailableBrokerLookupDataAsync",
                                                CompletableFuture.completedFuture(available)))));
    }

    private static LoadDataStore<?> store(Map<String, ?> data) {
        return (LoadDataStore<?>)
                Proxy.newProxyInstance(
                        StockTransfer.class.getClassLoader(),
                        new Class<?>[] {LoadDataStore.class},
                        (proxy, method, args) ->
                                switch (method.getName()) {
                                    case "get" -> Optional.ofNullable(data.get((String) args[0]));
                                    case "entrySet" -> data.entrySet();
                                    case "size" -> data.size();
                                    default -> throw new IllegalStateException(method.getName());
                                });
    }

    private static <T> T proxy(Class<T> type, Map<String, Object> answers) {
        return type.cast(
                Proxy.newProxyInstance(
                        StockTransfer.class.getClassLoader(),
                        new Class<?>[] {type},
                        (proxy, method, args) -> {
                            if (!answers.containsKey(method.getName())) {
                                throw new IllegalStateException(method.getName());
                            }
                            return answers.get(method.getName());
                        }));
    }
}
