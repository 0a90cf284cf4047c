package peer;

import java.util.Map;
import org.yaml.snakeyaml.Yaml;

/**
 * The task of a worker. {@code each} is negative if the clock ends the run. {@code amount} is how many of a hundred pairs
 * write, or how many permits there are, by {@code duty}.
 */
record Spec(
        String system,
        String url,
        int tasks,
        String use,
        String prefix,
        String counter,
        long warmUpMs,
        long windowMs,
        long each,
        String duty,
        int amount) {

    /** Reads one line of JSON, with Redisson's own YAML parser: JSON is a subset of YAML. */
    @SuppressWarnings("unchecked")
    static Spec of(String line) {
        Map<String, Object> told = new Yaml().load(line);
        var names = ((Map<String, String>) told.get("names")).entrySet().iterator().next();
        var span = (Map<String, Map<String, Object>>) told.get("span");
        Map<String, Object> window = span.get("window");
        var duties = (Map<String, Map<String, Object>>) told.getOrDefault("duty", Map.of("pairs", Map.of("amount", 0)));
        var duty = duties.entrySet().iterator().next();
        return new Spec(
                (String) told.get("system"),
                (String) told.get("url"),
                (int) told.get("tasks"),
                names.getKey(),
                names.getValue(),
                (String) told.get("counter"),
                window == null ? 0 : number(window, "warm_up_ms"),
                window == null ? 0 : number(window, "window_ms"),
                window == null ? number(span.get("pairs"), "each") : -1,
                duty.getKey(),
                ((Number) duty.getValue().values().iterator().next()).intValue());
    }

    /** Returns whether several tasks may be inside at once. */
    boolean isShared() {
        return !duty.equals("pairs");
    }

    private static long number(Map<String, Object> from, String name) {
        return ((Number) from.get(name)).longValue();
    }

    /** Returns a spec for a warm-up of this length, with few tasks on names of this process, and without a counter. */
    Spec warmUp(String use, long ms) {
        String own = prefix + ":warm-up:" + ProcessHandle.current().pid();
        return new Spec(system, url, Math.min(tasks, 8), use, own, null, ms, 0, -1, duty, amount);
    }

    /** Returns the time after which a run counts as hanging: no lock waits for as long. */
    long limitMs() {
        return 60_000 + (each >= 0 ? each * 20 : warmUpMs + windowMs);
    }
}
