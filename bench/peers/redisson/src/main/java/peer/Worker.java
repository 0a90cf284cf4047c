package peer;

import com.sun.management.OperatingSystemMXBean;
import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.lang.management.ManagementFactory;
import java.net.URI;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.TreeMap;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CompletionStage;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import java.util.stream.Collectors;
import org.redisson.Redisson;
import org.redisson.api.RedissonClient;
import org.redisson.config.Config;

/**
 * Measures Redisson's locks like the benchmark's own systems: it gets the same tasks in the same protocol. See README.md,
 * "The protocol of a worker".
 */
public final class Worker {
    private static final Map<String, String> SYSTEMS = new TreeMap<>(Map.of(
            "redisson", "RLock",
            "redisson-fair", "RFairLock",
            "redisson-fenced", "RFencedLock (its token is counted up and not handed out)",
            "redisson-rwlock", "RReadWriteLock",
            "redisson-semaphore", "RSemaphore (without a lease: a crashed holder keeps its permit)",
            "redisson-expirable", "RPermitExpirableSemaphore, with leases of 30s that are not renewed"));

    private static final String SETTINGS =
            "; asynchronous calls, for locks with a holder id of each task; defaults: watchdog 30s renewed every 10s, pool of 64"
                    + " connections, 16 + 32 threads; warmed up for 4s before it is ready";

    /** The run's own warm-up is for connections and buffers; code that is compiled while it runs needs more. */
    private static final long WARM_UP_MS = 2_000;

    private final RedissonClient client;
    private final Section section;
    private final Spec spec;

    private Worker(Spec spec) {
        if (!SYSTEMS.containsKey(spec.system())) {
            throw new IllegalArgumentException("no such system here: \"" + spec.system() + "\"");
        }
        this.spec = spec;
        client = Redisson.create(config(spec.url(), false));
        section = spec.counter() == null
                ? null
                // A connection apart from the locks', as in every worker.
                : new Section(Redisson.create(config(spec.url(), true)), spec);
    }

    public static void main(String[] arguments) {
        try {
            System.out.println(arguments.length == 1 && arguments[0].equals("--about") ? about() : work());
            System.out.flush();
            // Without an orderly shutdown: Redisson's takes seconds.
            Runtime.getRuntime().halt(0);
        } catch (Throwable failure) {
            fail(failure);
        }
    }

    private static void fail(Throwable failure) {
        System.err.println("redisson peer: " + failure);
        Runtime.getRuntime().halt(1);
    }

    private static String about() throws IOException {
        var built = new Properties();
        try (var from = Redisson.class.getResourceAsStream("/META-INF/maven/org.redisson/redisson/pom.properties")) {
            built.load(from);
        }
        String version = built.getProperty("version") + ", java " + Runtime.version();
        return SYSTEMS.entrySet().stream()
                .map(one -> "\"" + one.getKey() + "\":{\"version\":\"" + version + "\",\"settings\":\"" + one.getValue()
                        + SETTINGS + "\"}")
                .collect(Collectors.joining(",", "{\"systems\":{", "}}"));
    }

    private static Config config(String url, boolean isCounter) {
        var from = URI.create(url);
        var config = new Config();
        String address = from.getScheme() + "://" + from.getHost() + ":" + from.getPort();
        var server = config.useSingleServer().setAddress(address);
        if (from.getUserInfo() != null) {
            String[] user = from.getUserInfo().split(":", 2);
            config.setUsername(user[0].isEmpty() ? null : user[0]).setPassword(user[1]);
        }
        if (from.getPath() != null && from.getPath().length() > 1) {
            server.setDatabase(Integer.parseInt(from.getPath().substring(1)));
        }
        if (isCounter) {
            server.setConnectionMinimumIdleSize(1).setConnectionPoolSize(1);
        }
        return config;
    }

    private static String work() throws Exception {
        var input = new BufferedReader(new InputStreamReader(System.in));
        var worker = new Worker(Spec.of(input.readLine()));
        worker.warmUp();
        if (worker.spec.use().equals("used")) {
            worker.allTasks(worker.spec);
        }
        System.out.println("ready");
        System.out.flush();
        if (!"go".equals(input.readLine())) {
            throw new IllegalStateException("the run was aborted");
        }
        return worker.measure();
    }

    private void warmUp() throws Exception {
        for (String use : List.of("per-task", "one")) {
            allTasks(spec.warmUp(use, WARM_UP_MS));
        }
        String own = spec.warmUp("one", 0).prefix();
        client.getKeys().deleteByPattern("*" + own + "*");
    }

    private String measure() throws Exception {
        long begunNs = System.nanoTime();
        long cpuBeforeUs = cpuUs();
        List<Task> tasks = allTasks(spec);
        long cpuUs = cpuUs() - cpuBeforeUs;
        long countedUs = spec.each() >= 0 ? (System.nanoTime() - begunNs) / 1_000 : spec.windowMs() * 1_000;
        var waits = new TreeMap<Long, Long>();
        tasks.forEach(task -> task.waits.forEach((us, count) -> waits.merge(us, count, Long::sum)));
        return "{\"served\":" + tasks.stream().map(task -> task.served).toList()
                + ",\"pairs\":" + tasks.stream().mapToLong(task -> task.pairs).sum()
                + ",\"counted_us\":" + countedUs
                + ",\"cpu_us\":" + cpuUs
                + (spec.isShared() ? shared(tasks) : "")
                + ",\"waits\":" + waits.entrySet().stream().map(e -> List.of(e.getKey(), e.getValue())).toList() + "}";
    }

    private static String shared(List<Task> tasks) {
        return ",\"writes\":" + tasks.stream().mapToLong(task -> task.writes).sum()
                + ",\"overlaps\":" + tasks.stream().mapToLong(task -> task.overlaps).sum();
    }

    /** Returns the processor time of all threads of this process so far. */
    private static long cpuUs() {
        return ((OperatingSystemMXBean) ManagementFactory.getOperatingSystemMXBean()).getProcessCpuTime() / 1_000;
    }

    private List<Task> allTasks(Spec spec) throws Exception {
        long startedNs = System.nanoTime();
        var tasks = new ArrayList<Task>();
        var running = new ArrayList<CompletableFuture<Void>>();
        for (int number = 0; number < spec.tasks(); number++) {
            var task = new Task(spec, number, startedNs);
            tasks.add(task);
            running.add(new CompletableFuture<>());
            String name = task.keptName();
            // Redisson identifies a holder by a number; the number of a thread would be shared by all tasks that run on it.
            var gate = name == null ? null : Gate.of(client, spec, name, number + 1);
            nextPair(spec, task, gate, number + 1, running.get(number));
        }
        try {
            var all = CompletableFuture.allOf(running.toArray(CompletableFuture[]::new));
            all.get(spec.limitMs(), TimeUnit.MILLISECONDS);
        } catch (TimeoutException hangs) {
            throw new IllegalStateException("the run did not end", hangs);
        }
        return tasks;
    }

    private void nextPair(Spec spec, Task task, Gate kept, long holder, CompletableFuture<Void> done) {
        if (task.isOver()) {
            done.complete(null);
            return;
        }
        Gate gate = kept != null ? kept : Gate.of(client, spec, task.freshName(), holder);
        boolean isWriter = task.writesNext();
        // The warm-up has no counter.
        Section inside = spec.counter() == null ? null : section;
        long askedNs = System.nanoTime();
        gate.enter(isWriter)
                .thenCompose(ticket -> {
                    long waitNs = System.nanoTime() - askedNs;
                    CompletionStage<?> passed =
                            inside == null ? CompletableFuture.completedFuture(null) : inside.pass(task, isWriter);
                    return passed.thenCompose(nothing -> gate.leave(isWriter, ticket)).thenApply(nothing -> waitNs);
                })
                .whenComplete((waitNs, failure) -> {
                    if (failure != null) {
                        done.completeExceptionally(failure);
                        return;
                    }
                    task.note(waitNs);
                    nextPair(spec, task, kept, holder, done);
                });
    }
}
