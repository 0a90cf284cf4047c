package peer;

import java.util.HashMap;
import java.util.Map;
import java.util.SplittableRandom;

/** The work and the figures of one task. It uses the clock, and is independent of the lock. */
final class Task {
    private final Spec spec;
    private final int number;
    private final long startedNs;
    private final SplittableRandom random = new SplittableRandom();
    long served;
    long pairs;
    /** The pairs that incremented the counter, and the overlaps that it has shown, of a lock that is shared. */
    long writes;
    long overlaps;
    final Map<Long, Long> waits = new HashMap<>();

    Task(Spec spec, int number, long startedNs) {
        this.spec = spec;
        this.number = number;
        this.startedNs = startedNs;
    }

    /** Returns the name that it locks for all pairs, or null if each pair has its own. */
    String keptName() {
        return switch (spec.use()) {
            case "one" -> spec.prefix();
            case "per-task" -> spec.prefix() + ":" + number;
            default -> null;
        };
    }

    String freshName() {
        return spec.prefix() + ":" + number + ":" + pairs;
    }

    /** Returns whether the next pair writes. */
    boolean writesNext() {
        return spec.duty().equals("read-write") && random.nextInt(100) < spec.amount();
    }

    boolean isOver() {
        return spec.each() >= 0 ? pairs >= spec.each() : atMs() >= spec.warmUpMs() + spec.windowMs();
    }

    void note(long waitNs) {
        pairs += 1;
        long atMs = atMs();
        if (spec.each() >= 0 || atMs >= spec.warmUpMs() && atMs < spec.warmUpMs() + spec.windowMs()) {
            served += 1;
            waits.merge(bucket(waitNs / 1_000), 1L, Long::sum);
        }
    }

    private long atMs() {
        return (System.nanoTime() - startedNs) / 1_000_000;
    }

    /** Returns the greatest wait of the same bucket: eight binary digits, so less than one percent off. */
    private static long bucket(long us) {
        int shift = Math.max(Long.SIZE - Long.numberOfLeadingZeros(us) - 8, 0);
        return ((us >> shift) + 1 << shift) - 1;
    }
}
