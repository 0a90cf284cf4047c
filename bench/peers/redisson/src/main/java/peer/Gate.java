package peer;

import java.util.concurrent.CompletionStage;
import java.util.concurrent.TimeUnit;
import org.redisson.api.RLock;
import org.redisson.api.RPermitExpirableSemaphore;
import org.redisson.api.RReadWriteLock;
import org.redisson.api.RSemaphore;
import org.redisson.api.RedissonClient;

/** What a task enters and leaves. */
interface Gate {
    /** The lease of a permit, which is that of the other systems. */
    long LEASE_S = 30;

    /** Waits until it is inside. Returns what it needs to leave. */
    CompletionStage<String> enter(boolean isWriter);

    CompletionStage<?> leave(boolean isWriter, String ticket);

    /** Returns the gate of a holder. Redisson identifies it by a number; that of a thread would be shared by many tasks. */
    static Gate of(RedissonClient client, Spec spec, String name, long holder) {
        return switch (spec.system()) {
            case "redisson-fair" -> alone(client.getFairLock(name), holder);
            case "redisson-fenced" -> alone(client.getFencedLock(name), holder);
            case "redisson-rwlock" -> readWrite(client.getReadWriteLock(name), holder);
            case "redisson-semaphore" -> permits(client.getSemaphore(name), spec.amount());
            case "redisson-expirable" -> expirable(client.getPermitExpirableSemaphore(name), spec.amount());
            default -> alone(client.getLock(name), holder);
        };
    }

    private static Gate alone(RLock lock, long holder) {
        return new Gate() {
            @Override
            public CompletionStage<String> enter(boolean isWriter) {
                return lock.lockAsync(holder).thenApply(nothing -> "");
            }

            @Override
            public CompletionStage<?> leave(boolean isWriter, String ticket) {
                return lock.unlockAsync(holder);
            }
        };
    }

    private static Gate readWrite(RReadWriteLock lock, long holder) {
        Gate reader = alone(lock.readLock(), holder);
        Gate writer = alone(lock.writeLock(), holder);
        return new Gate() {
            @Override
            public CompletionStage<String> enter(boolean isWriter) {
                return (isWriter ? writer : reader).enter(isWriter);
            }

            @Override
            public CompletionStage<?> leave(boolean isWriter, String ticket) {
                return (isWriter ? writer : reader).leave(isWriter, ticket);
            }
        };
    }

    private static Gate permits(RSemaphore semaphore, int permits) {
        semaphore.trySetPermits(permits);
        return new Gate() {
            @Override
            public CompletionStage<String> enter(boolean isWriter) {
                return semaphore.acquireAsync().thenApply(nothing -> "");
            }

            @Override
            public CompletionStage<?> leave(boolean isWriter, String ticket) {
                return semaphore.releaseAsync();
            }
        };
    }

    private static Gate expirable(RPermitExpirableSemaphore semaphore, int permits) {
        semaphore.trySetPermits(permits);
        return new Gate() {
            @Override
            public CompletionStage<String> enter(boolean isWriter) {
                return semaphore.acquireAsync(LEASE_S, TimeUnit.SECONDS);
            }

            @Override
            public CompletionStage<?> leave(boolean isWriter, String ticket) {
                return semaphore.releaseAsync(ticket);
            }
        };
    }
}
