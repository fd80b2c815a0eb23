import com.fasterxml.jackson.databind.JsonNode;
import java.io.ByteArrayInputStream;
import java.lang.reflect.Field;
import java.nio.charset.StandardCharsets;
import java.util.LinkedHashMap;
import java.util.Map;
import java.util.Optional;
import java.util.Properties;
import org.apache.pulsar.broker.ServiceConfiguration;
import org.apache.pulsar.common.configuration.PulsarConfigurationLoader;

/** A broker.conf as Pulsar reads it: the settings' values, or an error. */
final class StockBrokerConf {
    private StockBrokerConf() {}

    /** The file's bytes are characters of Latin-1. */
    static JsonNode answer(JsonNode given) throws Exception {
        Map<String, Object> found = new LinkedHashMap<>();
        byte[] file = given.get("file").asText().getBytes(StandardCharsets.ISO_8859_1);
        try {
            Properties properties = new Properties();
            properties.load(new ByteArrayInputStream(file));
            // These two are wanted by the loader's own checks, not by the balancer.
            properties.putIfAbsent("metadataStoreUrl", "zk:localhost");
            properties.putIfAbsent("clusterName", "c");
            ServiceConfiguration conf = PulsarConfigurationLoader.create(properties, ServiceConfiguration.class);
            for (String name : FakePulsar.texts(given.get("names"))) {
                Field field = ServiceConfiguration.class.getDeclaredField(name);
                field.setAccessible(true);
                Object value = field.get(conf);
                found.put(name, value instanceof Optional<?> some ? some.orElse(null) : value);
            }
        } catch (IllegalArgumentException error) {
            found.clear();
            found.put("error", String.valueOf(error.getMessage()));
        }
        return FakePulsar.JSON.valueToTree(found);
    }
}
