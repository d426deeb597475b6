//! Who polls what: ports, queues and lcores become workers. Nothing here touches a device.

use cli::exit::Failure;
use cli::lcore::{self, Bindings, Lcore};
use cli::ports::Queues;

/// A receive queue, and the transmit queue that its frames leave by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Lane {
    pub(crate) port: usize,
    pub(crate) queue: usize,
    /// Port and queue of the output. No two lanes share one.
    pub(crate) output: Option<(usize, usize)>,
}

/// One thread.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct WorkerPlan {
    /// The lcore it is pinned to.
    pub(crate) lcore: Option<usize>,
    pub(crate) lanes: Vec<Lane>,
}

/// The whole of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Plan {
    pub(crate) queues: Vec<Queues>,
    pub(crate) workers: Vec<WorkerPlan>,
}

impl Plan {
    /// Returns the ports that each worker receives from.
    pub(crate) fn ports_of_workers(&self) -> Vec<Vec<usize>> {
        self.workers.iter().map(|worker| worker.lanes.iter().map(|lane| lane.port).collect()).collect()
    }

    /// Returns each pinned lcore with each port that it polls.
    pub(crate) fn polled(&self) -> impl Iterator<Item = (usize, usize)> {
        let pinned = self.workers.iter().filter_map(|worker| Some((worker.lcore?, &worker.lanes)));
        pinned.flat_map(|(lcore, lanes)| lanes.iter().map(move |lane| (lcore, lane.port)))
    }
}

/// What a plan is made from.
#[derive(Clone, Debug)]
pub(crate) struct Request<'a> {
    /// Number of ports.
    pub(crate) ports: usize,
    /// Receive queues of each port, if the user said.
    pub(crate) queues: Option<u16>,
    /// Triples of the user.
    pub(crate) bindings: Option<&'a Bindings>,
    /// The lcores there are, ascending.
    pub(crate) available: &'a [Lcore],
    /// The NUMA node of each port.
    pub(crate) nodes: &'a [Option<u32>],
    /// A software NIC's thread wants a core too.
    pub(crate) soft: bool,
    /// The port that frames of a port leave by.
    pub(crate) output: fn(usize) -> Option<usize>,
}

/// Most queues of a port.
const MOST_QUEUES: usize = 64;

/// Makes the plan. Without triples: as many workers as there are lcores for on the NUMA nodes of the ports, the two
/// directions of a pair of ports on the same worker. Returns an error if the request contradicts itself or the host.
pub(crate) fn plan(request: &Request) -> Result<Plan, Failure> {
    match request.bindings {
        Some(bindings) => from_bindings(request, bindings),
        None => Ok(by_default(request)),
    }
}

fn by_default(request: &Request) -> Plan {
    let each = request.queues.unwrap_or(1);
    let queues = usize::from(each);
    let lane = |port, queue| Lane { port, queue, output: (request.output)(port).map(|port| (port, queue)) };
    // Lanes that belong together: those between two ports, on one queue number.
    let mut groups: Vec<Vec<Lane>> = Vec::new();
    for port in 0..request.ports {
        let partner = (request.output)(port).unwrap_or(port);
        for queue in 0..queues {
            match groups.iter_mut().find(|group| partner < port && group[0].port == partner && group[0].queue == queue)
            {
                Some(group) => group.push(lane(port, queue)),
                None => groups.push(vec![lane(port, queue)]),
            }
        }
    }
    let nodes: Vec<_> = groups.iter().map(|group| request.nodes.get(group[0].port).copied().flatten()).collect();
    let shares = lcore::spread(&nodes, request.available, request.soft).into_iter();
    let worker = |(lcore, share): lcore::Share| {
        let lanes = share.into_iter().flat_map(|group| groups[group].iter().copied()).collect();
        WorkerPlan { lcore, lanes }
    };
    let workers = shares.map(worker).collect();
    Plan { queues: vec![Queues { rx: each, tx: each }; request.ports], workers }
}

fn from_bindings(request: &Request, bindings: &Bindings) -> Result<Plan, Failure> {
    let mut polled: Vec<Vec<usize>> = vec![Vec::new(); request.ports];
    let mut workers: Vec<WorkerPlan> = Vec::new();
    for binding in &bindings.0 {
        let triple = format!("--lcores: ({},{},{})", binding.port, binding.queue, binding.lcore);
        let Some(queues) = polled.get_mut(binding.port) else {
            let last = request.ports.saturating_sub(1);
            return crate::usage(format!("{triple}: there is no port {}; ports are 0 to {last}", binding.port));
        };
        if binding.queue >= MOST_QUEUES {
            return crate::usage(format!("{triple}: there is no queue {}; queues are 0 to 63", binding.queue));
        }
        let available: Vec<usize> = request.available.iter().map(|lcore| lcore.number).collect();
        if !available.contains(&binding.lcore) {
            let there_are = lcore::ranges(&available);
            return crate::usage(format!(
                "{triple}: lcore {} does not exist or is not allowed to this process; choose from {there_are}",
                binding.lcore
            ));
        }
        if queues.contains(&binding.queue) {
            return crate::usage(format!("{triple}: the queue has an lcore already; name each (port,queue) once"));
        }
        queues.push(binding.queue);
        let output = (request.output)(binding.port).map(|port| (port, binding.queue));
        let lane = Lane { port: binding.port, queue: binding.queue, output };
        match workers.iter_mut().find(|worker| worker.lcore == Some(binding.lcore)) {
            Some(worker) => worker.lanes.push(lane),
            None => workers.push(WorkerPlan { lcore: Some(binding.lcore), lanes: vec![lane] }),
        }
    }
    for (port, queues) in polled.iter().enumerate() {
        let count = queues.len();
        if count == 0 {
            return crate::usage(format!("--lcores: nobody polls port {port}; add ({port},0,LCORE)"));
        }
        if let Some(missing) = (0..count).find(|queue| !queues.contains(queue)) {
            return crate::usage(format!(
                "--lcores: port {port} has {count} queues and nobody polls queue {missing}; number them from 0"
            ));
        }
        if request.queues.is_some_and(|wanted| usize::from(wanted) != count) {
            return crate::usage(format!(
                "--queues: the triples of --lcores have {count} for port {port}; leave --queues out or add triples"
            ));
        }
    }
    let count = |queues: usize| u16::try_from(queues).unwrap_or(u16::MAX);
    let transmit = |port| {
        let lanes = workers.iter().flat_map(|worker| &worker.lanes);
        let used = lanes.filter_map(|lane| lane.output.filter(|output| output.0 == port)).map(|(_, queue)| queue + 1);
        used.max().unwrap_or(1)
    };
    let queues = polled.iter().enumerate();
    let queues = queues.map(|(port, polled)| Queues { rx: count(polled.len()), tx: count(transmit(port)) }).collect();
    Ok(Plan { queues, workers })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    fn pairs(port: usize) -> Option<usize> {
        Some(port ^ 1)
    }

    fn request(ports: usize, available: &[Lcore]) -> Request<'_> {
        Request { ports, queues: None, bindings: None, available, nodes: &[], soft: false, output: pairs }
    }

    /// Of a host with one node.
    fn lcores(numbers: impl IntoIterator<Item = usize>) -> Vec<Lcore> {
        numbers.into_iter().map(|number| Lcore { number, node: Some(0) }).collect()
    }

    /// Every (port, queue) has one lane, and every output queue exists and has one user.
    fn check(plan: &Plan) {
        let lanes: Vec<Lane> = plan.workers.iter().flat_map(|worker| worker.lanes.clone()).collect();
        let inputs: HashSet<_> = lanes.iter().map(|lane| (lane.port, lane.queue)).collect();
        let all = plan.queues.iter().enumerate().flat_map(|(port, q)| (0..q.rx.into()).map(move |queue| (port, queue)));
        assert_eq!(inputs, all.collect());
        assert_eq!(inputs.len(), lanes.len(), "a queue polled twice");
        let outputs: Vec<_> = lanes.iter().filter_map(|lane| lane.output).collect();
        assert_eq!(outputs.iter().collect::<HashSet<_>>().len(), outputs.len(), "a transmit queue with two owners");
        assert!(outputs.iter().all(|(port, queue)| *queue < plan.queues[*port].tx.into()));
        assert!(plan.workers.iter().all(|worker| !worker.lanes.is_empty()));
    }

    #[test]
    fn both_directions_of_a_pair_share_a_worker() {
        let plan = plan(&request(4, &lcores(0..4))).unwrap();
        check(&plan);
        assert_eq!(plan.workers.len(), 2);
        let ports: Vec<Vec<usize>> =
            plan.workers.iter().map(|w| w.lanes.iter().map(|lane| lane.port).collect()).collect();
        assert_eq!(ports, [[0, 1], [2, 3]]);
        assert_eq!(plan.workers.iter().map(|worker| worker.lcore).collect::<Vec<_>>(), [Some(3), Some(2)]);
    }

    #[test]
    fn a_pair_is_polled_on_the_node_of_its_first_port() {
        let nodes = [Some(0), Some(0), Some(1), None, None, None];
        let lcores: Vec<Lcore> = (0..6).map(|number| Lcore { number, node: Some(u32::from(number >= 3)) }).collect();
        let plan = plan(&Request { nodes: &nodes, ..request(6, &lcores) }).unwrap();
        check(&plan);
        let found: Vec<_> = plan.workers.iter().map(|worker| (worker.lcore, worker.lanes[0].port)).collect();
        assert_eq!(found, [(Some(2), 0), (Some(5), 2), (Some(4), 4)]);
        assert_eq!(plan.polled().collect::<Vec<_>>(), [(2, 0), (2, 1), (5, 2), (5, 3), (4, 4), (4, 5)]);
    }

    #[test]
    fn soft_nics_keep_a_core_for_their_thread() {
        for (available, expected) in [(vec![0], None), (vec![0, 1], Some(1)), (vec![4, 7], Some(7))] {
            let plan = plan(&Request { soft: true, ..request(2, &lcores(available)) }).unwrap();
            check(&plan);
            assert_eq!(plan.workers.len(), 1);
            assert_eq!(plan.workers[0].lcore, expected);
        }
    }

    #[test]
    fn any_number_of_queues_and_cores_works_out() {
        for ports in 1..=6 {
            for queues in [1, 2, 5, 64] {
                for cores in [1, 2, 3, 200] {
                    let available = lcores(0..cores);
                    let outputs: [fn(usize) -> Option<usize>; 3] = [pairs, Some, |_| None];
                    for output in outputs.into_iter().skip(ports % 2) {
                        let request = Request { queues: Some(queues), output, ..request(ports, &available) };
                        check(&plan(&request).unwrap());
                    }
                }
            }
        }
    }

    #[test]
    fn triples_are_followed() {
        let bindings: Bindings = "(0,0,1),(1,0,1),(0,1,3)".parse().unwrap();
        let plan = plan(&Request { bindings: Some(&bindings), ..request(2, &lcores([1, 3])) }).unwrap();
        check(&plan);
        assert_eq!(plan.queues, [Queues { rx: 2, tx: 1 }, Queues { rx: 1, tx: 2 }]);
        assert_eq!(
            plan.workers.iter().map(|w| (w.lcore, w.lanes.len())).collect::<Vec<_>>(),
            [(Some(1), 2), (Some(3), 1)]
        );
    }

    #[test]
    fn wrong_triples_are_refused_by_what_is_wrong() {
        for (text, queues, words) in [
            ("(2,0,0)", None, "no port 2; ports are 0 to 1"),
            ("(0,64,0)", None, "no queue 64"),
            ("(0,0,9)", None, "lcore 9 does not exist"),
            ("(0,0,9)", None, "choose from 0-1"),
            ("(0,0,0),(0,0,1)", None, "name each (port,queue) once"),
            ("(0,0,0)", None, "nobody polls port 1; add (1,0,LCORE)"),
            ("(0,1,0),(1,0,0)", None, "nobody polls queue 0"),
            ("(0,0,0),(1,0,0)", Some(2), "--queues"),
        ] {
            let bindings: Bindings = text.parse().unwrap();
            match plan(&Request { bindings: Some(&bindings), queues, ..request(2, &lcores(0..2)) }) {
                Err(Failure::Usage(message)) => assert!(message.contains(words), "{text}: {message}"),
                other => panic!("{text}: {other:?}"),
            }
        }
    }
}
