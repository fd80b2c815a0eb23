import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import com.google.common.collect.Sets;
import java.lang.reflect.Method;
import java.util.ArrayList;
import java.util.Collection;
import java.util.HashSet;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.concurrent.FutureTask;
import org.apache.pulsar.broker.PulsarService;
import org.apache.pulsar.broker.ServiceConfiguration;
import org.apache.pulsar.broker.loadbalance.BrokerFilter;
import org.apache.pulsar.broker.loadbalance.LoadData;
import org.apache.pulsar.broker.loadbalance.ModularLoadManagerStrategy;
import org.apache.pulsar.broker.loadbalance.impl.AvgShedder;
import org.apache.pulsar.broker.loadbalance.impl.BrokerLoadManagerClassFilter;
import org.apache.pulsar.broker.loadbalance.impl.BrokerVersionFilter;
import org.apache.pulsar.broker.loadbalance.impl.ModularLoadManagerImpl;
import org.apache.pulsar.broker.loadbalance.impl.RoundRobinBrokerSelector;
import org.apache.pulsar.broker.loadbalance.impl.SimpleResourceAllocationPolicies;
import org.apache.pulsar.common.naming.NamespaceBundle;
import org.apache.pulsar.common.naming.ServiceUnitId;
import org.apache.pulsar.policies.data.loadbalancer.BrokerData;
import org.apache.pulsar.policies.data.loadbalancer.BundleData;
import org.apache.pulsar.policies.data.loadbalancer.LocalBrokerData;
import org.apache.pulsar.policies.data.loadbalancer.NamespaceBundleStats;

/** One ModularLoadManagerImpl as leader through the rounds of a case; it places bundles. */
final class StockPlacement {
    private final FakePulsar pulsar;
    private final Manager manager = new Manager();
    private final Recorder recorder;
    private final LoadData loadData;
    private final JsonNode versions;

    private StockPlacement(JsonNode given) throws Exception {
        JsonNode policies = given.path("policies");
        pulsar = new FakePulsar(given.get("conf"), policies);
        versions = policies.path("broker_versions");
        String name = "org.apache.pulsar.broker.loadbalance.impl." + given.get("strategy").asText();
        recorder = new Recorder(
                (ModularLoadManagerStrategy) Class.forName(name).getConstructor().newInstance());
        var type = ModularLoadManagerImpl.class;
        manager.begin(pulsar.service);
        FakePulsar.set(type, manager, "conf", pulsar.conf);
        FakePulsar.set(type, manager, "placementStrategy", recorder);
        FakePulsar.set(
                type, manager, "policies", new SimpleResourceAllocationPolicies(pulsar.service));
        @SuppressWarnings("unchecked")
        var filters = (List<BrokerFilter>) FakePulsar.get(type, manager, "filterPipeline");
        filters.add(new BrokerLoadManagerClassFilter());
        filters.add(new BrokerVersionFilter());
        @SuppressWarnings("unchecked")
        var domains =
                (Map<String, String>) FakePulsar.get(type, manager, "brokerToFailureDomainMap");
        if (pulsar.conf.isFailureDomainsEnabled()) {
            domains.putAll(FakePulsar.failureDomains(policies));
        }
        var assumed = (NamespaceBundleStats) FakePulsar.get(type, manager, "defaultStats");
        assumed.msgThroughputIn = ModularLoadManagerImpl.DEFAULT_MESSAGE_THROUGHPUT;
        assumed.msgThroughputOut = ModularLoadManagerImpl.DEFAULT_MESSAGE_THROUGHPUT;
        assumed.msgRateIn = ModularLoadManagerImpl.DEFAULT_MESSAGE_RATE;
        assumed.msgRateOut = ModularLoadManagerImpl.DEFAULT_MESSAGE_RATE;
        loadData = (LoadData) FakePulsar.get(type, manager, "loadData");
    }

    /** In a thread of its own: Pulsar keeps sets of brokers from call to call, one for a thread. */
    static JsonNode answer(JsonNode given) throws Exception {
        var task = new FutureTask<JsonNode>(() -> rounds(given));
        new Thread(task).start();
        return task.get();
    }

    private static JsonNode rounds(JsonNode given) throws Exception {
        var placement = new StockPlacement(given);
        ArrayNode answers = FakePulsar.JSON.createArrayNode();
        for (JsonNode round : given.get("rounds")) {
            placement.read(round.get("brokers"));
            ArrayNode placed = answers.addArray();
            for (JsonNode asked : round.get("place")) {
                if (asked.get(1).isTextual()) {
                    placed.add(placement.mayLeave(asked.get(0).asText(), asked.get(1).asText()));
                    continue;
                }
                placement.place(asked.get(0).asText(), asked.get(1).asBoolean(), placed.addObject());
            }
        }
        placement.manager.stop();
        return answers;
    }

    private void read(JsonNode brokers) throws Exception {
        List<String> names = new ArrayList<>();
        brokers.fieldNames().forEachRemaining(names::add);
        call("reapDeadBrokerPreallocations", List.class, names);
        manager.available = names;
        recorder.strategy.onActiveBrokersChange(new HashSet<>(names));
        for (String name : names) {
            LocalBrokerData local = local(name, brokers.get(name));
            BrokerData known = loadData.getBrokerData().get(name);
            if (known == null) {
                loadData.getBrokerData().put(name, new BrokerData(local));
            } else {
                known.setLocalData(local);
            }
        }
        loadData.getBrokerData().keySet().removeIf(name -> !names.contains(name));
        call("updateBundleData", null, null);
        if (recorder.strategy instanceof AvgShedder shedder) {
            shedder.findBundlesForUnloading(loadData, pulsar.conf);
        }
    }

    private LocalBrokerData local(String name, JsonNode broker) {
        var local = new LocalBrokerData("http://" + name, null, "pulsar://" + name, null);
        var stats = new LinkedHashMap<String, NamespaceBundleStats>();
        broker.get("bundles")
                .fields()
                .forEachRemaining(e -> stats.put(e.getKey(), FakePulsar.stats(e.getValue())));
        local.update(StockTransfer.usage(broker), stats);
        local.setLoadManagerClassName(pulsar.conf.getLoadManagerClassName());
        local.setBrokerVersionString(versions.path(name).asText(null));
        return local;
    }

    private void call(String name, Class<?> parameter, Object argument) throws Exception {
        Class<?>[] types = parameter == null ? new Class<?>[0] : new Class<?>[] {parameter};
        Method method = ModularLoadManagerImpl.class.getDeclaredMethod(name, types);
        method.setAccessible(true);
        method.invoke(manager, parameter == null ? new Object[0] : new Object[] {argument});
    }

    /** Whether policies let a bundle leave its broker, as doLoadShedding asks. */
    private boolean mayLeave(String bundle, String broker) {
        int slash = bundle.lastIndexOf('/');
        String namespace = bundle.substring(0, slash);
        String range = bundle.substring(slash + 1);
        return manager.shouldNamespacePoliciesUnload(namespace, range, broker)
                && manager.shouldAntiAffinityNamespaceUnload(namespace, range, broker);
    }

    private void place(String bundle, boolean lookup, ObjectNode answer) throws Exception {
        int slash = bundle.lastIndexOf('/');
        NamespaceBundle unit =
                pulsar.names.factory.getBundle(
                        bundle.substring(0, slash), bundle.substring(slash + 1));
        recorder.offers.clear();
        recorder.draws.clear();
        Optional<String> broker;
        if (lookup) {
            broker = manager.selectBrokerForAssignment(unit);
        } else {
            Method method =
                    ModularLoadManagerImpl.class.getDeclaredMethod(
                            "selectBroker", ServiceUnitId.class);
            method.setAccessible(true);
            broker = unwrapped(method, unit);
        }
        ArrayNode offers = answer.putArray("offers");
        for (Collection<String> offer : recorder.offers) {
            ArrayNode names = offers.addArray();
            offer.stream().sorted().forEach(names::add);
        }
        recorder.draws.forEach(answer.putArray("draws")::add);
        answer.put("broker", broker.orElse(null));
    }

    @SuppressWarnings("unchecked")
    private Optional<String> unwrapped(Method method, NamespaceBundle unit) throws Exception {
        return (Optional<String>) method.invoke(manager, unit);
    }

    /** A leader that needs no cluster. */
    static final class Manager extends ModularLoadManagerImpl {
        List<String> available;

        void begin(PulsarService service) {
            pulsar = service;
        }

        @Override
        public Set<String> getAvailableBrokers() {
            return Sets.newHashSet(available);
        }

        @Override
        public void stop() throws org.apache.pulsar.broker.PulsarServerException {
            try {
                var executors =
                        (java.util.concurrent.ExecutorService)
                                FakePulsar.get(ModularLoadManagerImpl.class, this, "executors");
                executors.shutdownNow();
            } catch (Exception e) {
                throw new IllegalStateException(e);
            }
        }
    }

    /** Notes what a strategy draws from, and what it draws. */
    static final class Recorder implements ModularLoadManagerStrategy {
        final ModularLoadManagerStrategy strategy;
        final List<Collection<String>> offers = new ArrayList<>();
        final List<String> draws = new ArrayList<>();

        Recorder(ModularLoadManagerStrategy strategy) {
            this.strategy = strategy;
        }

        @Override
        public Optional<String> selectBroker(
                Set<String> candidates, BundleData data, LoadData load, ServiceConfiguration conf) {
            if (candidates.isEmpty()) {
                return Optional.empty();
            }
            String planned = planned(data);
            Optional<String> chosen = strategy.selectBroker(candidates, data, load, conf);
            offers.add(offered(candidates, chosen.get(), planned));
            draws.add(chosen.get());
            return chosen;
        }

        private String planned(BundleData data) {
            try {
                return strategy instanceof AvgShedder
                        ? ((Map<?, ?>) FakePulsar.get(AvgShedder.class, strategy, "bundleBrokerMap"))
                                .get(data) instanceof String broker ? broker : null
                        : null;
            } catch (Exception e) {
                throw new IllegalStateException(e);
            }
        }

        @SuppressWarnings("unchecked")
        private Collection<String> offered(Set<String> candidates, String chosen, String planned) {
            try {
                if (strategy instanceof AvgShedder) {
                    return candidates.contains(planned) ? List.of(planned) : List.copyOf(candidates);
                }
                if (strategy instanceof RoundRobinBrokerSelector) {
                    return List.of(chosen);
                }
                return List.copyOf(
                        (Collection<String>)
                                FakePulsar.get(strategy.getClass(), strategy, "bestBrokers"));
            } catch (Exception e) {
                throw new IllegalStateException(e);
            }
        }
    }
}
