/*
 * What a generator sends into a port of vhost-user, seen by a program that is none of ours and takes its time from the kernel. It only takes
 * and counts: as a back end that copies nothing it costs little more than the generator's own ring.
 *
 *   observer SOCKET MILLISECONDS IDEAL
 *
 * IDEAL is the time from one frame to the next in ns, by which gaps are judged; 0 for a generator at full speed, which is left alone until it
 * has written a burst. Prints "listening", and half a second after the first frame begins to measure; then one line of name=figure. Takes on
 * until the generator goes.
 */
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "../l3fwd/wire.h"

enum { WARM_UP_MS = 500, PATIENCE_MS = 60000, HEADER = 12 };
/* Gaps are sorted by percents of the ideal, those that are longer together. */
enum { MOST_PERCENT = 1000 };

/* Frames of a window, and how many windows are kept. */
enum { WINDOW_FRAMES = 2048, MOST_WINDOWS = 1 << 20 };

static struct port port;

/* Full speed while nobody is taken away from a core: a window takes less than a tenth of a millisecond. */
struct windows { int64_t begin; uint64_t frames; unsigned count; double rates[MOST_WINDOWS]; };

struct gaps { int64_t last, longest; uint64_t all, within, percents[MOST_PERCENT + 1]; };

/* In ns. */
static int64_t now(void)
{
	struct timespec time;

	if (clock_gettime(CLOCK_MONOTONIC, &time) < 0)
		die("a clock cannot be read: %s", strerror(errno));
	return time.tv_sec * 1000000000ll + time.tv_nsec;
}

/* Takes what is available. Returns how many frames; their bytes are added. */
static unsigned take(struct ring *ring, int patience, uint64_t *bytes)
{
	unsigned count = available(&port, ring, patience);

	if (port.packed) {
		/* Where order was agreed on, a used descriptor in the place of the first names the last: other lines are left alone. */
		for (unsigned done = 0, group = port.in_order ? count : 1; done < count; done += group) {
			struct packed_desc *desc = ring->desc, *first = &desc[ring->next % ring->size];
			uint16_t used = ring->next / ring->size % 2 == 0 ? DESC_AVAIL | DESC_USED : 0, last = 0;

			for (unsigned i = 0; i < group; i++, ring->next++) {
				const struct packed_desc *each = &desc[ring->next % ring->size];

				if (each->flags & (DESC_NEXT | DESC_INDIRECT) || each->len < HEADER)
					die("a frame of several buffers, or one that is too short");
				*bytes += each->len - HEADER;
				last = each->id;
			}
			first->id = last;
			__atomic_store_n(&first->flags, used, __ATOMIC_RELEASE);
		}
		return count;
	}
	for (unsigned i = 0; i < count; i++, ring->next++) {
		uint16_t head = ring->avail->ring[ring->next % ring->size];
		const struct split_desc *each = &((const struct split_desc *)ring->desc)[head % ring->size];

		if (each->flags & (DESC_NEXT | DESC_INDIRECT) || each->len < HEADER)
			die("a frame of several buffers, or one that is too short");
		*bytes += each->len - HEADER;
		ring->used->ring[ring->next % ring->size].id = head;
		ring->used->ring[ring->next % ring->size].len = 0;
	}
	if (count != 0)
		__atomic_store_n(&ring->used->idx, (uint16_t)ring->next, __ATOMIC_RELEASE);
	return count;
}

static void in_window(struct windows *windows, int64_t time, unsigned frames)
{
	windows->frames += frames;
	if (windows->frames < WINDOW_FRAMES)
		return;
	if (windows->count < MOST_WINDOWS && time > windows->begin)
		windows->rates[windows->count++] = (double)windows->frames * 1e9 / (double)(time - windows->begin);
	windows->begin = time, windows->frames = 0;
}

static int by_size(const void *one, const void *other)
{
	double a = *(const double *)one, b = *(const double *)other;

	return (a > b) - (a < b);
}

static double median(struct windows *windows)
{
	qsort(windows->rates, windows->count, sizeof *windows->rates, by_size);
	return windows->count == 0 ? 0 : windows->rates[windows->count / 2];
}

static void saw(struct gaps *gaps, int64_t time, unsigned count, int64_t ideal)
{
	/* Those of one look came at once, as far as can be seen. */
	for (unsigned i = 0; i < count; i++) {
		int64_t gap = i == 0 ? time - gaps->last : 0;

		if (gaps->last != 0 || i > 0) {
			gaps->all++;
			gaps->within += gap * 10 >= ideal * 9 && gap * 10 <= ideal * 11;
			gaps->longest = gap > gaps->longest ? gap : gaps->longest;
			gaps->percents[gap < ideal * MOST_PERCENT / 100 ? gap * 100 / ideal : MOST_PERCENT]++;
		}
	}
	gaps->last = time;
}

/* The gap that so many percent are not longer than, in percent of the ideal. */
static unsigned percentile(const struct gaps *gaps, unsigned share)
{
	uint64_t count = 0;

	for (unsigned percent = 0; percent < MOST_PERCENT; percent++)
		if ((count += gaps->percents[percent]) * 100 >= gaps->all * share)
			return percent;
	return MOST_PERCENT;
}

/* Takes on, and answers what comes on the socket, until the generator goes. */
static void take_on(void)
{
	uint64_t bytes = 0;

	for (unsigned turn = 0; port.connection >= 0; turn++) {
		struct pollfd wait = {port.connection, POLLIN, 0};

		if (port.tx.started)
			take(&port.tx, AT_ONCE, &bytes);
		if (turn % 1024 == 0 && poll(&wait, 1, 0) > 0)
			serve_socket(&port);
	}
}

static void measure(long milliseconds, int64_t ideal)
{
	static struct gaps gaps;
	static struct windows windows;
	uint64_t frames = 0, bytes = 0;
	int64_t begin = now(), time = begin, own = 0, idle = 0, first, end;
	int patience = ideal == 0 ? PATIENCE : AT_ONCE;

	while (take(&port.tx, patience, &bytes) == 0)
		if (now() - begin > PATIENCE_MS * 1000000ll)
			die("no frame for a minute");
	for (begin = now(); now() - begin < WARM_UP_MS * 1000000ll;)
		take(&port.tx, patience, &bytes);
	bytes = 0, begin = first = windows.begin = now(), end = begin + milliseconds * 1000000ll;
	for (int64_t before = begin; before < end; before = time) {
		unsigned count = take(&port.tx, patience, &bytes);

		time = now();
		/* As long as nobody looked, nobody knows when a frame came. */
		own = time - before > own ? time - before : own;
		if (count == 0)
			idle += time - before;
		else if (ideal != 0)
			saw(&gaps, time, count, ideal);
		frames += count;
		in_window(&windows, time, count);
	}
	printf("pps=%.1f bytes=%.1f waited=%.1f within=%.1f longest_us=%.1f own_us=%.1f p1=%u p10=%u p50=%u p90=%u p99=%u steady=%.1f\n", (double)frames * 1e9 / (double)(time - first),
	       frames == 0 ? 0 : (double)bytes / (double)frames, 100 * (double)idle / (double)(time - first),
	       gaps.all == 0 ? 0 : 100 * (double)gaps.within / (double)gaps.all, (double)gaps.longest / 1e3, (double)own / 1e3,
	       percentile(&gaps, 1), percentile(&gaps, 10), percentile(&gaps, 50), percentile(&gaps, 90), percentile(&gaps, 99), median(&windows));
}

int main(int count, char **arguments)
{
	long milliseconds = count == 4 ? atol(arguments[2]) : 0;

	if (milliseconds <= 0)
		die("usage: observer SOCKET MILLISECONDS IDEAL");
	setvbuf(stdout, NULL, _IOLBF, 0);
	listen_at(&port, arguments[1]);
	puts("listening");
	while (!port.tx.started) {
		struct pollfd wait = {port.connection < 0 ? port.listener : port.connection, POLLIN, 0};

		if (poll(&wait, 1, PATIENCE_MS) == 0)
			die("nobody connects for a minute");
		serve_socket(&port);
	}
	/* What comes on the socket later, such as the other ring, changes nothing here; but it may be waited for. */
	for (struct pollfd wait = {port.connection, POLLIN, 0}; poll(&wait, 1, 200) > 0 && port.connection >= 0;)
		serve_socket(&port);
	measure(milliseconds, atoll(arguments[3]));
	take_on();
	return 0;
}
