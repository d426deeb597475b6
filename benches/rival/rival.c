/*
 * What DPDK's net_ixgbe pays in software for a forwarded packet, measured as `benches` measures our driver: an 82599
 * whose registers and rings are plain memory, completed by a function in the same thread whose own cost is measured
 * apart and subtracted.
 *
 *   rival check BURST...          forwards numbered frames and looks at each one that comes out
 *   rival cycles BURST...         prints cycles of the time-stamp counter per packet
 *   rival instructions BURST...   under callgrind: dumps the counts of both parts for each burst size
 *
 * The port is set up by the driver's own functions, as testpmd would have them by default, with no offload on.
 */
#include <inttypes.h>
#include <sched.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <emmintrin.h>
#include <x86intrin.h>
#if __has_include(<valgrind/callgrind.h>)
#include <valgrind/callgrind.h>
#else
#define CALLGRIND_ZERO_STATS
#define CALLGRIND_DUMP_STATS_AT(name) ((void)(name))
#endif

#include <ethdev_driver.h>
#include <rte_eal.h>
#include <rte_malloc.h>
#include <rte_mbuf.h>
#include <rte_mbuf_pool_ops.h>

#include "base/ixgbe_api.h"
#include "ixgbe_ethdev.h"
#include "ixgbe_rxtx.h"

enum {
	RING = 512,
	FRAME = 60,
	CACHE = 512, /* mbufs; per lcore */
	HUGE_PAGE = 2 << 20,
	POOL_BYTES = 8 * HUGE_PAGE,
	MAX_BURST = 256,
	BAR_BYTES = 0x20000,
	SAMPLES = 101,
	SAMPLE_PACKETS = 12800,
	WARM_UP_PACKETS = 102400,
	CHECK_PACKETS = 100 * RING,
};

/* Descriptor bits: 82599 datasheet, sections 7.1.6.2 and 7.2.3.2.4. */
#define RX_DONE (UINT64_C(3)) /* DD and EOP */
#define RX_LENGTH_SHIFT 32
#define RX_PACKET_TYPE (UINT64_C(0x11) << 4) /* IPv4 and TCP */
#define TX_REPORT (UINT64_C(1) << 27)
#define TX_DONE (UINT64_C(1) << 32)

typedef struct {
	uint64_t low, high;
} descriptor;

/* The hardware: where it is in both rings. */
typedef struct {
	volatile uint32_t *registers;
	unsigned rx, tx;
} completer;

typedef struct {
	void *rx_queue, *tx_queue;
	eth_rx_burst_t rx;
	eth_tx_burst_t tx;
	completer hardware;
} rig;

static void die(const char *what, int code)
{
	fprintf(stderr, "rival: %s (%d)\n", what, code);
	exit(1);
}

/* ---- the hardware's part ---- */

static volatile descriptor *ring(const completer *hardware, unsigned base)
{
	uint64_t low = hardware->registers[base / 4], high = hardware->registers[base / 4 + 1];
	return (volatile descriptor *)(uintptr_t)(high << 32 | low);
}

/* Completes the next `count` receive descriptors. Like the device it writes all 16 bytes, in one store. */
static __attribute__((noinline)) void receive(completer *hardware, unsigned count)
{
	descriptor *descriptors = (descriptor *)(uintptr_t)ring(hardware, IXGBE_RDBAL(0));
	const __m128i done = _mm_set_epi64x(RX_DONE | (uint64_t)FRAME << RX_LENGTH_SHIFT, RX_PACKET_TYPE);
	unsigned rx = hardware->rx;

	for (unsigned i = 0; i < count; i++) {
		_mm_store_si128((__m128i *)&descriptors[rx], done);
		rx = (rx + 1) & (RING - 1);
	}
	hardware->rx = rx;
	rte_compiler_barrier();
}

/* Reports the next `count` transmit descriptors done, where asked to. */
static __attribute__((noinline)) void transmit(completer *hardware, unsigned count)
{
	volatile descriptor *descriptors = ring(hardware, IXGBE_TDBAL(0));
	unsigned tx = hardware->tx;

	for (unsigned i = 0; i < count; i++) {
		uint64_t high = descriptors[tx].high;
		if (high & TX_REPORT)
			descriptors[tx].high = high | TX_DONE;
		tx = (tx + 1) & (RING - 1);
	}
	hardware->tx = tx;
}

/* A device that no driver uses, for the cost of the hardware's part alone. */
static completer spare(void)
{
	completer hardware = {calloc(1, BAR_BYTES), 0, 0};
	static const unsigned bases[] = {IXGBE_RDBAL(0), IXGBE_TDBAL(0)};

	for (int i = 0; i < 2; i++) {
		void *memory = aligned_alloc(4096, RING * sizeof(descriptor));
		if (hardware.registers == NULL || memory == NULL)
			die("no memory", 0);
		memset(memory, 0, RING * sizeof(descriptor));
		hardware.registers[bases[i] / 4] = (uint32_t)(uintptr_t)memory;
		hardware.registers[bases[i] / 4 + 1] = (uint32_t)((uintptr_t)memory >> 32);
	}
	return hardware;
}

/* ---- the driver's part ---- */

/*
 * The driver rings its doorbell with MOVDIRI where the processor has it. On real registers that is a posted write; on
 * the plain memory that stands for them here it throws the line out of the caches and would be charged to the rival.
 * So the driver is told that there is none and uses an ordinary store, as ours does. (The linker's --wrap.)
 */
int __real_rte_cpu_get_flag_enabled(enum rte_cpu_flag_t flag);
int __wrap_rte_cpu_get_flag_enabled(enum rte_cpu_flag_t flag);

int __wrap_rte_cpu_get_flag_enabled(enum rte_cpu_flag_t flag)
{
	if (flag == RTE_CPUFLAG_MOVDIRI && getenv("RIVAL_MOVDIRI") == NULL)
		return 0;
	return __real_rte_cpu_get_flag_enabled(flag);
}

static void start_eal(char *program)
{
	char lcores[32];
	char *arguments[] = {program,     "--no-huge",      "-m",       "64",   "--no-pci",    "--no-shconf",
	                     "--no-telemetry", "--lcores", lcores, "--log-level", "error"};
	int code;

	snprintf(lcores, sizeof(lcores), "0@%d", sched_getcpu());
	code = rte_eal_init(RTE_DIM(arguments), arguments);
	if (code < 0)
		die("the EAL does not start", code);
}

/*
 * A pool as rte_pktmbuf_pool_create() makes it on huge pages, which is how DPDK is meant to run. With --no-huge that
 * function would keep each buffer inside one ordinary page: one to a page, all at the same offset, so that they fight
 * for a few sets of the first-level cache and each packet costs twice as much.
 */
static struct rte_mempool *new_pool(void)
{
	const unsigned slots = RING * 2 + MAX_BURST + 1024;
	struct rte_pktmbuf_pool_private private = {.mbuf_data_room_size = RTE_MBUF_DEFAULT_BUF_SIZE};
	struct rte_mempool *pool =
		rte_mempool_create_empty("pool", slots, sizeof(struct rte_mbuf) + RTE_MBUF_DEFAULT_BUF_SIZE, CACHE,
		                         sizeof(private), SOCKET_ID_ANY, RTE_MEMPOOL_F_NO_IOVA_CONTIG);
	char *memory = aligned_alloc(HUGE_PAGE, POOL_BYTES);
	int code;

	if (pool == NULL || memory == NULL)
		die("no memory for the pool", rte_errno);
	if (madvise(memory, POOL_BYTES, MADV_HUGEPAGE) != 0)
		fprintf(stderr, "rival: no transparent huge pages: DPDK's buffers are in ordinary ones\n");
	memset(memory, 0, POOL_BYTES);
	if ((code = rte_mempool_set_ops_byname(pool, rte_mbuf_best_mempool_ops(), NULL)) != 0)
		die("rte_mempool_set_ops_byname", code);
	rte_pktmbuf_pool_init(pool, &private);
	code = rte_mempool_populate_iova(pool, memory, (rte_iova_t)(uintptr_t)memory, POOL_BYTES, NULL, NULL);
	if (code < (int)slots)
		die("rte_mempool_populate_iova", code);
	rte_mempool_obj_iter(pool, rte_pktmbuf_init, NULL);
	return pool;
}

/* The driver asks its own port what it can do; this one has no offloads, as the vector functions want it. */
static int no_offloads(struct rte_eth_dev *dev, struct rte_eth_dev_info *info)
{
	(void)dev;
	(void)info;
	return 0;
}

static const struct eth_dev_ops operations = {.dev_infos_get = no_offloads};

/* A port whose registers are memory, set up and started by the driver. */
static rig open_port(void)
{
	const struct rte_eth_rxconf rx_config = {.rx_free_thresh = 32, .rx_thresh = {.pthresh = 8, .hthresh = 8}};
	const struct rte_eth_txconf tx_config = {
		.tx_free_thresh = 32, .tx_rs_thresh = 32, .tx_thresh = {.pthresh = 32}};
	struct rte_mempool *pool = new_pool();
	struct rte_eth_dev *dev = rte_eth_dev_allocate("rival");
	struct ixgbe_adapter *adapter = rte_zmalloc(NULL, sizeof(*adapter), 0);
	volatile uint32_t *registers = rte_zmalloc(NULL, BAR_BYTES, 4096);
	static void *queues[2][1];
	int code;

	if (pool == NULL || dev == NULL || adapter == NULL || registers == NULL)
		die("no memory for the port", rte_errno);
	/* SECRXSTAT.SECRX_RDY, for which the start waits. */
	registers[IXGBE_SECRXSTAT / 4] = IXGBE_SECRXSTAT_SECRX_RDY;
	adapter->hw.hw_addr = (void *)(uintptr_t)registers;
	adapter->hw.back = adapter;
	adapter->hw.vendor_id = IXGBE_INTEL_VENDOR_ID;
	adapter->hw.device_id = IXGBE_DEV_ID_82599_SFP;
	adapter->rx_bulk_alloc_allowed = true;
	adapter->rx_vec_allowed = true;
	code = ixgbe_init_shared_code(&adapter->hw);
	if (code != 0)
		die("ixgbe_init_shared_code", code);

	dev->dev_ops = &operations;
	dev->data->dev_private = adapter;
	dev->data->mtu = RTE_ETHER_MTU;
	dev->data->nb_rx_queues = dev->data->nb_tx_queues = 1;
	dev->data->rx_queues = queues[0];
	dev->data->tx_queues = queues[1];
	if ((code = ixgbe_dev_rx_queue_setup(dev, 0, RING, SOCKET_ID_ANY, &rx_config, pool)) != 0)
		die("ixgbe_dev_rx_queue_setup", code);
	if ((code = ixgbe_dev_tx_queue_setup(dev, 0, RING, SOCKET_ID_ANY, &tx_config)) != 0)
		die("ixgbe_dev_tx_queue_setup", code);
	ixgbe_dev_tx_init(dev);
	if ((code = ixgbe_dev_rx_init(dev)) != 0)
		die("ixgbe_dev_rx_init", code);
	if ((code = ixgbe_dev_rxtx_start(dev)) != 0)
		die("ixgbe_dev_rxtx_start", code);
	if (dev->rx_pkt_burst != ixgbe_recv_pkts_vec)
		die("the driver did not choose its vector receive function", 0);
	return (rig){queues[0][0], queues[1][0], dev->rx_pkt_burst, dev->tx_pkt_burst, {registers, 0, 0}};
}

/*
 * Receives up to `burst` packets, changes a byte of each and transmits them. The vector receive function hands out 32
 * at a time, so larger bursts are gathered from several calls. Returns the packets transmitted.
 */
static inline __attribute__((always_inline)) unsigned forward(const rig *port, unsigned burst)
{
	struct rte_mbuf *packets[MAX_BURST];
	unsigned received = 0, got;

	do {
		got = port->rx(port->rx_queue, packets + received, burst - received);
		received += got;
	} while (got != 0 && received < burst);
	for (unsigned i = 0; i < received; i++)
		++*rte_pktmbuf_mtod(packets[i], volatile uint8_t *);
	return port->tx(port->tx_queue, packets, received);
}

/* ---- what is asked ---- */

static __attribute__((noinline)) void run_whole(rig *port, unsigned burst, unsigned bursts)
{
	uint64_t sent = 0;

	for (unsigned i = 0; i < bursts; i++) {
		receive(&port->hardware, burst);
		sent += forward(port, burst);
		transmit(&port->hardware, burst);
	}
	if (sent != (uint64_t)bursts * burst)
		die("not every packet was transmitted", (int)sent);
	if (port->hardware.registers[IXGBE_TDT(0) / 4] != port->hardware.tx)
		die("the transmit tail is not where the count says", (int)port->hardware.tx);
}

static __attribute__((noinline)) void run_hardware(completer *hardware, unsigned burst, unsigned bursts)
{
	for (unsigned i = 0; i < bursts; i++) {
		receive(hardware, burst);
		transmit(hardware, burst);
	}
}

/* Forwards frames with a number in them, whose buffers it finds through the rings as the device would. */
static void check(rig *port, unsigned burst)
{
	uint64_t in = 0, out = 0;

	while (out < CHECK_PACKETS) {
		volatile descriptor *rx = ring(&port->hardware, IXGBE_RDBAL(0));
		volatile descriptor *tx = ring(&port->hardware, IXGBE_TDBAL(0));
		for (unsigned i = 0; i < burst; i++, in++) {
			uint8_t *frame = (uint8_t *)(uintptr_t)rx[(port->hardware.rx + i) % RING].low;
			memset(frame, 0, FRAME);
			frame[0] = (uint8_t)in;
			memcpy(frame + 8, &in, sizeof(in));
		}
		receive(&port->hardware, burst);
		if (forward(port, burst) != burst)
			die("not every packet was transmitted", (int)out);
		for (unsigned i = 0; i < burst; i++, out++) {
			volatile descriptor *sent = &tx[(port->hardware.tx + i) % RING];
			const uint8_t *frame = (const uint8_t *)(uintptr_t)sent->low;
			uint64_t number;
			memcpy(&number, frame + 8, sizeof(number));
			if (number != out || frame[0] != (uint8_t)(out + 1) || (sent->high & 0xffff) != FRAME)
				die("a frame that came out is not the one that went in", (int)out);
		}
		transmit(&port->hardware, burst);
		if (port->hardware.registers[IXGBE_TDT(0) / 4] != port->hardware.tx)
			die("the transmit tail is not where the count says", (int)out);
	}
	printf("check burst=%u ring=%u packets=%" PRIu64 " transmit_function=%p\n", burst, RING, out,
	       (void *)(uintptr_t)port->tx);
}

static int ascending(const void *first, const void *second)
{
	double a = *(const double *)first, b = *(const double *)second;
	return (a > b) - (a < b);
}

static void cycles(rig *port, unsigned burst)
{
	completer hardware = spare();
	const unsigned bursts = (SAMPLE_PACKETS + burst - 1) / burst;
	double samples[SAMPLES], unsubtracted[SAMPLES];

	run_whole(port, burst, WARM_UP_PACKETS / burst);
	run_hardware(&hardware, burst, bursts);
	for (int i = 0; i < SAMPLES; i++) {
		uint64_t start = __rdtsc();
		run_whole(port, burst, bursts);
		uint64_t middle = __rdtsc();
		run_hardware(&hardware, burst, bursts);
		uint64_t end = __rdtsc();
		unsubtracted[i] = (double)(middle - start) / (bursts * burst);
		samples[i] = ((double)(middle - start) - (double)(end - middle)) / (bursts * burst);
	}
	qsort(samples, SAMPLES, sizeof(samples[0]), ascending);
	qsort(unsubtracted, SAMPLES, sizeof(unsubtracted[0]), ascending);
	printf("forward burst=%u ring=%u cycles_per_packet=%.2f with_hardware=%.2f\n", burst, RING, samples[SAMPLES / 2],
	       unsubtracted[SAMPLES / 2]);
}

/* callgrind names what it dumps "whole BURST PACKETS" and "hardware BURST PACKETS". */
static void instructions(rig *port, unsigned burst)
{
	completer hardware = spare();
	const unsigned bursts = (SAMPLE_PACKETS + burst - 1) / burst;
	char name[64];

	run_whole(port, burst, bursts);
	CALLGRIND_ZERO_STATS;
	run_whole(port, burst, bursts);
	snprintf(name, sizeof(name), "whole %u %u", burst, bursts * burst);
	CALLGRIND_DUMP_STATS_AT(name);
	CALLGRIND_ZERO_STATS;
	run_hardware(&hardware, burst, bursts);
	snprintf(name, sizeof(name), "hardware %u %u", burst, bursts * burst);
	CALLGRIND_DUMP_STATS_AT(name);
}

int main(int count, char **arguments)
{
	static const char usage[] = "usage: rival check|cycles|instructions BURST...";
	void (*task)(rig *, unsigned) = NULL;
	rig port;

	if (count >= 3 && strcmp(arguments[1], "check") == 0)
		task = check;
	else if (count >= 3 && strcmp(arguments[1], "cycles") == 0)
		task = cycles;
	else if (count >= 3 && strcmp(arguments[1], "instructions") == 0)
		task = instructions;
	else
		die(usage, count);
	start_eal(arguments[0]);
	port = open_port();
	for (int i = 2; i < count; i++) {
		unsigned burst = (unsigned)strtoul(arguments[i], NULL, 10);
		if (burst == 0 || burst % 4 != 0 || burst > MAX_BURST)
			die("the vector functions take bursts of 4 to 256 in steps of 4", (int)burst);
		task(&port, burst);
	}
	return 0;
}
