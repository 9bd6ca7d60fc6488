/* Measures the time inside io_submit with the kernel, with the least that starts a buffered request
 * without blocking, and with nowait: decision 58.
 *
 *   cc -O2 -o attempt docs/decisions/data/0058-attempt.c
 *   dist/bin/nowait run -- ./attempt FILE read|mix BYTES DEPTH ROUNDS
 *
 * `mix` overwrites half of the blocks that it visits. One process takes turns between the kernel
 * (system calls), the page of C below, and the libaio of the process. A turn is 1024 requests of
 * BYTES at random places, one in each io_submit, DEPTH in flight; the pages that were read are
 * dropped again. Prints medians and quartiles over ROUNDS turns: the mean time inside io_submit,
 * the longest but one (99.9 %), requests per second, processor time of a request. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/aio_abi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

enum { REQUESTS = 1024, DEPTH_MAX = 256, WAYS = 3, FIGURES = 4 };

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

/* The page of C: submit reads with RWF_NOWAIT, which starts the read in the kernel, and writes by
 * an ordinary call; the wait reads the oldest by an ordinary call. */
static struct iocb *waiting[DEPTH_MAX], *ended[DEPTH_MAX];
static unsigned first, last;
static int ends;

static int p_setup(int n, context *x) { return *x = 1, n > DEPTH_MAX ? -EAGAIN : 0; }
static int p_submit(context x, long n, struct iocb **p) {
    for (long i = 0; i < n; i++) {
        struct iovec part = {(void *)p[i]->aio_buf, p[i]->aio_nbytes};
        int fd = p[i]->aio_fildes;
        int writes = p[i]->aio_lio_opcode == IOCB_CMD_PWRITE;
        ssize_t had = writes ? pwritev2(fd, &part, 1, p[i]->aio_offset, 0)
                             : preadv2(fd, &part, 1, p[i]->aio_offset, RWF_NOWAIT);
        if (had == (ssize_t)part.iov_len)
            ended[ends++] = p[i];
        else
            waiting[last++ % DEPTH_MAX] = p[i];
    }
    return n;
}
static int p_events(context x, long min, long n, event *e, struct timespec *t) {
    int had = 0;
    while (ends && had < n) {
        struct iocb *it = ended[--ends];
        e[had++] = (event){it->aio_data, (__u64)it, it->aio_nbytes, 0};
    }
    while (had < min) {
        struct iocb *it = waiting[first++ % DEPTH_MAX];
        ssize_t size = pread(it->aio_fildes, (void *)it->aio_buf, it->aio_nbytes, it->aio_offset);
        e[had++] = (event){it->aio_data, (__u64)it, size, 0};
    }
    return had;
}

static struct way {
    const char *name;
    setup_fn setup;
    submit_fn submit;
    events_fn events;
    context x;
    double *figures[FIGURES];
} ways[WAYS] = {
    {.name = "kernel", .setup = k_setup, .submit = k_submit, .events = k_events},
    {.name = "page of C", .setup = p_setup, .submit = p_submit, .events = p_events},
    {.name = "libaio of the process"},
};

static double now_us(int clock) {
    struct timespec t;
    clock_gettime(clock, &t);
    return t.tv_sec * 1e6 + t.tv_nsec / 1e3;
}
static int compare(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static struct work {
    int fd, mixes, depth;
    off_t bytes, blocks;
    char *buffers;
} work;
static struct iocb iocbs[DEPTH_MAX];

static void prepare(struct iocb *it) {
    static unsigned long random = 88172645463325252ul;
    random ^= random << 13, random ^= random >> 7, random ^= random << 17;
    *it = (struct iocb){
        .aio_fildes = work.fd,
        .aio_lio_opcode = work.mixes && random >> 63 ? IOCB_CMD_PWRITE : IOCB_CMD_PREAD,
        .aio_buf = (__u64)(work.buffers + (it - iocbs) * work.bytes),
        .aio_nbytes = work.bytes,
        .aio_offset = (off_t)(random >> 1) % work.blocks * work.bytes,
    };
}

static void turn(struct way *way, int round) {
    static double submits[REQUESTS];
    double wall = now_us(CLOCK_MONOTONIC), cpu = now_us(CLOCK_PROCESS_CPUTIME_ID), sum = 0;
    struct iocb *idle[DEPTH_MAX];
    event events[DEPTH_MAX];
    int idles = 0, begun = 0, done = 0;
    while (idles < work.depth) idle[idles] = &iocbs[idles], idles++;
    while (done < REQUESTS) {
        while (idles && begun < REQUESTS) {
            struct iocb *it = idle[--idles];
            prepare(it);
            double before = now_us(CLOCK_MONOTONIC);
            if (way->submit(way->x, 1, &it) != 1) fprintf(stderr, "%s\n", way->name), exit(1);
            sum += submits[begun++] = now_us(CLOCK_MONOTONIC) - before;
        }
        int more = way->events(way->x, 1, work.depth, events, NULL);
        for (int i = 0; i < more; i++) {
            struct iocb *it = (struct iocb *)events[i].obj;
            if (events[i].res != work.bytes) fprintf(stderr, "%s\n", way->name), exit(1);
            if (it->aio_lio_opcode == IOCB_CMD_PREAD)
                posix_fadvise(work.fd, it->aio_offset, work.bytes, POSIX_FADV_DONTNEED);
            idle[idles++] = it;
        }
        done += more;
    }
    qsort(submits, REQUESTS, sizeof(double), compare);
    wall = now_us(CLOCK_MONOTONIC) - wall, cpu = now_us(CLOCK_PROCESS_CPUTIME_ID) - cpu;
    way->figures[0][round] = sum / REQUESTS;
    way->figures[1][round] = submits[REQUESTS - 2];
    way->figures[2][round] = REQUESTS / wall * 1e6;
    way->figures[3][round] = cpu / REQUESTS;
}

int main(int argc, char **argv) {
    if (argc != 6) return fprintf(stderr, "FILE read|mix BYTES DEPTH ROUNDS\n"), 2;
    int rounds = atoi(argv[5]);
    struct stat st;
    work.fd = open(argv[1], O_RDWR), work.mixes = !strcmp(argv[2], "mix");
    work.bytes = atol(argv[3]), work.depth = atoi(argv[4]);
    if (work.fd < 0 || fstat(work.fd, &st)) return perror(argv[1]), 1;
    if (rounds < 1 || work.depth < 1 || work.depth > DEPTH_MAX || work.bytes < 512) return 2;
    work.blocks = st.st_size / work.bytes;
    work.buffers = aligned_alloc(4096, (work.depth * work.bytes + 4095) / 4096 * 4096);
    if (!work.buffers || !work.blocks) return fprintf(stderr, "no memory, or a short file\n"), 1;
    memset(work.buffers, 1, work.depth * work.bytes);
    posix_fadvise(work.fd, 0, 0, POSIX_FADV_RANDOM);
    ways[2].setup = (setup_fn)dlsym(RTLD_DEFAULT, "io_setup");
    ways[2].submit = (submit_fn)dlsym(RTLD_DEFAULT, "io_submit");
    ways[2].events = (events_fn)dlvsym(RTLD_DEFAULT, "io_getevents", "LIBAIO_0.4");
    int count = ways[2].setup ? WAYS : WAYS - 1;
    for (struct way *way = ways; way < ways + count; way++) {
        if (way->setup(DEPTH_MAX, &way->x) < 0)
            return fprintf(stderr, "%s: io_setup\n", way->name), 1;
        for (int i = 0; i < FIGURES; i++) way->figures[i] = calloc(rounds, sizeof(double));
    }
    for (int round = 0; round < rounds; round++)
        for (int i = 0; i < count; i++) turn(&ways[round % 2 ? count - 1 - i : i], round);
    const char *what[] = {"submit us", "99.9 % us", "requests/s", "processor us"};
    for (struct way *way = ways; way < ways + count; way++) {
        printf("%-22s", way->name);
        for (int i = 0; i < FIGURES; i++) {
            double *it = way->figures[i];
            qsort(it, rounds, sizeof(double), compare);
            double low = it[rounds / 4], high = it[rounds * 3 / 4];
            printf("  %s %.1f (%.1f-%.1f)", what[i], it[rounds / 2], low, high);
        }
        printf("\n");
    }
    return 0;
}
