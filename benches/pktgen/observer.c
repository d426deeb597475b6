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
#include <poll.h>

#include "../l3fwd/wire.h"
#include "figures.h"

enum { HEADER = 12 };

static struct port port;

static unsigned take(int64_t ideal, uint64_t *bytes)
{
	struct ring *ring = &port.tx;
	unsigned count = available(&port, ring, ideal == 0 ? PATIENCE : AT_ONCE);

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

/* Takes on, and answers what comes on the socket, until the generator goes. */
static void take_on(void)
{
	uint64_t bytes = 0;

	for (unsigned turn = 0; port.connection >= 0; turn++) {
		struct pollfd wait = {port.connection, POLLIN, 0};

		if (port.tx.started)
			take(1, &bytes);
		if (turn % 1024 == 0 && poll(&wait, 1, 0) > 0)
			serve_socket(&port);
	}
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
