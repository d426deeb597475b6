/* What the two files of the wire share. */
#ifndef WIRE_H
#define WIRE_H

#include <stdbool.h>
#include <stdint.h>

enum { BURST = 32, MOST_REGIONS = 16 };

struct avail { uint16_t flags, idx, ring[]; };
struct used { uint16_t flags, idx; struct { uint32_t id, len; } ring[]; };

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
	bool may_pack, packed, may_merge, mergeable;
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

/* vhost.c: listens for a forwarder at a path, and does what it asks for there. */
void listen_at(struct port *port, const char *path);
void serve_socket(struct port *port);

#endif
