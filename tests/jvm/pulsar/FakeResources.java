import com.fasterxml.jackson.core.JsonProcessingException;
import com.fasterxml.jackson.core.type.TypeReference;
import com.fasterxml.jackson.databind.JsonNode;
import java.util.HashMap;
import java.util.Map;
import java.util.Optional;
import java.util.concurrent.CompletableFuture;
import org.apache.pulsar.broker.resources.LocalPoliciesResources;
import org.apache.pulsar.broker.resources.NamespaceResources;
import org.apache.pulsar.broker.resources.PulsarResources;
import org.apache.pulsar.common.naming.NamespaceName;
import org.apache.pulsar.common.policies.data.LocalPolicies;
import org.apache.pulsar.common.policies.data.NamespaceIsolationDataImpl;
import org.apache.pulsar.common.policies.impl.NamespaceIsolationPolicies;
import org.apache.pulsar.common.util.ObjectMapperFactory;

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
        resources.namespaces.isolation.policies =
                Optional.of(isolation(policies))
                        .filter(all -> !all.isEmpty())
                        .map(NamespaceIsolationPolicies::new);
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

    /** The policies as Pulsar's brokers read them from the metadata store. */
    static Map<String, NamespaceIsolationDataImpl> isolation(JsonNode policies) {
        var given = policies.path("isolation");
        try {
            return ObjectMapperFactory.getMapper()
                    .reader()
                    .forType(new TypeReference<Map<String, NamespaceIsolationDataImpl>>() {})
                    .readValue(given.isObject() ? given.toString() : "{}");
        } catch (JsonProcessingException e) {
            throw new IllegalArgumentException(e);
        }
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
