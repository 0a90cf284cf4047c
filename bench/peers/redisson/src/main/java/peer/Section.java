package peer;

import java.util.concurrent.CompletionStage;
import org.redisson.api.RAtomicLong;
import org.redisson.api.RBucket;
import org.redisson.api.RedissonClient;
import org.redisson.client.codec.LongCodec;

/** The work inside: two round trips to the counter, which show somebody who had to be kept out. */
final class Section {
    private final RBucket<Long> counter;
    private final RAtomicLong holders;
    private final Spec spec;

    Section(RedissonClient client, Spec spec) {
        this.spec = spec;
        counter = client.getBucket(spec.counter(), LongCodec.INSTANCE);
        holders = client.getAtomicLong(spec.counter());
    }

    CompletionStage<?> pass(Task task, boolean isWriter) {
        if (spec.duty().equals("permits")) {
            return holders.incrementAndGetAsync().thenCompose(count -> {
                task.overlaps += count > spec.amount() ? 1 : 0;
                return holders.decrementAndGetAsync();
            });
        }
        if (spec.isShared() && !isWriter) {
            return counter.getAsync().thenCompose(first -> counter.getAsync().thenAccept(second -> {
                task.overlaps += java.util.Objects.equals(first, second) ? 0 : 1;
            }));
        }
        task.writes += 1;
        return counter.getAsync().thenCompose(count -> counter.setAsync(count == null ? 1 : count + 1));
    }
}
