/* Counts the calls of io_submit by their duration; preloaded before the library that serves them.
 *
 * The counters lie in a file that the benchmark made, so that they outlive any kind of exit. A
 * bucket is a sixteenth of a power of two of nanoseconds: `timer.rs` reads them.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

enum { BUCKETS = 1024 };

typedef int submit_fn(void *context, long count, void **requests);

static submit_fn *next;
static _Atomic uint64_t *counters;

__attribute__((constructor)) static void prepare(void)
{
    const char *path = getenv("BENCH_SUBMIT_TIMES");
    int file = path ? open(path, O_RDWR | O_CLOEXEC) : -1;
    if (file < 0) return;
    size_t size = BUCKETS * sizeof *counters;
    void *mapped = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    close(file);
    if (mapped != MAP_FAILED) counters = mapped;
}

static uint64_t now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static unsigned bucket(uint64_t ns)
{
    if (ns < 16) return (unsigned)ns;
    unsigned exponent = 63u - (unsigned)__builtin_clzll(ns);
    return (exponent - 3) * 16 + (unsigned)(ns >> (exponent - 4) & 15);
}

int io_submit(void *context, long count, void **requests)
{
    if (!next) next = (submit_fn *)dlsym(RTLD_NEXT, "io_submit");
    if (!next || !counters) return next ? next(context, count, requests) : -38; /* ENOSYS */
    uint64_t begin = now_ns();
    int accepted = next(context, count, requests);
    uint64_t ns = now_ns() - begin;
    atomic_fetch_add_explicit(&counters[bucket(ns)], 1, memory_order_relaxed);
    return accepted;
}
