/* Handlers of fork(2) that a preloaded library registers must not belong to a library: exit(3)
 * removes the handlers of a library, and a fork in another thread that runs them at that moment
 * aborts the process if there is more than one. So this program's own `__register_atfork` counts
 * all registrations, and none may name a library. A child that uses the library must not register
 * them again: it inherits its parent's. `forks FILE`.
 */
#include "check.h"
#include <dlfcn.h>

typedef void handler(void);
typedef int registers(handler *before, handler *parent, handler *child, void *library);

static int registered;

int __register_atfork(handler *before, handler *parent, handler *child, void *library)
{
	registers *next = (registers *)dlsym(RTLD_NEXT, "__register_atfork");

	CHECK(library == NULL);
	registered++;
	return next(before, parent, child, library);
}

int main(int argc, char **argv)
{
	struct work work;
	int status, before;
	pid_t child;

	CHECK(argc == 2);
	begin_work(&work, argv[1], 1);
	end_work(&work);
	CHECK((before = registered) > 0);
	CHECK((child = fork()) >= 0);
	if (child == 0) {
		begin_work(&work, argv[1], 2);
		end_work(&work);
		CHECK(registered == before);
		exit(0);
	}
	CHECK(waitpid(child, &status, 0) == child);
	CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
	return 0;
}
