/* Counts what a process does, exactly, in a page that others may read meanwhile: calls of Python and C functions,
 * allocations by Python, bytes written to unix sockets, system calls that move data, syncs.
 *
 * Preloaded (LD_PRELOAD), with ZONEMTA_COUNTERS naming a file of SLOTS slots; count_python(), called in the main thread,
 * and count_thread(), in another, begin with what Python does. Each process that is forked has the next slot.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#define SLOTS 256

typedef struct { uint64_t pid, calls, c_calls, allocations, socket_bytes, file_bytes, transfers, syncs; } Slot;
typedef struct { uint64_t used, unused[7]; Slot slots[SLOTS]; } Page;

static Page *page;
static Slot spare, *mine = &spare;

#define ADD(field, much) __atomic_fetch_add(&mine->field, (uint64_t)(much), __ATOMIC_RELAXED)

static void take_slot(void) {
    if (page == NULL) return;
    uint64_t number = __atomic_fetch_add(&page->used, 1, __ATOMIC_SEQ_CST);
    mine = number < SLOTS ? &page->slots[number] : &spare;
    mine->pid = (uint64_t)getpid();
}

__attribute__((constructor)) static void begin(void) {
    const char *path = getenv("ZONEMTA_COUNTERS");
    int file = path ? open(path, O_RDWR | O_CLOEXEC) : -1;
    if (file < 0) return;
    void *mapped = mmap(NULL, sizeof(Page), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    close(file);
    if (mapped == MAP_FAILED) return;
    page = mapped;
    take_slot();
    pthread_atfork(NULL, NULL, take_slot);
}

/* -- the system's calls */

#define REAL(name, ...) static typeof(name) *real; if (real == NULL) real = dlsym(RTLD_NEXT, #name)

static void moved(int file, ssize_t much) {
    ADD(transfers, 1);
    if (much <= 0) return;
    int domain = 0;
    socklen_t size = sizeof domain;
    if (getsockopt(file, SOL_SOCKET, SO_DOMAIN, &domain, &size) != 0) ADD(file_bytes, much);
    else if (domain == AF_UNIX) ADD(socket_bytes, much);
}

ssize_t write(int file, const void *data, size_t size) {
    REAL(write); ssize_t done = real(file, data, size); moved(file, done); return done;
}
ssize_t writev(int file, const struct iovec *parts, int count) {
    REAL(writev); ssize_t done = real(file, parts, count); moved(file, done); return done;
}
ssize_t send(int file, const void *data, size_t size, int flags) {
    REAL(send); ssize_t done = real(file, data, size, flags); moved(file, done); return done;
}
ssize_t sendmsg(int file, const struct msghdr *message, int flags) {
    REAL(sendmsg); ssize_t done = real(file, message, flags); moved(file, done); return done;
}
ssize_t pwrite64(int file, const void *data, size_t size, off64_t at) {
    REAL(pwrite64); ssize_t done = real(file, data, size, at); moved(file, done); return done;
}
ssize_t read(int file, void *data, size_t size) { REAL(read); ADD(transfers, 1); return real(file, data, size); }
ssize_t recv(int file, void *data, size_t size, int flags) {
    REAL(recv); ADD(transfers, 1); return real(file, data, size, flags);
}
ssize_t recvmsg(int file, struct msghdr *message, int flags) {
    REAL(recvmsg); ADD(transfers, 1); return real(file, message, flags);
}
int fsync(int file) { REAL(fsync); ADD(syncs, 1); return real(file); }
int fdatasync(int file) { REAL(fdatasync); ADD(syncs, 1); return real(file); }

/* -- Python: its headers need not be installed, for these interfaces are stable */

typedef struct { void *self; void *(*get)(void *, size_t); void *(*zeroed)(void *, size_t, size_t);
                 void *(*resize)(void *, void *, size_t); void (*give)(void *, void *); } Allocator;
enum { CALL = 0, C_CALL = 4, MEM = 1, OBJ = 2 };

static Allocator inner[3];

static void *get(void *self, size_t size) {
    ADD(allocations, 1); Allocator *a = self; return a->get(a->self, size);
}
static void *zeroed(void *self, size_t count, size_t size) {
    ADD(allocations, 1); Allocator *a = self; return a->zeroed(a->self, count, size);
}
static void *resize(void *self, void *block, size_t size) {
    ADD(allocations, 1); Allocator *a = self; return a->resize(a->self, block, size);
}
static void give(void *self, void *block) { Allocator *a = self; a->give(a->self, block); }

static int profiled(void *self, void *frame, int what, void *argument) {
    (void)self; (void)frame; (void)argument;
    if (what == CALL) ADD(calls, 1);
    else if (what == C_CALL) ADD(c_calls, 1);
    return 0;
}

void count_thread(void) {
    void (*set)(int (*)(void *, void *, int, void *), void *) = dlsym(RTLD_DEFAULT, "PyEval_SetProfile");
    set(profiled, NULL);
}

void count_python(void) {
    void (*get_one)(int, Allocator *) = dlsym(RTLD_DEFAULT, "PyMem_GetAllocator");
    void (*set_one)(int, Allocator *) = dlsym(RTLD_DEFAULT, "PyMem_SetAllocator");
    for (int domain = MEM; domain <= OBJ; domain++) {
        get_one(domain, &inner[domain]);
        Allocator counting = {&inner[domain], get, zeroed, resize, give};
        set_one(domain, &counting);
    }
    count_thread();
}
