/* What the C programs of the tests share: a claim that does not hold ends them. */
#ifndef TESTS_CHECK_H
#define TESTS_CHECK_H

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* What the library under test says of its last failure. */
#ifndef LAST_ERROR
#define LAST_ERROR strerror(errno)
#endif

#define CHECK(claim) ((claim) ? (void)0 : fail(#claim, __FILE__, __LINE__))

/* By _exit: it may be in a child that was forked. */
static inline void fail(const char *claim, const char *file, int line)
{
	fprintf(stderr, "%s:%d: %s does not hold; last error: %s\n", file, line, claim, LAST_ERROR);
	_exit(1);
}

#endif
