/* Shared by C programs of the tests. A program ends at the first claim that does not hold. */
#ifndef TESTS_CHECK_H
#define TESTS_CHECK_H

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#ifndef LAST_ERROR
#define LAST_ERROR strerror(errno)
#endif

#define CHECK(claim) ((claim) ? (void)0 : fail(#claim, __FILE__, __LINE__))

/* Ends the process by _exit, because the process may be a forked child. */
static inline void fail(const char *claim, const char *file, int line)
{
	fprintf(stderr, "%s:%d: %s does not hold; last error: %s\n", file, line, claim, LAST_ERROR);
	_exit(1);
}

#endif
