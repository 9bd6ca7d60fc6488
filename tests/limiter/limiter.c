/* A library for LD_PRELOAD that sets a limit before the program's main function.
 * NOWAIT_TEST_LIMIT=addresses is `ulimit -v` of 1 GiB, which children and executed programs keep;
 * NOWAIT_TEST_LIMIT=locked is mlockall(2) of all present and future memory.
 */
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>

__attribute__((constructor)) static void limit(void)
{
	const char *wanted = getenv("NOWAIT_TEST_LIMIT");
	struct rlimit addresses;

	if (wanted && strcmp(wanted, "addresses") == 0) {
		if (getrlimit(RLIMIT_AS, &addresses) != 0)
			abort();
		addresses.rlim_cur = 1UL << 30;
		if (setrlimit(RLIMIT_AS, &addresses) != 0)
			abort();
	} else if (wanted && strcmp(wanted, "locked") == 0) {
		if (mlockall(MCL_CURRENT | MCL_FUTURE) != 0)
			abort();
	}
}
