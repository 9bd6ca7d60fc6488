/* Counts the instructions and atomic operations that nowait executes for a request: decision 64.
 *
 *   cc -O2 -o steps docs/decisions/data/0064-steps.c
 *   nowait run -- PROGRAM &    (one thread that submits and waits, such as fio --thread)
 *   ./steps THREAD STEPS       (THREAD: the number of that thread)
 *
 * Executes STEPS instructions of the thread one by one, while the other threads of the process
 * stand still, and counts those of libnowait_preload.so. A request is an io_submit. x86-64 only. */
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/user.h>
#include <sys/wait.h>

static void stop(int thread) {
    int status;
    if (ptrace(PTRACE_SEIZE, thread, 0, 0)) perror("ptrace"), exit(1);
    ptrace(PTRACE_INTERRUPT, thread, 0, 0);
    waitpid(thread, &status, __WALL);
}

/* Returns the process of a thread, and stops its other threads. */
static int stop_others(int thread) {
    char path[64], line[256];
    int process = 0;
    snprintf(path, sizeof path, "/proc/%d/status", thread);
    FILE *file = fopen(path, "r");
    while (file && fgets(line, sizeof line, file)) sscanf(line, "Tgid: %d", &process);
    snprintf(path, sizeof path, "/proc/%d/task", process);
    DIR *tasks = opendir(path);
    if (!tasks) perror(path), exit(1);
    for (struct dirent *task; (task = readdir(tasks));)
        if (atoi(task->d_name) > 0 && atoi(task->d_name) != thread) stop(atoi(task->d_name));
    return process;
}

/* Finds the code of the library. */
static void find(int process, unsigned long *from, unsigned long *to) {
    char path[64], line[512];
    snprintf(path, sizeof path, "/proc/%d/maps", process);
    FILE *maps = fopen(path, "r");
    while (maps && fgets(line, sizeof line, maps))
        if (strstr(line, "libnowait_preload") && strstr(line, " r-xp "))
            sscanf(line, "%lx-%lx", from, to);
}

/* The prefix `lock`, or xchg with memory. */
static int is_atomic(unsigned long word) {
    unsigned char *byte = (unsigned char *)&word;
    if (byte[0] == 0xf0) return 1;
    if ((byte[0] & 0xf0) == 0x40) byte++;
    return (byte[0] == 0x86 || byte[0] == 0x87) && byte[1] < 0xc0;
}

int main(int argc, char **argv) {
    if (argc != 3) return fprintf(stderr, "THREAD STEPS\n"), 2;
    int thread = atoi(argv[1]), status;
    unsigned long from = 0, to = 0, inside = 0, atomic = 0, requests = 0;
    find(stop_others(thread), &from, &to);
    stop(thread);
    for (long left = atol(argv[2]); left > 0; left--) {
        struct user_regs_struct at;
        if (ptrace(PTRACE_GETREGS, thread, 0, &at)) return perror("ptrace"), 1;
        if (at.rip >= from && at.rip < to) {
            unsigned long word = ptrace(PTRACE_PEEKTEXT, thread, at.rip, 0);
            inside++, atomic += is_atomic(word);
            requests += (word & 0xffff) == 0x050f && at.rax == SYS_io_submit;
        }
        if (ptrace(PTRACE_SINGLESTEP, thread, 0, 0)) return perror("ptrace"), 1;
        waitpid(thread, &status, __WALL);
        if (WIFEXITED(status) || WIFSIGNALED(status)) return 1;
    }
    if (!requests) return fprintf(stderr, "no io_submit\n"), 1;
    printf("%lu io_submits: %lu instructions, %lu atomic operations each\n", requests,
           inside / requests, atomic / requests);
    return 0;
}
