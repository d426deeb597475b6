//! One run: open, work, watch, drain, report.

use crate::args::{RxArgs, TxArgs};
use crate::frame::{self, Destination};
use crate::receive::{PublishedVerdict, Receiver, Sink};
use crate::report;
use crate::sequence::Verdict;
use crate::transmit::{self, Sender, Source};
use anyhow::anyhow;
use cli::args::{PortOptions, RunOptions};
use cli::counters::{Counters, Published, Reason};
use cli::exit::Failure;
use cli::human::{counted as counted_words, grouped};
use cli::idle;
use cli::lcore;
use cli::ports::{self, Ports, Queues};
use cli::report::{PortTotals, Totals, read_devices, read_devices_last};
use cli::screen::Screen;
use cli::stop::Stop;
use cli::team::{self, IdleWatch, Team};
use nic::{Address, Interrupts, Port as _};
use std::cell::RefCell;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Buffers beyond those of the rings, for frames on their way.
const SPARE: usize = 1024;

/// `pktgen tx`.
pub(crate) fn transmit(args: &TxArgs) -> Result<(), Failure> {
    ports::check(&args.ports)?;
    let stop = Stop::on_signals()?;
    let soft = args.ports.iter().any(Address::is_soft);
    let mut screen = Screen::new(args.run.json, args.run.quiet);
    let mut ports = open(&args.ports, &args.port_options, Interrupts::Off, &stop, &mut screen)?;
    wait_for_links(&ports, &stop)?;

    let run_id = u32::try_from(device::tsc::now() & 0xffff_ff00).unwrap_or_default();
    let to = Destination { mac: args.dst_mac, ip: args.dst_ip };
    let mut sources = Vec::new();
    for (index, port) in ports.iter_mut().enumerate() {
        let Some(opened) = port.opened.first_mut() else { continue };
        // Streams of different runs differ in the upper bits, those of different ports in the lower.
        let stream = run_id | u32::try_from(index).unwrap_or_default() & 0xff;
        let Some(template) = frame::template(opened.port.mac().0, to, stream, args.size) else { continue };
        transmit::prefill(&port.pools[0], &template);
        for tx in opened.tx.drain(..) {
            let source = Source {
                port: index,
                tx,
                pool: port.pools[0].clone(),
                size: args.size,
                rate: args.rate,
                count: args.count,
                flows: args.flows,
                checksum: frame::checksum(&template),
                counters: Counters::default(),
                published: Arc::default(),
            };
            sources.push((index, source));
        }
    }
    let published: Vec<_> = sources.iter().map(|(port, source)| (*port, Arc::clone(&source.published))).collect();
    let members = share_out(sources, &ports, soft)?.into_iter().map(|(lcore, sources)| {
        let batch = args.port_options.batch.into();
        let sender = Sender { sources, batch, stop: stop.flag(), yields: soft };
        (lcore, move || sender.run())
    });
    let team = team::start(members.collect(), &stop)?;
    let notes = || Vec::new();
    let (ran, trouble) = watch(&stop, &args.run, &team, &mut screen, &mut ports, (&published, Way::Tx), notes);

    stop.request();
    let ended = team::join(team)?;
    let (devices, read) = read_devices_last(all_ports(&mut ports));
    let mut counted = Vec::new();
    for mut source in ended.into_iter().flatten() {
        let port = &mut ports[source.port];
        let Some(opened) = port.opened.first_mut() else { continue };
        opened.tx.push(source.tx);
        let idle = ports::drain(&mut port.opened, &port.pools, &stop) == [true];
        ports::count_unsent(&port.opened[0].tx[0], idle, &mut source.counters);
        counted.push((source.port, source.counters));
    }
    stop.closing();
    let totals = totals(ran, (&counted, Way::Tx), devices, Vec::new());
    let closed = close(ports);
    let all_sent = match totals.counters.dropped(Reason::TxUnsent) {
        unsent if args.count.is_some() && unsent > 0 => Err(anyhow!(
            "{} of --count not sent a second after the last was handed over (or at a signal): the other end takes none; see to \
             it, or lower --rate",
            counted_words(unsent, "frame")
        )
        .into()),
        _ => Ok(()),
    };
    let result = trouble.and(read.map_err(Failure::from)).and(closed).and(all_sent);
    report::sent(&totals, &args.run, &result)?;
    result
}

/// `pktgen rx`.
pub(crate) fn receive(args: &RxArgs) -> Result<(), Failure> {
    ports::check(&args.ports)?;
    let stop = Stop::on_signals()?;
    let soft = args.ports.iter().any(Address::is_soft);
    let mut screen = Screen::new(args.run.json, args.run.quiet);
    let mut ports = open(&args.ports, &args.port_options, idle::interrupts(args.idle), &stop, &mut screen)?;

    let mut sinks = Vec::new();
    for (index, port) in ports.iter_mut().enumerate() {
        let queues = port.opened.iter_mut().flat_map(|opened| opened.rx.drain(..));
        sinks.extend(queues.map(|rx| (index, Sink::new(index, rx, port.pools[0].clone()))));
    }
    let published: Vec<_> = sinks.iter().map(|(port, sink)| (*port, Arc::clone(&sink.published))).collect();
    let verdicts: Vec<Arc<PublishedVerdict>> = sinks.iter().map(|(_, sink)| Arc::clone(&sink.verdict)).collect();
    let members = share_out(sinks, &ports, soft)?.into_iter().map(|(lcore, sinks)| {
        let batch = args.port_options.batch.into();
        let poll_loop = idle::poll_loop(args.idle, soft, args.run.exit_when_idle, &stop);
        let receiver = Receiver { sinks, batch, poll_loop };
        (lcore, move || receiver.run())
    });
    let team = team::start(members.collect(), &stop)?;
    let notes = || {
        let (mut all, mut foreign) = (Verdict::default(), 0);
        for (verdict, others) in verdicts.iter().map(|verdict| verdict.read()) {
            all += verdict;
            foreign += others;
        }
        let [lost, reordered, duplicates, foreign] = [all.lost, all.reordered, all.duplicates, foreign].map(grouped);
        vec![format!("lost {lost}, reordered {reordered}, duplicates {duplicates}, foreign frames {foreign}")]
    };
    let (ran, trouble) = watch(&stop, &args.run, &team, &mut screen, &mut ports, (&published, Way::Rx), notes);

    ports::stop_receiving(ports.iter_mut().flat_map(|ports| &mut ports.opened), &stop);
    let ended = team::join(team)?;
    let (devices, read) = read_devices_last(all_ports(&mut ports));
    stop.closing();
    let (mut counted, mut streams, mut foreign) = (Vec::new(), Vec::new(), 0);
    for mut sink in ended.into_iter().flatten() {
        ports::count_unread(&mut sink.rx, &sink.pool, &mut sink.counters);
        counted.push((sink.port, sink.counters));
        foreign += sink.foreign;
        let name = ports[sink.port].opened.first().map_or(String::new(), |opened| opened.port.name().to_owned());
        streams.extend(sink.streams.into_iter().map(|stream| (name.clone(), stream)));
    }
    let totals = totals(ran, (&counted, Way::Rx), devices, Vec::new());
    let closed = close(ports);
    let result = trouble.and(read.map_err(Failure::from)).and(closed);
    report::received(&totals, &streams, foreign, &args.run, &result)?;
    result
}

/// Waits until every link is up, as long as copper may take to negotiate one, or until a signal.
fn wait_for_links(ports: &[Ports], stop: &Stop) -> Result<(), Failure> {
    let begun = Instant::now();
    for opened in ports.iter().flat_map(|ports| &ports.opened) {
        loop {
            if opened.port.wait_link(LINK_SLICE)?.up || stop.is_requested() {
                break;
            }
            if begun.elapsed() >= LINK_LIMIT {
                let (name, limit) = (opened.port.name(), LINK_LIMIT.as_secs());
                let way = match opened.port.no_carrier() {
                    Some(cause) => format!(": {cause}"),
                    None => "; plug in the cable, or start the other end".to_owned(),
                };
                let trouble = format!("the link is down, {limit} s after opening, so nothing can be sent{way}");
                return Err(anyhow!("{name}: {trouble}").into());
            }
        }
    }
    Ok(())
}

/// How long a link may take to come up.
const LINK_LIMIT: Duration = Duration::from_secs(10);
/// A signal is seen this soon.
const LINK_SLICE: Duration = Duration::from_millis(100);

/// Opens each port on a packet pool of its own.
fn open(
    addresses: &[Address],
    options: &PortOptions,
    interrupts: Interrupts,
    stop: &Stop,
    screen: &mut Screen,
) -> Result<Vec<Ports>, Failure> {
    let mut ports = Vec::new();
    for address in addresses {
        ports.push(ports::open(
            std::slice::from_ref(address),
            &[Queues { rx: 1, tx: 1 }],
            options,
            interrupts,
            &[vec![0]],
            SPARE,
            stop,
        )?);
    }
    screen.say(&ports::describe(&ports)?);
    Ok(ports)
}

/// An lcore, and the queues it serves.
type Share<T> = (Option<usize>, Vec<T>);

/// Deals out queues to as many workers as there are lcores for on the NUMA nodes of their ports, which come with them.
fn share_out<T>(queues: Vec<(usize, T)>, ports: &[Ports], soft: bool) -> Result<Vec<Share<T>>, Failure> {
    let node = |port: usize| ports.get(port)?.opened.first()?.port.numa_node();
    let nodes: Vec<_> = queues.iter().map(|(port, _)| node(*port)).collect();
    let mut queues: Vec<Option<T>> = queues.into_iter().map(|(_, queue)| Some(queue)).collect();
    let mut take = |index: usize| queues.get_mut(index)?.take();
    let mut shares = Vec::new();
    for (lcore, indices) in lcore::spread(&nodes, &lcore::available()?, soft) {
        shares.push((lcore, indices.into_iter().filter_map(&mut take).collect()));
    }
    Ok(shares)
}

/// Watches the team. Returns how long it ran, and what went wrong.
fn watch<T: Send + 'static>(
    stop: &Stop,
    options: &RunOptions,
    team: &Team<T>,
    screen: &mut Screen,
    ports: &mut [Ports],
    (published, way): (&[(usize, Arc<Published>)], Way),
    notes: impl Fn() -> Vec<String>,
) -> (Duration, Result<(), Failure>) {
    let mut idle = IdleWatch::new(published.iter().map(|(_, published)| Arc::clone(published)).collect());
    let event_fds = match ports::event_fds(ports.iter().flat_map(|ports| &ports.opened)) {
        Ok(fds) => fds,
        Err(failure) => return (team.begun().elapsed(), Err(failure)),
    };
    let ports = RefCell::new(ports);
    let watched = team::watch(
        stop,
        options,
        team.begun(),
        screen,
        &event_fds,
        || ports::take_events(ports.borrow_mut().iter_mut().flat_map(|ports| &mut ports.opened)),
        |elapsed| {
            let counted: Vec<_> = published.iter().map(|(port, published)| (*port, published.read())).collect();
            let (devices, result) = read_devices(all_ports(&mut ports.borrow_mut()));
            result?;
            Ok(totals(elapsed, (&counted, way), devices, notes()))
        },
        || team.all_finished(),
        || idle.is_idle(ports.borrow().iter().flat_map(|ports| ports.opened.iter().map(|opened| &opened.port))),
    );
    match watched {
        Ok(ran) => (ran, Ok(())),
        Err(failure) => (team.begun().elapsed(), Err(failure)),
    }
}

/// The queues that a run uses.
#[derive(Clone, Copy, Debug)]
enum Way {
    Rx,
    Tx,
}

/// Adds up what queues have counted, beside what devices have.
fn totals(
    elapsed: Duration,
    (counted, way): (&[(usize, Counters)], Way),
    ports: Vec<PortTotals>,
    notes: Vec<String>,
) -> Totals {
    let mut totals = Totals { seconds: elapsed.as_secs_f64(), ports, notes, ..Totals::default() };
    for (port, counters) in counted {
        totals.counters += *counters;
        if let Some(port) = totals.ports.get_mut(*port) {
            match way {
                Way::Rx => port.add_rx(0, counters),
                Way::Tx => port.add_tx(0, counters),
            }
        }
    }
    totals
}

fn all_ports(ports: &mut [Ports]) -> impl Iterator<Item = &mut nic::AnyPort> {
    ports.iter_mut().flat_map(|ports| &mut ports.opened).map(|opened| &mut opened.port)
}

fn close(ports: Vec<Ports>) -> Result<(), Failure> {
    let mut result = Ok(());
    for opened in ports.into_iter().flat_map(|ports| ports.opened) {
        result = result.and(opened.close().map(drop).map_err(Failure::from));
    }
    result
}
