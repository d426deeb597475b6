/*
 * What a generator that is paced sends into a port of vhost-user, seen by DPDK: its net_vhost takes the frames, and the kernel's clock says when.
 *
 *   paced SOCKET MILLISECONDS IDEAL CORE
 *
 * Speaks as observer.c does, with the same figures.
 */
#include <rte_eal.h>
#include <rte_errno.h>
#include <rte_ethdev.h>
#include <rte_mbuf.h>

#include "figures.h"

enum { BURST = 32, RING = 512, MBUFS = 4096, CACHE = 256 };

static unsigned take(int64_t ideal, uint64_t *bytes)
{
	struct rte_mbuf *frames[BURST];
	unsigned count = rte_eth_rx_burst(0, 0, frames, BURST);

	(void)ideal;
	for (unsigned i = 0; i < count; i++)
		*bytes += rte_pktmbuf_pkt_len(frames[i]);
	rte_pktmbuf_free_bulk(frames, count);
	return count;
}

static void must(int result, const char *what)
{
	if (result < 0)
		errno = -result, give_up(what);
}

/* On one core, without huge pages and without files that others see. */
static void begin_dpdk(char *program, const char *socket, char *core)
{
	static char device[256];
	char *arguments[] = {program, "--lcores", core, "--no-pci", "--no-telemetry", "--no-huge", "--no-shconf", "-m", "128", "--vdev", device,
			     "--log-level", "error"};

	snprintf(device, sizeof device, "net_vhost0,iface=%s,queues=1", socket);
	if (rte_eal_init(sizeof arguments / sizeof *arguments, arguments) < 0)
		errno = rte_errno, give_up("DPDK does not start");
}

static void open_port(void)
{
	struct rte_eth_conf conf = {0};
	struct rte_mempool *pool = rte_pktmbuf_pool_create("frames", MBUFS, CACHE, 0, RTE_MBUF_DEFAULT_BUF_SIZE, SOCKET_ID_ANY);

	if (pool == NULL)
		give_up("there is no memory for frames");
	must(rte_eth_dev_configure(0, 1, 1, &conf), "the port cannot be set up");
	must(rte_eth_rx_queue_setup(0, 0, RING, SOCKET_ID_ANY, NULL, pool), "the port has no receive queue");
	must(rte_eth_tx_queue_setup(0, 0, RING, SOCKET_ID_ANY, NULL), "the port has no transmit queue");
	must(rte_eth_dev_start(0), "the port does not start");
}

int main(int count, char **arguments)
{
	long milliseconds = count == 5 ? atol(arguments[2]) : 0;
	int64_t ideal = milliseconds > 0 ? atoll(arguments[3]) : 0;
	uint64_t bytes = 0;

	if (ideal <= 0)
		errno = EINVAL, give_up("usage: paced SOCKET MILLISECONDS IDEAL CORE");
	setvbuf(stdout, NULL, _IOLBF, 0);
	begin_dpdk(arguments[0], arguments[1], arguments[4]);
	open_port();
	puts("listening");
	measure(milliseconds, ideal);
	/* Until it is ended, so that the generator waits for nobody. */
	for (;;)
		take(ideal, &bytes);
}
