/* What a library between a program and the kernel's AIO must do for a direct request, and what
 * nowait does: decision 64.
 *
 *   cc -O2 -o forward docs/decisions/data/0064-forward.c -ldl
 *   dist/bin/nowait run -- ./forward FILE read|write ROUNDS DEPTH preloaded
 *
 * FILE is overwritten by `write`. One process takes turns between the kernel (system calls), the
 * forwarder below, and the libaio of the process, so all three meet the same state of the disk. A
 * turn is 512 requests of 4 KiB at random places, DEPTH in each io_submit. Prints the medians of
 * ROUNDS turns, and the quartiles. A further argument is the path of another libaio.so.1. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <linux/aio_abi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

struct ring { unsigned id, nr, head, tail, magic, compat, incompat, size; struct io_event events[]; };
typedef int (*setup_fn)(int, aio_context_t *);
typedef int (*submit_fn)(aio_context_t, long, struct iocb **);
typedef int (*events_fn)(aio_context_t, long, long, struct io_event *, struct timespec *);

static long raw(long n, long a, long b, long c, long d, long e) {
    register long r10 __asm__("r10") = d, r8 __asm__("r8") = e;
    long r;
    __asm__ volatile("syscall" : "=a"(r) : "a"(n), "D"(a), "S"(b), "d"(c), "r"(r10), "r"(r8) : "rcx", "r11", "memory");
    return r;
}
static int k_setup(int n, aio_context_t *x) { return raw(SYS_io_setup, n, (long)x, 0, 0, 0); }
static int k_submit(aio_context_t x, long n, struct iocb **p) { return raw(SYS_io_submit, x, n, (long)p, 0, 0); }
static int k_events(aio_context_t x, long min, long n, struct io_event *e, struct timespec *t) {
    return raw(SYS_io_getevents, x, min, n, (long)e, (long)t);
}

/* The forwarder: own names for requests, RWF_NOWAIT, a look for a refusal, translated events. */
static struct slot { __u64 data, obj; struct iocb own; int next; } slots[64];
static int first_free;
static int f_setup(int n, aio_context_t *x) {
    for (int i = 0; i < 64; i++) slots[i].next = i + 1;
    return k_setup(n, x);
}
static int f_submit(aio_context_t x, long n, struct iocb **p) {
    struct iocb *own[64];
    int names[64];
    for (long i = 0; i < n; i++) {
        struct slot *s = &slots[names[i] = first_free];
        first_free = s->next;
        s->own = *p[i];
        s->data = p[i]->aio_data, s->obj = (__u64)p[i];
        s->own.aio_data = names[i];
        s->own.aio_rw_flags |= 8; /* RWF_NOWAIT */
        own[i] = &s->own;
    }
    struct ring *r = (struct ring *)x;
    unsigned tail = __atomic_load_n(&r->tail, __ATOMIC_ACQUIRE);
    int done = k_submit(x, n, own);
    for (unsigned at = tail; at != __atomic_load_n(&r->tail, __ATOMIC_ACQUIRE); at = (at + 1) % r->nr)
        if (r->events[at].res == -11) abort(); /* the real one carries it elsewhere */
    return done;
}
static int f_events(aio_context_t x, long min, long n, struct io_event *e, struct timespec *t) {
    struct ring *r = (struct ring *)x;
    int had = 0;
    if (r->head == __atomic_load_n(&r->tail, __ATOMIC_ACQUIRE) || min > 1) {
        had = k_events(x, min, n, e, t);
    } else {
        for (; had < n && r->head != __atomic_load_n(&r->tail, __ATOMIC_ACQUIRE); had++) {
            e[had] = r->events[r->head];
            __atomic_store_n(&r->head, (r->head + 1) % r->nr, __ATOMIC_RELEASE);
        }
    }
    for (int i = 0; i < had; i++) {
        int name = e[i].data;
        e[i].data = slots[name].data, e[i].obj = slots[name].obj;
        slots[name].next = first_free, first_free = name;
    }
    return had;
}

static double now(int clock) {
    struct timespec t;
    clock_gettime(clock, &t);
    return t.tv_sec * 1e6 + t.tv_nsec / 1e3;
}
static int compare(const void *a, const void *b) { return (*(double *)a > *(double *)b) - (*(double *)a < *(double *)b); }

int main(int argc, char **argv) {
    int is_write = !strcmp(argv[2], "write"), rounds = atoi(argv[3]), depth = atoi(argv[4]), ways = 2;
    int fd = open(argv[1], O_RDWR | O_DIRECT);
    struct stat st;
    if (fd < 0 || fstat(fd, &st)) return perror(argv[1]), 1;
    struct { const char *name; setup_fn setup; submit_fn submit; events_fn events; aio_context_t x; double *wall, *cpu; } way[16] = {
        {"kernel", k_setup, k_submit, k_events}, {"forwarder", f_setup, f_submit, f_events}};
    for (int i = 5; i < argc; i++, ways++) {
        void *lib = strcmp(argv[i], "preloaded") ? dlopen(argv[i], RTLD_NOW | RTLD_LOCAL) : RTLD_DEFAULT;
        if (!lib && strcmp(argv[i], "preloaded")) return fprintf(stderr, "%s\n", dlerror()), 1;
        way[ways].name = argv[i];
        way[ways].setup = (setup_fn)dlsym(lib, "io_setup"), way[ways].submit = (submit_fn)dlsym(lib, "io_submit");
        way[ways].events = (events_fn)dlvsym(lib, "io_getevents", "LIBAIO_0.4");
    }
    for (int w = 0; w < ways; w++) {
        if (way[w].setup(64, &way[w].x) < 0) return 1;
        way[w].wall = calloc(rounds, 8), way[w].cpu = calloc(rounds, 8);
    }
    void *buffer = NULL;
    posix_memalign(&buffer, 4096, 32 * 4096);
    memset(buffer, 1, 32 * 4096);
    unsigned long random = 88172645463325252ul;
    enum { BLOCK = 512 };
    for (int round = 0; round < rounds; round++)
        for (int i = 0; i < ways; i++) {
            int w = round % 2 ? ways - 1 - i : i;
            double wall = now(CLOCK_MONOTONIC), cpu = now(CLOCK_PROCESS_CPUTIME_ID);
            for (int n = 0; n < BLOCK; n += depth) {
                struct iocb cb[32], *p[32];
                struct io_event e[32];
                for (int k = 0; k < depth; k++) {
                    random ^= random << 13, random ^= random >> 7, random ^= random << 17;
                    cb[k] = (struct iocb){.aio_fildes = fd, .aio_lio_opcode = is_write ? IOCB_CMD_PWRITE : IOCB_CMD_PREAD,
                        .aio_buf = (__u64)buffer + k * 4096, .aio_nbytes = 4096, .aio_offset = random % (st.st_size / 4096) * 4096};
                    p[k] = &cb[k];
                }
                if (way[w].submit(way[w].x, depth, p) != depth) return fprintf(stderr, "%s failed\n", way[w].name), 1;
                for (int had = 0, now; had < depth; had += now)
                    if ((now = way[w].events(way[w].x, 1, depth - had, e, NULL)) < 1 || e[0].res != 4096)
                        return fprintf(stderr, "%s failed\n", way[w].name), 1;
            }
            way[w].cpu[round] = (now(CLOCK_PROCESS_CPUTIME_ID) - cpu) / BLOCK, way[w].wall[round] = (now(CLOCK_MONOTONIC) - wall) / BLOCK;
        }
    for (int w = 0; w < ways; w++) {
        qsort(way[w].cpu, rounds, 8, compare), qsort(way[w].wall, rounds, 8, compare);
        printf("%-40s wall %.2f us (%.2f-%.2f), processor %.2f us (%.2f-%.2f)\n", way[w].name, way[w].wall[rounds / 2],
            way[w].wall[rounds / 4], way[w].wall[rounds * 3 / 4], way[w].cpu[rounds / 2], way[w].cpu[rounds / 4], way[w].cpu[rounds * 3 / 4]);
    }
    return 0;
}
