/*
 * The vhost-user protocol (QEMU, docs/interop/vhost-user.rst), as far as these forwarders speak it: one pair of queues, no
 * notifications, a back end that polls.
 */
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "wire.h"

#define IN_ORDER (1ull << 35)
#define FEATURES (1ull << 30 /* PROTOCOL_FEATURES */ | 1ull << 32 /* VERSION_1 */ | IN_ORDER)
#define MRG_RXBUF (1ull << 15)
#define RING_PACKED (1ull << 34)
#define REPLY_ACK (1ull << 3)

struct packed_event { uint16_t off_wrap, flags; };

struct message {
	uint32_t request, flags, size;
	union {
		uint64_t number;
		struct { uint32_t index, value; } state;
		struct { uint32_t index, flags; uint64_t desc, used, avail, log; } address;
		struct { uint32_t count, padding; struct { uint64_t guest, size, user, offset; } region[MOST_REGIONS]; } memory;
	};
} __attribute__((packed));

enum { MESSAGE_HEADER = 12, VERSION = 1, REPLY = 4, NEED_REPLY = 8 };
enum { GET_FEATURES = 1, SET_FEATURES = 2, SET_MEM_TABLE = 5, SET_VRING_NUM = 8, SET_VRING_ADDR = 9, SET_VRING_BASE = 10,
       GET_VRING_BASE = 11, SET_VRING_KICK = 12, GET_PROTOCOL_FEATURES = 15, GET_QUEUE_NUM = 17, SET_VRING_ENABLE = 18 };

void die(const char *format, ...)
{
	va_list list;

	va_start(list, format);
	fputs("wire: ", stderr);
	vfprintf(stderr, format, list);
	fputc('\n', stderr);
	exit(1);
}

static bool receive_message(int connection, struct message *message, int *descriptors, unsigned *count)
{
	char control[CMSG_SPACE(MOST_REGIONS * sizeof(int))];
	struct iovec part = {message, MESSAGE_HEADER};
	struct msghdr header = {.msg_iov = &part, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof(control)};
	struct cmsghdr *each;

	memset(message, 0, sizeof(*message));
	*count = 0;
	if (recvmsg(connection, &header, MSG_WAITALL) != MESSAGE_HEADER)
		return false;
	each = CMSG_FIRSTHDR(&header);
	if (each != NULL && each->cmsg_type == SCM_RIGHTS) {
		*count = (unsigned)((each->cmsg_len - CMSG_LEN(0)) / sizeof(int));
		memcpy(descriptors, CMSG_DATA(each), *count * sizeof(int));
	}
	if (message->size > sizeof(*message) - MESSAGE_HEADER)
		die("a message of %u bytes", message->size);
	return message->size == 0 || recv(connection, &message->number, message->size, MSG_WAITALL) == (ssize_t)message->size;
}

static void share_memory(struct port *port, const struct message *message, const int *descriptors, unsigned count)
{
	if (message->memory.count > MOST_REGIONS || message->memory.count != count)
		die("%u regions of memory, %u descriptors", message->memory.count, count);
	for (unsigned i = 0; i < port->regions; i++)
		munmap(port->region[i].here, port->region[i].size);
	port->regions = count;
	for (unsigned i = 0; i < count; i++) {
		struct region *region = &port->region[i];
		uint64_t offset = message->memory.region[i].offset;
		char *map;

		region->guest = message->memory.region[i].guest;
		region->user = message->memory.region[i].user;
		region->size = message->memory.region[i].size;
		map = mmap(NULL, region->size + offset, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, descriptors[i], 0);
		if (map == MAP_FAILED)
			die("cannot map a forwarder's memory: %s", strerror(errno));
		region->here = map + offset;
	}
}

/* Addresses are looked up anew, as they may come before the memory that they are in. */
static void start_ring(struct port *port, struct ring *ring)
{
	if (ring->size < BURST || (ring->size & (ring->size - 1)) != 0 || ring->size > 32768)
		die("a ring of %u descriptors", ring->size);
	ring->desc = here(port, ring->desc_at, 16 * ring->size, true);
	ring->avail = here(port, ring->avail_at, 4, true);
	ring->used = here(port, ring->used_at, 4, true);
	if (port->packed)
		((struct packed_event *)ring->used)->flags = 1; /* no notifications */
	else
		ring->used->flags = 1;
	ring->started = true;
}

static struct ring *ring_of(struct port *port, uint32_t index)
{
	if (index > 1)
		die("a ring %u", index);
	return index == 0 ? &port->rx : &port->tx;
}

/* Does what a message asks for. Returns the size of its reply, 0 if it has none. */
static uint32_t obey(struct port *port, struct message *message, const int *descriptors, unsigned count)
{
	struct ring *ring;

	switch (message->request) {
	case GET_FEATURES:
		return message->number = FEATURES | (port->may_pack ? RING_PACKED : 0) | (port->may_merge ? MRG_RXBUF : 0), 8;
	case SET_FEATURES:
		port->packed = message->number & RING_PACKED;
		port->in_order = message->number & IN_ORDER;
		port->mergeable = message->number & MRG_RXBUF;
		break;
	case GET_PROTOCOL_FEATURES:
		return message->number = REPLY_ACK, 8;
	case GET_QUEUE_NUM:
		return message->number = 1, 8;
	case SET_MEM_TABLE:
		share_memory(port, message, descriptors, count);
		break;
	case SET_VRING_NUM:
		ring_of(port, message->state.index)->size = message->state.value;
		break;
	case SET_VRING_BASE: /* a packed ring begins at descriptor 0, with its wrap counter set */
		ring_of(port, message->state.index)->next = message->state.value & 0x7fff;
		break;
	case SET_VRING_ADDR:
		ring = ring_of(port, message->address.index);
		ring->desc_at = message->address.desc;
		ring->avail_at = message->address.avail;
		ring->used_at = message->address.used;
		break;
	case SET_VRING_KICK:
		ring = ring_of(port, (uint32_t)message->number & 0xff);
		start_ring(port, ring);
		break;
	case GET_VRING_BASE:
		ring = ring_of(port, message->state.index);
		ring->started = false;
		message->state.value = port->packed ? ring->next % ring->size | (ring->next / ring->size % 2 == 0 ? 0x8000 : 0)
						    : (uint16_t)ring->next;
		return 8;
	}
	return 0;
}

static void answer(struct port *port)
{
	struct message message;
	int descriptors[MOST_REGIONS];
	unsigned count;
	uint32_t size;

	if (!receive_message(port->connection, &message, descriptors, &count)) {
		close(port->connection);
		port->connection = -1;
		port->rx.started = port->tx.started = false;
		return;
	}
	size = obey(port, &message, descriptors, count);
	for (unsigned i = 0; i < count; i++)
		close(descriptors[i]);
	if (size == 0 && message.flags & NEED_REPLY)
		message.number = 0, size = 8;
	if (size == 0)
		return;
	message.flags = VERSION | REPLY;
	message.size = size;
	if (send(port->connection, &message, MESSAGE_HEADER + size, MSG_NOSIGNAL) < 0)
		fprintf(stderr, "wire: a reply is lost: %s\n", strerror(errno));
}

void serve_socket(struct port *port)
{
	if (port->connection < 0)
		port->connection = accept(port->listener, NULL, NULL);
	else
		answer(port);
}

void listen_at(struct port *port, const char *path)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};

	if (strlen(path) >= sizeof(address.sun_path))
		die("the path %s is too long", path);
	strcpy(address.sun_path, path);
	port->listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (bind(port->listener, (struct sockaddr *)&address, sizeof(address)) < 0 || listen(port->listener, 1) < 0)
		die("cannot listen at %s: %s", path, strerror(errno));
	port->connection = -1;
	port->may_pack = strstr(path, ".split.") == NULL;
	port->may_merge = strstr(path, ".mergeable.") != NULL;
}
