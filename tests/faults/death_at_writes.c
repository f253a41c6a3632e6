/* death_at_writes: loaded with LD_PRELOAD, it kills a process right before or behind a call by which others, or the next
 * start, learn of what it has done: a write, a sync, a rename, a removal, a message on a socket.
 *
 * DEATH_CONTROL  a file of one `struct control`, shared by all processes; whoever runs the trial changes it
 *
 * While `left` is above 0, each such call of a concerned process counts it down twice, before it and behind it; who brings
 * it to 0 dies by SIGKILL. `pid`: who alone is concerned; 0: everybody. `whole`: the process group dies with it. What is
 * written to standard output and error does not count.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

struct control {
    _Atomic int64_t left, pid, whole, deaths;
};

static struct control *control;

__attribute__((constructor)) static void begin(void)
{
    const char *path = getenv("DEATH_CONTROL");
    int file = path ? open(path, O_RDWR | O_CLOEXEC) : -1;
    if (file < 0)
        return;
    void *map = mmap(NULL, sizeof *control, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    close(file);
    control = map == MAP_FAILED ? NULL : map;
}

static void moment(void)
{
    if (!control || atomic_load(&control->left) <= 0)
        return;
    int64_t pid = atomic_load(&control->pid);
    if ((pid && pid != getpid()) || atomic_fetch_sub(&control->left, 1) != 1)
        return;
    atomic_fetch_add(&control->deaths, 1);
    kill(atomic_load(&control->whole) ? 0 : getpid(), SIGKILL);
}

static void moment_of(int file)
{
    if (file != STDOUT_FILENO && file != STDERR_FILENO)
        moment();
}

#define REAL(name, type, ...) \
    static type (*real)(__VA_ARGS__); \
    if (!real) \
        *(void **)&real = dlsym(RTLD_NEXT, name)

#define STRUCK(file, type, call) \
    moment_of(file); \
    type result = call; \
    moment_of(file); \
    return result

ssize_t write(int file, const void *data, size_t size)
{
    REAL("write", ssize_t, int, const void *, size_t);
    STRUCK(file, ssize_t, real(file, data, size));
}

ssize_t writev(int file, const struct iovec *parts, int count)
{
    REAL("writev", ssize_t, int, const struct iovec *, int);
    STRUCK(file, ssize_t, real(file, parts, count));
}

ssize_t pwrite(int file, const void *data, size_t size, off_t offset)
{
    REAL("pwrite", ssize_t, int, const void *, size_t, off_t);
    STRUCK(file, ssize_t, real(file, data, size, offset));
}

ssize_t pwrite64(int file, const void *data, size_t size, off64_t offset)
{
    REAL("pwrite64", ssize_t, int, const void *, size_t, off64_t);
    STRUCK(file, ssize_t, real(file, data, size, offset));
}

ssize_t send(int file, const void *data, size_t size, int flags)
{
    REAL("send", ssize_t, int, const void *, size_t, int);
    STRUCK(file, ssize_t, real(file, data, size, flags));
}

ssize_t sendmsg(int file, const struct msghdr *message, int flags)
{
    REAL("sendmsg", ssize_t, int, const struct msghdr *, int);
    STRUCK(file, ssize_t, real(file, message, flags));
}

int fsync(int file)
{
    REAL("fsync", int, int);
    STRUCK(file, int, real(file));
}

int fdatasync(int file)
{
    REAL("fdatasync", int, int);
    STRUCK(file, int, real(file));
}

int rename(const char *from, const char *to)
{
    REAL("rename", int, const char *, const char *);
    STRUCK(-1, int, real(from, to));
}

int unlink(const char *path)
{
    REAL("unlink", int, const char *);
    STRUCK(-1, int, real(path));
}

int link(const char *from, const char *to)
{
    REAL("link", int, const char *, const char *);
    STRUCK(-1, int, real(from, to));
}
