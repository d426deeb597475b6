//! One run: open, work, watch, drain, report.

use crate::args::{RxArgs, TxArgs};
use crate::clock::{Calibrated, ClockReport, ticks};
use crate::frames::{Asked, Frames, Limits};
use crate::host::Hosts;
use crate::lane::Lane;
use crate::receive::{PublishedVerdict, Receiver, Sink};
use crate::report;
use crate::transmit::{self, Sender};
use ::lcore::{Loop, Team};
use anyhow::anyhow;
use cli::args::{PortOptions, RunOptions};
use cli::counters::Reason;
use cli::exit::Failure;
use cli::human::{counted as counted_words, grouped};
use cli::idle;
use cli::lcore;
use cli::ports::{self, Ports, Queues};
use cli::report::Totals;
use cli::run::Run;
use cli::screen::Screen;
use cli::stop::Stop;
use device::tsc;
use measure::Clock;
use mempool::{Pool, PoolConfig};
use nic::{Address, Interrupts, Opened, Port as _};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Where frames of `tx` go unless told otherwise.
const NEXT_HOP: [u8; 6] = [2, 0, 0, 0, 0, 2];
/// Time from one frame that ends a stream to the next.
const END_GAP: Duration = Duration::from_millis(10);
/// How long a ring may take for what is tagged already.
pub(crate) const FLUSH: Duration = Duration::from_secs(1);
/// Buffers beyond those of the rings, for frames on their way.
pub(crate) const SPARE: usize = 1024;

/// `pktgen tx`.
pub(crate) fn transmit(args: &TxArgs) -> Result<(), Failure> {
    if args.control.is_some() || args.live {
        return Err(Failure::usage(
            "tx: cannot be steered, as its receiver goes by what was sent since its first frame; leave out --control, --script, --live and \
             --stopped, or use pktgen run",
        ));
    }
    let frames = Frames::of(&args.traffic, &args.port_options)?;
    frames.check_expected(args.expect_rate)?;
    args.traffic.pace.check(args.ports.len())?;
    frames.check_patterns(&args.traffic.pace)?;
    args.traffic.check(args.ports.len())?;
    args.hosting.check(args.ports.len())?;
    ports::check(&args.ports)?;
    let calibrated = Calibrated::begin();
    let stop = Stop::on_signals()?;
    let soft = args.ports.iter().any(Address::is_soft);
    let mut screen = Screen::new(args.run.json, args.run.quiet);
    let port_options = frames.port_options(&args.port_options);
    let Ports { mut opened, pools } = open(&args.ports, &port_options, Interrupts::Off, &stop, &mut screen)?;
    wait_for_links(&opened, &stop)?;
    let lines = args.traffic.pace.lines(&args.ports, &opened)?;
    let asked = lines.into_iter().enumerate().map(|(port, line)| frames.asked(port, line));
    let asked = asked.collect::<Result<Vec<_>, _>>()?;
    let mut clock = calibrated.clock()?;

    let senders = senders(args, &frames, (&mut opened, &pools), &asked, &clock, &stop)?;
    let published = senders.iter().map(|port| port.tally.lane()).collect();
    let progress: Vec<_> = senders.iter().map(|port| Arc::clone(&port.progress)).collect();
    let cut = Arc::new(AtomicBool::new(false));
    let plan = plan(args, &frames, &clock, &cut);
    let members = share_out(senders, |port| &opened[port.lane.port], soft)?.into_iter().map(|(lcore, ports)| {
        let sender = Sender { ports, plan: plan.clone() };
        // A software NIC has the core at once when its ring is full.
        let poll_loop = Loop::new(&stop.flag()).yield_after(soft.then_some(1));
        (lcore, move || sender.run(poll_loop))
    });
    // What ends a run in time is the plan, so that its last frames can say how many there were.
    let options = RunOptions { duration: None, ..args.run.clone() };
    let wind_down = Some(Arc::clone(&cut));
    let run = Run {
        options: &options,
        stop: &stop,
        screen: &mut screen,
        published,
        opened,
        pools: &pools,
        wind_down,
        on_link: None,
    };
    let mut trouble = Ok(());
    let notes = |_: &Totals| {
        trouble = std::mem::replace(&mut trouble, Ok(())).and(calibrated.refine(&mut clock));
        let missed: u64 = progress.iter().map(|of| of[1].load(Ordering::Relaxed)).sum();
        if missed > 0 { vec![format!("missed, as they were too late: {}", grouped(missed))] } else { Vec::new() }
    };
    let mut sent = Vec::new();
    let end = |port: transmit::Port| {
        sent.push(report::SentBy::of(&port));
        let transmit::Port { lane, tally, .. } = port;
        tally.end(None, Some(lane.tx))
    };
    let (totals, closed) = run.supervise(members.collect(), Team::all_finished, notes, end)?;
    sent.sort_by_key(|sent| sent.port);
    let trouble = trouble.and(calibrated.refine(&mut clock)).map_err(Failure::from);
    let limits = Limits { duration: args.run.duration, count: frames.count(args.count) };
    let cut = cut.load(Ordering::Relaxed);
    let (totals, sent, frames, asked, clock) = (&totals, &sent[..], &frames, &asked[..], &clock);
    let transmitted = report::Transmitted { totals, sent, frames, asked, clock, limits, cut };
    // What ended by time or by a signal may be less.
    let option = if args.count.is_some() { "--count" } else { "--pcap-turns" };
    let option = limits.count.filter(|_| args.run.duration.is_none() && !cut).map(|_| option);
    let result = closed.and(trouble).and(links_up(totals, |_| true)).and(all_sent(option, sent, totals));
    let result = result.and_then(|()| match args.expect_rate.map(|most| transmitted.short_of(most)) {
        Some(unmet) if !unmet.is_empty() => Err(Failure::Unmet(unmet.join("; "))),
        _ => Ok(()),
    });
    report::sent(&transmitted, &args.run, &result)?;
    result
}

/// What each port sends.
fn senders(
    args: &TxArgs,
    frames: &Frames,
    (opened, pools): (&mut [Opened], &[Pool]),
    asked: &[Asked],
    clock: &Clock,
    stop: &Stop,
) -> Result<Vec<transmit::Port>, Failure> {
    let mut hosts = Hosts::ready(&args.hosting, opened, pools, stop)?;
    // Streams of different runs differ in where they begin.
    let [.., high, low] = tsc::now().to_be_bytes();
    let mut base = u16::from_be_bytes([high, low]);
    let mut senders = Vec::new();
    for (index, opened) in opened.iter_mut().enumerate() {
        let Some(tx) = opened.tx.pop() else { continue };
        let macs = [opened.port.mac().0, hosts.gateway(index).or(args.traffic.dst_mac(index)).unwrap_or(NEXT_HOP)];
        let sources = frames.sources(&args.traffic, index, macs, &asked[index], clock)?;
        let pool = buffers(&args.port_options, frames.largest(), opened.port.numa_node())?;
        let lane = Lane::new(index, tx, &pool, args.port_options.batch.into(), sources);
        let streams = u16::try_from(lane.streams()).unwrap_or(u16::MAX);
        let mut sender = transmit::Port::new(lane, base);
        sender.host = hosts.take(index).zip(opened.rx.pop()).map(Box::new);
        senders.push(sender);
        base = base.wrapping_add(streams);
    }
    Ok(senders)
}

fn plan(args: &TxArgs, frames: &Frames, clock: &Clock, cut: &Arc<AtomicBool>) -> transmit::Plan {
    let ticks = |time: Duration| ticks(clock, time);
    transmit::Plan {
        duration: args.run.duration.map(ticks),
        count: frames.count(args.count),
        flush: ticks(FLUSH),
        ends: if frames.are_untagged() { 0 } else { args.ends },
        gap: ticks(END_GAP),
        cut: Arc::clone(cut),
    }
}

/// An error if the link of a port is down at the end, of those that it matters of.
fn links_up(totals: &Totals, matters: impl Fn(usize) -> bool) -> Result<(), Failure> {
    let mut down = totals.ports.iter().enumerate().filter(|(index, port)| port.link == "down" && matters(*index));
    let Some((_, port)) = down.next() else { return Ok(()) };
    let trouble =
        "its link is down at the end, so what came after it fell is missing; see to the cable and to the other end";
    Err(anyhow!("{}: {trouble}", port.name).into())
}

/// An error if less was sent than the option says that alone was to end it, but for what was missed at its time, or if ports have frames
/// in their rings that they do not send.
fn all_sent(option: Option<&str>, sent: &[report::SentBy], totals: &Totals) -> Result<(), Failure> {
    // What is still in a ring was handed over last, and the end came after all else.
    let others = sent.iter().map(|sent| sent.end_frames + sent.host_frames).sum();
    let in_rings = totals.counters.dropped(Reason::TxUnsent).saturating_sub(others);
    let unsent: u64 = sent.iter().map(|sent| sent.unsent).sum();
    match unsent + in_rings {
        0 => Ok(()),
        unsent if option.is_none() => Err(anyhow!(
            "{} of those that count as sent never left, as the device or the other end takes none; see to it",
            counted_words(unsent, "frame")
        )
        .into()),
        unsent => Err(anyhow!(
            "{} of {} not sent a second after the last was handed over (or at a signal): the other end takes none; see to \
             it, or lower --rate",
            counted_words(unsent, "frame"),
            option.unwrap_or_default()
        )
        .into()),
    }
}

/// A pool that nothing is received into, so that its buffers keep a frame.
pub(crate) fn buffers(options: &PortOptions, largest: usize, numa_node: Option<u32>) -> Result<Pool, Failure> {
    let slots = usize::from(options.ring_size) + usize::from(options.batch) + SPARE;
    let config = PoolConfig { slots, pages: options.pages.into(), numa_node, ..PoolConfig::default() };
    let data_room = u16::try_from(largest.next_multiple_of(64)).unwrap_or(u16::MAX).max(config.data_room);
    Ok(Pool::new(&PoolConfig { data_room, ..config })?)
}

/// `pktgen rx`.
pub(crate) fn receive(args: &RxArgs) -> Result<(), Failure> {
    args.answering.check(args.ports.len())?;
    ports::check(&args.ports)?;
    let calibrated = Calibrated::begin();
    let stop = Stop::on_signals()?;
    let soft = args.ports.iter().any(Address::is_soft);
    let mut screen = Screen::new(args.run.json, args.run.quiet);
    let interrupts = idle::interrupts(args.idle);
    let Ports { mut opened, pools } = open(&args.ports, &args.port_options, interrupts, &stop, &mut screen)?;

    let mut hosts = Hosts::new(&args.answering, &mut opened, &pools)?;
    let (mut sinks, mut published) = (Vec::new(), Vec::new());
    for (index, (opened, pool)) in opened.iter_mut().zip(&pools).enumerate() {
        for rx in opened.rx.drain(..) {
            let mut sink = Sink::new(index, rx, pool.clone(), !args.no_verify);
            if let Some(host) = hosts.take(index).zip(opened.tx.pop()) {
                sink.set_host(host);
            }
            published.push(sink.tally.lane());
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
    let notes = |_: &Totals| {
        let all = verdicts.iter().map(|verdict| verdict.read());
        let all = all.fold([0; 5], |sum, one| [0, 1, 2, 3, 4].map(|index| sum[index] + one[index]));
        let [lost, reordered, duplicates, damaged, foreign] = all.map(grouped);
        let known = format!("lost {lost}, reordered {reordered}, duplicates {duplicates}");
        vec![format!("{known}, damaged {damaged}, foreign frames {foreign}")]
    };
    let mut received = report::Received { verified: !args.no_verify, ..report::Received::default() };
    let end = |Sink { port, rx, tally, streams, foreign, ends, damaged, unread, host, .. }| {
        received.streams.extend(streams.into_iter().map(|stream| (port, stream)));
        (received.foreign, received.ends) = (received.foreign + foreign, received.ends + ends);
        received.damaged += damaged;
        received.unread += unread;
        tally.end(Some(rx.queue), host.map(|host| host.1))
    };
    let run = Run {
        options: &args.run,
        stop: &stop,
        screen: &mut screen,
        published,
        opened,
        pools: &pools,
        wind_down: None,
        on_link: None,
    };
    let (totals, closed) = run.supervise(members.collect(), Team::all_finished, notes, end)?;
    let clock = ClockReport::of(&calibrated.clock()?);
    // Where all senders have said how many there were, nothing is missing that is not known of.
    let result = closed.and(links_up(&totals, |port| !received.is_told_all(port)));
    let result = result.and_then(|()| match args.expect_loss.and_then(|most| received.unmet(most)) {
        Some(unmet) => Err(Failure::Unmet(unmet)),
        None => Ok(()),
    });
    report::received(&totals, &received, clock, &args.run, &result)?;
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
                let trouble =
                    format!("the link is down and has not come up within {limit} s, so nothing can be sent{way}");
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

/// Opens each port on a packet pool of its own, with a queue pair.
pub(crate) fn open(
    addresses: &[Address],
    options: &PortOptions,
    interrupts: Interrupts,
    stop: &Stop,
    screen: &mut Screen,
) -> Result<Ports, Failure> {
    open_with(addresses, 1, options, interrupts, stop, screen)
}

/// The same, with so many queue pairs.
pub(crate) fn open_with(
    addresses: &[Address],
    queues: u16,
    options: &PortOptions,
    interrupts: Interrupts,
    stop: &Stop,
    screen: &mut Screen,
) -> Result<Ports, Failure> {
    let mut all = Ports { pools: Vec::new(), opened: Vec::new() };
    let workers = vec![vec![0]; queues.into()];
    for address in addresses {
        let (address, queues) = (std::slice::from_ref(address), [Queues { rx: queues, tx: queues }]);
        let one = ports::open(address, &queues, options, interrupts, &workers, SPARE, stop)?;
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
