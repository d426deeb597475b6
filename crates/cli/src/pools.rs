//! Packet memory: a pool for each NUMA node, so that it is on the node of its cards.

use crate::args::PortOptions;
use crate::ports::Queues;
use device::PageSize;
use mempool::{Error, Pool, PoolConfig};
use serde::Serialize;
use std::collections::BTreeMap;

/// A pool that a run needs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PoolPlan {
    /// The NUMA node of its memory; `None` leaves it to the kernel.
    pub numa_node: Option<u32>,
    /// Numbers of the ports that receive into it, in ascending order.
    pub ports: Vec<usize>,
    /// Number of its slots.
    pub slots: usize,
}

/// The data from which the pools of a run are planned.
#[derive(Clone, Copy, Debug)]
pub struct Demand<'a> {
    /// The NUMA node of each port, if the host reports it.
    pub nodes: &'a [Option<u32>],
    /// The queues of each port.
    pub queues: &'a [Queues],
    /// For each worker, the numbers of the ports that it receives from.
    pub workers: &'a [Vec<usize>],
    /// Ring and burst sizes.
    pub options: &'a PortOptions,
    /// Slots that each worker needs beyond its cache and a burst.
    pub spare: usize,
}

/// Returns the pools that a run needs: one for each NUMA node of a port. Ports whose node is not known receive into the
/// first of them; if no port's node is known, there is one pool, on any node.
///
/// Each is large enough for the receive rings of its ports, for the transmit rings of all ports, as any of them may
/// send a frame, and for the workers that receive from its ports.
#[must_use]
pub fn plan(demand: &Demand<'_>) -> Vec<PoolPlan> {
    let first = demand.nodes.iter().find_map(|node| *node);
    let mut pools: Vec<PoolPlan> = Vec::new();
    for port in 0..demand.queues.len() {
        let numa_node = demand.nodes.get(port).copied().flatten().or(first);
        match pools.iter_mut().find(|pool| pool.numa_node == numa_node) {
            Some(pool) => pool.ports.push(port),
            None => pools.push(PoolPlan { numa_node, ports: vec![port], slots: 0 }),
        }
    }
    pools.iter_mut().for_each(|pool| pool.slots = slots(demand, &pool.ports));
    pools
}

fn slots(demand: &Demand<'_>, ports: &[usize]) -> usize {
    let Demand { queues, workers, options, spare, .. } = demand;
    let receive = ports.iter().filter_map(|port| queues.get(*port)).map(|queues| usize::from(queues.rx));
    let transmit = queues.iter().map(|queues| usize::from(queues.tx));
    let rings = (receive.sum::<usize>() + transmit.sum::<usize>()) * usize::from(options.ring_size);
    let workers = workers.iter().filter(|polled| polled.iter().any(|port| ports.contains(port))).count();
    // A cache holds up to 512 slots, and a burst may be on its way.
    rings + workers * (512 + 64 + usize::from(options.batch) + spare)
}

/// Creates the pools of a run. Returns the pool of each port.
///
/// # Errors
///
/// If there is not enough memory.
pub fn allocate(demand: &Demand<'_>) -> Result<Vec<Pool>, Error> {
    let mut by_port = BTreeMap::new();
    for PoolPlan { numa_node, ports, slots } in plan(demand) {
        let pages = PageSize::from(demand.options.pages);
        let pool = Pool::new(&PoolConfig { slots, pages, numa_node, ..PoolConfig::default() })?;
        by_port.extend(ports.into_iter().map(|port| (port, pool.clone())));
    }
    Ok(by_port.into_values().collect())
}

/// Returns each of `pools` once.
#[must_use]
pub fn distinct<'p>(pools: impl IntoIterator<Item = &'p Pool>) -> Vec<&'p Pool> {
    let mut distinct: Vec<&Pool> = Vec::new();
    for pool in pools {
        if distinct.iter().all(|known| known.id() != pool.id()) {
            distinct.push(pool);
        }
    }
    distinct
}

/// Returns the index of `pool` in `pools`, to which it is appended if it is not there.
pub fn place(pools: &mut Vec<Pool>, pool: &Pool) -> usize {
    pools.iter().position(|known| known.id() == pool.id()).unwrap_or_else(|| {
        pools.push(pool.clone());
        pools.len() - 1
    })
}

/// Packet memory as the kernel has placed it, for JSON output.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Placement {
    /// Size in bytes.
    pub bytes: usize,
    /// Size of a page in bytes; that of the smallest, if there are several sizes.
    pub page_size: usize,
    /// Bytes on each NUMA node; `null` if the kernel does not report it.
    pub numa_nodes: Option<BTreeMap<u32, usize>>,
}

impl Placement {
    /// Returns the placement of the memory of `pools`, each counted once.
    #[must_use]
    pub fn of<'p>(pools: impl IntoIterator<Item = &'p Pool>) -> Self {
        let mut all = Self { bytes: 0, page_size: usize::MAX, numa_nodes: Some(BTreeMap::new()) };
        for memory in distinct(pools).into_iter().map(Pool::memory) {
            all.bytes += memory.len();
            all.page_size = all.page_size.min(memory.page_size());
            all.numa_nodes = all.numa_nodes.zip(memory.numa_nodes().ok()).map(|(mut nodes, more)| {
                more.into_iter().for_each(|(node, bytes)| *nodes.entry(node).or_default() += bytes);
                nodes
            });
        }
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RING: usize = 512;
    const WORKER: usize = 512 + 64 + 32;

    fn plan_of(nodes: &[Option<u32>], queues: &[(u16, u16)], workers: &[Vec<usize>], spare: usize) -> Vec<PoolPlan> {
        let queues: Vec<_> = queues.iter().map(|&(rx, tx)| Queues { rx, tx }).collect();
        plan(&Demand { nodes, queues: &queues, workers, options: &PortOptions::default(), spare })
    }

    #[test]
    fn ports_of_one_node_share_a_pool_as_large_as_all_their_rings() {
        for node in [None, Some(0), Some(1)] {
            let pools = plan_of(&[node, node], &[(1, 2), (3, 1)], &[vec![0, 1], vec![1]], 100);
            let slots = (1 + 2 + 3 + 1) * RING + 2 * (WORKER + 100);
            assert_eq!(pools, [PoolPlan { numa_node: node, ports: vec![0, 1], slots }]);
        }
        assert_eq!(plan_of(&[], &[], &[], 0), []);
    }

    #[test]
    fn each_node_has_a_pool_for_its_ports_and_their_workers() {
        let nodes = [Some(1), Some(0), Some(1), Some(0)];
        let pools = plan_of(&nodes, &[(2, 1), (1, 1), (1, 1), (1, 1)], &[vec![0, 2], vec![1], vec![3], vec![0, 3]], 10);
        let (of_1, of_0) = ((3 + 4) * RING + 2 * (WORKER + 10), (2 + 4) * RING + 3 * (WORKER + 10));
        assert_eq!(
            pools,
            [
                PoolPlan { numa_node: Some(1), ports: vec![0, 2], slots: of_1 },
                PoolPlan { numa_node: Some(0), ports: vec![1, 3], slots: of_0 },
            ]
        );
    }

    #[test]
    fn ports_without_a_known_node_receive_into_the_first_pool() {
        let pools = plan_of(&[None, Some(2), Some(0), None], &[(1, 1); 4], &[vec![0, 1, 2, 3]], 0);
        let ports: Vec<_> = pools.into_iter().map(|pool| (pool.numa_node, pool.ports)).collect();
        assert_eq!(ports, [(Some(2), vec![0, 1, 3]), (Some(0), vec![2])]);
    }

    #[test]
    fn placement_adds_up_each_pool_once() -> Result<(), Error> {
        let config = PoolConfig { slots: 64, pages: PageSize::Ordinary, ..PoolConfig::default() };
        let (one, other) = (Pool::new(&config)?, Pool::new(&config)?);
        let placement = Placement::of([&one, &other, &one.clone()]);
        assert_eq!(placement.bytes, one.memory().len() + other.memory().len());
        assert_eq!(placement.page_size, one.memory().page_size());
        if let Some(nodes) = placement.numa_nodes {
            assert_eq!(nodes.values().sum::<usize>(), placement.bytes);
        }
        let mut pools = Vec::new();
        assert_eq!([&one, &other, &one].map(|pool| place(&mut pools, pool)), [0, 1, 0]);
        Ok(())
    }
}
