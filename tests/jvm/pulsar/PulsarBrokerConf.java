// A broker.conf as Pulsar reads it. A case a line on stdin (JSON: the file's bytes as characters of Latin-1, and names of
// settings), an answer a line on stdout: the settings' values, or an error.

import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.BufferedReader;
import java.io.ByteArrayInputStream;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.lang.reflect.Field;
import java.nio.charset.StandardCharsets;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Properties;
import org.apache.pulsar.broker.ServiceConfiguration;
import org.apache.pulsar.common.configuration.PulsarConfigurationLoader;

public class PulsarBrokerConf {
    private static final ObjectMapper JSON = new ObjectMapper();

    public static void main(String[] args) throws Exception {
        PrintStream out = new PrintStream(System.out, false, StandardCharsets.UTF_8);
        System.setOut(System.err);
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            out.println(JSON.writeValueAsString(answer(JSON.readValue(line, Map.class))));
        }
        out.flush();
    }

    private static Map<String, Object> answer(Map<String, Object> asked) throws Exception {
        Map<String, Object> found = new LinkedHashMap<>();
        byte[] file = ((String) asked.get("file")).getBytes(StandardCharsets.ISO_8859_1);
        try {
            Properties properties = new Properties();
            properties.load(new ByteArrayInputStream(file));
            // These two are wanted by the loader's own checks, not by the balancer.
            properties.putIfAbsent("metadataStoreUrl", "zk:localhost");
            properties.putIfAbsent("clusterName", "c");
            ServiceConfiguration conf = PulsarConfigurationLoader.create(properties, ServiceConfiguration.class);
            for (String name : (List<String>) asked.get("names")) {
                Field field = ServiceConfiguration.class.getDeclaredField(name);
                field.setAccessible(true);
                Object value = field.get(conf);
                found.put(name, value instanceof Optional<?> some ? some.orElse(null) : value);
            }
        } catch (IllegalArgumentException error) {
            found.clear();
            found.put("error", String.valueOf(error.getMessage()));
        }
        return found;
    }
}
