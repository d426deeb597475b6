//! `pktgen ping`: round trips by a port, and beside them by the kernel.

mod account;
mod bypass;
mod kernel;
mod report;

use crate::args::PingArgs;
use crate::clock::{Calibrated, ticks};
use crate::host::{self, Host};
use crate::run::{open, share_out, wait_for_links};
use ::lcore::Team;
use account::Account;
use bypass::Pinger;
use cli::args::RunOptions;
use cli::exit::Failure;
use cli::idle::{self, IdleMode};
use cli::lane::Ended;
use cli::ports::{self, Ports};
use cli::run::Run;
use cli::screen::Screen;
use cli::stop::Stop;
use kernel::Kernel;
use measure::Clock;
use mempool::Pool;
use nic::{Interrupts, Opened, Port as _};
use report::{Page, Path};
use station::{InterfaceAddress, Station};
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// How long doubles are waited for when all pings have come back.
const SETTLE: Duration = Duration::from_millis(50);
/// The longest frame that lies in one buffer, without check sequence.
const LONGEST: usize = 2048;
const ETHERNET: usize = 14;

/// Pings, and prints the table.
pub(crate) fn run(args: &PingArgs) -> Result<(), Failure> {
    check(args)?;
    let calibrated = Calibrated::begin();
    let stop = Stop::on_signals()?;
    let ports = std::slice::from_ref(&args.port);
    ports::check(ports)?;
    // What the kernel refuses is known before the port is opened.
    let kernel = args.kernel().map(|to| Ok::<_, Failure>((to, Kernel::open(to, args.kernel_interface.as_deref())?)));
    let kernel = kernel.transpose()?;
    let mut screen = Screen::new(args.json, args.quiet);
    let Ports { mut opened, pools } = open(ports, &args.port_options, Interrupts::Off, &stop, &mut screen)?;
    wait_for_links(&opened, &stop)?;
    let mut clock = calibrated.clock()?;

    let cut = Arc::new(AtomicBool::new(false));
    let pinger = pinger(args, &mut opened[0], &pools[0], &clock, &stop, &cut)?;
    let name = opened[0].port.name().to_owned();
    let (pinger_done, closed) = bypass(args, pinger, opened, &pools, &stop, &cut)?;
    let Bypass { account, from, trouble } = pinger_done;
    let mut paths = vec![Path::of("bypass", &name, Some(from), args.address, &account)];
    let mut result = closed.and(trouble.map_or(Ok(()), |error| Err(host::failure(&name, &error))));
    let is_cut = cut.load(Ordering::Relaxed) || stop.is_signalled();
    if let Some((to, kernel)) = kernel.filter(|_| !is_cut && result.is_ok()) {
        let (path, ran) = by_kernel(args, to, kernel, &clock, &stop);
        paths.push(path);
        result = ran;
    }
    let is_cut = is_cut || stop.is_signalled();
    let result = result.and(calibrated.refine(&mut clock).map_err(Failure::from));
    report::print(&Page { args, clock: &clock, paths: &paths, is_cut }, result)
}

/// Refuses what no port can do, before it is opened.
fn check(args: &PingArgs) -> Result<(), Failure> {
    let (address, wrong) = (args.address, |error: station::Error| Failure::usage(error.to_string()));
    if args.source.iter().any(|own| own.ip() == address) {
        return Err(wrong(station::Error::Own(address)));
    }
    let is_link_local = matches!(address, IpAddr::V6(address) if address.is_unicast_link_local());
    if !is_link_local && args.source.is_empty() {
        return Err(Failure::usage(
            "--source: missing; give the port an address and the prefix of its link, such as 192.0.2.1/24",
        ));
    }
    // With any MAC address: what is wrong with the others is wrong with this.
    let trial = Station::new([2, 0, 0, 0, 0, 0], &addresses(args, [2, 0, 0, 0, 0, 0]), args.gateway.as_slice());
    trial.and_then(|mut trial| trial.resolve(Duration::ZERO, address)).map_err(wrong)?;
    let headers = ETHERNET + if address.is_ipv4() { 28 } else { 48 };
    let most = LONGEST.min(usize::from(args.port_options.mtu()) + ETHERNET) - headers;
    if usize::from(args.size) > most {
        return Err(Failure::usage(format!(
            "--size {}: at most {most} bytes here; send fewer, or raise --mtu",
            args.size
        )));
    }
    if args.interval * 32_768 < args.timeout {
        return Err(Failure::usage(
            "--timeout: more than 32,768 times --interval; make it shorter, or the interval longer",
        ));
    }
    Ok(())
}

/// The addresses of the port; its link-local one is always among those of IPv6.
fn addresses(args: &PingArgs, mac: [u8; 6]) -> Vec<InterfaceAddress> {
    let mut addresses = args.source.clone();
    if args.address.is_ipv6() {
        addresses.push(InterfaceAddress::link_local(mac));
    }
    addresses
}

/// Finds the next hop, and prepares the work.
fn pinger(
    args: &PingArgs,
    opened: &mut Opened,
    pool: &Pool,
    clock: &Clock,
    stop: &Stop,
    cut: &Arc<AtomicBool>,
) -> Result<Pinger, Failure> {
    let (name, mac) = (opened.port.name().to_owned(), opened.port.mac().0);
    let station = Station::new(mac, &addresses(args, mac), args.gateway.as_slice());
    let station = station.map_err(|error| host::failure(&name, &error))?;
    host::join(&mut opened.port, &station);
    let mut host = Host::new(station, pool);
    let (Some(mut rx), Some(mut tx)) = (opened.rx.pop(), opened.tx.pop()) else {
        return Err(anyhow::anyhow!("{name}: has no queues").into());
    };
    let next_hop = host.resolve(&name, (&mut rx, &mut tx), args.address, stop)?;
    let from = host.station.source(args.address).map_err(|error| host::failure(&name, &error))?;
    let plan = bypass::Plan {
        from,
        to: args.address,
        macs: [mac, next_hop],
        count: args.count,
        interval: ticks(clock, args.interval),
        settle: ticks(clock, SETTLE),
        cut: Arc::clone(cut),
    };
    Ok(Pinger::new((rx, tx), pool, host, plan, account(args, clock)))
}

fn account(args: &PingArgs, clock: &Clock) -> Account {
    // Runs differ, so that none counts another's replies.
    let [.., high, low] = device::tsc::now().to_be_bytes();
    Account::new(args.count, args.size.into(), u16::from_be_bytes([high, low]), ticks(clock, args.timeout))
}

/// How the pings by the port went.
struct Bypass {
    account: Account,
    from: IpAddr,
    trouble: Option<station::Error>,
}

/// Runs the pinger on an lcore of its own, and closes the port.
fn bypass(
    args: &PingArgs,
    pinger: Pinger,
    opened: Vec<Opened>,
    pools: &[Pool],
    stop: &Stop,
    cut: &Arc<AtomicBool>,
) -> Result<(Bypass, Result<(), Failure>), Failure> {
    let soft = args.port.is_soft();
    let published = vec![pinger.tally.lane()];
    let members = share_out(vec![pinger], |_| &opened[0], soft)?.into_iter().map(|(lcore, pingers)| {
        let loops: Vec<_> = pingers
            .into_iter()
            .map(|pinger| (pinger, idle::poll_loop(Some(IdleMode::Poll), soft, false, stop)))
            .collect();
        (lcore, move || loops.into_iter().map(|(pinger, poll_loop)| pinger.run(poll_loop)).collect::<Vec<_>>())
    });
    let members: Vec<_> = members.collect();
    let (options, mut screen) = (RunOptions::default(), Screen::new(args.json, true));
    let wind_down = Some(Arc::clone(cut));
    let run = Run { options: &options, stop, screen: &mut screen, published, opened, pools, wind_down, on_link: None };
    let mut done = None;
    let end = |pinger: Pinger| {
        let (lane, (ended, (rx, tx))) = (pinger.tally.end(None, None), pinger.end());
        done = Some(ended);
        Ended { rx: Some(rx), tx: Some(tx), ..lane }
    };
    let (_, closed) = run.supervise(members, Team::all_finished, |_| Vec::new(), end)?;
    let done = done.ok_or_else(|| anyhow::anyhow!("the lcore has not come back"))?;
    Ok((done, closed))
}

/// Pings by the kernel.
fn by_kernel(
    args: &PingArgs,
    to: IpAddr,
    mut kernel: Kernel,
    clock: &Clock,
    stop: &Stop,
) -> (Path, Result<(), Failure>) {
    let mut account = account(args, clock);
    let plan = kernel::Plan {
        count: args.count,
        interval: ticks(clock, args.interval),
        settle: ticks(clock, SETTLE),
        hz: clock.hz(),
    };
    let ran = kernel.run(plan, &mut account, stop);
    let name = args.kernel_interface.clone().unwrap_or_else(|| kernel.words().to_owned());
    (Path::of("kernel", &name, kernel.source(), to, &account), ran)
}

/// When the next ping is due. One that was late makes none of those that follow early.
fn following(due: u64, interval: u64, sent: u64) -> u64 {
    let next = due.saturating_add(interval);
    if next > sent { next } else { sent.saturating_add(interval) }
}
