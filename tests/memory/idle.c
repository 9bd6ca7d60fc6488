/* A program that could use AIO and does not: says how large it is. */
#include <libaio.h>
#include <stdio.h>

int (*volatile unused)(int, io_context_t *) = io_setup;

int main(void)
{
	FILE *status = fopen("/proc/self/status", "r");
	char line[256];

	while (status && fgets(line, sizeof line, status))
		fputs(line, stdout);
	return status == NULL;
}
