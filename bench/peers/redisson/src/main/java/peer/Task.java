package peer;

import java.util.HashMap;
import java.util.Map;

/** The work and the figures of one task. It uses the clock, and is independent of the lock. */
final class Task {
    private final Spec spec;
    private final int number;
    private final long startedNs;
    long served;
    long pairs;
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
