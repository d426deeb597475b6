//! `fwd l3`: routes IPv4 and IPv6. Every worker has a transmit queue at every port, so whatever it receives it can send
//! anywhere without asking another.

mod reload;
mod worker;

use crate::args::{ForwardArgs, L3Args, MissChoice};
use crate::plan::Plan;
use crate::run::{self, PublishedLane, Run};
use crate::summary;
use crate::workers::WorkerHandle;
use anyhow::ensure;
use cli::counters::Published;
use cli::exit::Failure;
use cli::idle;
use cli::lcore::Lcore;
use cli::pools;
use cli::ports::{self, Ports};
use cli::screen::Screen;
use cli::stop::Stop;
use mempool::Pool;
use nic::Port as _;
use reload::Reloader;
use router::{Fib, Interface, Miss};
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use worker::{Input, Sender, Worker};

/// Most transmit queues of a port.
const MOST_QUEUES: usize = 64;

/// Runs the router as the command line says.
pub(crate) fn run(args: &L3Args) -> Result<(), Failure> {
    let L3Args { forward, miss, promiscuous, .. } = args;
    refuse_routes_as_output(&args.routes, &forward.ports)?;
    ports::check(&forward.ports)?;
    let stop = Stop::on_signals()?;
    let reloader = Reloader::on_hangup(&args.routes, forward.ports.len())?;
    let routes = reloader.read(&stop)?;
    let soft = forward.ports.iter().any(nic::Address::is_soft);
    let available = cli::lcore::available()?;
    let plan = plan(forward, &available)?;

    let batch = usize::from(forward.port_options.batch);
    // Each worker keeps up to two bursts for each port.
    let spare = forward.ports.len() * 2 * batch;
    let (workers, interrupts) = (plan.ports_of_workers(), idle::interrupts(forward.idle));
    let mut ports =
        ports::open(&forward.ports, &plan.queues, &forward.port_options(), interrupts, &workers, spare, &stop)?;
    let mut screen = Screen::new(forward.run.json, forward.run.quiet);
    screen.say(&ports::describe(std::slice::from_ref(&ports))?);

    let mtu = forward.port_options.mtu;
    let interface = |opened: &nic::Opened| Interface { mac: opened.port.mac().0, promiscuous: *promiscuous, mtu };
    let fib = Fib::new(&routes, &ports.opened.iter().map(interface).collect::<Vec<_>>())?;
    drop(routes);
    let miss = match miss {
        MissChoice::Drop => Miss::Refuse,
        MissChoice::Return => Miss::Return,
    };
    let (workers, published) = wire(&plan, &mut ports, run::patience(forward, soft));
    let Ports { pools, opened } = ports;
    let (mut handles, mut members) = (Vec::new(), Vec::new());
    for (lcore, inputs, senders, pools) in workers {
        let poll_loop = idle::poll_loop(forward.idle, soft, forward.run.exit_when_idle, &stop);
        handles.push(WorkerHandle { lcore, sleeps: poll_loop.sleeps() });
        let (forwarder, stop) = (fib.forwarder(miss), stop.flag());
        let worker = Worker { inputs, senders, forwarder, pools, batch, stop, yields: soft, poll_loop };
        members.push((lcore, move || worker.run()));
    }
    let reloading = reloader.start(fib)?;
    screen.say(&reloading.note());
    let run = Run { args: forward, stop, screen, available, handles, published, opened, pools };
    let outcome = run.supervise(members, || vec![reloading.note()])?;
    summary::print("l3", &outcome, &forward.run, Some(reloading.end()))?;
    outcome.result
}

/// Opening a port empties the capture that it writes, so none may be the routes file, however either is named.
fn refuse_routes_as_output(routes: &Path, ports: &[nic::Address]) -> anyhow::Result<()> {
    // What does not exist cannot be the same, and the way to a file is told by who opens it.
    let identity = |path: &Path| {
        let found = path.metadata().ok()?;
        // Any number may share a device node such as /dev/null.
        (!found.file_type().is_char_device()).then(|| (found.dev(), found.ino()))
    };
    let Some(file) = identity(routes) else { return Ok(()) };
    for (port, output) in ports.iter().flat_map(|port| capture_outputs(port).map(move |output| (port, output))) {
        ensure!(
            identity(Path::new(output)) != Some(file),
            "{}: cannot use {output} as a capture or trace: it is the routes file {}, which is being read; name a file of its own for \
             each output",
            port.name(),
            routes.display()
        );
    }
    Ok(())
}

/// The captures and traces that a port's address says it writes: `OUT` of `wire=pcap:IN,OUT`, and `FILE` of `trace=FILE`.
fn capture_outputs(port: &nic::Address) -> impl Iterator<Item = &str> {
    let settings = match port {
        nic::Address::Soft(spec) => spec.split_once('?').map_or("", |(_, settings)| settings),
        _ => "",
    };
    settings.split('&').filter_map(|setting| match setting.split_once('=')? {
        ("trace", file) => Some(file),
        ("wire", wire) => Some(wire.strip_prefix("pcap:")?.split_once(',')?.1),
        _ => None,
    })
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
    let mut rx: Vec<Vec<_>> = ports.opened.iter_mut().map(|opened| opened.rx.drain(..).map(Some).collect()).collect();
    let mut published = Vec::new();
    let mut publish = |input, output| {
        let counters = Arc::<Published>::default();
        published.push(PublishedLane { input, output, counters: Arc::clone(&counters) });
        counters
    };
    let mut workers = Vec::new();
    for worker in &plan.workers {
        let (mut inputs, mut senders, mut own_pools) = (Vec::new(), Vec::new(), Vec::new());
        for lane in &worker.lanes {
            let queue = rx.get_mut(lane.port).and_then(|queues| queues.get_mut(lane.queue)).and_then(Option::take);
            let input = (lane.port, lane.queue);
            let cache = pools::place(&mut own_pools, &ports.pools[lane.port]);
            inputs.extend(queue.map(|rx| Input::new(rx, input, cache, publish(Some(input), None))));
        }
        for (port, opened) in ports.opened.iter_mut().enumerate() {
            let queue = opened.tx.pop();
            let output = (port, opened.tx.len());
            senders.extend(queue.map(|tx| Sender::new(tx, output, patience, publish(None, Some(output)))));
        }
        workers.push((worker.lcore, inputs, senders, own_pools));
    }
    (workers, published)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::{self, Request};
    use crate::run::Ended;
    use mempool::PoolConfig;
    use nic::PortConfig;
    use router::Routes;

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
            forwarder: fib.forwarder(Miss::Refuse),
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
