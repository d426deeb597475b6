//! One run of a forwarding mode: open, work, watch, drain, report.

use crate::args::ForwardArgs;
use crate::output::Output;
use crate::plan::{self, Plan, Request};
use crate::summary::{self, Tables};
use crate::worker::{Lane, Mode, Worker};
use crate::workers::{self, WorkerHandle, WorkerReport};
use cli::exit::Failure;
use cli::idle;
use cli::lane::{Ended, Place, PublishedLane, Tally};
use cli::lcore::Lcore;
use cli::pools::{self, Placement};
use cli::ports::{self, Ports};
use cli::report::Totals;
use cli::run::OnLink;
use cli::screen::Screen;
use cli::stop::Stop;
use lcore::Team;
use mempool::Pool;
use nic::Opened;
use std::time::Duration;

/// How long to wait for a full ring of a real NIC: a ring empties at line rate in 35 us.
const PATIENCE: Duration = Duration::from_micros(10);
/// For a ring of a software NIC, whose thread may have to wait for a core.
const SOFT_PATIENCE: Duration = Duration::from_millis(200);

/// Runs mode `M` as the command line says.
pub(crate) fn run<M: Mode>(args: &ForwardArgs) -> Result<(), Failure> {
    if M::PAIRS && args.ports.len() % 2 == 1 {
        let (count, mode) = (cli::human::counted(args.ports.len() as u64, "port"), M::NAME);
        return crate::usage(format!("{count}: {mode} forwards between pairs; name an even number of ports"));
    }
    ports::check(&args.ports)?;
    let stop = Stop::on_signals()?;
    let soft = args.ports.iter().any(nic::Address::is_soft);
    let available = cli::lcore::available()?;
    let plan = plan(args, &available, M::output)?;
    let (workers, interrupts) = (plan.ports_of_workers(), idle::interrupts(args.idle));
    let mut ports = ports::open(&args.ports, &plan.queues, &args.port_options(), interrupts, &workers, 0, &stop)?;
    let mut screen = Screen::new(args.run.json, args.run.quiet);
    screen.say(&ports::describe(std::slice::from_ref(&ports))?);

    let wiring = wire(&plan, &mut ports, patience(args, soft));
    let Ports { pools, opened } = ports;
    let (mut handles, mut members) = (Vec::new(), Vec::new());
    for (lcore, lanes, pools) in wiring.workers {
        let poll_loop = idle::poll_loop(args.idle, soft, args.run.exit_when_idle, &stop);
        handles.push(WorkerHandle { lcore, sleeps: poll_loop.sleeps() });
        let (batch, stop) = (usize::from(args.port_options.batch), stop.flag());
        let worker = Worker { lanes, pools, batch, mode: M::default(), stop, yields: soft, poll_loop };
        members.push((lcore, move || worker.run()));
    }
    let run = Run { args, stop, screen, available, handles, published: wiring.published, opened, pools, on_link: None };
    let outcome = run.supervise(members, Vec::new)?;
    summary::print(M::NAME, &outcome, &args.run, &Tables::default())?;
    outcome.result
}

/// Plans which lcore polls which queue, with a warning where an lcore is far from its port. Frames of a port leave by the
/// port that `output` returns.
pub(crate) fn plan(
    args: &ForwardArgs,
    available: &[Lcore],
    output: fn(usize) -> Option<usize>,
) -> Result<Plan, Failure> {
    let nodes: Vec<_> = args.ports.iter().map(nic::Address::numa_node).collect();
    let plan = plan::plan(&Request {
        ports: args.ports.len(),
        queues: args.queues,
        bindings: args.lcores.as_ref(),
        available,
        nodes: &nodes,
        soft: args.ports.iter().any(nic::Address::is_soft),
        output,
    })?;
    let polled = plan.polled().map(|(lcore, port)| (lcore, args.ports[port].name(), nodes[port]));
    ports::warn_if_crossing(polled, available);
    Ok(plan)
}

/// A run that is ready to go.
pub(crate) struct Run<'a> {
    pub(crate) args: &'a ForwardArgs,
    pub(crate) stop: Stop,
    pub(crate) screen: Screen,
    /// The lcores there are.
    pub(crate) available: Vec<Lcore>,
    pub(crate) handles: Vec<WorkerHandle>,
    pub(crate) published: Vec<PublishedLane>,
    pub(crate) opened: Vec<Opened>,
    /// The pool that each port receives into.
    pub(crate) pools: Vec<Pool>,
    /// Is told of the ports' links.
    pub(crate) on_link: Option<OnLink<'a>>,
}

/// What became of a run.
pub(crate) struct Outcome {
    pub(crate) totals: Totals,
    pub(crate) workers: Vec<WorkerReport>,
    pub(crate) memory: Placement,
    /// An error when a device is gone or does not close; the totals are right all the same.
    pub(crate) result: Result<(), Failure>,
}

impl From<Lane> for Ended {
    fn from(lane: Lane) -> Self {
        let Lane { rx, tx, tally, .. } = lane;
        tally.end(Some(rx.queue), tx.map(|output| output.tx))
    }
}

impl Run<'_> {
    /// Starts the workers, each with its lcore, watches them until the run ends, and closes the ports. `notes` are more
    /// lines under the live table. Returns an error if workers cannot be started, or one fails.
    pub(crate) fn supervise<F, E>(
        self,
        members: Vec<(Option<usize>, F)>,
        mut notes: impl FnMut() -> Vec<String>,
    ) -> Result<Outcome, Failure>
    where
        F: FnOnce() -> Vec<E> + Send + 'static,
        E: Into<Ended> + Send + 'static,
    {
        let Self { args, stop, mut screen, available, handles, published, opened, pools, on_link } = self;
        let run = cli::run::Run {
            options: &args.run,
            stop: &stop,
            screen: &mut screen,
            published,
            opened,
            pools: &pools,
            wind_down: None,
            on_link,
        };
        let notes = |totals: &Totals| {
            let seconds = totals.seconds;
            let slept = workers::sleep_words(&workers::report(&handles, &available), seconds);
            notes().into_iter().chain((!slept.is_empty()).then_some(slept)).collect()
        };
        let (totals, result) = run.supervise(members, Team::any_finished, notes, Into::into)?;
        let workers = workers::report(&handles, &available);
        Ok(Outcome { totals, workers, memory: Placement::of(&pools), result })
    }
}

/// The queues, given to workers.
struct Wiring {
    /// The lcore and the lanes of each worker, and the pools of the lanes.
    workers: Vec<(Option<usize>, Vec<Lane>, Vec<Pool>)>,
    published: Vec<PublishedLane>,
}

/// Returns how long workers wait for room in a full ring.
pub(crate) fn patience(args: &ForwardArgs, soft: bool) -> Duration {
    let wished = args.tx_wait.map(|us| Duration::from_micros(us.into()));
    wished.unwrap_or(if soft { SOFT_PATIENCE } else { PATIENCE })
}

/// Takes the queues out of the ports and hands them out by the plan, which names each at most once.
fn wire(plan: &Plan, ports: &mut Ports, patience: Duration) -> Wiring {
    let mut rx: Vec<_> = ports.opened.iter_mut().map(|opened| all(&mut opened.rx)).collect();
    let mut tx: Vec<_> = ports.opened.iter_mut().map(|opened| all(&mut opened.tx)).collect();
    let mut wiring = Wiring { workers: Vec::new(), published: Vec::new() };
    for worker in &plan.workers {
        let (mut lanes, mut own_pools) = (Vec::new(), Vec::new());
        for lane in &worker.lanes {
            let input = (lane.port, lane.queue);
            let Some(queue) = take(&mut rx, input) else { continue };
            let output = lane.output.and_then(|output| take(&mut tx, output));
            let tally = Tally::new(Some(input), lane.output);
            wiring.published.push(tally.lane());
            let cache = pools::place(&mut own_pools, &ports.pools[lane.port]);
            lanes.push(Lane::new(queue, cache, output.map(|queue| Output::new(queue, patience)), tally));
        }
        wiring.workers.push((worker.lcore, lanes, own_pools));
    }
    // Queues that nobody uses, such as transmit queues of rxonly, stay with their port.
    for (opened, (rx, tx)) in ports.opened.iter_mut().zip(rx.into_iter().zip(tx)) {
        opened.rx.extend(rx.into_iter().flatten());
        opened.tx.extend(tx.into_iter().flatten());
    }
    wiring
}

/// Takes all queues out of a port.
pub(crate) fn all<T>(queues: &mut Vec<T>) -> Vec<Option<T>> {
    queues.drain(..).map(Some).collect()
}

/// Takes one of the queues that were taken out of ports.
pub(crate) fn take<T>(queues: &mut [Vec<Option<T>>], (port, queue): Place) -> Option<T> {
    queues.get_mut(port)?.get_mut(queue)?.take()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::l2::L2;
    use lcore::Loop;
    use nic::PortConfig;

    #[test]
    fn a_worker_of_two_nodes_takes_buffers_of_each_port_from_its_own_pool() {
        let config = mempool::PoolConfig { slots: 2048, ..Default::default() };
        let pools = [Pool::new(&config).unwrap(), Pool::new(&config).unwrap()];
        let ports = ["soft:near?wire=gen&count=3000", "soft:far?wire=gen&count=2000"];
        let open = |(port, pool): (&str, &Pool)| nic::open(&port.parse().unwrap(), &PortConfig::default(), pool);
        let opened = ports.into_iter().zip(&pools).map(|port| open(port).unwrap()).collect();
        let mut ports = Ports { pools: pools.to_vec(), opened };
        let one_lcore = [Lcore { number: 0, node: None }];
        let plan = plan::plan(&Request {
            ports: 2,
            queues: None,
            bindings: None,
            available: &one_lcore,
            nodes: &[Some(0), Some(1)],
            soft: true,
            output: L2::output,
        });
        let Wiring { mut workers, published } = wire(&plan.unwrap(), &mut ports, Duration::from_secs(60));
        let (_, lanes, of_lanes) = workers.remove(0);
        assert!(workers.is_empty());
        assert_eq!(of_lanes.iter().map(Pool::id).collect::<Vec<_>>(), pools.each_ref().map(Pool::id));

        let stop = lcore::Stop::new().unwrap();
        let poll_loop = Loop::new(&stop).yield_after(Some(1));
        let worker =
            Worker { lanes, pools: of_lanes, batch: 32, mode: L2, stop: stop.clone(), yields: true, poll_loop };
        let work = std::thread::spawn(move || worker.run());
        while published.iter().map(|lane| lane.counters.read().tx_packets).sum::<u64>() < 5000 {
            std::thread::yield_now();
        }
        stop.request();
        let ended: Vec<Ended> = work.join().unwrap().into_iter().map(Into::into).collect();
        let (totals, closed) =
            cli::run::finish(Duration::from_secs(1), ended, ports.opened, &pools, &Stop::on_signals().unwrap());
        closed.unwrap();
        assert_eq!((totals.counters.rx_packets, totals.counters.tx_packets), (5000, 5000));
        assert_eq!(pools.each_ref().map(Pool::away), [0, 0]);
        assert_eq!(Placement::of(&pools).bytes, 2 * pools[0].memory().len());
    }
}
