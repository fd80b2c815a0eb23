// Pulsar's own shedding strategies of the modular manager. A case a line on stdin (JSON, see test_pulsar_shedders.py), an
// answer a line on stdout. The class path has the jars of Pulsar's distribution.

import com.fasterxml.jackson.databind.ObjectMapper;
import com.google.common.collect.Multimap;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.lang.management.ManagementFactory;
import java.lang.management.ThreadMXBean;
import java.lang.reflect.Field;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.HashSet;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import org.apache.pulsar.broker.ServiceConfiguration;
import org.apache.pulsar.broker.loadbalance.LoadData;
import org.apache.pulsar.broker.loadbalance.LoadSheddingStrategy;
import org.apache.pulsar.broker.loadbalance.impl.AvgShedder;
import org.apache.pulsar.common.configuration.FieldContext;
import org.apache.pulsar.policies.data.loadbalancer.BrokerData;
import org.apache.pulsar.policies.data.loadbalancer.BundleData;
import org.apache.pulsar.policies.data.loadbalancer.LocalBrokerData;
import org.apache.pulsar.policies.data.loadbalancer.NamespaceBundleStats;
import org.apache.pulsar.policies.data.loadbalancer.ResourceUsage;
import org.apache.pulsar.policies.data.loadbalancer.SystemResourceUsage;

public class PulsarShedders {
    private static final ObjectMapper JSON = new ObjectMapper();
    private static final ThreadMXBean THREADS = ManagementFactory.getThreadMXBean();
    private static final String PACKAGE = "org.apache.pulsar.broker.loadbalance.impl.";

    public static void main(String[] args) throws Exception {
        PrintStream out = new PrintStream(System.out, false, StandardCharsets.UTF_8);
        System.setOut(System.err);
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            Map<String, Object> asked = JSON.readValue(line, Map.class);
            if (asked.containsKey("settings")) {
                out.println(JSON.writeValueAsString(settings()));
                continue;
            }
            Map<String, Object> answer = new LinkedHashMap<>();
            for (String cls : (List<String>) asked.get("classes")) {
                answer.put(cls, answers(asked, cls));
            }
            out.println(JSON.writeValueAsString(answer));
        }
        out.flush();
    }

    // Every setting of Pulsar's load balancer: type and default.
    private static Map<String, Object> settings() throws Exception {
        Map<String, Object> found = new LinkedHashMap<>();
        ServiceConfiguration conf = new ServiceConfiguration();
        for (Field field : ServiceConfiguration.class.getDeclaredFields()) {
            FieldContext context = field.getAnnotation(FieldContext.class);
            if (context != null) {
                field.setAccessible(true);
                Object value = field.get(conf);
                String shown = value instanceof Optional ? "" : String.valueOf(value);
                found.put(field.getName(), List.of(context.category(), field.getType().getSimpleName(), shown));
            }
        }
        return found;
    }

    private static ServiceConfiguration configuration(Map<String, Object> given) throws Exception {
        ServiceConfiguration conf = new ServiceConfiguration();
        for (Map.Entry<String, Object> entry : given.entrySet()) {
            Field field = ServiceConfiguration.class.getDeclaredField(entry.getKey());
            field.setAccessible(true);
            field.set(conf, JSON.convertValue(entry.getValue(), field.getType()));
        }
        return conf;
    }

    private static List<Object> answers(Map<String, Object> asked, String cls) throws Exception {
        ServiceConfiguration conf = configuration((Map<String, Object>) asked.get("conf"));
        LoadSheddingStrategy strategy = (LoadSheddingStrategy) Class.forName(PACKAGE + cls)
                .getDeclaredConstructor().newInstance();
        LoadData loadData = new LoadData();
        for (String bundle : (List<String>) asked.get("recent")) {
            loadData.getRecentlyUnloadedBundles().put(bundle, System.currentTimeMillis());
        }
        List<Object> answers = new ArrayList<>();
        for (Map<String, Map<String, Object>> round : (List<Map<String, Map<String, Object>>>) asked.get("rounds")) {
            strategy.onActiveBrokersChange(round.keySet());
            updateBrokers(loadData, round);
            updateBundles(loadData);
            Map<String, Object> answer = answer(strategy, loadData, conf);
            if (!asked.containsKey("timed")) {
                answer.remove("seconds");
            }
            answers.add(answer);
        }
        return answers;
    }

    private static Map<String, Object> answer(
            LoadSheddingStrategy strategy, LoadData loadData, ServiceConfiguration conf) throws Exception {
        List<Object> moves = new ArrayList<>();
        Map<String, Object> targets = new LinkedHashMap<>();
        Map<String, Object> answer = new LinkedHashMap<>();
        long begun = THREADS.getCurrentThreadCpuTime();
        Multimap<String, String> found = strategy.findBundlesForUnloading(loadData, conf);
        answer.put("seconds", (THREADS.getCurrentThreadCpuTime() - begun) / 1e9);
        found.asMap().forEach(
                (broker, bundles) -> bundles.forEach(bundle -> moves.add(List.of(broker, bundle))));
        Map<String, Object> planned = new LinkedHashMap<>();
        if (strategy instanceof AvgShedder) {
            for (Object move : moves) {
                String bundle = ((List<String>) move).get(1);
                Set<String> candidates = new HashSet<>(loadData.getBrokerData().keySet());
                targets.put(bundle, ((AvgShedder) strategy).selectBroker(
                        candidates, loadData.getBundleData().get(bundle), loadData, conf).get());
            }
            Field field = AvgShedder.class.getDeclaredField("bundleBrokerMap");
            field.setAccessible(true);
            Map<BundleData, String> plan = (Map<BundleData, String>) field.get(strategy);
            for (Map.Entry<String, BundleData> entry : loadData.getBundleData().entrySet()) {
                String broker = plan.get(entry.getValue());
                if (broker != null) {
                    planned.put(entry.getKey(), broker);
                }
            }
        }
        answer.put("moves", moves);
        answer.put("targets", targets);
        answer.put("planned", planned);
        return answer;
    }

    // As ModularLoadManagerImpl.updateAllBrokerData.
    private static void updateBrokers(LoadData loadData, Map<String, Map<String, Object>> round) {
        Map<String, BrokerData> brokers = loadData.getBrokerData();
        round.forEach((broker, report) -> {
            LocalBrokerData local = new LocalBrokerData();
            local.update(machine(report), bundles((Map<String, List<Number>>) report.get("bundles")));
            if (brokers.containsKey(broker)) {
                brokers.get(broker).setLocalData(local);
            } else {
                brokers.put(broker, new BrokerData(local));
            }
        });
        for (String broker : brokers.keySet()) {
            if (!round.containsKey(broker)) {
                brokers.remove(broker);
            }
        }
    }

    // As ModularLoadManagerImpl.updateBundleData.
    private static void updateBundles(LoadData loadData) {
        NamespaceBundleStats unseen = stats(List.of(50000, 50000, 50, 50));
        Map<String, BundleData> known = loadData.getBundleData();
        Set<String> active = new HashSet<>();
        for (Map.Entry<String, BrokerData> broker : loadData.getBrokerData().entrySet()) {
            for (Map.Entry<String, NamespaceBundleStats> entry
                    : broker.getValue().getLocalData().getLastStats().entrySet()) {
                active.add(entry.getKey());
                if (known.containsKey(entry.getKey())) {
                    known.get(entry.getKey()).update(entry.getValue());
                } else {
                    BundleData data = new BundleData(10, 1000, unseen);
                    data.update(entry.getValue());
                    known.put(entry.getKey(), data);
                }
            }
        }
        for (String bundle : known.keySet()) {
            if (!active.contains(bundle)) {
                known.remove(bundle);
            }
        }
    }

    private static SystemResourceUsage machine(Map<String, Object> report) {
        SystemResourceUsage machine = new SystemResourceUsage();
        machine.setCpu(usage(report, "cpu"));
        machine.setMemory(usage(report, "memory"));
        machine.setDirectMemory(usage(report, "directMemory"));
        machine.setBandwidthIn(usage(report, "bandwidthIn"));
        machine.setBandwidthOut(usage(report, "bandwidthOut"));
        return machine;
    }

    private static ResourceUsage usage(Map<String, Object> report, String resource) {
        List<Number> pair = (List<Number>) report.get(resource);
        return new ResourceUsage(pair.get(0).doubleValue(), pair.get(1).doubleValue());
    }

    private static Map<String, NamespaceBundleStats> bundles(Map<String, List<Number>> reported) {
        Map<String, NamespaceBundleStats> found = new LinkedHashMap<>();
        reported.forEach((bundle, rates) -> found.put(bundle, stats(rates)));
        return found;
    }

    private static NamespaceBundleStats stats(List<? extends Number> rates) {
        NamespaceBundleStats stats = new NamespaceBundleStats();
        stats.msgThroughputIn = rates.get(0).doubleValue();
        stats.msgThroughputOut = rates.get(1).doubleValue();
        stats.msgRateIn = rates.get(2).doubleValue();
        stats.msgRateOut = rates.get(3).doubleValue();
        return stats;
    }
}
