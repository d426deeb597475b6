/* What the files of the wire share, and the observer of benches/pktgen with them. */
#ifndef WIRE_H
#define WIRE_H

#include <stdbool.h>
#include <stdint.h>

enum { BURST = 32, MOST_REGIONS = 16 };

struct avail { uint16_t flags, idx, ring[]; };
struct used { uint16_t flags, idx; struct { uint32_t id, len; } ring[]; };

enum { DESC_NEXT = 1, DESC_WRITE = 2, DESC_INDIRECT = 4, DESC_AVAIL = 1 << 7, DESC_USED = 1 << 15 };

struct packed_desc { uint64_t addr; uint32_t len; uint16_t id, flags; };
struct split_desc { uint64_t addr; uint32_t len; uint16_t flags, next; };

/* Memory of a forwarder, and where it is here. */
struct region { uint64_t guest, user, size; char *here; };

struct ring {
	uint32_t size, next;
	uint64_t desc_at, avail_at, used_at;
	void *desc;
	struct avail *avail;
	struct used *used;
	unsigned idle;
	bool started;
};

struct port {
	int listener, connection;
	bool may_pack, packed, may_merge, mergeable, in_order;
	unsigned regions;
	struct region region[MOST_REGIONS];
	struct ring rx, tx; /* as the forwarder calls them */
};

/* vhost.c: ends the program with an error. */
__attribute__((noreturn, cold, format(printf, 1, 2))) void die(const char *format, ...);

/* The memory at an address of the forwarder: its own virtual one, or one in a descriptor. */
static inline void *here(const struct port *port, uint64_t address, uint64_t length, bool virtual)
{
	for (unsigned i = 0; i < port->regions; i++) {
		const struct region *region = &port->region[i];
		uint64_t offset = address - (virtual ? region->user : region->guest);

		if (offset < region->size && length <= region->size - offset)
			return region->here + offset;
	}
	die("a forwarder names memory that it has not shared");
}

/* Polls that find less than a burst to take, until the rest is taken; with NO_REST only whole bursts are. */
enum { AT_ONCE = 0, PATIENCE = 64, NO_REST = -1 };

static inline bool is_available(const struct ring *ring, uint32_t at)
{
	const struct packed_desc *desc = ring->desc;
	unsigned flags = __atomic_load_n(&desc[at % ring->size].flags, __ATOMIC_ACQUIRE);
	bool wrap = at / ring->size % 2 == 0;

	return !!(flags & DESC_AVAIL) == wrap && !!(flags & DESC_USED) != wrap;
}

/*
 * How many buffers are available: none or a burst, or fewer once there has been no burst for so many polls. What the forwarder
 * is writing is left alone until then: of a packed ring, only the descriptor at the end of a burst is looked at.
 */
static inline unsigned available(const struct port *port, struct ring *ring, int patience)
{
	bool patient = patience == NO_REST || (patience != AT_ONCE && ++ring->idle < (unsigned)patience);
	unsigned count = 0;

	if (port->packed) {
		if (patient && !is_available(ring, ring->next + BURST - 1))
			return 0;
		while (count < BURST && is_available(ring, ring->next + count))
			count++;
	} else {
		count = (uint16_t)(__atomic_load_n(&ring->avail->idx, __ATOMIC_ACQUIRE) - ring->next);
		if (count > ring->size)
			die("a forwarder makes more buffers available than its ring has");
	}
	if (count < BURST && patient)
		return 0;
	ring->idle = 0;
	return count < BURST ? count : BURST;
}

/* vhost.c: listens for a forwarder at a path, and does what it asks for there. */
void listen_at(struct port *port, const char *path);
void serve_socket(struct port *port);

#endif
