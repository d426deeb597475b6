//! `fwd l3`: routes IPv4 and IPv6. Every worker has a transmit queue at every port, so whatever it receives it can send
//! anywhere without asking another.

mod by_file;
mod by_kernel;
mod groups;
mod host;
mod kernel_report;
mod reload;
mod vlans;
mod worker;

pub(crate) use kernel_report::KernelReport;

use crate::args::{ForwardArgs, L3Args};
use crate::plan::Plan;
use crate::run::{self, Run};
use crate::workers::WorkerHandle;
use cli::exit::Failure;
use cli::idle;
use cli::lane::{PublishedLane, Tally};
use cli::lcore::Lcore;
use cli::pools;
use cli::ports::{self, Ports};
use cli::screen::Screen;
use cli::stop::Stop;
use host::Routes;
use mempool::Pool;
use nic::{Opened, Port as _};
use router::Interface;
use std::time::Duration;
use worker::{Input, Sender, Worker};

/// Most transmit queues of a port.
const MOST_QUEUES: usize = 64;

/// Runs the router as the command line says.
pub(crate) fn run(args: &L3Args) -> Result<(), Failure> {
    match (&args.routes, &args.kernel) {
        (Some(routes), _) => by_file::run(args, routes),
        (None, Some(names)) => by_kernel::run(args, names),
        // The command line has one of them.
        (None, None) => crate::usage("l3: name a file of routes with --routes, or follow Linux's tables with --kernel"),
    }
}

/// Ports that are open, before there are workers.
struct Opening<'a> {
    forward: &'a ForwardArgs,
    stop: Stop,
    soft: bool,
    available: Vec<Lcore>,
    plan: Plan,
    ports: Ports,
    screen: Screen,
}

/// A run, and its workers with their lcores.
type Workers<'a, R> = (Run<'a>, Vec<(Option<usize>, Worker<R>)>);

impl<'a> Opening<'a> {
    /// Opens the ports. Each worker keeps `kept` packets for each port, besides two bursts.
    fn open(forward: &'a ForwardArgs, stop: Stop, kept: usize) -> Result<Self, Failure> {
        let soft = forward.ports.iter().any(nic::Address::is_soft);
        let available = cli::lcore::available()?;
        let plan = plan(forward, &available)?;
        let spare = forward.ports.len() * (2 * usize::from(forward.port_options.batch) + kept);
        let (workers, interrupts) = (plan.ports_of_workers(), idle::interrupts(forward.idle));
        let ports =
            ports::open(&forward.ports, &plan.queues, &forward.port_options(), interrupts, &workers, spare, &stop)?;
        let mut screen = Screen::new(forward.run.json, forward.run.quiet);
        screen.say(&ports::describe(std::slice::from_ref(&ports))?);
        Ok(Self { forward, stop, soft, available, plan, ports, screen })
    }

    /// The ports as the router sees them.
    fn interfaces(&self, promiscuous: bool) -> Vec<Interface> {
        let mtu = self.forward.port_options.mtu();
        let interface = |opened: &Opened| Interface { mac: opened.port.mac().0, promiscuous, mtu };
        self.ports.opened.iter().map(interface).collect()
    }

    /// Gives each worker its queues and its routes. Returns the run, and the workers with their lcores.
    fn workers<R: Routes>(mut self, routes: Vec<R>) -> Workers<'a, R> {
        let Self { forward, soft, .. } = self;
        let (workers, published) = wire(&self.plan, &mut self.ports, run::patience(forward, soft));
        let Self { stop, available, ports: Ports { pools, opened }, screen, .. } = self;
        let (mut handles, mut members) = (Vec::new(), Vec::new());
        for ((lcore, inputs, senders, pools), routes) in workers.into_iter().zip(routes) {
            let poll_loop = idle::poll_loop(forward.idle, soft, forward.run.exit_when_idle, &stop);
            handles.push(WorkerHandle { lcore, sleeps: poll_loop.sleeps() });
            let batch = usize::from(forward.port_options.batch);
            let stop = stop.flag();
            members.push((lcore, Worker { inputs, senders, routes, pools, batch, stop, yields: soft, poll_loop }));
        }
        (Run { args: forward, stop, screen, available, handles, published, opened, pools, on_link: None }, members)
    }
}

/// Who polls what; every worker gets a transmit queue at every port.
fn plan(args: &ForwardArgs, available: &[Lcore]) -> Result<Plan, Failure> {
    let mut plan = run::plan(args, available, |_| None)?;
    let workers = plan.workers.len();
    match u16::try_from(workers) {
        Ok(tx) if workers <= MOST_QUEUES => plan.queues.iter_mut().for_each(|queues| queues.tx = tx),
        _ => {
            return crate::usage(format!(
                "--lcores: {workers} lcores want a transmit queue each and ports have {MOST_QUEUES}; name fewer lcores"
            ));
        }
    }
    Ok(plan)
}

/// An lcore, its queues, and the pools of its inputs.
type Wired = (Option<usize>, Vec<Input>, Vec<Sender>, Vec<Pool>);

/// Takes the queues out of the ports and hands them to the workers: receive queues by the plan, transmit queues one of
/// each port.
fn wire(plan: &Plan, ports: &mut Ports, patience: Duration) -> (Vec<Wired>, Vec<PublishedLane>) {
    let mut rx: Vec<_> = ports.opened.iter_mut().map(|opened| run::all(&mut opened.rx)).collect();
    let mut published = Vec::new();
    let mut tally = |input, output| {
        let tally = Tally::new(input, output);
        published.push(tally.lane());
        tally
    };
    let mut workers = Vec::new();
    for worker in &plan.workers {
        let (mut inputs, mut senders, mut own_pools) = (Vec::new(), Vec::new(), Vec::new());
        for lane in &worker.lanes {
            let input = (lane.port, lane.queue);
            let queue = run::take(&mut rx, input);
            let cache = pools::place(&mut own_pools, &ports.pools[lane.port]);
            inputs.extend(queue.map(|rx| Input::new(rx, lane.port, cache, tally(Some(input), None))));
        }
        for (port, opened) in ports.opened.iter_mut().enumerate() {
            let queue = opened.tx.pop();
            let output = (port, opened.tx.len());
            senders.extend(queue.map(|tx| Sender::new(tx, patience, tally(None, Some(output)))));
        }
        workers.push((worker.lcore, inputs, senders, own_pools));
    }
    (workers, published)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::{self, Request};
    use cli::lane::Ended;
    use mempool::PoolConfig;
    use nic::PortConfig;
    use router::{Fib, Miss, Routes};

    #[test]
    fn frames_of_two_pools_leave_by_one_port_and_every_buffer_comes_home() {
        let config = PoolConfig { slots: 4096, ..PoolConfig::default() };
        let pools = [Pool::new(&config).unwrap(), Pool::new(&config).unwrap()];
        let ports = ["soft:l3-near?wire=gen&count=3000", "soft:l3-far?wire=gen&count=2000"];
        let open = |(port, pool): (&str, &Pool)| nic::open(&port.parse().unwrap(), &PortConfig::default(), pool);
        let opened = ports.into_iter().zip(&pools).map(|port| open(port).unwrap()).collect();
        let mut ports = Ports { pools: pools.to_vec(), opened };
        let available = [Lcore { number: 0, node: None }];
        let nodes = [Some(0), Some(1)];
        let wishes = Request {
            ports: 2,
            queues: None,
            bindings: None,
            available: &available,
            nodes: &nodes,
            soft: true,
            output: |_| None,
        };
        let (mut workers, published) = wire(&plan::plan(&wishes).unwrap(), &mut ports, Duration::from_secs(60));
        let (_, inputs, senders, of_inputs) = workers.remove(0);
        assert_eq!(of_inputs.iter().map(Pool::id).collect::<Vec<_>>(), pools.each_ref().map(Pool::id));

        let routes = Routes::parse(b"0.0.0.0/0 via 02:00:00:00:00:02 port 0\n", 2).unwrap();
        let interface = Interface { mac: [2, 0, 0, 0, 0, 1], promiscuous: true, mtu: 1500 };
        let fib = Fib::new(&routes, &[interface, interface]).unwrap();
        let stop = lcore::Stop::new().unwrap();
        let poll_loop = lcore::Loop::new(&stop).yield_after(Some(1));
        let worker = Worker {
            inputs,
            senders,
            routes: fib.forwarder(Miss::Refuse),
            pools: of_inputs,
            batch: 32,
            stop: stop.clone(),
            yields: true,
            poll_loop,
        };
        let work = std::thread::spawn(move || worker.run());
        while published.iter().map(|lane| lane.counters.read().tx_packets).sum::<u64>() < 5000 {
            std::thread::yield_now();
        }
        stop.request();
        let ended: Vec<Ended> = work.join().unwrap();
        assert_eq!(ended.iter().map(|ended| ended.counters.rx_packets).sum::<u64>(), 5000);
        drop(ended);
        for opened in ports.opened {
            opened.close().unwrap();
        }
        assert_eq!(pools.each_ref().map(Pool::away), [0, 0]);
    }
}
