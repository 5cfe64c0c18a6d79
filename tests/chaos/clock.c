/* A wall clock that runs ahead of the kernel's, or behind it, by so many seconds as a file says (CHAOS_CLOCK: a signed
 * number of 8 bytes, which may change at any time). Loaded ahead of a service's own libraries. Absolute times that the
 * kernel is to wait for are told it by its own clock. */

#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#define LEAST_WALL_S 1000000000 /* What is above it is no monotonic time. */
#define NEXT(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))

static const volatile int64_t *ahead;

__attribute__((constructor)) static void map(void) {
  const char *path = getenv("CHAOS_CLOCK");
  int file = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
  if (file < 0) return;
  void *found = mmap(NULL, sizeof *ahead, PROT_READ, MAP_SHARED, file, 0);
  if (found != MAP_FAILED) ahead = found;
  close(file);
}

static int64_t ahead_s(void) { return ahead ? *ahead : 0; }

static const struct timespec *by_kernel(const struct timespec *at, struct timespec *changed) {
  if (at == NULL || at->tv_sec < LEAST_WALL_S) return at;
  *changed = *at;
  changed->tv_sec -= ahead_s();
  return changed;
}

int clock_gettime(clockid_t clock, struct timespec *now) {
  static __typeof__(&clock_gettime) real;
  if (!real) real = NEXT(clock_gettime);
  int failed = real(clock, now);
  if (!failed && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE)) now->tv_sec += ahead_s();
  return failed;
}

int gettimeofday(struct timeval *restrict now, void *restrict zone) {
  struct timespec found;
  (void)zone;
  int failed = clock_gettime(CLOCK_REALTIME, &found);
  now->tv_sec = found.tv_sec;
  now->tv_usec = found.tv_nsec / 1000;
  return failed;
}

time_t time(time_t *now) {
  struct timespec found;
  clock_gettime(CLOCK_REALTIME, &found);
  if (now) *now = found.tv_sec;
  return found.tv_sec;
}

int pthread_cond_timedwait(pthread_cond_t *condition, pthread_mutex_t *mutex, const struct timespec *at) {
  static __typeof__(&pthread_cond_timedwait) real;
  struct timespec changed;
  if (!real) real = (__typeof__(real))dlvsym(RTLD_NEXT, "pthread_cond_timedwait", "GLIBC_2.3.2");
  if (!real) real = NEXT(pthread_cond_timedwait);
  return real(condition, mutex, by_kernel(at, &changed));
}

int sem_timedwait(sem_t *semaphore, const struct timespec *at) {
  static __typeof__(&sem_timedwait) real;
  struct timespec changed;
  if (!real) real = NEXT(sem_timedwait);
  return real(semaphore, by_kernel(at, &changed));
}

long syscall(long number, ...) {
  static __typeof__(&syscall) real;
  struct timespec changed;
  long a[6];
  va_list given;
  va_start(given, number);
  for (int i = 0; i < 6; i++) a[i] = va_arg(given, long);
  va_end(given);
  if (!real) real = NEXT(syscall);
  if (number == SYS_futex && (a[1] & FUTEX_CLOCK_REALTIME))
    a[3] = (long)by_kernel((const struct timespec *)a[3], &changed);
  return real(number, a[0], a[1], a[2], a[3], a[4], a[5]);
}
