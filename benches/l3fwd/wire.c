/*
 * The wire that the forwarders of this comparison are plugged into: a vhost-user back end with two ports for each of them. It
 * sends IPv4 packets to both ports as fast as there is room, takes what comes out, checks and counts it. README.md beside
 * this file says what it does for whom.
 *
 *   wire TRACE SOCKET.0 SOCKET.1 ...   two sockets for each forwarder, made here; one with .split. in its name offers no packed
 *                                      rings, one with .mergeable. mergeable buffers. TRACE has a line for each packet:
 *                                      destination and port of exit
 *
 * Standard input: "run N MILLISECONDS PID" sends to forwarder N, which is process PID, and "end" ends. Standard output:
 * "ready N" when all rings of a forwarder are there, and for each run one line of name=figure.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "wire.h"

enum { FRAME = 60, HEADER = 12, MOST_PORTS = 32, WARM_UP_MS = 500, DRAIN_MS = 100 };
/* Packets of which one is checked in full. */
enum { CHECK_EVERY = 16 };

struct packet { uint8_t frame[FRAME]; uint32_t port; } __attribute__((aligned(64)));

struct counts { uint64_t sent, received, checked, wrong; };

static struct port ports[MOST_PORTS];
static int port_count;
static struct packet *trace;
static uint32_t trace_length, position;
static struct counts counts;

static void put16(uint8_t *at, uint16_t value) { value = htons(value), memcpy(at, &value, 2); }
static void put32(uint8_t *at, uint32_t value) { value = htonl(value), memcpy(at, &value, 4); }
static uint16_t get16(const uint8_t *at) { return (uint16_t)(at[0] << 8 | at[1]); }
static uint32_t get32(const uint8_t *at) { return (uint32_t)get16(at) << 16 | get16(at + 2); }

static uint32_t sum(const uint8_t *at, unsigned length, uint32_t begin)
{
	for (unsigned i = 0; i < length; i += 2)
		begin += get16(at + i);
	return begin;
}

static uint16_t folded(uint32_t value)
{
	while (value >> 16)
		value = (value & 0xffff) + (value >> 16);
	return (uint16_t)value;
}

/* UDP from 198.18.0.1, with the number of the packet in its payload. */
static void make_packet(struct packet *packet, uint32_t number, uint32_t destination, uint32_t port)
{
	uint8_t *frame = packet->frame, *ip = frame + 14, *udp = ip + 20;

	memcpy(frame, "\x02\x00\x00\x00\x01\x00\x02\x00\x00\x00\x02\x00\x08\x00", 14);
	put16(ip, 0x4500);
	put16(ip + 2, FRAME - 14);
	ip[8] = 64, ip[9] = 17;
	put32(ip + 12, 0xc6120001);
	put32(ip + 16, destination);
	put16(ip + 10, (uint16_t)~folded(sum(ip, 20, 0)));
	put16(udp, 1024);
	put16(udp + 2, 9);
	put16(udp + 4, FRAME - 34);
	put32(udp + 8, number);
	put16(udp + 6, (uint16_t)~folded(sum(udp, FRAME - 34, sum(ip + 12, 8, 17 + FRAME - 34))));
	packet->port = port;
}

static void read_trace(const char *path)
{
	FILE *file = fopen(path, "r");
	char address[16];
	unsigned port;
	struct in_addr in;
	uint32_t room = 1 << 20;

	if (file == NULL || (trace = aligned_alloc(64, room * sizeof(*trace))) == NULL)
		die("cannot read %s: %s", path, strerror(errno));
	memset(trace, 0, room * sizeof(*trace));
	for (; trace_length < room && fscanf(file, "%15s %u", address, &port) == 2; trace_length++) {
		if (port > 1 || inet_pton(AF_INET, address, &in) != 1)
			die("%s, line %u: no destination and port", path, trace_length + 1);
		make_packet(&trace[trace_length], trace_length, ntohl(in.s_addr), port);
	}
	if (trace_length == 0 || !feof(file))
		die("%s: no trace of 1 to %u packets", path, room);
	fclose(file);
}

/* Whether a frame is what a router makes of the packet whose number it carries, and came out where it should. */
static bool is_right(const uint8_t *frame, uint32_t port)
{
	const uint8_t *ip = frame + 14;
	uint32_t number = get32(ip + 28);
	uint8_t station[6] = {2, 0, 0, 0, 0, (uint8_t)port};
	const uint8_t *was;

	if (number >= trace_length || trace[number].port != port)
		return false;
	was = trace[number].frame;
	return memcmp(frame, station, 6) == 0 && memcmp(frame + 12, was + 12, 10) == 0 && ip[8] == 63 && ip[9] == 17 &&
	       folded(sum(ip, 20, 0)) == 0xffff && memcmp(ip + 12, was + 26, FRAME - 26) == 0;
}

static void send_frame(const struct port *port, uint64_t address)
{
	char *at = here(port, address, HEADER + FRAME, false);
	/* A mergeable frame has its number of buffers at the end. */
	static const uint8_t headers[2][HEADER] = {{0}, {[10] = 1}};
	const uint8_t *header = headers[port->mergeable];

	if (memcmp(at, header, HEADER) != 0)
		memcpy(at, header, HEADER);
	memcpy(at + HEADER, trace[position].frame, FRAME);
	if (++position == trace_length)
		position = 0;
}

static void take_frame(const struct port *port, uint64_t address, uint32_t length, unsigned flags)
{
	const uint8_t *at;

	if (flags & (DESC_NEXT | DESC_INDIRECT) || length < HEADER + FRAME)
		die("a frame of several buffers, or one that is too short: %u bytes, flags %#x", length, flags);
	if (++counts.received % CHECK_EVERY == 0) {
		at = here(port, address, length, false);
		counts.checked++;
		counts.wrong += length != HEADER + FRAME || !is_right(at + HEADER, (uint32_t)(port - ports) % 2);
	}
}

static void serve_packed(const struct port *port, struct ring *ring, unsigned count, bool receive)
{
	struct packed_desc *desc = ring->desc;

	for (unsigned i = 0; i < count; i++) {
		struct packed_desc *each = &desc[(ring->next + i) % ring->size];

		if (receive)
			send_frame(port, each->addr);
		else
			take_frame(port, each->addr, each->len, each->flags);
	}
	for (unsigned i = 0; i < count; i++, ring->next++) {
		struct packed_desc *each = &desc[ring->next % ring->size];
		uint16_t flags = ring->next / ring->size % 2 == 0 ? DESC_AVAIL | DESC_USED : 0;

		each->len = receive ? HEADER + FRAME : 0;
		__atomic_store_n(&each->flags, receive ? flags | DESC_WRITE : flags, __ATOMIC_RELEASE);
	}
}

static void serve_split(const struct port *port, struct ring *ring, unsigned count, bool receive)
{
	const struct split_desc *desc = ring->desc;

	for (unsigned i = 0; i < count; i++, ring->next++) {
		uint16_t head = ring->avail->ring[ring->next % ring->size];
		const struct split_desc *each = &desc[head % ring->size];

		if (receive)
			send_frame(port, each->addr);
		else
			take_frame(port, each->addr, each->len, each->flags);
		ring->used->ring[ring->next % ring->size].id = head;
		ring->used->ring[ring->next % ring->size].len = receive ? HEADER + FRAME : 0;
	}
	__atomic_store_n(&ring->used->idx, (uint16_t)ring->next, __ATOMIC_RELEASE);
}

static unsigned serve(struct port *port, struct ring *ring, bool receive)
{
	unsigned count = available(port, ring, receive ? NO_REST : PATIENCE);

	if (count != 0)
		(port->packed ? serve_packed : serve_split)(port, ring, count, receive);
	return count;
}

/* In ns. */
static int64_t now(clockid_t clock)
{
	struct timespec time;

	if (clock_gettime(clock, &time) < 0)
		die("a clock cannot be read: %s", strerror(errno));
	return time.tv_sec * 1000000000ll + time.tv_nsec;
}

/* Sends to both ports (or only takes) until `end`. Returns for how many ns neither port had room for a burst. */
static int64_t play(struct port *pair, int64_t begin, int64_t end, bool sends)
{
	int64_t waited = 0;

	for (int64_t before = begin, time; before < end; before = time) {
		unsigned room = 0;

		for (int i = 0; i < 2; i++) {
			serve(&pair[i], &pair[i].tx, false);
			if (sends)
				room += serve(&pair[i], &pair[i].rx, true);
		}
		counts.sent += room;
		time = now(CLOCK_MONOTONIC);
		if (room == 0)
			waited += time - before;
	}
	return waited;
}

static bool is_ready(const struct port *pair)
{
	return pair[0].rx.started && pair[0].tx.started && pair[1].rx.started && pair[1].tx.started;
}

static double percent(int64_t part, int64_t whole) { return 100.0 * (double)part / (double)whole; }

/* `core` is the time that the wire or the forwarder was running, whichever was less. */
static void measure(struct port *pair, long milliseconds, clockid_t forwarder)
{
	const clockid_t clocks[3] = {CLOCK_MONOTONIC, CLOCK_PROCESS_CPUTIME_ID, forwarder};
	int64_t begin[3], took[3], waited;
	uint64_t received;

	if (!is_ready(pair))
		die("the forwarder is not ready");
	memset(&counts, 0, sizeof(counts));
	begin[0] = now(CLOCK_MONOTONIC);
	play(pair, begin[0], begin[0] + WARM_UP_MS * 1000000ll, true);
	received = counts.received;
	for (int i = 0; i < 3; i++)
		begin[i] = now(clocks[i]);
	waited = play(pair, begin[0], begin[0] + milliseconds * 1000000ll, true);
	for (int i = 0; i < 3; i++)
		took[i] = now(clocks[i]) - begin[i];
	received = counts.received - received;
	begin[0] = now(CLOCK_MONOTONIC);
	play(pair, begin[0], begin[0] + DRAIN_MS * 1000000ll, false);
	printf("pps=%.0f waited=%.1f core=%.1f sent=%ju received=%ju checked=%ju wrong=%ju\n",
	       (double)received * 1e9 / (double)took[0], percent(waited, took[0]),
	       percent(took[1] < took[2] ? took[1] : took[2], took[0]), (uintmax_t)counts.sent, (uintmax_t)counts.received,
	       (uintmax_t)counts.checked, (uintmax_t)counts.wrong);
}

/* Returns whether there is more to do. */
static bool command(void)
{
	char line[64];
	int number, pid;
	long milliseconds;
	clockid_t clock;

	if (fgets(line, sizeof(line), stdin) == NULL || strcmp(line, "end\n") == 0)
		return false;
	if (sscanf(line, "run %d %ld %d", &number, &milliseconds, &pid) != 3 || number < 0 || number >= port_count / 2 ||
	    milliseconds <= 0)
		die("what is %s", line);
	if (clock_getcpuclockid(pid, &clock) != 0)
		die("there is no process %d", pid);
	measure(&ports[number * 2], milliseconds, clock);
	return true;
}

int main(int count, char **arguments)
{
	struct pollfd wait[MOST_PORTS + 1];

	port_count = count - 2;
	if (port_count < 2 || port_count % 2 != 0 || port_count > MOST_PORTS)
		die("usage: wire TRACE SOCKET.0 SOCKET.1 ... (up to %d sockets)", MOST_PORTS);
	setvbuf(stdin, NULL, _IONBF, 0);
	setvbuf(stdout, NULL, _IOLBF, 0);
	read_trace(arguments[1]);
	for (int i = 0; i < port_count; i++)
		listen_at(&ports[i], arguments[i + 2]);
	puts("listening");
	for (;;) {
		for (int i = 0; i < port_count; i++)
			wait[i] = (struct pollfd){ports[i].connection < 0 ? ports[i].listener : ports[i].connection, POLLIN, 0};
		wait[port_count] = (struct pollfd){STDIN_FILENO, POLLIN, 0};
		if (poll(wait, (nfds_t)port_count + 1, -1) < 0)
			continue;
		for (int i = 0; i < port_count; i++) {
			bool was_ready = is_ready(&ports[i / 2 * 2]);

			if (wait[i].revents != 0)
				serve_socket(&ports[i]);
			if (!was_ready && is_ready(&ports[i / 2 * 2]))
				printf("ready %d\n", i / 2);
		}
		if (wait[port_count].revents != 0 && !command())
			return 0;
	}
}
