/*
 * skewclock: a preloaded shim that moves the wall clock of one process, at any time and at once.
 *
 * Leases on Redis are counted on the server's wall clock. A test must set that clock to show that a lock survives it,
 * and must not set the machine's. So the server alone is started with LD_PRELOAD naming this library and SKEW_FILE
 * naming a file of eight bytes: a signed number of microseconds, in the machine's byte order, that is added to every
 * reading of the wall clock. The file is mapped: the next reading uses the number that a test has written, with no
 * signal and no restart.
 *
 * Only the wall clock moves: gettimeofday, time and the two CLOCK_REALTIME clocks. The monotonic clocks stay true, as
 * they do when an operator sets the time; timers that are counted on them go on undisturbed.
 *
 * The real readings come from the system call itself. Looking the real function up instead (dlsym) allocates; in a
 * redis-server the allocator is jemalloc, which reads the clock while it starts, and the two call each other until the
 * stack is gone. That is how libfaketime crashes it.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

_Static_assert(sizeof(time_t) == 8 && sizeof(long) == 8, "skewclock knows the 64-bit clock_gettime only");

#define NS_PER_S INT64_C(1000000000)
#define NS_PER_US INT64_C(1000)

/* Clocks are read before constructors run, and by processes without a file: until then the skew is zero. */
static const int64_t no_skew_us = 0;
static const int64_t *skew_us = &no_skew_us;

__attribute__((constructor)) static void map_skew_file(void) {
  const char *path = getenv("SKEW_FILE");
  if (path == NULL) return;
  int file = open(path, O_RDONLY | O_CLOEXEC);
  /* A server that silently ran on the true clock would let a test of clock jumps pass without a jump. */
  if (file < 0) abort();
  void *mapped = mmap(NULL, sizeof(int64_t), PROT_READ, MAP_SHARED, file, 0);
  if (mapped == MAP_FAILED) abort();
  close(file);
  skew_us = mapped;
}

static int64_t skew_ns(void) { return __atomic_load_n(skew_us, __ATOMIC_RELAXED) * NS_PER_US; }

int clock_gettime(clockid_t clock, struct timespec *now) {
  long failed = syscall(SYS_clock_gettime, clock, now);
  if (failed) return (int)failed;
  if (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE) {
    int64_t ns = now->tv_sec * NS_PER_S + now->tv_nsec + skew_ns();
    now->tv_sec = ns / NS_PER_S;
    now->tv_nsec = ns % NS_PER_S;
  }
  return 0;
}

int gettimeofday(struct timeval *now, void *zone) {
  struct timespec ts;
  (void)zone;
  if (clock_gettime(CLOCK_REALTIME, &ts)) return -1;
  now->tv_sec = ts.tv_sec;
  now->tv_usec = ts.tv_nsec / NS_PER_US;
  return 0;
}

time_t time(time_t *out) {
  struct timespec ts;
  if (clock_gettime(CLOCK_REALTIME, &ts)) return (time_t)-1;
  if (out != NULL) *out = ts.tv_sec;
  return ts.tv_sec;
}
