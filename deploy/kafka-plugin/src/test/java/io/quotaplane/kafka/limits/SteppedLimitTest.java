package io.quotaplane.kafka.limits;

import static org.junit.jupiter.api.Assertions.assertEquals;

import org.junit.jupiter.api.Test;

class SteppedLimitTest {
    private static final double INFINITY = Double.POSITIVE_INFINITY;

    /** A window of 2 s, at times 3 s, and a mute of up to 5 s. */
    private static final Bounds BOUNDS = new Bounds(false, 10_000, 5, 3, -1, 2000);

    private final SteppedLimit limit = new SteppedLimit();
    private final Window window = new Window();

    /** A window of 2 s, as a test fills it. */
    private static final class Window implements Rates.Limited {
        double rate;
        double left;

        @Override
        public double rate() {
            return rate;
        }

        @Override
        public double windowS() {
            return 2;
        }

        @Override
        public double takenBackS() {
            return 0;
        }

        @Override
        public Rates.Kept keep() {
            left = 2 * rate;
            return () -> left;
        }
    }

    private double step(double to, double observed, double elapsedS) {
        window.rate = observed;
        return limit.step(to, window, elapsedS, BOUNDS);
    }

    @Test
    void aFirstLimitAndAHigherOneHoldAtOnce() {
        assertEquals(100, step(100, 900, 0.2));
        assertEquals(200, step(200, 900, 0.2));
        assertEquals(INFINITY, step(INFINITY, 900, 0.2));
    }

    @Test
    void aCutThatNobodyFeelsHoldsAtOnce() {
        step(1000, 0, 0.2);
        assertEquals(300, step(300, 250, 0.2));
        assertEquals(200, limit.step(200, null, 0.2, BOUNDS));
    }

    /** A client that always uses what it may is at the new limit from the cut on. */
    @Test
    void theWindowHoldsWhatWasUsedBeforeAndTheNewLimitSince() {
        step(1000, 1000, 0.2);
        assertEquals(1000, step(400, 1000, 0.2));
        double seconds = 0;
        for (int tick = 0; tick < 9; tick++) {
            seconds += 0.2;
            window.left = 1000 * (2 - seconds);
            double mean = (window.left + 400 * seconds) / 2;
            assertEquals(mean, step(400, mean, 0.2), 1e-9);
        }
        window.left = 0;
        assertEquals(400, step(400, 460, 0.2));
    }

    /** A burst of 2000 that ended 1.8 s before the cut: no other may follow it. */
    @Test
    void whenABurstLeavesTheWindowSoDoesItsShareOfTheLimit() {
        step(1000, 0, 0.2);
        assertEquals(1000, step(400, 1000, 0.2));
        window.left = 0;
        assertEquals(400, step(400, 450, 0.2));
    }

    @Test
    void noStepMutesForLongerThanAllowed() {
        step(1000, 1000, 0.2);
        step(100, 1000, 0.2);
        // Nothing of before is left, but another client filled the window: 27 s of mute.
        window.left = 0;
        double next = step(100, 1000, 0.2);
        assertEquals(1000 * 3 / 8.0, next, 1e-9);
        assertEquals(5, (1000 - next) / next * 3, 1e-9);
        assertEquals(100, step(100, 200, 0.2), 1e-9);
    }

    @Test
    void aLowerTargetOnTheWayCountsFromThen() {
        step(1000, 1000, 0.2);
        step(400, 1000, 0.2);
        window.left = 1000;
        assertEquals(700, step(400, 800, 1));
        // The 1600 in the window were allowed.
        assertEquals(700, step(100, 800, 0.2));
        window.left = 800;
        assertEquals(450, step(100, 500, 1));
    }

    @Test
    void aHigherTargetOnTheWayAllowsMore() {
        step(1000, 1000, 0.2);
        step(400, 1000, 0.2);
        window.left = 1000;
        assertEquals(700, step(400, 800, 1));
        window.left = 500;
        assertEquals((500 + 400 + 250) / 2.0, step(500, 800, 0.5), 1e-9);
    }

    @Test
    void aCutIsNeverAboveTheLimitBefore() {
        step(1000, 1000, 0.2);
        // A large request came on top of the limit.
        assertEquals(1000, step(400, 1500, 0.2));
    }
}
