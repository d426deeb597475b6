//! How long it takes from a change of the kernel's routes until a forwarder that is busy does otherwise.
//!
//! `ip netns exec NAME change_latency PORT GATEWAY GATEWAY SECONDS [ID]`: changes 10,000 routes a second by netlink, of which one at a time is
//! looked at by a thread that does nothing but route packets by it. Each gateway is a permanent neighbour on PORT, whose MAC address ends
//! in the last byte of its own. With ID it changes nothing but the next hop object of that number, by which the route to 198.18.0.1 goes.

use mempool::{Batch, Pool, PoolConfig};
use plane::{Port, Runner};
use router::{Egress, Interface, LiveConfig, LiveFib, LiveForwarder};
use rustix::net::netlink::SocketAddrNetlink;
use rustix::net::{AddressFamily, SendFlags, SocketFlags, SocketType, sendto, socket_with};
use std::error::Error;
use std::net::Ipv4Addr;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

const MAC: [u8; 6] = [2, 0, 0, 0, 0, 1];
/// The route that is looked at, and the network of all others.
const WATCHED: [u8; 4] = [198, 18, 0, 1];
const OTHERS: u32 = 0x6440_0000;
/// Changes in a millisecond.
const LOT: u32 = 10;
const BURST: usize = 32;

/// What the forwarder tells.
#[derive(Debug, Default)]
struct Seen {
    /// The last byte of the address that the last packet went to.
    to: AtomicU64,
    packets: AtomicU64,
    stop: AtomicBool,
}

fn main() -> Result<(), Box<dyn Error>> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let [name, one, two, seconds, object @ ..] = &words[..] else {
        return Err("usage: change_latency PORT GATEWAY GATEWAY SECONDS [ID]".into());
    };
    let gateways: [Ipv4Addr; 2] = [one.parse()?, two.parse()?];
    let object: Option<u32> = object.first().map(|id| id.parse()).transpose()?;
    let index: u32 = std::fs::read_to_string(format!("/sys/class/net/{name}/ifindex"))?.trim().parse()?;
    let fib = LiveFib::new(&LiveConfig::default(), &[Interface { mac: MAC, promiscuous: false, mtu: 1500 }])?;
    let forwarder = fib.forwarder();
    let runner = Runner::open(fib, &[Port { name: name.clone(), index: None, mtu: 1500 }])?;
    let (handle, seen) = (runner.handle(), Arc::new(Seen::default()));
    let following = std::thread::spawn(move || runner.run());
    if !handle.wait_ready(Duration::from_secs(60)) {
        return Err("the kernel's tables were not read within a minute".into());
    }
    let shared = Arc::clone(&seen);
    let forwarding = std::thread::spawn(move || forward(forwarder, &shared));
    let measured = change(index, gateways, object, Duration::from_secs(seconds.parse()?), &seen);
    seen.stop.store(true, Ordering::Release);
    forwarding.join().map_err(|_| "the forwarder panicked")?.map_err(|error| error.to_string())?;
    handle.stop();
    following.join().map_err(|_| "the follower panicked")??;
    println!("{}; {:?}", measured?, handle.report());
    Ok(())
}

/// Routes packets by the route that is looked at, until it is told to stop.
fn forward(mut forwarder: LiveForwarder, seen: &Seen) -> Result<(), mempool::Error> {
    let pool = Pool::new(&PoolConfig { slots: 256, ..PoolConfig::default() })?;
    let (mut cache, mut batch, mut egress) = (pool.cache(), Batch::with_capacity(BURST), Egress::new(1, BURST));
    let frame = frame();
    while !seen.stop.load(Ordering::Acquire) {
        for _ in 0..BURST {
            let Some(packet) = cache.alloc_from(&frame) else { break };
            if batch.push(packet).is_err() {
                break;
            }
        }
        forwarder.route(0, &mut batch, &mut egress);
        for (packet, _) in egress.drain_refused() {
            seen.to.store(0, Ordering::Release);
            cache.free(packet);
        }
        for output in egress.outputs() {
            let to = output.iter().last().and_then(|packet| packet.data().get(5).copied());
            seen.packets.fetch_add(output.len() as u64, Ordering::Relaxed);
            if let Some(to) = to {
                seen.to.store(to.into(), Ordering::Release);
            }
            cache.free_batch(output);
        }
        forwarder.catch_up();
    }
    Ok(())
}

/// Changes routes, or a next hop object, to and fro for so long. Returns what is to be printed.
fn change(
    index: u32,
    gateways: [Ipv4Addr; 2],
    object: Option<u32>,
    time: Duration,
    seen: &Seen,
) -> Result<String, Box<dyn Error>> {
    let others = if object.is_some() { 0 } else { LOT - 1 };
    let socket = socket_with(AddressFamily::NETLINK, SocketType::RAW, SocketFlags::CLOEXEC, None)?;
    let (mut times, mut changes, mut turn) = (Vec::new(), 0_u64, 0_u32);
    let mut watched: Option<(Instant, u64)> = None;
    let (begun, before) = (Instant::now(), seen.packets.load(Ordering::Relaxed));
    while begun.elapsed() < time {
        let mut request = Vec::new();
        for number in 0..others {
            let number = turn * others + number;
            // 4,096 routes, and each time the other gateway.
            let to = (OTHERS + number % 4096).to_be_bytes();
            request.extend(replace(index, to, gateways[(number / 4096 % 2) as usize]));
        }
        if watched.is_none() {
            let gateway = gateways[times.len() % 2];
            request.extend(match object {
                Some(id) => replace_object(index, id, gateway),
                None => replace(index, WATCHED, gateway),
            });
            watched = Some((Instant::now(), gateway.octets()[3].into()));
            changes += 1;
        }
        changes += u64::from(others);
        if !request.is_empty() {
            send(&socket, &request)?;
        }
        turn += 1;
        let next = begun + Duration::from_millis(turn.into());
        loop {
            if let Some((since, _)) = watched.filter(|(_, to)| seen.to.load(Ordering::Acquire) == *to) {
                times.push(since.elapsed());
                watched = None;
            }
            if watched.is_some_and(|(since, _)| since.elapsed() > Duration::from_secs(10)) {
                return Err("a change did not take effect within 10 s".into());
            }
            if Instant::now() >= next {
                break;
            }
            std::thread::sleep(Duration::from_micros(20));
        }
    }
    let (seconds, packets) = (begun.elapsed().as_secs_f64(), seen.packets.load(Ordering::Relaxed) - before);
    times.sort();
    let of = |share: f64| times.get(place(times.len(), share)).copied().unwrap_or_default();
    #[expect(clippy::cast_precision_loss, reason = "figures for people")]
    let [changes, packets] = [changes, packets].map(|count| count as f64 / seconds);
    Ok(format!(
        "{} changes looked at, among {changes:.0} a second and {packets:.0} packets a second: p50 {:.2?}, p99 {:.2?}, worst {:.2?}",
        times.len(),
        of(0.5),
        of(0.99),
        of(1.0)
    ))
}

#[expect(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a place in a list"
)]
fn place(count: usize, share: f64) -> usize {
    ((count as f64 * share) as usize).min(count.saturating_sub(1))
}

fn send(socket: &OwnedFd, request: &[u8]) -> rustix::io::Result<()> {
    sendto(socket, request, SendFlags::empty(), &SocketAddrNetlink::new(0, 0)).map(drop)
}

/// RTM_NEWROUTE of a host by a gateway, in place of what there is (rtnetlink(7)).
fn replace(index: u32, to: [u8; 4], gateway: Ipv4Addr) -> Vec<u8> {
    const LENGTH: u32 = 16 + 12 + 3 * 8;
    // REQUEST, REPLACE, CREATE; table main, static, everywhere, unicast.
    let header = [&LENGTH.to_ne_bytes()[..], &24_u16.to_ne_bytes(), &0x501_u16.to_ne_bytes(), &[0; 8]].concat();
    let route = [2, 32, 0, 0, 254, 4, 0, 1, 0, 0, 0, 0];
    let attribute = |kind: u16, value: [u8; 4]| [&8_u16.to_ne_bytes()[..], &kind.to_ne_bytes(), &value].concat();
    let attributes = [attribute(1, to), attribute(4, index.to_ne_bytes()), attribute(5, gateway.octets())].concat();
    [&header[..], &route, &attributes].concat()
}

/// RTM_NEWNEXTHOP of a gateway, in place of what there is.
fn replace_object(index: u32, id: u32, gateway: Ipv4Addr) -> Vec<u8> {
    const LENGTH: u32 = 16 + 8 + 3 * 8;
    // REQUEST, REPLACE, CREATE; NHA_ID, NHA_OIF, NHA_GATEWAY.
    let header = [&LENGTH.to_ne_bytes()[..], &104_u16.to_ne_bytes(), &0x501_u16.to_ne_bytes(), &[0; 8]].concat();
    let attribute = |kind: u16, value: [u8; 4]| [&8_u16.to_ne_bytes()[..], &kind.to_ne_bytes(), &value].concat();
    let attributes =
        [attribute(1, id.to_ne_bytes()), attribute(5, index.to_ne_bytes()), attribute(6, gateway.octets())].concat();
    [&header[..], &[2, 0, 4, 0, 0, 0, 0, 0], &attributes].concat()
}

/// A packet of 46 bytes to the route that is looked at.
fn frame() -> Vec<u8> {
    let mut ip = [&[0x45, 0, 0, 46, 0, 0, 0, 0, 64, 17, 0, 0, 192, 0, 2, 9][..], &WATCHED].concat();
    let sum: u32 = ip.chunks(2).map(|pair| u32::from(pair[0]) << 8 | u32::from(pair[1])).sum();
    let sum = !((sum & 0xFFFF) + (sum >> 16));
    ip[10..12].copy_from_slice(&sum.to_be_bytes()[2..]);
    [&MAC[..], &[2, 7, 7, 7, 7, 7], &[8, 0], &ip, &[0; 26]].concat()
}
