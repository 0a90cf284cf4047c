/*
 * slowfsync: a preloaded shim that makes every fsync of one process slower, from any time on and at once.
 *
 * Writes that a server has acknowledged and not yet flushed are lost with its machine. With `appendfsync everysec` they
 * are also lost with its process: while a flush is slow, the write itself is delayed. On a fast disk that is a window
 * of microseconds, which no test hits. So the server is started with LD_PRELOAD naming this library and SLOW_FSYNC_FILE
 * naming a file of eight bytes: a signed number of microseconds, in the machine's byte order, by which every flush
 * takes longer. The file is mapped: the next flush uses the number that a test has written, with no signal and no
 * restart.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

static const int64_t not_slow_us = 0;
static const int64_t *slow_us = &not_slow_us;

__attribute__((constructor)) static void map_file(void) {
  const char *path = getenv("SLOW_FSYNC_FILE");
  if (path == NULL) return;
  int file = open(path, O_RDONLY | O_CLOEXEC);
  /* A server that silently flushed at full speed would let a test of slow disks pass without one. */
  if (file < 0) abort();
  void *mapped = mmap(NULL, sizeof(int64_t), PROT_READ, MAP_SHARED, file, 0);
  if (mapped == MAP_FAILED) abort();
  close(file);
  slow_us = mapped;
}

static int flush(long number, int fd) {
  int64_t us = __atomic_load_n(slow_us, __ATOMIC_RELAXED);
  if (us > 0) usleep((useconds_t)us);
  return (int)syscall(number, fd);
}

int fsync(int fd) { return flush(SYS_fsync, fd); }
int fdatasync(int fd) { return flush(SYS_fdatasync, fd); }
