package io.quotaplane.kafka;

import io.quotaplane.kafka.attachments.Attachments;
import io.quotaplane.kafka.limits.Changes;
import io.quotaplane.kafka.limits.LimitsInForce;
import io.quotaplane.kafka.limits.QuotaKind;
import io.quotaplane.kafka.limits.Rates;
import io.quotaplane.kafka.limits.ReceivedLimits;
import io.quotaplane.kafka.report.ReportBuilder;
import io.quotaplane.kafka.settings.PluginSettings;
import io.quotaplane.kafka.usage.GroupUsage;
import io.quotaplane.kafka.usage.UsageMeter;
import io.quotaplane.kafka.wire.AttachmentsMessage;
import io.quotaplane.kafka.wire.GroupIds;
import io.quotaplane.kafka.wire.LimitsMessage;
import java.util.EnumSet;
import java.util.List;
import java.util.Map;
import java.util.Set;

/**
 * Everything that a broker knows of quotas, without threads, clocks and network: messages and time
 * go in, limits and reports come out. One thread changes it; any may ask for groups and limits.
 */
public final class BrokerQuotas {
    /** Time after its lease end at which the limit of a group without clients is forgotten. */
    private static final long FORGET_AFTER_MS = 600_000;

    private static final long FORGET_EVERY_REPORTS = 100;

    /** Groups that one tick looks at. */
    private static final int MOST_LOOKS = 2000;

    private final PluginSettings settings;
    private final long startedMs;
    private ReceivedLimits received;

    /** What is received while all limits are read again; null: they are not. */
    private ReceivedLimits again;

    private final Attachments attachments = new Attachments();
    private final LimitsInForce limits;
    private final UsageMeter meter;
    private final ReportBuilder reports;
    private long attachmentsVersion = -1;
    private long ticks;
    private volatile Map<String, GroupUsage> lastUsage = Map.of();
    private volatile long newestIssuedMs = Long.MIN_VALUE;
    private volatile long overOnArrival;

    /**
     * The broker starts now.
     *
     * @param wallNowMs epoch milliseconds
     * @param steadyNowMs on a clock that can't be set, as in all calls
     */
    public BrokerQuotas(PluginSettings settings, long wallNowMs, long steadyNowMs) {
        this.settings = settings;
        startedMs = wallNowMs;
        received = none();
        limits = new LimitsInForce(received, settings.bounds());
        meter = new UsageMeter(steadyNowMs);
        reports =
                new ReportBuilder(settings.brokerName(), wallNowMs, settings.bounds().strict());
    }

    private ReceivedLimits none() {
        double unset = settings.bounds().strict() ? 0 : Double.POSITIVE_INFINITY;
        return new ReceivedLimits(settings.brokerName(), startedMs, unset, unset);
    }

    /** Take in a message; the next tick puts it in force. */
    public void receive(LimitsMessage message, long wallNowMs, long steadyNowMs) {
        if (!message.broker().equals(settings.brokerName())) {
            return;
        }
        if (message.isOver(wallNowMs)) {
            overOnArrival++;
        }
        newestIssuedMs = Math.max(newestIssuedMs, message.issuedOn(wallNowMs, steadyNowMs));
        received.apply(message, wallNowMs, steadyNowMs);
        if (again != null) {
            again.apply(message, wallNowMs, steadyNowMs);
        }
    }

    /**
     * Whether limits or safe limits of any group that clients are attached to are unknown. If so, all
     * messages of the topic must follow, then {@code readAgain}.
     */
    public boolean lacksLimits() {
        boolean lacks =
                !attachments.groups().stream()
                        .allMatch(name -> received.isWhole(GroupIds.idOf(name)));
        again = lacks ? none() : null;
        return lacks;
    }

    /** All limits of the topic came since {@code lacksLimits}: they hold in place of those before. */
    public void readAgain() {
        if (again != null) {
            received = again;
            limits.follow(received);
            again = null;
        }
    }

    /** Take in a message; clients belong to their new groups after the next tick. */
    public void receive(AttachmentsMessage message) {
        attachments.apply(message);
    }

    /** Put in force what holds now, and look at the rates. */
    public Changes tick(long steadyNowMs, Rates rates) {
        List<String> looked = inTurn(rates);
        meter.tick(steadyNowMs, looked, rates, limits);
        long version = attachments.version();
        boolean isOther = version != attachmentsVersion;
        Changes changes = limits.tick(attachments.groups(), steadyNowMs, looked, rates);
        attachmentsVersion = version;
        if (!isOther) {
            return changes;
        }
        // A group's own bucket may be out of use, so all limits are looked at again.
        return new Changes(EnumSet.allOf(QuotaKind.class), true);
    }

    /** Groups that were in use in the last hour; of very many a part in each tick. */
    private List<String> inTurn(Rates rates) {
        int turns = 1 + rates.tags().size() / MOST_LOOKS;
        ticks++;
        return rates.tags().stream()
                .filter(tag -> Math.floorMod(tag.hashCode() + ticks, turns) == 0)
                .toList();
    }

    /** The next report: what was used since the last one. */
    public byte[] report(long steadyNowMs, Rates rates) {
        int windowMs = (int) Math.min(meter.windowMs(steadyNowMs), Integer.MAX_VALUE);
        Map<String, GroupUsage> usage = meter.take(steadyNowMs, limits, rates);
        lastUsage = usage;
        byte[] report = reports.next(windowMs, usage, limits, received.acknowledged());
        if (reports.sequence() % FORGET_EVERY_REPORTS == 0) {
            received.forget(steadyNowMs - FORGET_AFTER_MS, limits.ids());
        }
        return report;
    }

    /** Reports were lost: the next ones name all groups. */
    public void reportsLost() {
        reports.nameAll();
    }

    /** The group of a client, by names that are not encoded; null: none. */
    public String groupOf(String user, String clientId) {
        return attachments.groupOf(user, clientId);
    }

    /** The limits in force. */
    public LimitsInForce limits() {
        return limits;
    }

    /** Usage in the last report, by the tag of the group. */
    public Map<String, GroupUsage> lastUsage() {
        return lastUsage;
    }

    /** Messages whose lease was over when they came. */
    public long overOnArrival() {
        return overOnArrival;
    }

    /** Age in milliseconds of the newest limits; -1: there were none. */
    public long limitsAgeMs(long steadyNowMs) {
        long issuedMs = newestIssuedMs;
        return issuedMs == Long.MIN_VALUE ? -1 : steadyNowMs - issuedMs;
    }

    /** Groups that clients are attached to. */
    public Set<String> groups() {
        return attachments.groups();
    }
}
