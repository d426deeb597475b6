/* The figures of frames that are taken, for observer.c and paced.c: rates, and the gaps from one frame to the next, by the kernel's clock. */
#ifndef FIGURES_H
#define FIGURES_H

#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { WARM_UP_MS = 500, PATIENCE_MS = 60000 };
/* Gaps are sorted by percents of the ideal, those that are longer together. */
enum { MOST_PERCENT = 1000 };

/* Frames of a window, and how many windows are kept. */
enum { WINDOW_FRAMES = 2048, MOST_WINDOWS = 1 << 20 };
/* Gaps of a window, whose share has so many values. */
enum { WINDOW_GAPS = 100 };

/* Full speed while nobody is taken away from a core: a window takes less than a tenth of a millisecond. */
struct windows { int64_t begin; uint64_t frames; unsigned count; double rates[MOST_WINDOWS]; };

/* Those that were seen; unseen ones are only counted. SHARES are windows, by how many of their gaps were within a tenth of the ideal. */
struct gaps {
	int64_t last, longest;
	uint64_t all, within, unseen, percents[MOST_PERCENT + 1], windows, shares[WINDOW_GAPS + 1];
	unsigned in_window, within_window;
	int is_unsure;
};

__attribute__((noreturn, cold)) static void give_up(const char *why)
{
	fprintf(stderr, "%s: %s\n", why, strerror(errno));
	exit(1);
}

/* In ns. */
static int64_t now(void)
{
	struct timespec time;

	if (clock_gettime(CLOCK_MONOTONIC, &time) < 0)
		give_up("a clock cannot be read");
	return time.tv_sec * 1000000000ll + time.tv_nsec;
}

/* What there is to the file that includes this: takes what has come, whose bytes are added, and returns how many frames; IDEAL is that of measure(). */
static unsigned take(int64_t ideal, uint64_t *bytes);

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

static void count_gap(struct gaps *gaps, int64_t gap, int64_t ideal)
{
	int is_within = gap * 10 >= ideal * 9 && gap * 10 <= ideal * 11;

	gaps->all++;
	gaps->within += is_within;
	gaps->within_window += is_within;
	gaps->percents[gap < ideal * MOST_PERCENT / 100 ? gap * 100 / ideal : MOST_PERCENT]++;
	if (++gaps->in_window == WINDOW_GAPS) {
		gaps->windows++;
		gaps->shares[gaps->within_window]++;
		gaps->in_window = gaps->within_window = 0;
	}
}

/* So many frames came between two looks, at BEFORE and at TIME. */
static void saw(struct gaps *gaps, int64_t before, int64_t time, unsigned count, int64_t ideal)
{
	/* When in between they came nobody knows: that must not be what a gap is judged by. */
	int is_unsure = (time - before) * 10 > ideal;

	/* Those of one look came at once, as far as can be seen. */
	for (unsigned i = 0; i < count; i++) {
		int64_t gap = i == 0 ? time - gaps->last : 0;

		if (gaps->last != 0 || i > 0) {
			gaps->longest = gap > gaps->longest ? gap : gaps->longest;
			if (is_unsure || (i == 0 && gaps->is_unsure))
				gaps->unseen++;
			else
				count_gap(gaps, gap, ideal);
		}
	}
	gaps->last = time;
	gaps->is_unsure = is_unsure;
}

/* The median of the shares of windows, in percent. */
static unsigned median_share(const struct gaps *gaps)
{
	uint64_t count = 0;

	for (unsigned share = 0; share < WINDOW_GAPS; share++)
		if ((count += gaps->shares[share]) * 2 > gaps->windows)
			return share * 100 / WINDOW_GAPS;
	return gaps->windows == 0 ? 0 : 100;
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

/* Measures from half a second after the first frame on, and prints one line of name=figure. IDEAL is the time from one frame to the next in ns, by
 * which gaps are judged; 0 for a generator at full speed. */
static void measure(long milliseconds, int64_t ideal)
{
	static struct gaps gaps;
	static struct windows windows;
	uint64_t frames = 0, bytes = 0;
	int64_t begin = now(), time = begin, own = 0, idle = 0, first, end;

	while (take(ideal, &bytes) == 0)
		if (now() - begin > PATIENCE_MS * 1000000ll)
			errno = ETIMEDOUT, give_up("no frame for a minute");
	for (begin = now(); now() - begin < WARM_UP_MS * 1000000ll;)
		take(ideal, &bytes);
	bytes = 0, begin = first = windows.begin = now(), end = begin + milliseconds * 1000000ll;
	for (int64_t before = begin; before < end; before = time) {
		unsigned count = take(ideal, &bytes);

		time = now();
		/* As long as nobody looked, nobody knows when a frame came. */
		own = time - before > own ? time - before : own;
		if (count == 0)
			idle += time - before;
		else if (ideal != 0)
			saw(&gaps, before, time, count, ideal);
		frames += count;
		in_window(&windows, time, count);
	}
	printf("pps=%.1f bytes=%.1f waited=%.1f within=%.1f longest_us=%.1f own_us=%.1f p1=%u p10=%u p50=%u p90=%u p99=%u steady=%.1f unseen=%.1f steady_within=%u\n", (double)frames * 1e9 / (double)(time - first),
	       frames == 0 ? 0 : (double)bytes / (double)frames, 100 * (double)idle / (double)(time - first),
	       gaps.all == 0 ? 0 : 100 * (double)gaps.within / (double)gaps.all, (double)gaps.longest / 1e3, (double)own / 1e3,
	       percentile(&gaps, 1), percentile(&gaps, 10), percentile(&gaps, 50), percentile(&gaps, 90), percentile(&gaps, 99), median(&windows),
	       gaps.all + gaps.unseen == 0 ? 0 : 100 * (double)gaps.unseen / (double)(gaps.all + gaps.unseen), median_share(&gaps));
}

#endif
