package io.quotaplane.kafka.limits;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import org.junit.jupiter.api.Test;

class SteppedLimitTest {
    private static final double INFINITY = Double.POSITIVE_INFINITY;

    /** Two samples of 1 s, and a mute of up to 5 s. */
    private static final Bounds BOUNDS = new Bounds(false, 10_000, 5, 2, 3, -1, 2000);

    private final SteppedLimit limit = new SteppedLimit();

    private double step(double to, double observed, double elapsedS) {
        return limit.step(to, observed, elapsedS, BOUNDS);
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
        assertEquals(200, step(200, Double.NaN, 0.2));
    }

    @Test
    void aCutFallsEvenlyOverOneWindow() {
        step(1000, 0, 0.2);
        // From what is used, which is less than the limit.
        assertEquals(800, step(200, 800, 0.2));
        assertEquals(650, step(200, 760, 0.5), 1e-9);
        assertEquals(500, step(200, 640, 0.5), 1e-9);
        assertEquals(350, step(200, 480, 0.5), 1e-9);
        assertEquals(200, step(200, 340, 0.5), 1e-9);
        assertEquals(200, step(200, 340, 0.5));
    }

    /** A client that always uses what it may is at the new limit from the cut on. */
    @Test
    void aWindowHoldsWhatWasUsedBeforeAndTheNewLimitSince() {
        step(1000, 1000, 0.2);
        step(400, 1000, 0.2);
        double seconds = 0;
        for (int tick = 0; tick < 9; tick++) {
            seconds += 0.2;
            double mean = (1000 * (2 - seconds) + 400 * seconds) / 2;
            assertEquals(mean, step(400, mean, 0.2), 1e-9);
        }
    }

    @Test
    void noStepMutesForLongerThanAllowed() {
        step(1000, 1000, 0.2);
        step(100, 1000, 0.2);
        // After a pause of the plugin's thread the whole way would be due: 27 s of mute.
        double next = step(100, 1000, 60);
        assertEquals(1000 * 3 / 8.0, next, 1e-9);
        assertEquals(5, (1000 - next) / next * 3, 1e-9);
        // While the window has not fallen, the limit does not either.
        assertEquals(next, step(100, 1000, 0.2), 1e-9);
        assertEquals(100, step(100, 200, 0.2), 1e-9);
    }

    @Test
    void aLowerTargetOnTheWayGetsAWindowForWhatIsNew() {
        step(1000, 1000, 0.2);
        step(400, 1000, 0.2);
        assertEquals(700, step(400, 1000, 1));
        // 300 of 600 are left with 1 s; 300 more take 2 s: together 1.5 s, of which 0.5 s passed.
        assertEquals(700 - 600 / 3.0, step(100, 900, 0.5), 1e-9);
    }

    @Test
    void aHigherTargetOnTheWayIsReachedAtTheSameTime() {
        step(1000, 1000, 0.2);
        step(400, 1000, 0.2);
        assertEquals(700, step(400, 1000, 1));
        assertEquals(600, step(500, 900, 0.5), 1e-9);
        assertEquals(500, step(500, 900, 0.5), 1e-9);
    }

    @Test
    void targetsThatFallALittleEachSecondAreFollowed() {
        step(1000, 1000, 0.2);
        double to = 1000;
        double inForce = 1000;
        for (int second = 0; second < 20; second++) {
            to -= 10;
            for (int tick = 0; tick < 5; tick++) {
                double next = step(to, inForce, 0.2);
                assertTrue(next <= inForce);
                inForce = next;
            }
            assertTrue(inForce <= to + 20, "behind by " + (inForce - to));
        }
    }
}
