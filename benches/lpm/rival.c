/*
 * DPDK's tables as rivals: rte_lpm, rte_fib and rte_fib6, filled with the routes and asked for the addresses of a file,
 * when told to on standard input. The bench that writes the file and takes turns is crates/lpm/benches/compare.rs.
 *
 * The file, in this machine's byte order: family (4 or 6), routes, traces, addresses per trace, each 32 bits; a
 * `struct entry` for each route; an address for each of each trace. Addresses are 16 bytes, the first 4 used for IPv4.
 *
 * Commands, a line each, answered by a line:
 *   list               names of the subjects, separated by commas
 *   load SUBJECT       nanoseconds it took and bytes of DPDK's memory it holds, or "no" and why; subjects share tables
 *   check SUBJECT T    a hash over all answers for trace T
 *   time SUBJECT T     nanoseconds for trace T, after all of it twice to warm up
 *   update SUBJECT     nanoseconds a change takes, on average
 */
#define _GNU_SOURCE
#include <rte_eal.h>
#include <rte_errno.h>
#include <rte_fib.h>
#include <rte_fib6.h>
#include <rte_lpm.h>
#include <rte_malloc.h>
#include <rte_memory.h>
#include <rte_vect.h>

#include <inttypes.h>
#include <sched.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

enum { ADDRESS = 16, MAX_BURST = 256, UPDATES = 2000 };

struct entry {
	uint8_t address[ADDRESS];
	uint32_t length;
	uint32_t hop; /* never 0, which is "no route" */
};

/* A table of DPDK's. Several subjects look up in one. */
struct table {
	enum { LPM, FIB, FIB6 } type;
	int entry_size; /* of rte_fib, as its own enumeration */
	union {
		void *any;
		struct rte_lpm *lpm;
		struct rte_fib *fib;
		struct rte_fib6 *fib6;
	};
	const char *failure;
	uint64_t load_ns;
	size_t bytes;
};

static struct table tables[] = {
	{.type = LPM},
	{.type = FIB, .entry_size = RTE_FIB_DIR24_8_1B},
	{.type = FIB, .entry_size = RTE_FIB_DIR24_8_2B},
	{.type = FIB, .entry_size = RTE_FIB_DIR24_8_4B},
	{.type = FIB6, .entry_size = RTE_FIB6_TRIE_2B},
	{.type = FIB6, .entry_size = RTE_FIB6_TRIE_4B},
};

struct subject {
	const char *name;
	struct table *table;
	enum { SINGLE, CHAIN, BULK, X4 } how;
	unsigned burst;
	bool vector;
};

#define FIB_SUBJECTS(name, table) \
	{name " burst 32", table, BULK, 32, false}, {name " burst 256", table, BULK, 256, false}, \
	{name " AVX-512 burst 32", table, BULK, 32, true}, {name " AVX-512 burst 256", table, BULK, 256, true}, \
	{name " chain", table, CHAIN, 1, false}

static const struct subject subjects[] = {
	{"rte_lpm single", &tables[0], SINGLE, 1, false},
	{"rte_lpm x4", &tables[0], X4, 4, false},
	{"rte_lpm bulk burst 32", &tables[0], BULK, 32, false},
	{"rte_lpm bulk burst 256", &tables[0], BULK, 256, false},
	{"rte_lpm chain", &tables[0], CHAIN, 1, false},
	FIB_SUBJECTS("rte_fib 1-byte", &tables[1]),
	FIB_SUBJECTS("rte_fib 2-byte", &tables[2]),
	FIB_SUBJECTS("rte_fib 4-byte", &tables[3]),
	FIB_SUBJECTS("rte_fib6 2-byte", &tables[4]),
	FIB_SUBJECTS("rte_fib6 4-byte", &tables[5]),
};

static struct {
	uint32_t family, routes, traces, length;
	struct entry *entries;
	uint8_t (*addresses)[ADDRESS];
	uint32_t *addresses4; /* the same in this machine's byte order */
} input;

static volatile uint32_t zero; /* the compiler cannot know */

static void die(const char *what)
{
	fprintf(stderr, "rival: %s\n", what);
	exit(1);
}

static uint64_t now(void)
{
	struct timespec time;

	clock_gettime(CLOCK_MONOTONIC, &time);
	return (uint64_t)time.tv_sec * 1000000000 + (uint64_t)time.tv_nsec;
}

static uint32_t host(const uint8_t *address)
{
	return (uint32_t)address[0] << 24 | (uint32_t)address[1] << 16 | (uint32_t)address[2] << 8 | address[3];
}

static void read_input(const char *path)
{
	FILE *file = fopen(path, "rb");
	size_t count;

	if (file == NULL || fread(&input, sizeof(uint32_t), 4, file) != 4)
		die("no input");
	count = (size_t)input.traces * input.length;
	input.entries = calloc(input.routes, sizeof(*input.entries));
	input.addresses = calloc(count, sizeof(*input.addresses));
	input.addresses4 = calloc(count, sizeof(*input.addresses4));
	if (input.entries == NULL || input.addresses == NULL || input.addresses4 == NULL)
		die("no memory");
	if (fread(input.entries, sizeof(*input.entries), input.routes, file) != input.routes ||
	    fread(input.addresses, ADDRESS, count, file) != count)
		die("the input is cut short");
	fclose(file);
	for (size_t i = 0; i < count; i++)
		input.addresses4[i] = host(input.addresses[i]);
}

/* ---- filling and changing ---- */

static int add(struct table *table, struct entry *entry, uint32_t hop)
{
	switch (table->type) {
	case LPM: return rte_lpm_add(table->lpm, host(entry->address), (uint8_t)entry->length, hop);
	case FIB: return rte_fib_add(table->fib, host(entry->address), (uint8_t)entry->length, hop);
	default: return rte_fib6_add(table->fib6, entry->address, (uint8_t)entry->length, hop);
	}
}

static int delete(struct table *table, struct entry *entry)
{
	switch (table->type) {
	case LPM: return rte_lpm_delete(table->lpm, host(entry->address), (uint8_t)entry->length);
	case FIB: return rte_fib_delete(table->fib, host(entry->address), (uint8_t)entry->length);
	default: return rte_fib6_delete(table->fib6, entry->address, (uint8_t)entry->length);
	}
}

static void create(struct table *table)
{
	/* Room for the routes and as much again; second-level tables as many as the width of an entry can number. */
	const int routes = (int)input.routes * 2;
	const uint32_t second[] = {127, 32767, 65536, 65536}, second6[] = {0, 32767, 300000, 300000};
	char name[16];

	snprintf(name, sizeof(name), "table%d", (int)(table - tables));
	if (table->type == LPM) {
		struct rte_lpm_config config = {.max_rules = (uint32_t)routes, .number_tbl8s = 65536};

		table->lpm = rte_lpm_create(name, SOCKET_ID_ANY, &config);
	} else if (table->type == FIB) {
		struct rte_fib_conf config = {.type = RTE_FIB_DIR24_8, .max_routes = routes};

		config.dir24_8.nh_sz = (enum rte_fib_dir24_8_nh_sz)table->entry_size;
		config.dir24_8.num_tbl8 = second[table->entry_size];
		table->fib = rte_fib_create(name, SOCKET_ID_ANY, &config);
	} else {
		struct rte_fib6_conf config = {.type = RTE_FIB6_TRIE, .max_routes = routes};

		config.trie.nh_sz = (enum rte_fib_trie_nh_sz)table->entry_size;
		config.trie.num_tbl8 = second6[table->entry_size];
		table->fib6 = rte_fib6_create(name, SOCKET_ID_ANY, &config);
	}
}

static size_t held(void)
{
	struct rte_malloc_socket_stats stats;

	return rte_malloc_get_socket_stats(0, &stats) == 0 ? stats.heap_allocsz_bytes : 0;
}

static void load(struct table *table)
{
	const size_t before = held();
	uint64_t start;

	if (table->any != NULL || table->failure != NULL)
		return;
	create(table);
	if (table->any == NULL) {
		table->failure = rte_strerror(rte_errno);
		return;
	}
	start = now();
	for (uint32_t i = 0; i < input.routes; i++) {
		if (add(table, &input.entries[i], input.entries[i].hop) != 0) {
			table->failure = "the routes do not fit";
			return;
		}
	}
	table->load_ns = now() - start;
	table->bytes = held() - before;
}

static uint64_t update(struct table *table)
{
	const uint32_t step = RTE_MAX(input.routes / UPDATES, 1u);
	const uint64_t start = now();
	uint64_t changes = 0;

	for (uint32_t i = 0; i < input.routes; i += step, changes += 3) {
		struct entry *entry = &input.entries[(uint64_t)i * 7919 % input.routes];

		if (add(table, entry, 1 + i % 64) != 0 || delete(table, entry) != 0 || add(table, entry, entry->hop) != 0)
			die("an update fails");
	}
	return (now() - start) / changes;
}

/* ---- looking up ---- */

static void select_function(const struct subject *subject)
{
	struct table *table = subject->table;
	int code = 0;

	if (table->type == FIB)
		code = rte_fib_select_lookup(table->fib, subject->vector ? RTE_FIB_LOOKUP_DIR24_8_VECTOR_AVX512
		                                                         : RTE_FIB_LOOKUP_DIR24_8_SCALAR_MACRO);
	else if (table->type == FIB6)
		code = rte_fib6_select_lookup(table->fib6, subject->vector ? RTE_FIB6_LOOKUP_TRIE_VECTOR_AVX512
		                                                           : RTE_FIB6_LOOKUP_TRIE_SCALAR);
	if (code != 0)
		table->failure = subject->vector ? "this CPU has no AVX-512, or too old a one" : "no such function";
}

/* Looks up `count` addresses from the number `first` on. Returns something that depends on each burst, or on all. */
static inline __attribute__((always_inline)) uint64_t look(const struct subject *subject, size_t first, size_t count, bool all)
{
	const uint32_t *ips = input.addresses4 + first;
	uint8_t(*ips6)[ADDRESS] = input.addresses + first;
	struct table *table = subject->table;
	const unsigned burst = subject->burst;
	uint64_t sum = 0, wide[MAX_BURST];
	uint32_t narrow[MAX_BURST], last = 0;

	for (size_t i = 0; i < count; i += burst) {
		const unsigned n = (unsigned)RTE_MIN(burst, count - i);

		switch (subject->how) {
		case SINGLE:
			if (rte_lpm_lookup(table->lpm, ips[i], &narrow[0]) != 0)
				narrow[0] = 0;
			break;
		case X4:
			rte_lpm_lookupx4(table->lpm, _mm_loadu_si128((const __m128i *)(ips + i)), narrow, 0);
			break;
		case CHAIN:
			if (table->type == LPM) {
				if (rte_lpm_lookup(table->lpm, ips[i] ^ (last & zero), &narrow[0]) != 0)
					narrow[0] = 0;
			} else if (table->type == FIB) {
				uint32_t ip = ips[i] ^ (last & zero);

				rte_fib_lookup_bulk(table->fib, &ip, wide, 1);
				narrow[0] = (uint32_t)wide[0];
			} else {
				uint8_t ip[1][ADDRESS];

				memcpy(ip[0], ips6[i], ADDRESS);
				ip[0][0] ^= (uint8_t)(last & zero);
				rte_fib6_lookup_bulk(table->fib6, ip, wide, 1);
				narrow[0] = (uint32_t)wide[0];
			}
			last = narrow[0];
			break;
		case BULK:
			if (table->type == LPM) {
				rte_lpm_lookup_bulk(table->lpm, ips + i, narrow, n);
			} else {
				if (table->type == FIB)
					rte_fib_lookup_bulk(table->fib, (uint32_t *)(uintptr_t)(ips + i), wide, (int)n);
				else
					rte_fib6_lookup_bulk(table->fib6, ips6 + i, wide, (int)n);
				if (all)
					for (unsigned j = 0; j < n; j++)
						narrow[j] = (uint32_t)wide[j];
				else
					narrow[n - 1] = (uint32_t)wide[n - 1];
			}
			if (all && table->type == LPM)
				for (unsigned j = 0; j < n; j++)
					narrow[j] = narrow[j] & RTE_LPM_LOOKUP_SUCCESS ? narrow[j] & 0xFFFFFF : 0;
			break;
		}
		if (!all)
			sum += narrow[n - 1];
		else
			for (unsigned j = 0; j < n; j++)
				sum = sum * 31 + narrow[j];
	}
	return sum;
}

/* Each way to look up in a loop of its own, as an application would have it. */
static uint64_t run(const struct subject *subject, size_t first, size_t count)
{
	struct subject known = *subject;

	switch (subject->how) {
	case SINGLE: known.how = SINGLE, known.burst = 1; return look(&known, first, count, false);
	case X4: known.how = X4, known.burst = 4; return look(&known, first, count, false);
	case CHAIN: known.how = CHAIN, known.burst = 1; return look(&known, first, count, false);
	default: known.how = BULK; return look(&known, first, count, false);
	}
}

static void measure(const struct subject *subject, unsigned trace)
{
	volatile uint64_t sink;
	const size_t first = (size_t)trace * input.length;
	uint64_t start;

	select_function(subject);
	sink = run(subject, first, input.length);
	sink = run(subject, first, input.length);
	start = now();
	sink = run(subject, first, input.length);
	start = now() - start;
	(void)sink;
	printf("%" PRIu64 "\n", start);
}

/* ---- start and commands ---- */

/*
 * Puts DPDK's memory, which --no-huge takes from a file of ordinary pages, on transparent huge pages: DPDK is meant to
 * run on huge ones, and our own tables ask for them too.
 */
static int make_huge(const struct rte_memseg_list *list, void *unused)
{
	static const char zeroes[4096];
	char *to = list->base_va, *from = mremap(to, 0, list->len, MREMAP_MAYMOVE); /* the same pages a second time */

	(void)unused;
	if (from == MAP_FAILED ||
	    mmap(to, list->len, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == MAP_FAILED)
		die("DPDK's memory cannot be mapped anew");
	if (madvise(to, list->len, MADV_HUGEPAGE) != 0)
		fprintf(stderr, "rival: no transparent huge pages: DPDK's tables are in ordinary ones\n");
	for (size_t at = 0; at < list->len; at += sizeof(zeroes))
		if (memcmp(from + at, zeroes, sizeof(zeroes)) != 0)
			memcpy(to + at, from + at, sizeof(zeroes));
	munmap(from, list->len);
	return 0;
}

static void start_eal(char *program, char *megabytes)
{
	char lcores[32];
	char *arguments[] = {program, "--no-huge", "-m", megabytes, "--no-pci", "--no-shconf", "--no-telemetry",
	                     "--lcores", lcores, "--log-level", "error", "--force-max-simd-bitwidth=512"};

	snprintf(lcores, sizeof(lcores), "0@%d", sched_getcpu());
	if (rte_eal_init(RTE_DIM(arguments), arguments) < 0)
		die("the EAL does not start");
	rte_memseg_list_walk(make_huge, NULL);
}

static const struct subject *find(unsigned number)
{
	if (number >= RTE_DIM(subjects))
		die("no such subject");
	return &subjects[number];
}

int main(int count, char **arguments)
{
	char line[64];

	if (count != 3)
		die("usage: rival INPUT MEGABYTES");
	read_input(arguments[1]);
	start_eal(arguments[0], arguments[2]);
	while (fgets(line, sizeof(line), stdin) != NULL) {
		unsigned number = 0, trace = 0;
		char word[16] = "";

		if (sscanf(line, "%15s %u %u", word, &number, &trace) < 1 || trace >= input.traces)
			die("not a command");
		if (strcmp(word, "list") == 0) {
			for (size_t i = 0; i < RTE_DIM(subjects); i++)
				printf("%s%s", i == 0 ? "" : ",", (subjects[i].table->type == FIB6) == (input.family == 6) ? subjects[i].name : "");
			printf("\n");
		} else if (strcmp(word, "load") == 0) {
			struct table *table = find(number)->table;

			load(table);
			if (table->failure == NULL)
				select_function(find(number));
			if (table->failure != NULL)
				printf("no %s\n", table->failure);
			else
				printf("%" PRIu64 " %zu\n", table->load_ns, table->bytes);
			if (find(number)->vector && table->any != NULL && table->load_ns != 0)
				table->failure = NULL; /* its scalar function works */
		} else if (strcmp(word, "check") == 0) {
			select_function(find(number));
			printf("%" PRIu64 "\n", look(find(number), (size_t)trace * input.length, input.length, true));
		} else if (strcmp(word, "time") == 0) {
			measure(find(number), trace);
		} else if (strcmp(word, "update") == 0) {
			printf("%" PRIu64 "\n", update(find(number)->table));
		} else {
			die("not a command");
		}
		fflush(stdout);
	}
	return 0;
}
