package peer;

import java.util.Map;
import org.yaml.snakeyaml.Yaml;

/** What a worker is told. {@code each} is negative where it is the clock that ends the run. */
record Spec(
        String system,
        String url,
        int tasks,
        String use,
        String prefix,
        String counter,
        long warmUpMs,
        long windowMs,
        long each) {

    /** Reads one line of JSON: by Redisson's own reader of YAML, which JSON is. */
    @SuppressWarnings("unchecked")
    static Spec of(String line) {
        Map<String, Object> told = new Yaml().load(line);
        var names = ((Map<String, String>) told.get("names")).entrySet().iterator().next();
        var span = (Map<String, Map<String, Object>>) told.get("span");
        Map<String, Object> window = span.get("window");
        return new Spec(
                (String) told.get("system"),
                (String) told.get("url"),
                (int) told.get("tasks"),
                names.getKey(),
                names.getValue(),
                (String) told.get("counter"),
                window == null ? 0 : number(window, "warm_up_ms"),
                window == null ? 0 : number(window, "window_ms"),
                window == null ? number(span.get("pairs"), "each") : -1);
    }

    private static long number(Map<String, Object> from, String name) {
        return ((Number) from.get(name)).longValue();
    }

    /** As this one, with names of this process for so long, without a counter, and with few tasks: they share a name. */
    Spec warmUp(String use, long ms) {
        String own = prefix + ":warm-up:" + ProcessHandle.current().pid();
        return new Spec(system, url, Math.min(tasks, 8), use, own, null, ms, 0, -1);
    }

    /** After this a run hangs: no lock waits for as long. */
    long limitMs() {
        return 60_000 + (each >= 0 ? each * 20 : warmUpMs + windowMs);
    }
}
