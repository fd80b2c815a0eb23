import com.fasterxml.jackson.databind.JsonNode;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.Map;
import java.util.Optional;
import java.util.concurrent.CompletableFuture;
import org.apache.pulsar.broker.resources.LocalPoliciesResources;
import org.apache.pulsar.broker.resources.NamespaceResources;
import org.apache.pulsar.broker.resources.PulsarResources;
import org.apache.pulsar.common.naming.NamespaceName;
import org.apache.pulsar.common.policies.data.AutoFailoverPolicyDataImpl;
import org.apache.pulsar.common.policies.data.AutoFailoverPolicyType;
import org.apache.pulsar.common.policies.data.LocalPolicies;
import org.apache.pulsar.common.policies.data.NamespaceIsolationDataImpl;
import org.apache.pulsar.common.policies.impl.NamespaceIsolationPolicies;

/** Isolation policies and anti-affinity groups, without a metadata store. */
final class FakeResources extends PulsarResources {
    private Namespaces namespaces;
    private Local local;

    private FakeResources() {
        super(null, null);
    }

    static FakeResources of(JsonNode policies) {
        var resources = FakePulsar.make(FakeResources.class);
        resources.namespaces = FakePulsar.make(Namespaces.class);
        resources.namespaces.isolation = FakePulsar.make(Isolation.class);
        resources.namespaces.isolation.policies = isolation(policies);
        resources.local = FakePulsar.make(Local.class);
        resources.local.groups = new HashMap<>();
        policies.path("anti_affinity")
                .fields()
                .forEachRemaining(e -> resources.local.groups.put(e.getKey(), e.getValue().asText()));
        return resources;
    }

    @Override
    public NamespaceResources getNamespaceResources() {
        return namespaces;
    }

    @Override
    public LocalPoliciesResources getLocalPolicies() {
        return local;
    }

    private static Optional<NamespaceIsolationPolicies> isolation(JsonNode policies) {
        var all = new LinkedHashMap<String, NamespaceIsolationDataImpl>();
        policies.path("isolation")
                .fields()
                .forEachRemaining(
                        e -> {
                            var failover = e.getValue().get("auto_failover_policy");
                            var parameters = new HashMap<String, String>();
                            failover.get("parameters")
                                    .fields()
                                    .forEachRemaining(
                                            p -> parameters.put(p.getKey(), p.getValue().asText()));
                            all.put(
                                    e.getKey(),
                                    NamespaceIsolationDataImpl.builder()
                                            .namespaces(FakePulsar.texts(e.getValue().get("namespaces")))
                                            .primary(FakePulsar.texts(e.getValue().get("primary")))
                                            .secondary(FakePulsar.texts(e.getValue().get("secondary")))
                                            .autoFailoverPolicy(
                                                    new AutoFailoverPolicyDataImpl(
                                                            AutoFailoverPolicyType.min_available,
                                                            parameters))
                                            .build());
                        });
        return all.isEmpty()
                ? Optional.empty()
                : Optional.of(new NamespaceIsolationPolicies(all));
    }

    static final class Namespaces extends NamespaceResources {
        Isolation isolation;

        Namespaces() {
            super(null, 0);
        }

        @Override
        public IsolationPolicyResources getIsolationPolicies() {
            return isolation;
        }
    }

    static final class Isolation extends NamespaceResources.IsolationPolicyResources {
        Optional<NamespaceIsolationPolicies> policies;

        Isolation() {
            super(null, 0);
        }

        @Override
        public Optional<NamespaceIsolationPolicies> getIsolationDataPolicies(String cluster) {
            return policies;
        }

        @Override
        public CompletableFuture<Optional<NamespaceIsolationPolicies>>
                getIsolationDataPoliciesAsync(String cluster) {
            return CompletableFuture.completedFuture(policies);
        }
    }

    static final class Local extends LocalPoliciesResources {
        Map<String, String> groups;

        Local() {
            super(null, 0);
        }

        @Override
        public Optional<LocalPolicies> getLocalPolicies(NamespaceName name) {
            return Optional.ofNullable(groups.get(name.toString()))
                    .map(group -> new LocalPolicies(null, null, group));
        }

        @Override
        public CompletableFuture<Optional<LocalPolicies>> getLocalPoliciesAsync(
                NamespaceName name) {
            return CompletableFuture.completedFuture(getLocalPolicies(name));
        }
    }
}
