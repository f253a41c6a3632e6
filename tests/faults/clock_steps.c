/* clock_steps: loaded with LD_PRELOAD, it moves the machine's clock, as the processes see it, by what a control file says.
 *
 * CLOCK_STEPS_CONTROL  a file of one int64_t, shared by all processes: nanoseconds that the clock is ahead of the true one;
 *                      whoever runs the trial changes it, and the clock is set at that instant
 * CLOCK_STEPS_BOOT     a file that is read instead of /proc/sys/kernel/random/boot_id: another content is another start
 *                      of the machine
 *
 * Only the clock of the calendar is moved. CLOCK_MONOTONIC, what sleeps and sockets wait for, and the times that the
 * kernel gives to files stay true.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#define SECOND 1000000000

static _Atomic int64_t *ahead;
static const char *boot;

#define REAL(name, type, ...) \
    static type (*real)(__VA_ARGS__); \
    if (!real) \
        *(void **)&real = dlsym(RTLD_NEXT, name)

__attribute__((constructor)) static void begin(void)
{
    REAL("open", int, const char *, int, ...);
    const char *path = getenv("CLOCK_STEPS_CONTROL");
    boot = getenv("CLOCK_STEPS_BOOT");
    int file = path ? real(path, O_RDWR | O_CLOEXEC) : -1;
    if (file < 0)
        return;
    void *map = mmap(NULL, sizeof *ahead, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    close(file);
    if (map != MAP_FAILED)
        ahead = map;
}

int clock_gettime(clockid_t which, struct timespec *now)
{
    REAL("clock_gettime", int, clockid_t, struct timespec *);
    int result = real(which, now);
    if (result != 0 || !ahead || (which != CLOCK_REALTIME && which != CLOCK_REALTIME_COARSE))
        return result;
    int64_t moved = (int64_t)now->tv_sec * SECOND + now->tv_nsec + atomic_load(ahead);
    now->tv_sec = moved / SECOND;
    now->tv_nsec = moved % SECOND;
    return 0;
}

int gettimeofday(struct timeval *restrict now, void *restrict zone)
{
    struct timespec moved;
    (void)zone;
    clock_gettime(CLOCK_REALTIME, &moved);
    now->tv_sec = moved.tv_sec;
    now->tv_usec = moved.tv_nsec / 1000;
    return 0;
}

time_t time(time_t *now)
{
    struct timespec moved;
    clock_gettime(CLOCK_REALTIME, &moved);
    if (now)
        *now = moved.tv_sec;
    return moved.tv_sec;
}

int timespec_get(struct timespec *now, int base)
{
    return base == TIME_UTC && clock_gettime(CLOCK_REALTIME, now) == 0 ? base : 0;
}

static const char *instead(const char *path)
{
    return boot && strcmp(path, "/proc/sys/kernel/random/boot_id") == 0 ? boot : path;
}

#define OPEN(name) \
    int name(const char *path, int flags, ...) \
    { \
        REAL(#name, int, const char *, int, ...); \
        va_list rest; \
        va_start(rest, flags); \
        mode_t mode = va_arg(rest, mode_t); \
        va_end(rest); \
        return real(instead(path), flags, mode); \
    }
OPEN(open)
OPEN(open64)
