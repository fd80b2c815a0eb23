import java.io.BufferedInputStream;
import java.io.BufferedOutputStream;
import java.io.DataInputStream;
import java.io.DataOutputStream;
import java.io.EOFException;
import java.io.FileOutputStream;
import java.io.FileDescriptor;
import java.io.IOException;
import java.io.StringReader;
import java.lang.management.ManagementFactory;
import java.lang.management.ThreadMXBean;
import java.lang.reflect.Constructor;
import java.lang.reflect.Field;
import java.lang.reflect.Proxy;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Properties;
import java.util.Set;
import java.util.TreeMap;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ThreadLocalRandom;
import org.apache.pulsar.broker.PulsarService;
import org.apache.pulsar.broker.ServiceConfiguration;
import org.apache.pulsar.broker.loadbalance.BundleSplitStrategy;
import org.apache.pulsar.broker.loadbalance.LoadData;
import org.apache.pulsar.broker.loadbalance.LoadSheddingStrategy;
import org.apache.pulsar.broker.loadbalance.ModularLoadManagerStrategy;
import org.apache.pulsar.broker.loadbalance.extensions.BrokerRegistry;
import org.apache.pulsar.broker.loadbalance.extensions.LoadManagerContext;
import org.apache.pulsar.broker.loadbalance.extensions.data.BrokerLoadData;
import org.apache.pulsar.broker.loadbalance.extensions.data.BrokerLookupData;
import org.apache.pulsar.broker.loadbalance.extensions.data.TopBundlesLoadData;
import org.apache.pulsar.broker.loadbalance.extensions.models.TopKBundles;
import org.apache.pulsar.broker.loadbalance.extensions.models.UnloadCounter;
import org.apache.pulsar.broker.loadbalance.extensions.models.UnloadDecision;
import org.apache.pulsar.broker.loadbalance.extensions.scheduler.TransferShedder;
import org.apache.pulsar.broker.loadbalance.extensions.store.LoadDataStore;
import org.apache.pulsar.broker.loadbalance.extensions.strategy.LeastResourceUsageWithWeight;
import org.apache.pulsar.broker.loadbalance.impl.BundleRangeCache;
import org.apache.pulsar.broker.loadbalance.impl.BundleSplitterTask;
import org.apache.pulsar.broker.loadbalance.impl.LoadManagerShared;
import org.apache.pulsar.broker.namespace.NamespaceService;
import org.apache.pulsar.common.configuration.PulsarConfigurationLoader;
import org.apache.pulsar.common.naming.NamespaceName;
import org.apache.pulsar.policies.data.loadbalancer.BrokerData;
import org.apache.pulsar.policies.data.loadbalancer.BundleData;
import org.apache.pulsar.policies.data.loadbalancer.LocalBrokerData;
import org.apache.pulsar.policies.data.loadbalancer.NamespaceBundleStats;
import org.apache.pulsar.policies.data.loadbalancer.ResourceUsage;
import org.apache.pulsar.policies.data.loadbalancer.SystemResourceUsage;
import org.apache.pulsar.policies.data.loadbalancer.TimeAverageBrokerData;

/**
 * The leader of a Pulsar cluster: stock's own classes, fed over standard input. Bytes are big-endian; what is asked is
 * in stock_leader.py. The classes get virtual time, and the thread's random numbers are seeded.
 */
public class StockBalancers {
    static final ThreadMXBean THREADS = ManagementFactory.getThreadMXBean();
    static final double DEFAULT_RATE = 50, DEFAULT_THROUGHPUT = 50000;

    public static void main(String[] args) throws Exception {
        DataOutputStream out = new DataOutputStream(new BufferedOutputStream(new FileOutputStream(FileDescriptor.out)));
        System.setOut(System.err);
        DataInputStream in = new DataInputStream(new BufferedInputStream(System.in, 1 << 16));
        Leader leader = null;
        while (true) {
            int op;
            try {
                op = in.readByte();
            } catch (EOFException end) {
                return;
            }
            if (op == 'N') {
                leader = new Leader(in);
            } else {
                leader.serve(op, in, out);
            }
            out.flush();
        }
    }

    static class Leader {
        final ServiceConfiguration conf;
        final LoadSheddingStrategy shedder;
        final ModularLoadManagerStrategy placement;
        final Extensible extensible;
        final LoadData loadData = new LoadData();
        final Map<String, LocalBrokerData> published = new ConcurrentHashMap<>();
        final Map<String, String> preallocated = new ConcurrentHashMap<>();
        final Map<String, String> wishes = new HashMap<>();
        final List<String> brokers = new ArrayList<>(), bundles = new ArrayList<>();
        final Map<String, Integer> brokerIds = new HashMap<>(), bundleIds = new HashMap<>();
        final BundleSplitStrategy splitter = new BundleSplitterTask();
        final Map<String, Integer> bundlesOfNamespace = new HashMap<>();
        final PulsarService pulsar;
        final NamespaceBundleStats defaults = new NamespaceBundleStats();
        BundleRangeCache ranges = new BundleRangeCache();
        Set<String> active = new HashSet<>();

        Leader(DataInputStream in) throws Exception {
            Properties settings = new Properties();
            settings.load(new StringReader(in.readUTF()));
            settings.putIfAbsent("clusterName", "arena");
            settings.putIfAbsent("metadataStoreUrl", "memory:arena");
            conf = PulsarConfigurationLoader.create(settings, ServiceConfiguration.class);
            String shed = in.readUTF(), place = in.readUTF();
            seed(in.readLong());
            defaults.msgThroughputIn = defaults.msgThroughputOut = DEFAULT_THROUGHPUT;
            defaults.msgRateIn = defaults.msgRateOut = DEFAULT_RATE;
            pulsar = FakePulsar.of(conf, bundlesOfNamespace);
            boolean transfer = shed.equals("TransferShedder");
            String impl = "org.apache.pulsar.broker.loadbalance.impl.";
            shedder = transfer || shed.isEmpty() ? null : (LoadSheddingStrategy) make(impl + shed);
            placement = transfer ? null : shed.equals(place) ? (ModularLoadManagerStrategy) shedder
                    : (ModularLoadManagerStrategy) make(impl + place);
            extensible = transfer ? new Extensible(conf, pulsar) : null;
        }

        void serve(int op, DataInputStream in, DataOutputStream out) throws Exception {
            switch (op) {
                case 'B': names(in, brokers, brokerIds); break;
                case 'b': names(in, bundles, bundleIds); break;
                case 'A': active(in); break;
                case 'R': report(in); break;
                case 'U': update(in.readInt()); break;
                case 'S': shed(in.readLong(), out); break;
                case 'W': wish(bundles.get(in.readInt()), brokers.get(in.readInt())); break;
                case 'P': out.writeInt(place(bundles.get(in.readInt()))); break;
                case 'K': splits(out); break;
                case 'L': extensibleReports(in); break;
                case 'C': extensible.clear(brokers.get(in.readInt())); break;
                case 'T': timed(in.readInt(), in.readLong(), out); break;
                default: throw new IOException("unknown request " + op);
            }
        }

        void names(DataInputStream in, List<String> to, Map<String, Integer> ids) throws IOException {
            for (int left = in.readInt(); left > 0; left--) {
                String name = in.readUTF();
                ids.put(name, to.size());
                to.add(name);
                if (to == bundles) {
                    bundlesOfNamespace.merge(LoadManagerShared.getNamespaceNameFromBundleName(name), 1, Integer::sum);
                }
            }
        }

        void active(DataInputStream in) throws IOException {
            active = new HashSet<>();
            for (int left = in.readInt(); left > 0; left--) {
                active.add(brokers.get(in.readInt()));
            }
            if (extensible != null) {
                extensible.active(active);
                return;
            }
            published.keySet().retainAll(active);
            loadData.getBrokerData().keySet().retainAll(active);
            if (shedder != null) {
                shedder.onActiveBrokersChange(active);
            }
            placement.onActiveBrokersChange(active);
        }

        void report(DataInputStream in) throws IOException {
            String broker = brokers.get(in.readInt());
            LocalBrokerData data = new LocalBrokerData("http://" + broker, null, "pulsar://" + broker, null);
            SystemResourceUsage usage = usage(in);
            data.update(usage, stats(in));
            published.put(broker, data);
        }

        SystemResourceUsage usage(DataInputStream in) throws IOException {
            SystemResourceUsage usage = new SystemResourceUsage();
            usage.cpu = resource(in);
            usage.memory = resource(in);
            usage.directMemory = resource(in);
            usage.bandwidthIn = resource(in);
            usage.bandwidthOut = resource(in);
            return usage;
        }

        ResourceUsage resource(DataInputStream in) throws IOException {
            double use = in.readDouble();
            return new ResourceUsage(use, in.readDouble());
        }

        Map<String, NamespaceBundleStats> stats(DataInputStream in) throws IOException {
            Map<String, NamespaceBundleStats> map = new HashMap<>();
            for (int left = in.readInt(); left > 0; left--) {
                String bundle = bundles.get(in.readInt());
                NamespaceBundleStats one = new NamespaceBundleStats();
                one.msgThroughputIn = in.readDouble();
                one.msgThroughputOut = in.readDouble();
                one.msgRateIn = in.readDouble();
                one.msgRateOut = in.readDouble();
                one.topics = in.readInt();
                map.put(bundle, one);
            }
            return map;
        }

        /** As ModularLoadManagerImpl.updateAll, with the leader an idle broker; so many notifications at once. */
        void update(int notifications) {
            for (String broker : active) {
                LocalBrokerData local = published.get(broker);
                if (local == null) {
                    loadData.getBrokerData().remove(broker);
                } else if (loadData.getBrokerData().containsKey(broker)) {
                    loadData.getBrokerData().get(broker).setLocalData(local);
                } else {
                    loadData.getBrokerData().put(broker, new BrokerData(local));
                }
            }
            Map<String, BundleData> known = loadData.getBundleData();
            Set<String> seen = new HashSet<>();
            for (Map.Entry<String, BrokerData> entry : loadData.getBrokerData().entrySet()) {
                BrokerData broker = entry.getValue();
                Map<String, NamespaceBundleStats> stats = broker.getLocalData().getLastStats();
                stats.forEach((bundle, sample) -> {
                    seen.add(bundle);
                    BundleData data = known.computeIfAbsent(bundle, __ -> new BundleData(10, 1000, defaults));
                    for (int i = 0; i < notifications; i++) {
                        data.update(sample);
                    }
                });
                preallocated.keySet().removeAll(broker.getPreallocatedBundleData().keySet());
                broker.getPreallocatedBundleData().clear();
                TimeAverageBrokerData average = new TimeAverageBrokerData();
                average.reset(stats.keySet(), known, defaults);
                broker.setTimeAverageData(average);
                ranges.reloadFromBundles(entry.getKey(), stats.keySet().stream());
            }
            known.keySet().removeIf(bundle -> !seen.contains(bundle));
        }

        void wish(String bundle, String broker) {
            wishes.put(LoadManagerShared.getBundleRangeFromBundleName(bundle), broker);
        }

        /** As ModularLoadManagerWrapper.getLeastLoaded, which a lookup calls. */
        int place(String bundle) {
            if (extensible != null) {
                return brokerIds.getOrDefault(extensible.place(), -1);
            }
            String wished = wishes.remove(LoadManagerShared.getBundleRangeFromBundleName(bundle));
            if (wished != null && active.contains(wished)) {
                return brokerIds.get(wished);
            }
            String chosen = preallocated.get(bundle);
            if (chosen == null || !active.contains(chosen)) {
                chosen = select(bundle).orElse(null);
                if (chosen == null) {
                    return -1;
                }
                loadData.getBrokerData().get(chosen).getPreallocatedBundleData()
                        .put(bundle, loadData.getBundleData().get(bundle));
                preallocated.put(bundle, chosen);
                ranges.add(chosen, LoadManagerShared.getNamespaceNameFromBundleName(bundle),
                        LoadManagerShared.getBundleRangeFromBundleName(bundle));
            }
            return brokerIds.get(chosen);
        }

        /** As ModularLoadManagerImpl.selectBroker, where there are no policies. */
        Optional<String> select(String bundle) {
            BundleData data = loadData.getBundleData().computeIfAbsent(bundle, __ -> new BundleData(10, 1000, defaults));
            Set<String> reported = new HashSet<>(active);
            reported.retainAll(loadData.getBrokerData().keySet());
            if (reported.isEmpty()) {
                return Optional.empty();
            }
            Set<String> candidates = new HashSet<>(reported);
            LoadManagerShared.filterBrokersWithLargeTopicCount(candidates, loadData,
                    conf.getLoadBalancerBrokerMaxTopics());
            if (conf.isLoadBalancerDistributeBundlesEvenlyEnabled()) {
                LoadManagerShared.removeMostServicingBrokersForNamespace(bundle, candidates, ranges);
            }
            if (candidates.isEmpty()) {
                candidates.addAll(reported);
            }
            Optional<String> broker = placement.selectBroker(candidates, data, loadData, conf);
            if (broker.isPresent() && used(broker.get()) > conf.getLoadBalancerBrokerOverloadedThresholdPercentage() / 100.0) {
                Optional<String> other = placement.selectBroker(new HashSet<>(reported), data, loadData, conf);
                return other.isPresent() ? other : broker;
            }
            return broker;
        }

        double used(String broker) {
            return loadData.getBrokerData().get(broker).getLocalData().getMaxResourceUsageWithWeight(
                    conf.getLoadBalancerCPUResourceWeight(), conf.getLoadBalancerDirectMemoryResourceWeight(),
                    conf.getLoadBalancerBandwidthInResourceWeight(), conf.getLoadBalancerBandwidthOutResourceWeight());
        }

        /** As ModularLoadManagerImpl.doLoadShedding and UnloadScheduler.execute: bundle, source, target each. */
        void shed(long nowMs, DataOutputStream out) throws Exception {
            List<int[]> moves = new ArrayList<>();
            if (active.size() > 1 && extensible != null) {
                for (UnloadDecision decision : extensible.shed(nowMs)) {
                    var unload = decision.getUnload();
                    moves.add(new int[] {bundleIds.get(unload.serviceUnit()), brokerIds.get(unload.sourceBroker()),
                            brokerIds.get(unload.destBroker().get())});
                }
                moves.sort(Arrays::compare);
            } else if (active.size() > 1) {
                Map<String, Long> recent = loadData.getRecentlyUnloadedBundles();
                long timeout = nowMs - conf.getLoadBalancerSheddingGracePeriodMinutes() * 60_000L;
                recent.values().removeIf(at -> at < timeout);
                shedder.findBundlesForUnloading(loadData, conf).asMap().forEach((broker, chosen) -> {
                    for (String bundle : chosen) {
                        Optional<String> target = select(bundle);
                        if (target.isPresent() && !target.get().equals(broker)) {
                            recent.put(bundle, nowMs);
                            moves.add(new int[] {bundleIds.get(bundle), brokerIds.get(broker),
                                    brokerIds.get(target.get())});
                        }
                    }
                });
            }
            out.writeInt(moves.size());
            for (int[] move : moves) {
                for (int part : move) {
                    out.writeInt(part);
                }
            }
        }

        void splits(DataOutputStream out) throws Exception {
            Map<String, String> found = new TreeMap<>(splitter.findBundlesToSplit(loadData, pulsar));
            out.writeInt(found.size());
            for (String bundle : found.keySet()) {
                out.writeInt(bundleIds.get(bundle));
                bundlesOfNamespace.merge(LoadManagerShared.getNamespaceNameFromBundleName(bundle), -1, Integer::sum);
            }
        }

        /** Seconds of rounds, of this thread's own time: for benchmarks/balance_speed.py. */
        void timed(int rounds, long nowMs, DataOutputStream out) throws IOException {
            for (int i = 0; i < rounds; i++) {
                long begun = THREADS.getCurrentThreadCpuTime();
                int moves = extensible != null ? extensible.shed(nowMs).size()
                        : shedder.findBundlesForUnloading(loadData, conf).size();
                out.writeDouble((THREADS.getCurrentThreadCpuTime() - begun) / 1e9);
                out.writeInt(moves);
            }
        }

        /** A broker's five-second check: so many updates of its own data, then perhaps a report of load or bundles. */
        void extensibleReports(DataInputStream in) throws IOException {
            String broker = brokers.get(in.readInt());
            int updates = in.readInt();
            long nowMs = in.readLong();
            boolean loadToo = in.readBoolean(), bundlesToo = in.readBoolean();
            SystemResourceUsage usage = usage(in);
            extensible.report(broker, updates, nowMs, loadToo, usage, stats(in), bundlesToo);
        }
    }

    /** The extensible manager's stores, and its shedder. */
    static class Extensible implements LoadManagerContext {
        final ServiceConfiguration conf;
        final PulsarService pulsar;
        final TransferShedder shedder = new TransferShedder(new UnloadCounter());
        final Map<String, BrokerLoadData> local = new HashMap<>(), loads = new HashMap<>();
        final Map<String, Long> measuredMs = new HashMap<>();
        final Map<String, TopBundlesLoadData> tops = new HashMap<>();
        final Map<String, BrokerLookupData> lookups = new HashMap<>();
        final Map<String, Long> recentBundles = new HashMap<>(), recentBrokersVirtual = new HashMap<>();
        final Map<String, Long> recentBrokers = new HashMap<>();
        final LeastResourceUsageWithWeight placement = new LeastResourceUsageWithWeight();
        final LoadDataStore<BrokerLoadData> loadStore = store(loads);
        final LoadDataStore<TopBundlesLoadData> topStore = store(tops);
        final BrokerRegistry registry = (BrokerRegistry) Proxy.newProxyInstance(
                StockBalancers.class.getClassLoader(), new Class<?>[] {BrokerRegistry.class}, (self, method, args) -> {
                    if (method.getName().equals("getAvailableBrokerLookupDataAsync")) {
                        return CompletableFuture.completedFuture(lookups);
                    }
                    throw new UnsupportedOperationException(method.getName());
                });

        Extensible(ServiceConfiguration conf, PulsarService pulsar) {
            this.conf = conf;
            this.pulsar = pulsar;
            conf.setLoadBalancerSheddingBundlesWithPoliciesEnabled(true); // there are none, and no store to ask
        }

        void active(Set<String> active) throws IOException {
            lookups.keySet().retainAll(active);
            for (String broker : active) {
                lookups.computeIfAbsent(broker, __ -> new BrokerLookupData("http://" + broker, null, "pulsar://" + broker,
                        null, Map.of(), Map.of(), true, true, "Extensible", 0, "4.0.8", Map.of()));
            }
            local.keySet().retainAll(active);
            loads.keySet().retainAll(active);
            tops.keySet().retainAll(active);
        }

        void clear(String broker) {
            local.computeIfAbsent(broker, __ -> new BrokerLoadData()).clear();
            loads.remove(broker);
            tops.remove(broker);
        }

        void report(String broker, int updates, long nowMs, boolean loadToo, SystemResourceUsage usage,
                Map<String, NamespaceBundleStats> stats, boolean bundlesToo) {
            double in = 0, out = 0, rateIn = 0, rateOut = 0;
            long topics = 0;
            for (NamespaceBundleStats one : stats.values()) {
                in += one.msgThroughputIn;
                out += one.msgThroughputOut;
                rateIn += one.msgRateIn;
                rateOut += one.msgRateOut;
                topics += one.topics;
            }
            BrokerLoadData data = local.computeIfAbsent(broker, __ -> new BrokerLoadData());
            for (int i = 0; i < updates; i++) {
                data.update(usage, in, out, rateIn, rateOut, stats.size(), topics, conf);
            }
            if (loadToo) {
                BrokerLoadData copy = new BrokerLoadData();
                copy.update(data);
                loads.put(broker, copy);
                measuredMs.put(broker, nowMs);
            }
            if (bundlesToo) {
                TopKBundles top = new TopKBundles(pulsar);
                top.update(stats, conf.getLoadBalancerMaxNumberOfBundlesInBundleLoadReport());
                tops.put(broker, top.getLoadData());
            }
        }

        Set<UnloadDecision> shed(long nowMs) {
            long timeout = nowMs - conf.getLoadBalancerSheddingGracePeriodMinutes() * 60_000L;
            recentBundles.values().removeIf(at -> at < timeout);
            long offset = System.currentTimeMillis() - nowMs; // the class reads the clock: virtual time is shifted to it
            loads.forEach((broker, data) -> set(data, "updatedAt", measuredMs.get(broker) + offset));
            recentBrokers.clear();
            recentBrokersVirtual.forEach((broker, at) -> recentBrokers.put(broker, at + offset));
            Set<UnloadDecision> found = shedder.findBundlesForUnloading(this, recentBundles, recentBrokers);
            recentBrokersVirtual.keySet().retainAll(recentBrokers.keySet());
            for (UnloadDecision decision : found) {
                recentBundles.put(decision.getUnload().serviceUnit(), nowMs);
                recentBrokersVirtual.put(decision.getUnload().sourceBroker(), nowMs);
            }
            return found;
        }

        String place() {
            return placement.select(new HashSet<>(lookups.keySet()), null, this).orElse("");
        }

        @Override
        public ServiceConfiguration brokerConfiguration() {
            return conf;
        }

        @Override
        public LoadDataStore<BrokerLoadData> brokerLoadDataStore() {
            return loadStore;
        }

        @Override
        public LoadDataStore<TopBundlesLoadData> topBundleLoadDataStore() {
            return topStore;
        }

        @Override
        public BrokerRegistry brokerRegistry() {
            return registry;
        }
    }

    @SuppressWarnings("unchecked")
    static <T> LoadDataStore<T> store(Map<String, T> map) {
        return (LoadDataStore<T>) Proxy.newProxyInstance(StockBalancers.class.getClassLoader(),
                new Class<?>[] {LoadDataStore.class}, (self, method, args) -> {
                    switch (method.getName()) {
                        case "get": return Optional.ofNullable(map.get(args[0]));
                        case "entrySet": return map.entrySet();
                        case "size": return map.size();
                        default: throw new UnsupportedOperationException(method.getName());
                    }
                });
    }

    /** The parts of a broker that BundleSplitterTask and TopKBundles need; made without its constructor. */
    static class FakePulsar extends PulsarService {
        ServiceConfiguration settings;
        NamespaceService namespaces;

        FakePulsar() {
            super(null);
        }

        static PulsarService of(ServiceConfiguration conf, Map<String, Integer> counts) throws Exception {
            FakePulsar made = (FakePulsar) UNSAFE.allocateInstance(FakePulsar.class);
            FakeNamespaces namespaces = (FakeNamespaces) UNSAFE.allocateInstance(FakeNamespaces.class);
            namespaces.counts = counts;
            made.settings = conf;
            made.namespaces = namespaces;
            return made;
        }

        @Override
        public ServiceConfiguration getConfiguration() {
            return settings;
        }

        @Override
        public NamespaceService getNamespaceService() {
            return namespaces;
        }

        @Override
        public org.apache.pulsar.broker.resources.PulsarResources getPulsarResources() {
            return null;
        }
    }

    static class FakeNamespaces extends NamespaceService {
        Map<String, Integer> counts;

        FakeNamespaces() {
            super(null);
        }

        @Override
        public int getBundleCount(NamespaceName namespace) {
            return counts.getOrDefault(namespace.toString(), 0);
        }
    }

    static final sun.misc.Unsafe UNSAFE = unsafe();

    static sun.misc.Unsafe unsafe() {
        try {
            Field field = sun.misc.Unsafe.class.getDeclaredField("theUnsafe");
            field.setAccessible(true);
            return (sun.misc.Unsafe) field.get(null);
        } catch (ReflectiveOperationException e) {
            throw new IllegalStateException(e);
        }
    }

    static void set(Object of, String name, long value) {
        try {
            Field field = of.getClass().getDeclaredField(name);
            field.setAccessible(true);
            field.setLong(of, value);
        } catch (ReflectiveOperationException e) {
            throw new IllegalStateException(e);
        }
    }

    static Object make(String name) throws Exception {
        Constructor<?> constructor = Class.forName(name).getDeclaredConstructor();
        constructor.setAccessible(true);
        return constructor.newInstance();
    }

    /** ThreadLocalRandom keeps its seed in the thread. */
    static void seed(long seed) throws Exception {
        ThreadLocalRandom.current().nextInt();
        Field field = Thread.class.getDeclaredField("threadLocalRandomSeed");
        UNSAFE.putLong(Thread.currentThread(), UNSAFE.objectFieldOffset(field), seed);
    }
}
