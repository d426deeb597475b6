//! A port's twin with the kernel at one end and the test, as a worker, at the other: what crosses is whole, and what does not is
//! counted. Needs root; says why when it is skipped.

use mempool::{Batch, Packet, Pool, PoolCache, PoolConfig, frame_len};
use router::{Destination, Refusal};
use serde_json::Value;
use std::collections::BTreeMap;
use std::process::Stdio;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;
use tests::{Namespace, Process, eventually, namespaces_possible};
use twin::{Class, Counts, HandedOver, Lane, Port, Rate, Rates, Running, Settings, Twins};

const TWIN: &str = "rwtwin";
const MAC: [u8; 6] = [2, 0, 0, 0, 0xAA, 1];
const STATION: [u8; 6] = [2, 0, 0, 0, 0xBB, 2];
const ADDRESS: [u8; 4] = [10, 82, 0, 1];
const NEIGHBOUR: [u8; 4] = [10, 82, 0, 2];

/// A namespace with a twin in it, up and with an address.
struct Bench {
    namespace: Namespace,
    twins: Running,
    lane: Lane,
    pool: Pool,
    cache: PoolCache,
}

impl Bench {
    /// Starts it, unless this host cannot; then says why.
    fn start(mtu: u16, slots: usize, settings: Settings) -> Option<Self> {
        if let Err(reason) = namespaces_possible(&["ping", "python3"]) {
            skip::test!("{reason}");
            return None;
        }
        let namespace = Namespace::new();
        namespace.output(&["sh", "-c", "echo 1 > /proc/sys/net/ipv6/conf/default/disable_ipv6 || true"]);
        let pool = Pool::new(&PoolConfig { slots, ..PoolConfig::default() }).expect("memory");
        let port = Port { mac: MAC, mtu, pool: pool.clone(), lane: 0 };
        let (twins, mut lanes) = namespace.within(|| {
            let twins = Twins::open(&[TWIN.to_owned()]).expect("a TAP interface");
            twins.start(&[port], 1, &settings).expect("a thread")
        });
        namespace.output(&["ip", "address", "add", "10.82.0.1/24", "dev", TWIN]);
        namespace.output(&["ip", "link", "set", TWIN, "up"]);
        connect(&namespace, &twins, 0, TWIN);
        let cache = pool.cache();
        Some(Self { namespace, twins, lane: lanes.remove(0), pool, cache })
    }

    /// A frame in buffers that end at these places.
    fn packets(&mut self, frame: &[u8], ends: &[usize]) -> Vec<Packet> {
        let mut begin = 0;
        let mut packets: Vec<Packet> = ends
            .iter()
            .map(|end| {
                let packet = self.cache.alloc_from(&frame[begin..*end]).expect("a buffer");
                begin = *end;
                packet
            })
            .collect();
        let last = packets.len() - 1;
        packets[..last].iter_mut().for_each(|packet| packet.set_continues(true));
        packets
    }

    /// Gives a frame to the host. Returns whether it is on its way.
    fn give(&mut self, frame: &[u8], ends: &[usize], refusal: Refusal, now: u64) -> bool {
        let returned = self
            .packets(frame, ends)
            .into_iter()
            .filter_map(|packet| self.lane.offer(0, packet, (refusal, Destination::Host), now));
        let returned: Vec<Packet> = returned.collect();
        returned.into_iter().for_each(|packet| self.cache.free(packet));
        self.lane.hand_over(0, &mut self.cache) == HandedOver { frames: 1, dropped: 0 }
    }

    /// What the host sends next, in how many packets.
    fn next(&mut self) -> (Vec<u8>, usize) {
        let mut batch = Batch::with_capacity(64);
        eventually("the host sends", || self.lane.has_frames() && self.lane.receive(0, &mut batch) > 0);
        assert!(frame_len(&batch) > 0);
        let frame = batch.iter().flat_map(|packet| packet.data().to_vec()).collect();
        let packets = batch.len();
        self.cache.free_batch(&mut batch);
        (frame, packets)
    }

    fn counts(&self) -> Counts {
        self.twins.counts(0)
    }

    fn link(&self) -> Value {
        let text = self.namespace.output(&["ip", "-json", "-statistics", "link", "show", "dev", TWIN]);
        let links: Value = serde_json::from_str(&text).expect("ip prints JSON");
        links[0].clone()
    }
}

/// Gives a twin a carrier. Until Linux has taken notice it drops what it would send, without a word.
fn connect(namespace: &Namespace, twins: &Running, port: usize, name: &str) {
    twins.set_carrier(port, true).expect("a carrier");
    eventually("the link is up", || {
        let text = namespace.output(&["ip", "-json", "link", "show", "dev", name]);
        let links: Value = serde_json::from_str(&text).expect("ip prints JSON");
        links[0]["operstate"] == "UP"
    });
}

/// An interface that was there before keeps its neighbours, permanent ones too, if it has the port's address already.
#[test]
fn an_interface_that_has_its_mac_keeps_its_neighbours() {
    if let Err(reason) = namespaces_possible(&["ip"]) {
        skip::test!("{reason}");
        return;
    }
    let namespace = Namespace::new();
    let ip = |words: &str| namespace.output(&["ip"].into_iter().chain(words.split(' ')).collect::<Vec<_>>());
    ip(&format!("tuntap add {TWIN} mode tap"));
    ip(&format!("link set {TWIN} address 02:00:00:00:aa:01 up"));
    let pool = Pool::new(&PoolConfig { slots: 64, ..PoolConfig::default() }).expect("memory");
    for (mac, neighbours) in [(MAC, 1), (STATION, 0)] {
        ip(&format!("neighbour replace 10.82.0.2 lladdr 02:00:00:00:bb:02 nud permanent dev {TWIN}"));
        let port = Port { mac, mtu: 1500, pool: pool.clone(), lane: 0 };
        start_and_end(&namespace, port);
        let shown = ip(&format!("neighbour show dev {TWIN} nud permanent"));
        // Multicast groups have permanent entries too.
        assert_eq!(shown.matches("10.82.0.2").count(), neighbours, "{shown}");
    }
}

/// Starts a twin in a namespace, and ends it.
fn start_and_end(namespace: &Namespace, port: Port) {
    namespace.within(|| {
        drop(Twins::open(&[TWIN.to_owned()]).expect("a TAP interface").start(&[port], 1, &Settings::default()));
    });
}

#[test]
fn an_interface_that_was_there_keeps_an_mtu_that_its_port_has_room_for() {
    if let Err(reason) = namespaces_possible(&["ip"]) {
        skip::test!("{reason}");
        return;
    }
    let namespace = Namespace::new();
    namespace.output(&["ip", "tuntap", "add", TWIN, "mode", "tap"]);
    let pool = Pool::new(&PoolConfig { slots: 64, ..PoolConfig::default() }).expect("memory");
    for (before, after) in [("1400", 1400), ("1500", 1500), ("9000", 1500)] {
        namespace.output(&["ip", "link", "set", TWIN, "mtu", before]);
        start_and_end(&namespace, Port { mac: MAC, mtu: 1500, pool: pool.clone(), lane: 0 });
        let shown = namespace.output(&["ip", "-json", "link", "show", "dev", TWIN]);
        let links: Value = serde_json::from_str(&shown).expect("ip prints JSON");
        assert_eq!(links[0]["mtu"].as_u64(), Some(after), "{before} before");
    }
}

/// Who has `ADDRESS`?
fn arp_request() -> Vec<u8> {
    request_of(STATION, NEIGHBOUR, ADDRESS)
}

fn request_of(station: [u8; 6], own: [u8; 4], address: [u8; 4]) -> Vec<u8> {
    let ethernet = [&[0xFF; 6][..], &station, &[8, 6]].concat();
    [&ethernet[..], &[0, 1, 8, 0, 6, 4, 0, 1], &station, &own, &[0; 6], &address].concat()
}

#[test]
fn the_kernel_answers_a_frame_in_any_number_of_buffers() {
    let Some(mut bench) = Bench::start(1400, 512, Settings::default()) else { return };
    let link = bench.link();
    assert_eq!((link["address"].as_str(), link["mtu"].as_u64()), (Some("02:00:00:00:aa:01"), Some(1400)));
    let request = arp_request();
    let single: Vec<usize> = (1..=request.len()).collect();
    for ends in [&[42][..], &[14, 42], &[1, 20, 41, 42], &single] {
        assert!(bench.give(&request, ends, Refusal::NotIp, 1), "{ends:?}");
        let (reply, packets) = bench.next();
        assert_eq!((&reply[..6], &reply[6..12], packets), (&STATION[..], &MAC[..], 1));
        assert_eq!(reply[20..22], [0, 2], "an answer");
    }
    // What is nothing to the host stays here, whole.
    assert!(!bench.give(&request, &[14, 42], Refusal::Checksum, 1));
    let counts = bench.counts();
    assert_eq!((counts.to_host, counts.to_host_lost, counts.from_host), (4, 0, 4));
    // Of two the first buffer does not say what they are.
    let passed = [Class::Link, Class::Other].map(|class| counts.classes[class as usize].passed);
    assert_eq!(passed, [2, 2]);

    // Of a port that is closed nothing crosses, and is counted.
    bench.twins.set_closed(0, true);
    assert!(bench.give(&request, &[42], Refusal::NotIp, 1));
    eventually("it is counted", || bench.counts().to_host_lost == 1);
    assert!(!bench.namespace.pings("10.82.0.2", &[]));
    eventually("what the host sends is counted", || bench.counts().from_host_closed > 0);
    bench.twins.set_closed(0, false);
    eventually("it is answered", || {
        // What the host sends for itself may come first.
        assert!(bench.give(&request, &[42], Refusal::NotIp, 1));
        let (frame, _) = bench.next();
        frame[12..14] == [8, 6] && frame[20..22] == [0, 2]
    });

    bench.twins.set_carrier(0, false).expect("no carrier");
    assert!(bench.link()["flags"].to_string().contains("NO-CARRIER"));
    bench.twins.set_carrier(0, true).expect("a carrier");
    assert!(!bench.link()["flags"].to_string().contains("NO-CARRIER"));
}

#[test]
fn long_frames_of_the_host_come_in_several_buffers_and_longer_ones_not_at_all() {
    let Some(mut bench) = Bench::start(9000, 512, Settings::default()) else { return };
    let neighbour = ["ip", "neighbour", "add", "10.82.0.2", "lladdr", "02:00:00:00:bb:02", "dev", TWIN];
    bench.namespace.output(&neighbour);
    // Nobody answers, and nobody waits until it gives up.
    let ping = |bench: &Bench, size: &str| {
        let mut command = bench.namespace.command(&["ping", "-q", "-c", "1", "-M", "do", "-s", size, "10.82.0.2"]);
        Process(command.stdout(Stdio::null()).spawn().expect("nsenter starts"))
    };
    let _sent = ping(&bench, "8000");
    let (frame, packets) = bench.next();
    assert_eq!(frame.len(), 14 + 20 + 8 + 8000);
    assert!(packets > 1 && frame[42..].windows(2).skip(16).all(|pair| pair[0].wrapping_add(1) == pair[1]), "in order");
    bench.namespace.output(&["ip", "link", "set", TWIN, "mtu", "20000"]);
    let _not_sent = ping(&bench, "15000");
    eventually("a frame that the port cannot send is counted", || bench.counts().from_host_too_long == 1);
    assert_eq!(bench.lane.receive(0, &mut Batch::with_capacity(64)), 0);

    // The port sends packets of 9,000 bytes, whatever the tags in front of them.
    let (once, twice) = (&[0x81, 0, 0, 7][..], &[0x88, 0xA8, 0, 7, 0x81, 0, 0, 8][..]);
    for (tags, longest) in [(&[][..], 9014), (once, 9018), (twice, 9022)] {
        let head = [&STATION[..], &MAC, tags, &[0x12, 0x34]].concat();
        let too_long = bench.counts().from_host_too_long;
        for len in [longest + 1, longest] {
            let frame: Vec<u8> = head.iter().copied().chain(std::iter::repeat(7)).take(len).collect();
            bench.namespace.send(TWIN, &frame);
            if len > longest {
                eventually("a frame that is too long is counted", || bench.counts().from_host_too_long > too_long);
            } else {
                assert!(bench.next().0 == frame, "{len} bytes are sent");
            }
        }
        assert_eq!(bench.counts().from_host_too_long, too_long + 1);
    }
}

#[test]
fn what_finds_no_buffer_and_what_a_deleted_twin_does_not_take_is_counted() {
    let Some(mut bench) = Bench::start(1500, 256, Settings::default()) else { return };
    let request = arp_request();
    let mut held: Vec<Packet> = std::iter::from_fn(|| bench.pool.alloc()).collect();
    let mut of_worker = Pool::new(&PoolConfig::default()).expect("memory").cache();
    // The thread between may have some for itself.
    for _ in 0..256 {
        let packet = of_worker.alloc_from(&request).expect("a buffer");
        assert!(bench.lane.offer(0, packet, (Refusal::NotIp, Destination::Unknown), u64::MAX / 2).is_none());
        assert_eq!(bench.lane.hand_over(0, &mut of_worker).frames, 1);
        let mut batch = Batch::with_capacity(64);
        eventually("an answer, or none for want of a buffer", || {
            bench.lane.receive(0, &mut batch) > 0 || bench.counts().from_host_no_buffer > 0
        });
        if batch.is_empty() {
            break;
        }
        held.extend(batch.drain());
    }
    assert!(bench.counts().from_host_no_buffer > 0, "{:?}", bench.counts());
    drop(held);
    bench.namespace.output(&["ip", "link", "delete", TWIN]);
    eventually("it is known to be gone", || bench.twins.twin(0) == Some((TWIN, false)));
    assert!(bench.give(&request, &[42], Refusal::NotIp, u64::MAX / 2));
    eventually("a frame for it is counted", || bench.counts().to_host_lost == 1);
    bench.twins.set_carrier(0, false).expect("nothing to do");
}

#[test]
fn a_frame_beyond_the_rate_stays_with_the_worker_and_every_buffer_comes_home() {
    let slow = Rate { per_second: 1, burst: 3 };
    let settings = Settings { rates: Rates { link: slow, ..Rates::default() }, queue: 64 };
    let Some(mut bench) = Bench::start(1500, 512, settings) else { return };
    let request = arp_request();
    let given = (0..10).filter(|_| bench.give(&request, &[20, 42], Refusal::NotIp, 1)).count();
    assert_eq!(given, 3);
    let link = bench.counts().classes[Class::Link as usize];
    assert_eq!((link.passed, link.dropped), (3, 7));
    // More at once than the queue holds, of a class that may come in crowds, and whatever the thread between does meanwhile.
    let ping = [&MAC[..], &STATION, &[8, 0, 0x45], &[0; 40]].concat();
    let mut taken = 0;
    for _ in 0..100 {
        let packet = bench.packets(&ping, &[ping.len()]).remove(0);
        match bench.lane.offer(0, packet, (Refusal::ForHost, Destination::Host), 1) {
            None => taken += 1,
            Some(packet) => bench.cache.free(packet),
        }
    }
    let handed = bench.lane.hand_over(0, &mut bench.cache);
    assert_eq!((handed.frames + handed.dropped, taken < 64), (taken, true), "a part is kept for routing protocols");
    eventually("all has crossed", || bench.counts().to_host + bench.counts().to_host_lost == 3 + handed.frames);
    let Bench { twins, lane, pool, cache, namespace } = bench;
    drop((twins, lane, cache));
    assert_eq!(pool.away(), 0);
    drop(namespace);
}

/// Of two ports and two workers.
struct Pair {
    twins: Running,
    lanes: [Lane; 2],
    pool: Pool,
    _namespace: Namespace,
}

impl Pair {
    /// What the host sends by the first twin is for the second worker, and the other way round.
    fn start(settings: &Settings) -> Option<Self> {
        if let Err(reason) = namespaces_possible(&[]) {
            skip::test!("{reason}");
            return None;
        }
        let namespace = Namespace::new();
        namespace.output(&["sh", "-c", "echo 1 > /proc/sys/net/ipv6/conf/default/disable_ipv6 || true"]);
        let pool = Pool::new(&PoolConfig { slots: 8192, ..PoolConfig::default() }).expect("memory");
        let names = [0, 1].map(|port| format!("{TWIN}{port}"));
        let ports = [0, 1].map(|port| Port {
            mac: [2, 0, 0, 0, 0xAA, port],
            mtu: 1500,
            pool: pool.clone(),
            lane: usize::from(1 - port),
        });
        let (twins, lanes) = namespace.within(|| {
            let twins = Twins::open(&names).expect("TAP interfaces");
            twins.start(&ports, 2, settings).expect("a thread")
        });
        for (port, name) in names.iter().enumerate() {
            namespace.output(&["ip", "address", "add", &format!("10.82.{port}.1/24"), "dev", name]);
            namespace.output(&["ip", "link", "set", name, "up"]);
            connect(&namespace, &twins, port, name);
        }
        let lanes = lanes.try_into().expect("two lanes");
        Some(Self { twins, lanes, pool, _namespace: namespace })
    }
}

/// Has a lane give a frame of a port to the host. Returns whether it is on its way.
fn gives(lane: &mut Lane, cache: &mut PoolCache, port: u8, frame: &[u8]) -> bool {
    let packet = cache.alloc_from(frame).expect("a buffer");
    let port = usize::from(port);
    if let Some(packet) = lane.offer(port, packet, (Refusal::NotIp, Destination::Unknown), 1) {
        cache.free(packet);
    }
    lane.hand_over(port, cache) == HandedOver { frames: 1, dropped: 0 }
}

/// Number `number` of the stations of a port that a lane hears asks for the port's address. They all say that they are the same neighbour,
/// as Linux has room for few.
fn asks(port: u8, lane: u8, number: u8) -> Vec<u8> {
    request_of([2, 0, 0, port, lane, number], [10, 82, port, 10 + lane], [10, 82, port, 1])
}

/// Two workers at once ask for the addresses of two ports, as a station of its own each time.
#[test]
fn frames_of_two_lanes_reach_linux_and_each_of_its_own_leaves_by_one() {
    const EACH: u8 = 50;
    let Some(Pair { twins, lanes, pool, _namespace }) = Pair::start(&Settings::default()) else { return };
    let answered = AtomicUsize::new(0);
    let work = |number: u8, mut lane: Lane| {
        let (mut cache, mut batch) = (pool.cache(), Batch::with_capacity(64));
        let (mut answers, mut frames) = (BTreeMap::new(), [0_u64; 2]);
        let mut receive = |lane: &mut Lane, cache: &mut PoolCache| {
            for port in [0, 1] {
                lane.receive(port, &mut batch);
                frames[port] += batch.len() as u64;
                for frame in batch.iter().map(Packet::data).filter(|frame| frame[12..14] == [8, 6] && frame[21] == 2) {
                    let station: [u8; 6] = frame[..6].try_into().expect("six bytes");
                    *answers.entry((port, station)).or_insert(0) += 1;
                    answered.fetch_add(1, Ordering::Relaxed);
                }
                cache.free_batch(&mut batch);
            }
        };
        for station in 0..EACH {
            for port in [0, 1] {
                assert!(gives(&mut lane, &mut cache, port, &asks(port, number, station)));
                receive(&mut lane, &mut cache);
            }
        }
        eventually("all are answered", || {
            receive(&mut lane, &mut cache);
            answered.load(Ordering::Relaxed) >= 4 * usize::from(EACH)
        });
        // The other worker has seen the last answer perhaps, and this one more than answers.
        receive(&mut lane, &mut cache);
        (answers, frames)
    };
    let (work, numbered) = (&work, (0..).zip(lanes));
    let done: Vec<_> = std::thread::scope(|scope| {
        let workers: Vec<_> = numbered.map(|(number, lane)| scope.spawn(move || work(number, lane))).collect();
        workers.into_iter().map(|worker| worker.join().expect("a worker has not panicked")).collect()
    });
    for (port, (answers, frames)) in done.iter().rev().enumerate() {
        let number = u8::try_from(port).expect("two");
        let stations = (0..2).flat_map(|lane| (0..EACH).map(move |station| (port, [2, 0, 0, number, lane, station])));
        assert_eq!(
            *answers,
            stations.map(|station| (station, 1)).collect::<BTreeMap<_, _>>(),
            "of this port, once each"
        );
        assert_eq!(frames[1 - port], 0, "nothing of the other port");
        let counts = twins.counts(port);
        assert_eq!((counts.to_host, counts.to_host_lost), (2 * u64::from(EACH), 0), "port {port}");
        assert!(counts.from_host >= frames[port] && frames[port] >= 2 * u64::from(EACH), "port {port}: {counts:?}");
    }
    drop(twins);
    assert_eq!(pool.away(), 0);
}

/// The rates are those of a port, however many workers it has.
#[test]
fn lanes_share_the_rates_of_a_port() {
    let rates = Rates { link: Rate { per_second: 1, burst: 4 }, ..Rates::default() };
    let Some(Pair { twins, mut lanes, pool, _namespace }) = Pair::start(&Settings { rates, queue: 64 }) else { return };
    let mut cache = pool.cache();
    for port in [0, 1] {
        let begun = Instant::now();
        let given =
            (0..6).map(|station| lanes.each_mut().map(|lane| gives(lane, &mut cache, port, &asks(port, 0, station))));
        let given: Vec<_> = given.collect();
        assert_eq!(given[..2], [[true; 2]; 2], "port {port}");
        let passed = given.as_flattened().iter().filter(|is_given| **is_given).count() as u64;
        // Both lanes take from one bucket, which has one more each second that this takes.
        assert!((4..=4 + begun.elapsed().as_secs()).contains(&passed), "port {port}: {given:?}");
        let link = twins.counts(port.into()).classes[Class::Link as usize];
        assert_eq!((link.passed, link.dropped), (passed, 12 - passed), "port {port}");
        eventually("they have crossed", || twins.counts(port.into()).to_host == passed);
    }
}
