// Measures the peak rates of the machine: peer OP FILE [OUT] [REPEAT].
//
// Does OP on FILE, REPEAT times in this process, and prints one line of JSON: the seconds of each time and the
// most memory that the process ever held. Setup before an operation is not timed.
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#ifndef MADV_POPULATE_READ
#define MADV_POPULATE_READ 22
#endif

enum { PAGE = 4096, MIB = 1 << 20, HUGE_PAGE = 2 * MIB };

static const char *path, *out;
static size_t size;    // of the file
static size_t rounded; // to huge pages
static char *reused;   // a buffer for the whole file, of huge pages, all in memory
static char *source;   // the contents of the file, in small pages, for operations that write
static volatile char sink;

static void fail(const char *what) {
	fprintf(stderr, "%s: %s\n", what, strerror(errno));
	exit(1);
}

static double now(void) {
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec + t.tv_nsec * 1e-9;
}

static int open_file(int flags) {
	int fd = open(path, O_RDONLY | O_CLOEXEC | flags);
	if (fd < 0)
		fail(path);
	return fd;
}

// Memory of its own, with huge pages or without, that no page is in yet. It begins at a huge page in either case.
static char *fresh(int huge) {
	char *p = mmap(NULL, rounded + HUGE_PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (p == MAP_FAILED)
		fail("mmap");
	p = (char *)(((uintptr_t)p + HUGE_PAGE - 1) / HUGE_PAGE * HUGE_PAGE);
	madvise(p, rounded, huge ? MADV_HUGEPAGE : MADV_NOHUGEPAGE); // a kernel without huge pages refuses: then there are none
	return p;
}

static void read_into(char *to, int flags, size_t piece) {
	int fd = open_file(flags);
	for (size_t at = 0; at < size;) {
		size_t room = rounded - at; // where the file ends within a piece, the buffer does not go on
		ssize_t n = pread(fd, to + at, piece < room ? piece : room, at);
		if (n <= 0)
			fail("pread");
		at += n;
	}
	close(fd);
}

static char *map(int flags) {
	int fd = open_file(0);
	char *p = mmap(NULL, size, PROT_READ, MAP_SHARED | flags, fd, 0);
	if (p == MAP_FAILED)
		fail("mmap");
	close(fd);
	return p;
}

// The operations. Mapped memory is released after the measurement.
static char *op_mmap(void) { return map(0); }

static char *op_populate(void) { return map(MAP_POPULATE); }

static char *op_populate_read(void) {
	char *p = map(0);
	if (madvise(p, size, MADV_POPULATE_READ))
		fail("madvise");
	return p;
}

static char *op_touch(void) {
	char *p = map(0), sum = 0;
	for (size_t at = 0; at < size; at += PAGE)
		sum += p[at];
	sink = sum;
	return p;
}

static char *op_map_memcpy(void) {
	char *p = map(0);
	memcpy(reused, p, size);
	return p;
}

static char *op_memcpy(void) {
	memcpy(reused, source, size);
	return NULL;
}

static char *op_pread_1m(void) {
	read_into(reused, 0, MIB);
	return NULL;
}

static char *op_pread_16m(void) {
	read_into(reused, 0, 16 * MIB);
	return NULL;
}

static char *op_pread_fresh(void) {
	char *p = fresh(0);
	read_into(p, 0, 16 * MIB);
	return p;
}

static char *op_pread_fresh_huge(void) {
	char *p = fresh(1);
	read_into(p, 0, 16 * MIB);
	return p;
}

static char *op_direct(void) {
	read_into(reused, O_DIRECT, 16 * MIB);
	return NULL;
}

static void write_file(int allocate, int sync) {
	int fd = open(out, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
	if (fd < 0)
		fail(out);
	if (allocate && (errno = posix_fallocate(fd, 0, size)))
		fail("fallocate");
	for (size_t at = 0; at < size;) {
		size_t piece = size - at < 16 * MIB ? size - at : 16 * MIB;
		ssize_t n = write(fd, source + at, piece);
		if (n <= 0)
			fail("write");
		at += n;
	}
	if (sync && fsync(fd))
		fail("fsync");
	if (close(fd))
		fail("close");
}

static char *op_write(void) {
	write_file(0, 0);
	return NULL;
}

static char *op_write_fallocate(void) {
	write_file(1, 0);
	return NULL;
}

static char *op_write_fsync(void) {
	write_file(0, 1);
	return NULL;
}

enum { NOTHING, REUSED = 1, SOURCE = 2 };

static const struct {
	const char *name;
	char *(*run)(void);
	int needs;
} ops[] = {
	{"mmap", op_mmap, NOTHING},
	{"populate", op_populate, NOTHING},
	{"populate_read", op_populate_read, NOTHING},
	{"touch", op_touch, NOTHING},
	{"map_memcpy", op_map_memcpy, REUSED},
	{"memcpy", op_memcpy, REUSED | SOURCE},
	{"pread_1m", op_pread_1m, REUSED},
	{"pread_16m", op_pread_16m, REUSED},
	{"pread_fresh", op_pread_fresh, NOTHING},
	{"pread_fresh_huge", op_pread_fresh_huge, NOTHING},
	{"direct", op_direct, REUSED},
	{"write", op_write, SOURCE},
	{"write_fallocate", op_write_fallocate, SOURCE},
	{"write_fsync", op_write_fsync, SOURCE},
};

static long peak_rss(void) {
	char line[256];
	long kib = 0;
	FILE *f = fopen("/proc/self/status", "r");
	while (f && fgets(line, sizeof line, f))
		sscanf(line, "VmHWM: %ld kB", &kib);
	return kib * 1024;
}

int main(int argc, char **argv) {
	if (argc < 3) {
		fprintf(stderr, "usage: %s OP FILE [OUT] [REPEAT]\n", argv[0]);
		return 2;
	}
	path = argv[2];
	out = argc > 3 ? argv[3] : "";
	int repeat = argc > 4 ? atoi(argv[4]) : 1;
	struct stat info;
	if (stat(path, &info))
		fail(path);
	size = info.st_size;
	rounded = (size + HUGE_PAGE - 1) / HUGE_PAGE * HUGE_PAGE;
	for (size_t i = 0; i < sizeof ops / sizeof *ops; i++) {
		if (strcmp(ops[i].name, argv[1]))
			continue;
		if (ops[i].needs & REUSED)
			memset(reused = fresh(1), 1, rounded);
		if (ops[i].needs & SOURCE)
			read_into(source = fresh(0), 0, 16 * MIB);
		printf("{\"seconds\": [");
		for (int r = 0; r < repeat; r++) {
			double start = now();
			char *mapped = ops[i].run();
			printf("%s%.9f", r ? ", " : "", now() - start);
			if (mapped)
				munmap(mapped, size);
		}
		printf("], \"peak_rss\": %ld}\n", peak_rss());
		return 0;
	}
	fprintf(stderr, "unknown operation %s\n", argv[1]);
	return 2;
}
