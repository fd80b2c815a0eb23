package io.quotaplane.kafka.settings;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNotNull;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import org.apache.kafka.common.config.ConfigException;
import org.junit.jupiter.api.Test;

class PluginSettingsTest {
    private static final String SECRET = "0123456789abcdef0123456789abcdef";

    private static PluginSettings with(String... pairs) {
        Map<String, String> properties = new HashMap<>();
        properties.put("node.id", "7");
        properties.put("log.dirs", "/somewhere");
        properties.put("quotaplane.bootstrap.servers", "a:1,b:2");
        for (int at = 0; at < pairs.length; at += 2) {
            properties.put(pairs[at], pairs[at + 1]);
        }
        return PluginSettings.of(properties);
    }

    private static String refusal(String... pairs) {
        String why = assertThrows(ConfigException.class, () -> with(pairs)).getMessage();
        assertFalse(why.contains("\n"));
        assertFalse(why.contains(SECRET));
        return why;
    }

    @Test
    void defaults() {
        PluginSettings settings = with();
        assertEquals("broker-7", settings.brokerName());
        assertEquals("quotaplane-limits", settings.limitsTopic());
        assertEquals("quotaplane-reports", settings.reportsTopic());
        assertEquals(5000, settings.reportIntervalMs());
        assertNull(settings.keys());
        assertFalse(settings.bounds().strict());
        assertEquals(12, settings.bounds().longestWindowS());
        assertEquals(Map.of("bootstrap.servers", List.of("a:1", "b:2")), settings.client());
        assertEquals("quotaplane-plugin-broker-7", settings.clientId());
    }

    @Test
    void theBrokersWindowsAreKnown() {
        PluginSettings settings =
                with("quota.window.num", "3", "quota.window.size.seconds", "2");
        assertEquals(8, settings.bounds().longestWindowS());
    }

    @Test
    void aTopicOfReportsMayHaveTheBrokersName() {
        PluginSettings settings =
                with("quotaplane.broker.name", "b1", "quotaplane.reports.topic", "r-{broker}");
        assertEquals("r-b1", settings.reportsTopic());
    }

    @Test
    void settingsOfTheClientsArePassedOn() {
        PluginSettings settings = with("quotaplane.client.security.protocol", "SASL_SSL");
        assertEquals("SASL_SSL", settings.client().get("security.protocol"));
    }

    @Test
    void keys() {
        assertNotNull(with("quotaplane.signing.keys", "a:" + SECRET + ", b:x" + SECRET).keys());
        // A secret may have a colon.
        assertNotNull(with("quotaplane.signing.keys", "a:" + SECRET + ":").keys());
        assertTrue(refusal("quotaplane.signing.keys", SECRET).contains("signing.keys must be"));
        assertTrue(refusal("quotaplane.signing.keys", "a:short").contains("signing.keys"));
        String twice = "a:" + SECRET + ",a:x" + SECRET;
        assertTrue(refusal("quotaplane.signing.keys", twice).contains("twice"));
        assertFalse(with("quotaplane.signing.keys", "a:" + SECRET).toString().contains(SECRET));
    }

    @Test
    void excludedPrincipalsMayHaveCommas() {
        PluginSettings settings = with("quotaplane.excluded.principals", "User:CN=a,O=b; User:c ;");
        assertEquals(Set.of("User:CN=a,O=b", "User:c"), settings.excludedPrincipals());
        assertTrue(refusal("quotaplane.excluded.principals", "alice").contains("has alice"));
    }

    @Test
    void refusals() {
        assertTrue(refusal("quotaplane.limit.topic", "x").contains("quotaplane.limit.topic"));
        assertTrue(refusal("quotaplane.transition", "slow").contains("quotaplane.transition"));
        assertTrue(refusal("quotaplane.mute.max.ms", "0").contains("quotaplane.mute.max.ms"));
        assertTrue(refusal("quotaplane.report.interval.ms", "x").contains("report.interval.ms"));
        assertTrue(refusal("quotaplane.principal.mapping.rules", "RULE:x").contains("mapping"));
        assertTrue(refusal("node.id", "-1").contains("quotaplane.broker.name must be set"));
        ConfigException missing =
                assertThrows(ConfigException.class, () -> PluginSettings.of(Map.of("node.id", "1")));
        assertTrue(missing.getMessage().contains("quotaplane.bootstrap.servers"));
    }

    @Test
    void principalsAreNamedByRules() {
        PrincipalNames names = new PrincipalNames("RULE:^CN=([^,]*),.*$/$1/L");
        assertEquals("app one", names.of("CN=App One,O=Acme"));
        assertEquals("alice", names.of("alice"));
        assertEquals("CN=a", new PrincipalNames("DEFAULT").of("CN=a"));
    }
}
