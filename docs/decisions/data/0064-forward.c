/* Measures a direct request through the kernel, through the least possible library, and through
 * nowait: decision 64.
 *
 *   cc -O2 -o forward docs/decisions/data/0064-forward.c -ldl
 *   dist/bin/nowait run -- ./forward FILE read|write ROUNDS DEPTH preloaded
 *
 * `write` overwrites FILE. One process takes turns between the kernel (system calls), the forwarder
 * below, and the libaio of the process, so all three meet the same state of the disk. A turn is 512
 * requests of 4 KiB at random places, DEPTH (at most 32) in each io_submit. Prints the medians of
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

enum { REQUESTS = 512, BYTES = 4096, DEPTH_MAX = 32, SLOTS = 64, WAYS = 8 };

typedef aio_context_t context;
typedef struct io_event event;
typedef int (*setup_fn)(int, context *);
typedef int (*submit_fn)(context, long, struct iocb **);
typedef int (*events_fn)(context, long, long, event *, struct timespec *);

static long raw(long n, long a, long b, long c, long d, long e) {
    register long r10 __asm__("r10") = d, r8 __asm__("r8") = e;
    long r;
    __asm__ volatile("syscall"
                     : "=a"(r)
                     : "a"(n), "D"(a), "S"(b), "d"(c), "r"(r10), "r"(r8)
                     : "rcx", "r11", "memory");
    return r;
}
static int k_setup(int n, context *x) { return raw(SYS_io_setup, n, (long)x, 0, 0, 0); }
static int k_submit(context x, long n, struct iocb **p) {
    return raw(SYS_io_submit, x, n, (long)p, 0, 0);
}
static int k_events(context x, long min, long n, event *e, struct timespec *t) {
    return raw(SYS_io_getevents, x, min, n, (long)e, (long)t);
}

/* The ring that the kernel maps at a context's address (fs/aio.c). */
struct ring {
    unsigned id, nr, head, tail, magic, compat, incompat, size;
    event events[];
};
static unsigned tail_of(struct ring *r) { return __atomic_load_n(&r->tail, __ATOMIC_ACQUIRE); }

/* The forwarder: own names for requests, RWF_NOWAIT, a look for refusals, translated events. */
static struct slot {
    __u64 data, obj;
    struct iocb own;
    int next;
} slots[SLOTS];
static int first_free;

static int f_setup(int n, context *x) {
    for (int i = 0; i < SLOTS; i++) slots[i].next = i + 1;
    return k_setup(n, x);
}
static int f_submit(context x, long n, struct iocb **p) {
    struct ring *r = (struct ring *)x;
    struct iocb *own[SLOTS];
    for (long i = 0; i < n; i++) {
        int name = first_free;
        struct slot *s = &slots[name];
        first_free = s->next;
        s->own = *p[i];
        s->data = p[i]->aio_data;
        s->obj = (__u64)p[i];
        s->own.aio_data = name;
        s->own.aio_rw_flags |= 8; /* RWF_NOWAIT */
        own[i] = &s->own;
    }
    unsigned at = tail_of(r);
    int done = k_submit(x, n, own);
    for (; at != tail_of(r); at = (at + 1) % r->nr)
        if (r->events[at].res == -11) abort(); /* a library carries this request otherwise */
    return done;
}
static int f_events(context x, long min, long n, event *e, struct timespec *t) {
    struct ring *r = (struct ring *)x;
    int had = 0;
    if (min > 1 || r->head == tail_of(r)) had = k_events(x, min, n, e, t);
    else
        for (; had < n && r->head != tail_of(r); had++) {
            e[had] = r->events[r->head];
            __atomic_store_n(&r->head, (r->head + 1) % r->nr, __ATOMIC_RELEASE);
        }
    for (int i = 0; i < had; i++) {
        int name = e[i].data;
        e[i].data = slots[name].data;
        e[i].obj = slots[name].obj;
        slots[name].next = first_free;
        first_free = name;
    }
    return had;
}

static struct way {
    const char *name;
    setup_fn setup;
    submit_fn submit;
    events_fn events;
    context x;
    double *wall, *cpu;
} ways[WAYS] = {
    {.name = "kernel", .setup = k_setup, .submit = k_submit, .events = k_events},
    {.name = "forwarder", .setup = f_setup, .submit = f_submit, .events = f_events},
};

static void add_way(struct way *way, const char *name) {
    int is_here = !strcmp(name, "preloaded");
    void *lib = is_here ? RTLD_DEFAULT : dlopen(name, RTLD_NOW | RTLD_LOCAL);
    if (!lib && !is_here) fprintf(stderr, "%s\n", dlerror()), exit(1);
    way->name = name;
    way->setup = (setup_fn)dlsym(lib, "io_setup");
    way->submit = (submit_fn)dlsym(lib, "io_submit");
    way->events = (events_fn)dlvsym(lib, "io_getevents", "LIBAIO_0.4");
    if (!way->setup) fprintf(stderr, "%s: no io_setup\n", name), exit(1);
}

static double now_us(int clock) {
    struct timespec t;
    clock_gettime(clock, &t);
    return t.tv_sec * 1e6 + t.tv_nsec / 1e3;
}
static int compare(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void turn(struct way *way, int fd, off_t size, int is_write, int depth, char *buffer) {
    static unsigned long random = 88172645463325252ul;
    for (int done = 0; done < REQUESTS; done += depth) {
        struct iocb iocbs[DEPTH_MAX], *pointers[DEPTH_MAX];
        event events[DEPTH_MAX];
        for (int k = 0; k < depth; k++) {
            random ^= random << 13, random ^= random >> 7, random ^= random << 17;
            iocbs[k] = (struct iocb){
                .aio_fildes = fd,
                .aio_lio_opcode = is_write ? IOCB_CMD_PWRITE : IOCB_CMD_PREAD,
                .aio_buf = (__u64)(buffer + k * BYTES),
                .aio_nbytes = BYTES,
                .aio_offset = random % (size / BYTES) * BYTES,
            };
            pointers[k] = &iocbs[k];
        }
        int had = way->submit(way->x, depth, pointers) == depth ? 0 : -1;
        while (had >= 0 && had < depth) {
            int more = way->events(way->x, 1, depth - had, events, NULL);
            had = more < 1 || events[0].res != BYTES ? -1 : had + more;
        }
        if (had < 0) fprintf(stderr, "%s failed\n", way->name), exit(1);
    }
}

int main(int argc, char **argv) {
    if (argc < 5) return fprintf(stderr, "FILE read|write ROUNDS DEPTH LIBAIO...\n"), 2;
    int is_write = !strcmp(argv[2], "write"), rounds = atoi(argv[3]), depth = atoi(argv[4]);
    int fd = open(argv[1], O_RDWR | O_DIRECT), count = 2;
    struct stat st;
    char *buffer = aligned_alloc(BYTES, DEPTH_MAX * BYTES);
    if (fd < 0 || fstat(fd, &st) || !buffer) return perror(argv[1]), 1;
    if (rounds < 1 || depth < 1 || depth > DEPTH_MAX || st.st_size < BYTES) return 2;
    memset(buffer, 1, DEPTH_MAX * BYTES);
    for (int i = 5; i < argc && count < WAYS; i++) add_way(&ways[count++], argv[i]);
    for (struct way *way = ways; way < ways + count; way++) {
        if (way->setup(SLOTS, &way->x) < 0) return fprintf(stderr, "%s: io_setup\n", way->name), 1;
        way->wall = calloc(rounds, sizeof(double));
        way->cpu = calloc(rounds, sizeof(double));
    }
    for (int round = 0; round < rounds; round++)
        for (int i = 0; i < count; i++) {
            struct way *way = &ways[round % 2 ? count - 1 - i : i];
            double wall = now_us(CLOCK_MONOTONIC), cpu = now_us(CLOCK_PROCESS_CPUTIME_ID);
            turn(way, fd, st.st_size, is_write, depth, buffer);
            way->cpu[round] = (now_us(CLOCK_PROCESS_CPUTIME_ID) - cpu) / REQUESTS;
            way->wall[round] = (now_us(CLOCK_MONOTONIC) - wall) / REQUESTS;
        }
    for (struct way *way = ways; way < ways + count; way++) {
        qsort(way->cpu, rounds, sizeof(double), compare);
        qsort(way->wall, rounds, sizeof(double), compare);
        int at[] = {rounds / 2, rounds / 4, rounds * 3 / 4};
        printf("%-30s wall %.2f us (%.2f-%.2f), processor %.2f us (%.2f-%.2f)\n", way->name,
               way->wall[at[0]], way->wall[at[1]], way->wall[at[2]],
               way->cpu[at[0]], way->cpu[at[1]], way->cpu[at[2]]);
    }
    return 0;
}
