import io.quotaplane.kafka.attachments.Attachments;
import io.quotaplane.kafka.attachments.Scope;
import io.quotaplane.kafka.builtin.BuiltInQuotas;
import io.quotaplane.kafka.limits.ReceivedLimits;
import io.quotaplane.kafka.report.LightRule;
import io.quotaplane.kafka.report.ReportBuilder;
import io.quotaplane.kafka.usage.GroupUsage;
import io.quotaplane.kafka.wire.AttachmentsMessage;
import io.quotaplane.kafka.wire.Dimension;
import io.quotaplane.kafka.wire.GroupIds;
import io.quotaplane.kafka.wire.LimitsMessage;
import io.quotaplane.kafka.wire.RefusedMessageException;
import io.quotaplane.kafka.wire.SigningKeys;
import io.quotaplane.kafka.wire.UsageReport;
import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.net.URLDecoder;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import java.util.HexFormat;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeMap;
import java.util.stream.Collectors;
import java.util.stream.IntStream;

/**
 * Lets the plugin's classes answer: lines on stdin, one answer to each on stdout.
 *
 * <p>Lines have tabs between words. Texts and messages are in hex, numbers of a list have commas
 * between, doubles are their 64 bits in hex. Lines, and their answers:
 *
 * <ul>
 *   <li>{@code keys ID SECRET ...} (not in hex): from now on messages must be signed; "ok".
 *   <li>{@code id NAME}: the id. {@code scope NAME}: USER CLIENT, "-" for what it does not name.
 *   <li>{@code limits MESSAGE}, {@code attachments MESSAGE}: all fields, or "refused".
 *   <li>{@code received BROKER STARTED_MS UNSET UNSET_SAFE}: begin anew; "ok".
 *   <li>{@code apply MESSAGE WALL_MS STEADY_MS}: the number of changes, or "refused".
 *   <li>{@code forget ENDED_MS IDS}: "ok". {@code state STEADY_MS IDS}: see {@code state}.
 *   <li>{@code attached}: begin anew; "ok". {@code attach MESSAGE}: "ok".
 *   <li>{@code group USER CLIENT}: the group, "-" for none.
 *   <li>{@code report BROKER STARTED_MS SEQUENCE WINDOW_MS EPOCH SEQ NAMED_EVERY SEQS GROUPS
 *       KIND:DIMENSION:VALUES ...}: the message.
 *   <li>{@code light STRICT}: begin anew; in how many reports each group is named once.
 *   <li>{@code named REPORT GROUP:USED:THROTTLED:LIMITS:SEQ ...} (rates by kind): the groups that
 *       this report names, in the order of their bytes in hex.
 *   <li>{@code builtin}: begin anew. {@code put USER CLIENT QUOTA}, {@code ask USER CLIENT}: as in
 *       KafkaScopes.java, with names and their answers sanitized. A put and a builtin have no
 *       answer.
 * </ul>
 */
public final class KafkaPluginWire {
    private static final String REFUSED = "refused";
    private static final HexFormat HEX = HexFormat.of();

    private SigningKeys keys;
    private ReceivedLimits received;
    private Attachments attachments;
    private LightRule light;
    private BuiltInQuotas quotas;

    public static void main(String[] args) throws IOException {
        var in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        var out = new PrintStream(System.out, false, StandardCharsets.UTF_8);
        var self = new KafkaPluginWire();
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            String answer;
            try {
                answer = self.answer(line.split("\t", -1));
            } catch (RefusedMessageException error) {
                if (error.getMessage().contains("\n")) {
                    throw new IllegalStateException("not one line: " + error.getMessage());
                }
                answer = REFUSED;
            }
            if (answer != null) {
                out.println(answer);
            }
        }
        out.flush();
    }

    private String answer(String[] words) throws RefusedMessageException {
        return switch (words[0]) {
            case "keys" -> setKeys(words);
            case "id" -> Long.toString(GroupIds.idOf(text(words[1])));
            case "scope" -> shown(Scope.parse(text(words[1])));
            case "limits" -> shown(LimitsMessage.decode(HEX.parseHex(words[1]), keys));
            case "attachments" -> shown(AttachmentsMessage.decode(HEX.parseHex(words[1]), keys));
            case "received" -> begin(words);
            case "apply" -> {
                var message = LimitsMessage.decode(HEX.parseHex(words[1]), keys);
                long wallMs = Long.parseLong(words[2]);
                yield Integer.toString(received.apply(message, wallMs, Long.parseLong(words[3])));
            }
            case "forget" -> {
                Set<Long> kept = Arrays.stream(longs(words[2])).boxed().collect(Collectors.toSet());
                received.forget(Long.parseLong(words[1]), kept);
                yield "ok";
            }
            case "state" -> state(Long.parseLong(words[1]), longs(words[2]));
            case "attached" -> {
                attachments = new Attachments();
                yield "ok";
            }
            case "attach" -> {
                attachments.apply(AttachmentsMessage.decode(HEX.parseHex(words[1]), keys));
                yield "ok";
            }
            case "group" -> {
                String group = attachments.groupOf(text(words[1]), text(words[2]));
                yield group == null ? "-" : hex(group);
            }
            case "report" -> report(words);
            case "light" -> {
                light = new LightRule(ReportBuilder.NAMED_EVERY, words[1].equals("1"));
                yield Integer.toString(ReportBuilder.NAMED_EVERY);
            }
            case "named" -> named(words);
            case "builtin" -> {
                quotas = new BuiltInQuotas();
                yield null;
            }
            case "put" -> {
                put(new Scope(orNull(words[1]), orNull(words[2])), words[3]);
                yield null;
            }
            case "ask" -> quota(desanitized(words[1]), desanitized(words[2]));
            default -> throw new IllegalArgumentException(words[0]);
        };
    }

    private String setKeys(String[] words) {
        var secrets = new LinkedHashMap<String, String>();
        for (int at = 1; at < words.length; at += 2) {
            secrets.put(words[at], words[at + 1]);
        }
        keys = secrets.isEmpty() ? null : SigningKeys.of(secrets);
        return "ok";
    }

    private String begin(String[] words) {
        double unset = doubleOf(words[3]);
        double unsetSafe = doubleOf(words[4]);
        received = new ReceivedLimits(text(words[1]), Long.parseLong(words[2]), unset, unsetSafe);
        return "ok";
    }

    /** The acknowledged version, and of each group: known, over, lease end, seq and limits. */
    private String state(long steadyNowMs, long[] ids) {
        var newest = received.acknowledged();
        return (newest == null ? "-" : newest.epoch() + "," + newest.seq())
                + Arrays.stream(ids)
                        .mapToObj(id -> "\t" + state(steadyNowMs, id))
                        .collect(Collectors.joining());
    }

    private String state(long steadyNowMs, long id) {
        return (received.isKnown(id) ? 1 : 0)
                + ","
                + (received.isOver(id, steadyNowMs) ? 1 : 0)
                + ","
                + received.leaseEndMs(id)
                + ","
                + seq(id)
                + ","
                + Arrays.stream(Dimension.values())
                        .map(dimension -> bits(received.limit(id, dimension, steadyNowMs)))
                        .collect(Collectors.joining(","));
    }

    /** Of the group's limits, if they are of the newest epoch; else -1. */
    private long seq(long id) {
        var version = received.version(id);
        var newest = received.acknowledged();
        return version == null || version.epoch() != newest.epoch() ? -1 : version.seq();
    }

    private static String shown(Scope scope) {
        if (scope == null) {
            return REFUSED;
        }
        return (scope.user() == null ? "-" : scope.user())
                + "\t"
                + (scope.client() == null ? "-" : scope.client());
    }

    private static String shown(LimitsMessage message) {
        int count = message.groupIds().length;
        String limits = rows(count, message::limit);
        String safe = message.safeLimits() == null ? "-" : rows(count, message::safeLimit);
        return String.join(
                "\t",
                hex(message.broker()),
                Long.toString(message.shard()),
                Long.toString(message.epoch()),
                Long.toString(message.seq()),
                Long.toString(message.issuedAtMs()),
                Long.toString(message.leaseMs()),
                Long.toString(message.brokerStartedAtMs()),
                list(message.groupIds()),
                limits,
                safe,
                list(message.removedGroupIds()));
    }

    private interface Rate {
        double of(int index, Dimension dimension);
    }

    private static String rows(int count, Rate rate) {
        return IntStream.range(0, count)
                .boxed()
                .flatMap(at -> Arrays.stream(Dimension.values()).map(each -> rate.of(at, each)))
                .map(KafkaPluginWire::bits)
                .collect(Collectors.joining(","));
    }

    private static String shown(AttachmentsMessage message) {
        return String.join(
                "\t",
                Long.toString(message.part()),
                Long.toString(message.epoch()),
                Long.toString(message.seq()),
                Long.toString(message.issuedAtMs()),
                message.names().stream().map(KafkaPluginWire::hex).collect(Collectors.joining(",")),
                message.groups().stream()
                        .map(KafkaPluginWire::hex)
                        .collect(Collectors.joining(",")));
    }

    private static String report(String[] words) {
        List<String> groups =
                Arrays.stream(words[9].split(",")).map(KafkaPluginWire::text).toList();
        if (words[9].isEmpty()) {
            groups = List.of();
        }
        var report =
                new UsageReport(
                                text(words[1]),
                                Long.parseLong(words[2]),
                                Long.parseLong(words[3]),
                                Integer.parseInt(words[4]),
                                groups)
                        .namedEvery(Integer.parseInt(words[7]));
        if (!words[5].isEmpty()) {
            report.applied(Long.parseLong(words[5]), Long.parseLong(words[6]));
            report.appliedSeqs(longs(words[8]));
        }
        for (int at = 10; at < words.length; at++) {
            String[] parts = words[at].split(":", -1);
            var dimension = Dimension.valueOf(parts[1].toUpperCase());
            double[] values = doubles(parts[2]);
            switch (parts[0]) {
                case "usage" -> report.usage(dimension, values);
                case "throttled" -> report.throttled(dimension, values);
                default -> report.limits(dimension, values);
            }
        }
        return HEX.formatHex(report.encode());
    }

    private String named(String[] words) {
        var states = new TreeMap<String, LightRule.State>();
        for (int at = 2; at < words.length; at++) {
            String[] parts = words[at].split(":");
            String group = text(parts[0]);
            var usage = new GroupUsage(doubles(parts[1]), doubles(parts[2]));
            long seq = Long.parseLong(parts[4]);
            long id = GroupIds.idOf(group);
            states.put(group, new LightRule.State(id, usage, seq, doubles(parts[3])));
        }
        return light.named(states, Long.parseLong(words[1]), Long.MAX_VALUE).keySet().stream()
                .map(KafkaPluginWire::hex)
                .sorted()
                .collect(Collectors.joining(","));
    }

    private void put(Scope scope, String quota) {
        if (quota.isEmpty()) {
            quotas.remove(scope);
        } else {
            quotas.update(scope, Double.parseDouble(quota));
        }
    }

    private String quota(String user, String client) {
        Map<String, String> tags = quotas.tags(user, client);
        Double quota = quotas.quota(tags);
        return String.join(
                "\t",
                Double.toString(quota == null ? Long.MAX_VALUE : quota),
                tags.get("user"),
                tags.get("client-id"));
    }

    private static String desanitized(String name) {
        return URLDecoder.decode(name, StandardCharsets.UTF_8);
    }

    private static String orNull(String name) {
        return name.isEmpty() ? null : name;
    }

    private static String text(String hex) {
        return new String(HEX.parseHex(hex), StandardCharsets.UTF_8);
    }

    private static String hex(String text) {
        return HEX.formatHex(text.getBytes(StandardCharsets.UTF_8));
    }

    private static String bits(double value) {
        return Long.toHexString(Double.doubleToRawLongBits(value));
    }

    private static double doubleOf(String bits) {
        return Double.longBitsToDouble(Long.parseUnsignedLong(bits, 16));
    }

    private static double[] doubles(String list) {
        return list.isEmpty()
                ? new double[0]
                : Arrays.stream(list.split(",")).mapToDouble(KafkaPluginWire::doubleOf).toArray();
    }

    private static long[] longs(String list) {
        return list.isEmpty()
                ? new long[0]
                : Arrays.stream(list.split(",")).mapToLong(Long::parseLong).toArray();
    }

    private static String list(long[] numbers) {
        return Arrays.stream(numbers).mapToObj(Long::toString).collect(Collectors.joining(","));
    }
}
