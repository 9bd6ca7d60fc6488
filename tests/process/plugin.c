/* A plug-in that uses libaio, and a program that loads the plug-in, closes it while requests are in
 * flight, and loads it again. `plugin PLUGIN FILE [LIBRARY]` loads LIBRARY before the plug-in.
 */
#include "check.h"
#include <dlfcn.h>

#ifdef PLUGIN

void plugin_begin(struct work *work, const char *path, char byte) { begin_work(work, path, byte); }
void plugin_end(struct work *work) { end_work(work); }

#else

static void *opened(const char *path, int flags)
{
	void *library = dlopen(path, RTLD_NOW | flags);

	if (!library)
		fprintf(stderr, "%s\n", dlerror());
	CHECK(library);
	return library;
}

int main(int argc, char **argv)
{
	struct work work;

	CHECK(argc == 3 || argc == 4);
	for (int round = 0; round < 5; round++) {
		void *library = argc == 4 ? opened(argv[3], RTLD_GLOBAL) : NULL;
		void *plugin = opened(argv[1], 0);
		void (*begin)(struct work *, const char *, char) = dlsym(plugin, "plugin_begin");
		void (*end)(struct work *);

		CHECK(begin);
		begin(&work, argv[2], (char)(round + 1));
		CHECK(dlclose(plugin) == 0);
		CHECK(!library || dlclose(library) == 0);
		CHECK(!dlopen(argv[1], RTLD_NOW | RTLD_NOLOAD));
		library = library ? opened(argv[3], RTLD_GLOBAL) : NULL;
		plugin = opened(argv[1], 0);
		end = dlsym(plugin, "plugin_end");
		CHECK(end);
		end(&work);
		CHECK(dlclose(plugin) == 0);
		CHECK(!library || dlclose(library) == 0);
	}
	return 0;
}

#endif
