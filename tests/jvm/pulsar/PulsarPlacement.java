import com.fasterxml.jackson.databind.JsonNode;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;

/** Answers cases with Pulsar's own classes: a JSON object in each line in, its answer out. */
public final class PulsarPlacement {
    private PulsarPlacement() {}

    public static void main(String[] args) throws Exception {
        var in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        var out = new PrintStream(System.out, false, StandardCharsets.UTF_8);
        System.setOut(System.err); // where logs go
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            JsonNode given = FakePulsar.JSON.readTree(line);
            JsonNode answer =
                    switch (given.get("kind").asText()) {
                        case "transfer" -> StockTransfer.answer(given);
                        case "place" -> StockPlacement.answer(given);
                        case "boundaries" -> StockSplits.boundaries(given);
                        case "split modular" -> StockSplits.modular(given);
                        case "split extensible" -> StockSplits.extensible(given);
                        case "policies" -> StockPolicies.answer(given);
                        case "matches" -> StockPolicies.matches(given);
                        case "broker.conf" -> StockBrokerConf.answer(given);
                        case "report" -> StockSplits.reports(given);
                        default -> throw new IllegalArgumentException(line);
                    };
            out.println(FakePulsar.JSON.writeValueAsString(answer));
        }
        out.flush();
        // Threads of Pulsar's classes may still be waiting.
        System.exit(0);
    }
}
