/* A server whose child clears its environment before it works, like nginx's workers.
 * `cleared FILE`.
 */
#include "check.h"

int main(int argc, char **argv)
{
	struct work work;
	int status;
	pid_t child;

	CHECK(argc == 2);
	CHECK((child = fork()) >= 0);
	if (child == 0) {
		CHECK(clearenv() == 0);
		begin_work(&work, argv[1], 1);
		end_work(&work);
		exit(0);
	}
	CHECK(waitpid(child, &status, 0) == child);
	CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
	return 0;
}
