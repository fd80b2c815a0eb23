package io.quotaplane.kafka.limits;

import java.util.EnumMap;
import java.util.HashMap;
import java.util.Map;
import java.util.Set;

/** What a broker measures, as a test sets it. */
public class FakeRates implements Rates {
    private final Map<String, Map<QuotaKind, Double>> amounts = new HashMap<>();
    private final Map<String, Map<QuotaKind, Double>> limited = new HashMap<>();
    private final Map<String, Double> tokens = new HashMap<>();

    /** All clients of a group together used so much more. */
    public void use(String tag, QuotaKind kind, double amount) {
        amounts.computeIfAbsent(tag, any -> new EnumMap<>(QuotaKind.class))
                .merge(kind, amount, Double::sum);
    }

    /** Kafka compares this rate with the limit. */
    public void rate(String tag, QuotaKind kind, double perSecond) {
        use(tag, kind, 0);
        limited.computeIfAbsent(tag, any -> new EnumMap<>(QuotaKind.class)).put(kind, perSecond);
    }

    /** Tokens that a group's bucket of mutations has. */
    public void tokens(String tag, double count) {
        use(tag, QuotaKind.CONTROLLER_MUTATION, 0);
        tokens.put(tag, count);
    }

    @Override
    public Set<String> tags() {
        return amounts.keySet();
    }

    @Override
    public double amount(String tag, QuotaKind kind) {
        return amounts.getOrDefault(tag, Map.of()).getOrDefault(kind, 0.0);
    }

    /** How often a rate was asked for. */
    public int looks;

    /** A window of 2 s. */
    @Override
    public Limited limited(String tag, QuotaKind kind) {
        looks++;
        Double rate = limited.getOrDefault(tag, Map.of()).get(kind);
        double takenBackS = kind == QuotaKind.FETCH ? fetchDelayS : 0;
        return rate == null ? null : new FakeWindow(rate, takenBackS);
    }

    /** For so long fetches are delayed. */
    public double fetchDelayS;

    /** What went out of the windows so far. */
    public double gone;

    private final class FakeWindow implements Limited {
        private final double rate;
        private final double takenBackS;

        FakeWindow(double rate, double takenBackS) {
            this.rate = rate;
            this.takenBackS = takenBackS;
        }

        @Override
        public double takenBackS() {
            return takenBackS;
        }

        @Override
        public double rate() {
            return rate;
        }

        @Override
        public double windowS() {
            return 2;
        }

        @Override
        public Kept keep() {
            double goneBefore = gone;
            return () -> 2 * rate - (gone - goneBefore);
        }
    }

    @Override
    public double tokens(String tag) {
        return tokens.getOrDefault(tag, Double.NaN);
    }
}
