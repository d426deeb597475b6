//! One run: open, work, watch, drain, report.

use crate::args::{RxArgs, TxArgs};
use crate::clock::{Calibrated, ticks};
use crate::frame::{self, Destination};
use crate::receive::{PublishedVerdict, Receiver, Sink};
use crate::report;
use crate::sequence::Verdict;
use crate::transmit::{self, Sender, Source};
use ::lcore::Team;
use anyhow::anyhow;
use cli::args::PortOptions;
use cli::counters::{Counters, Reason};
use cli::exit::Failure;
use cli::human::{counted as counted_words, grouped};
use cli::idle;
use cli::lcore;
use cli::ports::{self, Ports, Queues};
use cli::run::{Ended, PublishedLane, Run};
use cli::screen::Screen;
use cli::stop::Stop;
use measure::Pacer;
use nic::{Address, Interrupts, Opened, Port as _};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Buffers beyond those of the rings, for frames on their way.
pub(crate) const SPARE: usize = 1024;

/// `pktgen tx`.
pub(crate) fn transmit(args: &TxArgs) -> Result<(), Failure> {
    args.pace.check(args.size.into())?;
    ports::check(&args.ports)?;
    let calibrated = Calibrated::begin();
    let stop = Stop::on_signals()?;
    let soft = args.ports.iter().any(Address::is_soft);
    let mut screen = Screen::new(args.run.json, args.run.quiet);
    let Ports { mut opened, pools } = open(&args.ports, &args.port_options, Interrupts::Off, &stop, &mut screen)?;
    wait_for_links(&opened, &stop)?;
    let rates = args.pace.rates(args.size.into(), &args.ports, &opened)?;
    let clock = calibrated.clock()?;
    let catch_up = ticks(&clock, args.pace.catch_up);

    let run_id = u32::try_from(device::tsc::now() & 0xffff_ff00).unwrap_or_default();
    let to = Destination { mac: args.dst_mac, ip: args.dst_ip };
    let (mut sources, mut published) = (Vec::new(), Vec::new());
    for (index, (opened, pool)) in opened.iter_mut().zip(&pools).enumerate() {
        // Streams of different runs differ in the upper bits, those of different ports in the lower.
        let stream = run_id | u32::try_from(index).unwrap_or_default() & 0xff;
        let Some(template) = frame::template(opened.port.mac().0, to, stream, args.size) else { continue };
        transmit::prefill(pool, &template);
        for tx in opened.tx.drain(..) {
            let source = Source {
                port: index,
                tx,
                pool: pool.clone(),
                size: args.size,
                pacer: rates[index].map(|rate| Pacer::new(rate, args.pace.pattern(index, 0), clock.hz(), catch_up)),
                count: args.count,
                flows: args.flows,
                checksum: frame::checksum(&template),
                counters: Counters::default(),
                published: Arc::default(),
            };
            let counters = Arc::clone(&source.published);
            published.push(PublishedLane { input: None, output: Some((index, 0)), counters });
            sources.push(source);
        }
    }
    let members = share_out(sources, |source| &opened[source.port], soft)?.into_iter().map(|(lcore, sources)| {
        let batch = args.port_options.batch.into();
        let sender = Sender { sources, batch, stop: stop.flag(), yields: soft };
        (lcore, move || sender.run())
    });
    let run =
        Run { options: &args.run, stop: &stop, screen: &mut screen, published, opened, pools: &pools, wind_down: None };
    let mut missed = 0;
    let end = |Source { port, tx, counters, pacer, .. }| {
        missed += pacer.map_or(0, |pacer| pacer.missed());
        Ended { rx: None, tx: Some(tx), input: None, output: Some((port, 0)), counters }
    };
    let (totals, closed) = run.supervise(members.collect(), Team::all_finished, |_| Vec::new(), end)?;
    let all_sent = match totals.counters.dropped(Reason::TxUnsent) {
        unsent if args.count.is_some() && unsent > 0 => Err(anyhow!(
            "{} of --count not sent a second after the last was handed over (or at a signal): the other end takes none; see to \
             it, or lower --rate",
            counted_words(unsent, "frame")
        )
        .into()),
        _ => Ok(()),
    };
    let result = closed.and(all_sent);
    report::sent(&totals, missed, &args.run, &result)?;
    result
}

/// `pktgen rx`.
pub(crate) fn receive(args: &RxArgs) -> Result<(), Failure> {
    ports::check(&args.ports)?;
    let stop = Stop::on_signals()?;
    let soft = args.ports.iter().any(Address::is_soft);
    let mut screen = Screen::new(args.run.json, args.run.quiet);
    let interrupts = idle::interrupts(args.idle);
    let Ports { mut opened, pools } = open(&args.ports, &args.port_options, interrupts, &stop, &mut screen)?;

    let (mut sinks, mut published) = (Vec::new(), Vec::new());
    for (index, (opened, pool)) in opened.iter_mut().zip(&pools).enumerate() {
        for rx in opened.rx.drain(..) {
            let sink = Sink::new(index, rx, pool.clone());
            let counters = Arc::clone(&sink.published);
            published.push(PublishedLane { input: Some((index, 0)), output: None, counters });
            sinks.push(sink);
        }
    }
    let verdicts: Vec<Arc<PublishedVerdict>> = sinks.iter().map(|sink| Arc::clone(&sink.verdict)).collect();
    let members = share_out(sinks, |sink| &opened[sink.port], soft)?.into_iter().map(|(lcore, sinks)| {
        let batch = args.port_options.batch.into();
        let poll_loop = idle::poll_loop(args.idle, soft, args.run.exit_when_idle, &stop);
        let receiver = Receiver { sinks, batch, poll_loop };
        (lcore, move || receiver.run())
    });
    let notes = |_| {
        let (mut all, mut foreign) = (Verdict::default(), 0);
        for (verdict, others) in verdicts.iter().map(|verdict| verdict.read()) {
            all += verdict;
            foreign += others;
        }
        let [lost, reordered, duplicates, foreign] = [all.lost, all.reordered, all.duplicates, foreign].map(grouped);
        vec![format!("lost {lost}, reordered {reordered}, duplicates {duplicates}, foreign frames {foreign}")]
    };
    let (mut streams, mut foreign) = (Vec::new(), 0);
    let end = |Sink { port, rx, counters, streams: of_sink, foreign: others, .. }| {
        streams.extend(of_sink.into_iter().map(|stream| (port, stream)));
        foreign += others;
        Ended { rx: Some(rx.queue), tx: None, input: Some((port, 0)), output: None, counters }
    };
    let run =
        Run { options: &args.run, stop: &stop, screen: &mut screen, published, opened, pools: &pools, wind_down: None };
    let (totals, result) = run.supervise(members.collect(), Team::all_finished, notes, end)?;
    report::received(&totals, &streams, foreign, &args.run, &result)?;
    result
}

/// Waits until every link is up, as long as copper may take to negotiate one, or until a signal.
pub(crate) fn wait_for_links(opened: &[Opened], stop: &Stop) -> Result<(), Failure> {
    let begun = Instant::now();
    for opened in opened {
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
pub(crate) fn open(
    addresses: &[Address],
    options: &PortOptions,
    interrupts: Interrupts,
    stop: &Stop,
    screen: &mut Screen,
) -> Result<Ports, Failure> {
    let mut all = Ports { pools: Vec::new(), opened: Vec::new() };
    for address in addresses {
        let (address, queues) = (std::slice::from_ref(address), [Queues { rx: 1, tx: 1 }]);
        let one = ports::open(address, &queues, options, interrupts, &[vec![0]], SPARE, stop)?;
        all.pools.extend(one.pools);
        all.opened.extend(one.opened);
    }
    screen.say(&ports::describe(std::slice::from_ref(&all))?);
    Ok(all)
}

/// An lcore, and the queues it serves.
pub(crate) type Share<T> = (Option<usize>, Vec<T>);

/// Deals out queues to as many workers as there are lcores for on the NUMA nodes of their ports.
pub(crate) fn share_out<'p, T>(
    queues: Vec<T>,
    port: impl Fn(&T) -> &'p Opened,
    soft: bool,
) -> Result<Vec<Share<T>>, Failure> {
    let nodes: Vec<_> = queues.iter().map(|queue| port(queue).port.numa_node()).collect();
    let mut queues: Vec<Option<T>> = queues.into_iter().map(Some).collect();
    let mut take = |index: usize| queues.get_mut(index)?.take();
    let shares = lcore::spread(&nodes, &lcore::available()?, soft).into_iter();
    Ok(shares.map(|(lcore, indices)| (lcore, indices.into_iter().filter_map(&mut take).collect())).collect())
}
