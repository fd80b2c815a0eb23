import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ArrayNode;
import java.lang.reflect.Method;
import java.lang.reflect.Proxy;
import java.util.ArrayList;
import java.util.HashSet;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import org.apache.pulsar.broker.loadbalance.LoadData;
import org.apache.pulsar.broker.loadbalance.extensions.BrokerRegistry;
import org.apache.pulsar.broker.loadbalance.extensions.LoadManagerContext;
import org.apache.pulsar.broker.loadbalance.extensions.data.BrokerLoadData;
import org.apache.pulsar.broker.loadbalance.extensions.models.SplitCounter;
import org.apache.pulsar.broker.loadbalance.extensions.reporter.BrokerLoadDataReporter;
import org.apache.pulsar.broker.loadbalance.extensions.strategy.DefaultNamespaceBundleSplitStrategyImpl;
import org.apache.pulsar.broker.loadbalance.impl.BundleSplitterTask;
import org.apache.pulsar.broker.loadbalance.impl.ModularLoadManagerImpl;
import org.apache.pulsar.common.naming.NamespaceBundle;
import org.apache.pulsar.common.naming.NamespaceBundleSplitAlgorithm;
import org.apache.pulsar.policies.data.loadbalancer.BrokerData;
import org.apache.pulsar.policies.data.loadbalancer.BundleData;
import org.apache.pulsar.policies.data.loadbalancer.LocalBrokerData;
import org.apache.pulsar.policies.data.loadbalancer.NamespaceBundleStats;

/** Split triggers of both managers, split algorithms, and rules of load reports. */
final class StockSplits {
    private static final String BROKER = "10.0.0.1:8080";

    private final FakePulsar pulsar;

    private StockSplits(JsonNode given) throws Exception {
        pulsar = new FakePulsar(given.get("conf"), given.path("policies"));
        given.path("counts")
                .fields()
                .forEachRemaining(e -> pulsar.names.counts.put(e.getKey(), e.getValue().asInt()));
        given.path("topics").fields().forEachRemaining(e -> pulsar.putTopics(e.getKey(), e.getValue()));
    }

    private NamespaceBundle bundle(String name) {
        int slash = name.lastIndexOf('/');
        return pulsar.names.factory.getBundle(name.substring(0, slash), name.substring(slash + 1));
    }

    /** The boundaries of one bundle with a named algorithm; null = none, "error" = refused. */
    static JsonNode boundaries(JsonNode given) throws Exception {
        var splits = new StockSplits(given);
        String name = given.get("algorithm").asText();
        List<Long> positions = null;
        if (given.has("positions")) {
            positions = new ArrayList<>();
            for (JsonNode position : given.get("positions")) {
                positions.add(position.asLong());
            }
        }
        try {
            return FakePulsar.JSON.valueToTree(
                    splits.pulsar
                            .names
                            .getSplitBoundary(
                                    splits.bundle(given.get("bundle").asText()),
                                    positions,
                                    NamespaceBundleSplitAlgorithm.of(name))
                            .get());
        } catch (RuntimeException e) {
            return FakePulsar.JSON.valueToTree("error");
        }
    }

    static JsonNode modular(JsonNode given) throws Exception {
        var splits = new StockSplits(given);
        var task = new BundleSplitterTask();
        var load = new LoadData();
        ArrayNode answers = FakePulsar.JSON.createArrayNode();
        for (JsonNode round : given.get("rounds")) {
            var brokers = round.get("brokers").fields();
            load.getBrokerData().clear();
            var present = new HashSet<String>();
            while (brokers.hasNext()) {
                var broker = brokers.next();
                var stats = new LinkedHashMap<String, NamespaceBundleStats>();
                broker.getValue()
                        .get("bundles")
                        .fields()
                        .forEachRemaining(e -> stats.put(e.getKey(), FakePulsar.stats(e.getValue())));
                var local = new LocalBrokerData();
                local.update(StockTransfer.usage(broker.getValue()), stats);
                load.getBrokerData().put(broker.getKey(), new BrokerData(local));
                present.addAll(stats.keySet());
                stats.forEach(
                        (bundle, of) ->
                                load.getBundleData()
                                        .computeIfAbsent(bundle, b -> new BundleData(10, 1000))
                                        .update(of));
            }
            load.getBundleData().keySet().retainAll(present); // as the leader does
            var found = new ArrayList<String>();
            task.findBundlesToSplit(load, splits.pulsar.service)
                    .forEach(
                            (bundle, broker) -> {
                                if (splits.pulsar.names.factory.canSplitBundle(
                                        splits.bundle(bundle))) {
                                    found.add(bundle + " " + broker);
                                }
                            });
            found.sort(null);
            answers.add(FakePulsar.JSON.valueToTree(found));
        }
        return answers;
    }

    static JsonNode extensible(JsonNode given) throws Exception {
        var splits = new StockSplits(given);
        var strategy = new DefaultNamespaceBundleSplitStrategyImpl(new SplitCounter());
        splits.pulsar.stats.bundles = new ConcurrentHashMap<>();
        var registry =
                (BrokerRegistry)
                        Proxy.newProxyInstance(
                                StockSplits.class.getClassLoader(),
                                new Class<?>[] {BrokerRegistry.class},
                                (proxy, method, args) -> BROKER);
        var context =
                (LoadManagerContext)
                        Proxy.newProxyInstance(
                                StockSplits.class.getClassLoader(),
                                new Class<?>[] {LoadManagerContext.class},
                                (proxy, method, args) -> registry);
        ArrayNode answers = FakePulsar.JSON.createArrayNode();
        for (JsonNode round : given.get("rounds")) {
            var bundles = splits.pulsar.stats.bundles;
            JsonNode own = round.get("brokers").elements().next().get("bundles");
            own.fields()
                    .forEachRemaining(e -> bundles.put(e.getKey(), FakePulsar.stats(e.getValue())));
            bundles.keySet().removeIf(bundle -> !own.has(bundle));
            splits.pulsar.splitting.clear();
            splits.pulsar.splitting.addAll(FakePulsar.texts(round.get("splitting")));
            var found = new ArrayList<String>();
            for (var decision : strategy.findBundlesToSplit(context, splits.pulsar.service)) {
                var children =
                        new ArrayList<>(decision.getSplit().splitServiceUnitToDestBroker().keySet());
                children.sort(null);
                found.add(
                        decision.getSplit().serviceUnit()
                                + " "
                                + children.get(0).split("_")[1]
                                + " "
                                + decision.getReason());
            }
            found.sort(null);
            answers.add(FakePulsar.JSON.valueToTree(found));
        }
        return answers;
    }

    /** Whether both managers report: [modular, extensible], of the first broker in two rounds. */
    static JsonNode reports(JsonNode given) throws Exception {
        var splits = new StockSplits(given);
        JsonNode last = given.get("rounds").get(0).get("brokers").elements().next();
        JsonNode now = given.get("rounds").get(1).get("brokers").elements().next();
        long reported =
                System.currentTimeMillis() - (long) (1000 * given.get("age_s").asDouble());
        var manager = new StockPlacement.Manager();
        var type = ModularLoadManagerImpl.class;
        var local = local(now);
        local.setLastUpdate(reported);
        FakePulsar.set(type, manager, "conf", splits.pulsar.conf);
        FakePulsar.set(type, manager, "lastData", local(last));
        FakePulsar.set(type, manager, "localData", local);
        var reporter = FakePulsar.make(BrokerLoadDataReporter.class);
        var ofReporter = BrokerLoadDataReporter.class;
        var data = data(now, splits.pulsar);
        data.setReportedAt(reported);
        FakePulsar.set(ofReporter, reporter, "conf", splits.pulsar.conf);
        FakePulsar.set(ofReporter, reporter, "lastData", data(last, splits.pulsar));
        FakePulsar.set(ofReporter, reporter, "localData", data);
        ArrayNode answer = FakePulsar.JSON.createArrayNode();
        answer.add(needed(type, manager)).add(needed(ofReporter, reporter));
        manager.stop();
        return answer;
    }

    private static boolean needed(Class<?> type, Object of) throws Exception {
        Method method = type.getDeclaredMethod("needBrokerDataUpdate");
        method.setAccessible(true);
        return (boolean) method.invoke(of);
    }

    private static LocalBrokerData local(JsonNode broker) {
        var local = new LocalBrokerData();
        var stats = new LinkedHashMap<String, NamespaceBundleStats>();
        broker.get("bundles")
                .fields()
                .forEachRemaining(e -> stats.put(e.getKey(), FakePulsar.stats(e.getValue())));
        local.update(StockTransfer.usage(broker), stats);
        return local;
    }

    private static BrokerLoadData data(JsonNode broker, FakePulsar pulsar) {
        LocalBrokerData local = local(broker);
        var data = new BrokerLoadData();
        data.update(
                StockTransfer.usage(broker),
                local.getMsgThroughputIn(),
                local.getMsgThroughputOut(),
                local.getMsgRateIn(),
                local.getMsgRateOut(),
                local.getNumBundles(),
                0,
                pulsar.conf);
        return data;
    }
}
