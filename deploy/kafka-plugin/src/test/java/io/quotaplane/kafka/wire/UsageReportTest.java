package io.quotaplane.kafka.wire;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;

import java.util.List;
import org.junit.jupiter.api.Test;

class UsageReportTest {
    private static final double NAN = Double.NaN;

    private static UsageReport report(String... groups) {
        return new UsageReport("b1", 1, 7, 5000, List.of(groups));
    }

    /** The field that a column is in, which must be the last one of the report. */
    private static int lastField(UsageReport report) throws RefusedMessageException {
        byte[] value = report.encode();
        var in = new ProtoReader("UsageReport", value, value.length);
        int field = 0;
        while (in.next()) {
            field = in.field();
            in.skip();
        }
        return field;
    }

    /** The example of the docstring of {@code encode_report}. */
    @Test
    void aReportHasTheBytesOfTheDocumentation() {
        byte[] value =
                report("g").usage(Dimension.PUBLISH_MESSAGES, new double[] {3}).encode();
        assertArrayEquals(
                Messages.hex("0d51505231 12026231 1801 2007 288827 420167 5208 0000000000000840"),
                value);
    }

    @Test
    void aReportWithoutGroupsIsAHeartbeat() {
        assertArrayEquals(
                Messages.hex("0d51505231 12026231 1801 2007 288827"),
                report().usage(Dimension.PUBLISH_BYTES, new double[0]).encode());
    }

    @Test
    void everyDimensionHasItsFields() throws RefusedMessageException {
        int[] usage = {10, 11, 12, 13, 23, 24, 25, 38};
        int[] throttled = {14, 15, 16, 17, 26, 27, 28, 39};
        int[] limits = {19, 20, 21, 22, 29, 30, 31, 40};
        for (Dimension dimension : Dimension.values()) {
            double[] column = {1};
            int at = dimension.ordinal();
            assertEquals(usage[at], lastField(report("g").usage(dimension, column)));
            assertEquals(throttled[at], lastField(report("g").throttled(dimension, column)));
            assertEquals(limits[at], lastField(report("g").limits(dimension, column)));
        }
    }

    @Test
    void acknowledgementsAndNamedEveryAreThere() {
        byte[] value =
                report("g", "h")
                        .applied(3, 300)
                        .appliedSeqs(new long[] {300, -1})
                        .namedEvery(12)
                        .encode();
        assertArrayEquals(
                Messages.hex(
                        "0d51505231 12026231 1801 2007 288827 420167 420168 3003 38ac02"
                                + "920110 2c01000000000000 ffffffffffffffff d0020c"),
                value);
    }

    @Test
    void aDimensionWithoutAnyValueIsLeftOut() throws RefusedMessageException {
        double[] none = {NAN, NAN};
        double[] one = {NAN, 0};
        assertEquals(8, lastField(report("g", "h").usage(Dimension.REQUEST_MS, none)));
        assertEquals(38, lastField(report("g", "h").usage(Dimension.REQUEST_MS, one)));
    }

    @Test
    void columnsHaveAValuePerGroup() {
        assertThrows(
                IllegalArgumentException.class,
                () -> report("g").usage(Dimension.PUBLISH_BYTES, new double[] {1, 2}));
        assertThrows(
                IllegalArgumentException.class, () -> report("g").appliedSeqs(new long[0]));
    }
}
