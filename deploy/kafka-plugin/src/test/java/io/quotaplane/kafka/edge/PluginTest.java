package io.quotaplane.kafka.edge;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.quotaplane.kafka.limits.QuotaKind;
import io.quotaplane.kafka.settings.PluginSettings;
import io.quotaplane.kafka.wire.AttachmentsMessage;
import io.quotaplane.kafka.wire.Dimension;
import io.quotaplane.kafka.wire.GroupIds;
import io.quotaplane.kafka.wire.LimitsMessage;
import java.lang.management.ManagementFactory;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;
import javax.management.JMException;
import javax.management.MBeanServer;
import javax.management.ObjectName;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;

/** The plugin with its threads, while the cluster with the topics can't be reached. */
@Timeout(30)
class PluginTest {
    private final Plugin plugin =
            Plugin.acquire(
                    PluginSettings.of(
                            Map.of(
                                    "quotaplane.bootstrap.servers", "127.0.0.1:1",
                                    "quotaplane.broker.name", "b1",
                                    "quotaplane.report.interval.ms", "200")));
    private final BlockingQueue<Set<QuotaKind>> changes = new LinkedBlockingQueue<>();

    @AfterEach
    void release() {
        plugin.release();
    }

    private void limit(double publishBytes) throws InterruptedException {
        double[][] limit = new double[Dimension.COUNT][];
        limit[Dimension.PUBLISH_BYTES.ordinal()] = new double[] {publishBytes};
        long[] ids = {GroupIds.idOf("g")};
        long nowMs = System.currentTimeMillis();
        plugin.inbox().limits(
                new LimitsMessage(
                        "b1", 0, 1, 1, nowMs, 60_000, 0, ids, limit, null, new long[0]));
    }

    @Test
    void aMessageChangesLimitsWithoutTheNetwork() throws InterruptedException {
        plugin.onChange(change -> changes.add(change.kinds()));
        limit(50_000);
        plugin.inbox().attachments(
                new AttachmentsMessage(0, 1, 1, 0, List.of("client=app"), List.of("g")));
        assertTrue(changes.poll(20, TimeUnit.SECONDS).contains(QuotaKind.PRODUCE));
        assertEquals(50_000, plugin.quotas().limits().limit("g", QuotaKind.PRODUCE));
    }

    @Test
    void aLimitedGroupHasMetrics() throws InterruptedException, JMException {
        plugin.rates();
        limit(50_000);
        plugin.inbox().attachments(
                new AttachmentsMessage(0, 1, 1, 0, List.of("client=app"), List.of("g")));
        MBeanServer server = ManagementFactory.getPlatformMBeanServer();
        ObjectName name = new ObjectName("kafka.server:type=quotaplane,group=g,quota=Produce");
        ObjectName ours = new ObjectName("kafka.server:type=quotaplane");
        while (!server.isRegistered(name)) {
            Thread.onSpinWait();
        }
        // Nobody takes the reports, so each is dropped for the next one; by the second one all
        // metrics are there.
        double before = (double) server.getAttribute(ours, "reports-failed");
        while ((double) server.getAttribute(ours, "reports-failed") < before + 2) {
            Thread.onSpinWait();
        }
        assertEquals(50_000.0, server.getAttribute(name, "limit"));
        assertEquals(50_000.0, server.getAttribute(name, "limit-target"));
        assertEquals(0.0, server.getAttribute(name, "rate"));
        assertEquals(0.0, server.getAttribute(name, "throttled-rate"));
        assertEquals(0.0, server.getAttribute(ours, "reports-sent"));
    }

    @Test
    void refusedMessagesAreCounted() {
        plugin.inbox().refused("quotaplane-limits", "no");
        plugin.inbox().refused("quotaplane-limits", "no");
        assertEquals(2, plugin.refused());
    }
}
