/* Writes a file to standard output. The library lends cached bytes without a copy: the pieces go to
 * writev(2) as they are. The program reads bytes that are not cached, which caches them, and writes
 * them from its own buffer.
 *
 *   cc lend.c $(pkg-config --cflags --libs nowait) && ./a.out FILE
 */
#include <errno.h>
#include <fcntl.h>
#include <nowait.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define CHUNK (64u << 10)
#define PIECES (CHUNK / 4096 + 1)

static int write_all(struct iovec *pieces, size_t count)
{
	while (count > 0) {
		ssize_t done = writev(STDOUT_FILENO, pieces, (int)count);

		if (done < 0 && errno == EINTR)
			continue;
		if (done < 0)
			return -errno;
		while (count > 0 && (size_t)done >= pieces->iov_len) {
			done -= (ssize_t)pieces->iov_len;
			pieces++;
			count--;
		}
		if (count > 0) {
			pieces->iov_base = (char *)pieces->iov_base + done;
			pieces->iov_len -= (size_t)done;
		}
	}
	return 0;
}

/* Writes out bytes at `offset`. Returns their number, 0 at the end of the file, or a negative error
 * number. */
static int64_t give_out(nowait_file *file, uint64_t offset, char *buffer, unsigned *copied)
{
	struct iovec pieces[PIECES];
	nowait_loan *loan;
	size_t count;
	int64_t length;
	int result = nowait_lend(file, offset, CHUNK, &loan);

	if (result == 0) {
		length = (int64_t)nowait_loan_length(loan);
		count = nowait_loan_pieces(loan, pieces, PIECES);
		result = write_all(pieces, count);
		/* Return the loan as soon as possible: until then writes to these pages wait. */
		nowait_loan_return(loan);
		return result ? result : length;
	}
	if (result != -EAGAIN)
		return result;
	length = nowait_read(file, buffer, CHUNK, offset);
	if (length > 0) {
		pieces[0].iov_base = buffer;
		pieces[0].iov_len = (size_t)length;
		result = write_all(pieces, 1);
		*copied += 1;
	}
	return length > 0 && result < 0 ? result : length;
}

int main(int argc, char **argv)
{
	nowait_engine *engine = NULL;
	nowait_file *file = NULL;
	char *buffer = (char *)malloc(CHUNK);
	uint64_t offset = 0;
	unsigned copied = 0, chunks = 0;
	int64_t result = buffer ? 0 : -ENOMEM;

	if (argc != 2) {
		fprintf(stderr, "usage: %s FILE\n", argv[0]);
		free(buffer);
		return 2;
	}
	if (!result)
		result = nowait_engine_create(NULL, &engine);
	if (!result)
		result = nowait_file_open(engine, argv[1], O_RDONLY, 0, NOWAIT_CACHE_USER, &file);
	while (!result && (result = give_out(file, offset, buffer, &copied)) > 0) {
		offset += (uint64_t)result;
		chunks++;
		result = 0;
	}
	if (result)
		fprintf(stderr, "%s: %s\n", nowait_strerror((int)result), nowait_error_text());
	else
		fprintf(stderr, "%u chunks, %u of them copied\n", chunks, copied);
	nowait_file_close(file);
	nowait_engine_destroy(engine);
	free(buffer);
	return result ? 1 : 0;
}
