import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.util.Collection;
import java.util.HashMap;
import java.util.HashSet;
import java.util.Map;
import java.util.Set;
import java.util.regex.PatternSyntaxException;
import org.apache.pulsar.broker.loadbalance.extensions.data.BrokerLookupData;
import org.apache.pulsar.broker.loadbalance.extensions.policies.AntiAffinityGroupPolicyHelper;
import org.apache.pulsar.broker.loadbalance.extensions.policies.IsolationPoliciesHelper;
import org.apache.pulsar.broker.loadbalance.impl.BundleRangeCache;
import org.apache.pulsar.broker.loadbalance.impl.LoadManagerShared;
import org.apache.pulsar.broker.loadbalance.impl.SimpleResourceAllocationPolicies;
import org.apache.pulsar.common.naming.NamespaceName;
import org.apache.pulsar.common.util.ObjectMapperFactory;

/** The brokers that both managers allow for namespaces, as the policies of a case have it. */
final class StockPolicies {
    private final FakePulsar pulsar;
    private final SimpleResourceAllocationPolicies policies;
    private final IsolationPoliciesHelper helper;
    private final AntiAffinityGroupPolicyHelper groups;
    private final BundleRangeCache ranges = new BundleRangeCache();
    private final Map<String, String> domains;
    private final Map<String, BrokerLookupData> available = new HashMap<>();

    private StockPolicies(JsonNode given) throws Exception {
        pulsar = new FakePulsar(given.get("conf"), given.get("policies"));
        policies = new SimpleResourceAllocationPolicies(pulsar.service);
        helper = new IsolationPoliciesHelper(policies);
        domains = FakePulsar.failureDomains(given.get("policies"));
        groups = new AntiAffinityGroupPolicyHelper(pulsar.service, pulsar.channel());
        FakePulsar.set(
                AntiAffinityGroupPolicyHelper.class, groups, "brokerToFailureDomainMap", domains);
        given.get("owners")
                .fields()
                .forEachRemaining(e -> pulsar.owners.put(e.getKey(), e.getValue().asText()));
        pulsar.owners.forEach(
                (bundle, broker) -> {
                    int slash = bundle.lastIndexOf('/');
                    ranges.add(broker, bundle.substring(0, slash), bundle.substring(slash + 1));
                });
        FakePulsar.texts(given.get("available"))
                .forEach(
                        name ->
                                available.put(
                                        name,
                                        new BrokerLookupData(
                                                "", "", "", "", Map.of(), Map.of(), true, true,
                                                "", 1L, "", Map.of())));
    }

    static JsonNode answer(JsonNode given) throws Exception {
        var stock = new StockPolicies(given);
        ObjectNode answer = FakePulsar.JSON.createObjectNode();
        // as a broker's REST API writes them
        var stored = FakeResources.isolation(given.get("policies"));
        answer.put("rest", ObjectMapperFactory.getMapper().writer().writeValueAsString(stored));
        for (String namespace : FakePulsar.texts(given.get("namespaces"))) {
            stock.answer(namespace, answer.putObject(namespace));
        }
        return answer;
    }

    private void answer(String namespace, ObjectNode answer) throws Exception {
        String bundle = namespace + "/0x00000000_0xffffffff";
        Set<String> modular = new HashSet<>();
        LoadManagerShared.applyNamespacePolicies(
                NamespaceName.get(namespace), policies, modular, available.keySet(), everything());
        put(answer, "modular", modular);
        put(answer, "extensible", allowed(namespace, available));
        LoadManagerShared.filterAntiAffinityGroupOwnedBrokers(
                pulsar.service, bundle, modular, ranges, domains);
        put(answer, "modular apart", modular);
        var apart = groups.filterAsync(new HashMap<>(available), bundle).get();
        put(answer, "extensible apart", allowed(namespace, apart));
    }

    private Set<String> allowed(String namespace, Map<String, BrokerLookupData> brokers)
            throws Exception {
        return helper.applyIsolationPoliciesAsync(brokers, NamespaceName.get(namespace)).get();
    }

    private static void put(ObjectNode answer, String name, Collection<String> brokers) {
        var names = answer.putArray(name);
        brokers.stream().sorted().forEach(names::add);
    }

    private static LoadManagerShared.BrokerTopicLoadingPredicate everything() {
        return new LoadManagerShared.BrokerTopicLoadingPredicate() {
            @Override
            public boolean isEnablePersistentTopics(String url) {
                return true;
            }

            @Override
            public boolean isEnableNonPersistentTopics(String url) {
                return true;
            }
        };
    }

    /** Whether Java's expressions match names; null if they are none. */
    static JsonNode matches(JsonNode given) {
        var answer = FakePulsar.JSON.createArrayNode();
        for (JsonNode expression : given.get("expressions")) {
            var found = FakePulsar.JSON.createArrayNode();
            try {
                for (JsonNode name : given.get("names")) {
                    found.add(name.asText().matches(expression.asText()));
                }
                answer.add(found);
            } catch (PatternSyntaxException e) {
                answer.addNull();
            }
        }
        return answer;
    }
}
