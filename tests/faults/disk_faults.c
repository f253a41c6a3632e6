/* disk_faults: loaded with LD_PRELOAD, it lets writes and syncs below one folder fail as a control file says.
 *
 * DISK_FAULTS_FOLDER   only files below it are concerned
 * DISK_FAULTS_CONTROL  a file of one `struct control`, shared by all processes; whoever runs the trial changes it
 *
 * ENOSPC: while `room` is not negative, that many more bytes can be written (a write that finds less writes what fits,
 * as a real disk does) and, once it is 0, no file or folder can be made. EIO: of the syncs counted from 1 on, those
 * from `fail_from` to `fail_to` fail. With `lose`, what such a sync should have brought to the disk is gone: the file is
 * cut to the length it had at its last good sync, which is what a kernel that drops dirty pages after an error can do.
 * EROFS: while `read_only` is set, nothing can be written, synced, made, renamed, linked, cut or removed.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

struct control {
    _Atomic int64_t room, fail_from, fail_to, lose, syncs, refused, failed, read_only;
};

static struct control *control;
static const char *folder;
static size_t folder_length;

__attribute__((constructor)) static void begin(void)
{
    const char *path = getenv("DISK_FAULTS_CONTROL");
    folder = getenv("DISK_FAULTS_FOLDER");
    if (!path || !folder)
        return;
    folder_length = strlen(folder);
    int (*real_open)(const char *, int, ...) = dlsym(RTLD_NEXT, "open");
    int file = real_open(path, O_RDWR | O_CLOEXEC);
    if (file < 0)
        return;
    void *map = mmap(NULL, sizeof *control, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    close(file);
    control = map == MAP_FAILED ? NULL : map;
}

static int below(const char *path)
{
    return strncmp(path, folder, folder_length) == 0 && path[folder_length] == '/';
}

static int concerns(int file)
{
    char link[64], path[4096];
    if (!control)
        return 0;
    snprintf(link, sizeof link, "/proc/self/fd/%d", file);
    ssize_t length = readlink(link, path, sizeof path - 1);
    if (length <= 0)
        return 0;
    path[length] = 0;
    return below(path);
}

/* 1, with errno set, while the disk is read-only. */
static int forbidden(void)
{
    if (!control || !atomic_load(&control->read_only))
        return 0;
    atomic_fetch_add(&control->refused, 1);
    errno = EROFS;
    return 1;
}

/* How much of `wanted` may be written; -1 with errno set when nothing may. */
static ssize_t grant(int file, size_t wanted)
{
    if (!control || !wanted)
        return (ssize_t)wanted;
    if (atomic_load(&control->read_only) && concerns(file) && forbidden())
        return -1;
    if (atomic_load(&control->room) < 0 || !concerns(file))
        return (ssize_t)wanted;
    int64_t room = atomic_load(&control->room), left;
    do {
        if (room < 0)
            return (ssize_t)wanted;
        if (room == 0) {
            atomic_fetch_add(&control->refused, 1);
            errno = ENOSPC;
            return -1;
        }
        left = room > (int64_t)wanted ? room - (int64_t)wanted : 0;
    } while (!atomic_compare_exchange_weak(&control->room, &room, left));
    return room > (int64_t)wanted ? (ssize_t)wanted : (ssize_t)room;
}

#define REAL(name, type, ...) \
    static type (*real)(__VA_ARGS__); \
    if (!real) \
        *(void **)&real = dlsym(RTLD_NEXT, name)

ssize_t write(int file, const void *data, size_t size)
{
    REAL("write", ssize_t, int, const void *, size_t);
    ssize_t may = grant(file, size);
    return may < 0 ? -1 : real(file, data, (size_t)may);
}

static ssize_t pwrite_at(const char *name, int file, const void *data, size_t size, off64_t offset)
{
    ssize_t (*real)(int, const void *, size_t, off64_t);
    *(void **)&real = dlsym(RTLD_NEXT, name);
    ssize_t may = grant(file, size);
    return may < 0 ? -1 : real(file, data, (size_t)may, offset);
}

ssize_t pwrite(int file, const void *data, size_t size, off_t offset)
{
    return pwrite_at("pwrite", file, data, size, offset);
}

ssize_t pwrite64(int file, const void *data, size_t size, off64_t offset)
{
    return pwrite_at("pwrite64", file, data, size, offset);
}

ssize_t writev(int file, const struct iovec *parts, int count)
{
    REAL("writev", ssize_t, int, const struct iovec *, int);
    size_t size = 0;
    for (int index = 0; index < count; index++)
        size += parts[index].iov_len;
    ssize_t may = grant(file, size);
    if (may < 0)
        return -1;
    if ((size_t)may == size)
        return real(file, parts, count);
    struct iovec first = parts[0];
    first.iov_len = first.iov_len < (size_t)may ? first.iov_len : (size_t)may;
    return real(file, &first, 1);
}

/* -- what is synced */

#define FILES 4096
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct {
    ino_t number;
    off_t length;
} synced[FILES]; /* by inode number, as far as there is room: a few hundred files in a trial */

static off_t *length_of(ino_t number)
{
    for (size_t probe = 0; probe < FILES; probe++) {
        size_t index = (number + probe) % FILES;
        if (!synced[index].number)
            synced[index].number = number;
        if (synced[index].number == number)
            return &synced[index].length;
    }
    abort();
}

/* Of a file that is opened: what it holds by then counts as synced, unless it is emptied. */
static int opened(int file, int flags)
{
    struct stat now;
    if (file < 0 || !control || (flags & O_ACCMODE) == O_RDONLY || !concerns(file))
        return file;
    if (fstat(file, &now) == 0 && S_ISREG(now.st_mode)) {
        pthread_mutex_lock(&lock);
        off_t *length = length_of(now.st_ino);
        if (*length == 0 || *length > now.st_size)
            *length = now.st_size;
        pthread_mutex_unlock(&lock);
    }
    return file;
}

/* -- making files and folders */

static int no_room_for(const char *path)
{
    if (control && below(path) && forbidden())
        return 1;
    if (!control || atomic_load(&control->room) != 0 || !below(path) || access(path, F_OK) == 0)
        return 0;
    atomic_fetch_add(&control->refused, 1);
    errno = ENOSPC;
    return 1;
}

/* Whether a path must not be opened so. */
static int refused(const char *path, int flags)
{
    if (control && (flags & (O_ACCMODE | O_TRUNC)) != O_RDONLY && below(path) && forbidden())
        return 1;
    return (flags & O_CREAT) && no_room_for(path);
}

#define OPEN(name) \
    int name(const char *path, int flags, ...) \
    { \
        REAL(#name, int, const char *, int, ...); \
        va_list rest; \
        va_start(rest, flags); \
        mode_t mode = va_arg(rest, mode_t); \
        va_end(rest); \
        return refused(path, flags) ? -1 : opened(real(path, flags, mode), flags); \
    }
OPEN(open)
OPEN(open64)

#define OPENAT(name) \
    int name(int at, const char *path, int flags, ...) \
    { \
        REAL(#name, int, int, const char *, int, ...); \
        va_list rest; \
        va_start(rest, flags); \
        mode_t mode = va_arg(rest, mode_t); \
        va_end(rest); \
        return refused(path, flags) ? -1 : opened(real(at, path, flags, mode), flags); \
    }
OPENAT(openat)
OPENAT(openat64)

int mkdir(const char *path, mode_t mode)
{
    REAL("mkdir", int, const char *, mode_t);
    return no_room_for(path) ? -1 : real(path, mode);
}

int unlink(const char *path)
{
    REAL("unlink", int, const char *);
    return control && below(path) && forbidden() ? -1 : real(path);
}

int rename(const char *from, const char *to)
{
    REAL("rename", int, const char *, const char *);
    return control && below(to) && forbidden() ? -1 : real(from, to);
}

int link(const char *from, const char *to)
{
    REAL("link", int, const char *, const char *);
    return control && below(to) && forbidden() ? -1 : real(from, to);
}

static int cut(const char *name, int file, off64_t size)
{
    int (*real)(int, off64_t);
    struct stat now;
    *(void **)&real = dlsym(RTLD_NEXT, name);
    if (control && concerns(file) && forbidden())
        return -1;
    if (control && atomic_load(&control->room) == 0 && concerns(file) && fstat(file, &now) == 0 && size > now.st_size) {
        atomic_fetch_add(&control->refused, 1);
        errno = ENOSPC;
        return -1;
    }
    return real(file, size);
}

int ftruncate(int file, off_t size)
{
    return cut("ftruncate", file, size);
}

int ftruncate64(int file, off64_t size)
{
    return cut("ftruncate64", file, size);
}

/* -- syncs */

static int sync_one(const char *name, int file)
{
    int (*real)(int);
    struct stat now;
    *(void **)&real = dlsym(RTLD_NEXT, name);
    if (!concerns(file))
        return real(file);
    if (forbidden())
        return -1;
    int64_t number = atomic_fetch_add(&control->syncs, 1) + 1;
    int regular = fstat(file, &now) == 0 && S_ISREG(now.st_mode);
    if (number >= atomic_load(&control->fail_from) && number <= atomic_load(&control->fail_to)) {
        atomic_fetch_add(&control->failed, 1);
        if (regular && atomic_load(&control->lose)) {
            pthread_mutex_lock(&lock);
            off_t length = *length_of(now.st_ino);
            pthread_mutex_unlock(&lock);
            char link[64];
            snprintf(link, sizeof link, "/proc/self/fd/%d", file); /* it may be open for reading only */
            if (length < now.st_size && truncate(link, length) != 0)
                abort();
        }
        errno = EIO;
        return -1;
    }
    int result = real(file);
    if (result == 0 && regular) {
        pthread_mutex_lock(&lock);
        *length_of(now.st_ino) = now.st_size;
        pthread_mutex_unlock(&lock);
    }
    return result;
}

int fsync(int file)
{
    return sync_one("fsync", file);
}

int fdatasync(int file)
{
    return sync_one("fdatasync", file);
}
