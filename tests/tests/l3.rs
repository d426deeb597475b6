//! `fwd l3` on software NICs: the frames that another router gets wrong, hostile captures, full tables, several workers,
//! and routes replaced while it runs.

use prefix_trie::PrefixMap;
use rustix::process::Signal;
use std::collections::HashMap;
use std::fmt::Write as _;
use std::io::{BufRead as _, BufReader, Read as _};
use std::net::Ipv4Addr;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Duration;
use tests::{Capture, Fwd, Process, capture_files, cores, fwd, real_table};

const MACS: [[u8; 6]; 3] = [[2, 0, 0, 0, 0, 0xA0], [2, 0, 0, 0, 0, 0xB0], [2, 0, 0, 0, 0, 0xC0]];
/// For tests of each frame: software NICs share a thread, and a machine may stand still for longer than `fwd` waits for one.
const PATIENT: [&str; 2] = ["--tx-wait", "10000000"];
const SENDER: [u8; 6] = [2, 0, 0, 0, 9, 9];
const HOPS: [[u8; 6]; 3] = [[2, 0, 0, 0, 0, 0xA1], [2, 0, 0, 0, 0, 0xB1], [2, 0, 0, 0, 0, 0xC1]];

/// A folder with a routes file in it.
struct Bench {
    folder: tempfile::TempDir,
}

impl Bench {
    fn new(routes: &str) -> Self {
        let folder = tempfile::tempdir().expect("a temporary folder");
        std::fs::write(folder.path().join("routes"), routes).expect("a temporary file");
        Self { folder }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn routes(&self) -> String {
        self.path("routes").display().to_string()
    }

    /// The first port plays `frames`, all three record what is sent. Returns the report and the records.
    fn replay(&self, frames: Vec<Vec<u8>>, options: &[&str]) -> (Fwd, [Capture; 3]) {
        Capture { frames }.write(&self.path("in.pcap"));
        let input = self.path("in.pcap").display().to_string();
        let outputs = ["a", "b", "c"].map(|name| self.path(name));
        let ports: Vec<String> = [input.as_str(), "", ""]
            .iter()
            .zip(&outputs)
            .zip(MACS)
            .map(|((input, output), mac)| {
                let name = output.file_name().and_then(|name| name.to_str()).expect("as named above");
                format!("soft:{name}?wire=pcap:{input},{}&mac={}", output.display(), words(mac))
            })
            .collect();
        let routes = self.routes();
        let mut arguments =
            vec!["l3", "--routes", &routes, "--exit-when-idle", "--duration", "120", "--json", "--quiet"];
        arguments.extend(ports.iter().map(String::as_str));
        arguments.extend(options);
        let run = Fwd::run(arguments);
        assert_eq!(run.code, Some(0), "{}", run.stderr);
        accounted(&run);
        (run, outputs.map(|output| Capture::read(&output)))
    }
}

/// No frame is lost.
fn accounted(run: &Fwd) {
    assert_eq!(run.count("/received"), run.count("/forwarded") + run.drops(), "{}", run.json);
}

fn words([a, b, c, d, e, f]: [u8; 6]) -> String {
    format!("{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{f:02x}")
}

/// A line for each (prefix, port), by the port's one next hop.
fn routes(prefixes: &[(&str, usize)]) -> String {
    prefixes.iter().fold(String::new(), |mut text, (prefix, port)| {
        writeln!(text, "{prefix} via {} port {port}", words(HOPS[*port])).expect("a string takes all");
        text
    })
}

/// The header checksum of RFC 1071; 0 over a header that has its own.
fn checksum(header: &[u8]) -> [u8; 2] {
    let mut sum: u32 = header.chunks(2).map(|pair| u32::from(pair[0]) << 8 | u32::from(pair[1])).sum();
    while sum > 0xFFFF {
        sum = (sum & 0xFFFF) + (sum >> 16);
    }
    [!sum.to_be_bytes()[2], !sum.to_be_bytes()[3]]
}

/// A frame of 60 bytes to the first port: UDP from `from` to `to`, changed by `change` before the checksum is made.
fn ipv4(from: [u8; 4], to: [u8; 4], change: impl FnOnce(&mut [u8])) -> Vec<u8> {
    let mut ip = [&[0x45, 0, 0, 46, 0x12, 0x34, 0, 0, 64, 17, 0, 0], &from[..], &to, &[7; 26]].concat();
    change(&mut ip);
    if ip[10..12] == [0, 0] {
        let sum = checksum(&ip[..20]);
        ip[10..12].copy_from_slice(&sum);
    }
    [&MACS[0][..], &SENDER, &[8, 0], &ip].concat()
}

/// The frame as a router passes it on by `port` to `to`.
fn passed(frame: &[u8], port: usize, to: [u8; 6]) -> Vec<u8> {
    let mut frame = [&to[..], &MACS[port], &frame[12..]].concat();
    frame[22] -= 1;
    frame[24..26].fill(0);
    let sum = checksum(&frame[14..34]);
    frame[24..26].copy_from_slice(&sum);
    frame
}

#[test]
fn sixteen_frames_that_another_router_gets_wrong() {
    let (from, to_b, to_c) = ([192, 0, 2, 1], [198, 51, 100, 7], [203, 0, 113, 7]);
    let broadcast = |mut frame: Vec<u8>| {
        frame[..6].fill(0xFF);
        frame
    };
    let mut arp = [&[0xFF; 6], &SENDER[..], &[8, 6, 0, 1, 8, 0, 6, 4, 0, 1]].concat();
    arp.resize(60, 0);
    let frames = [
        (ipv4(from, to_b, |_| ()), Ok(1)),
        (ipv4(from, to_c, |ip| ip[8] = 2), Ok(2)),
        (ipv4(from, to_b, |ip| ip[8] = 1), Err("ttl_expired")),
        (ipv4(from, to_b, |ip| ip[8] = 0), Err("ttl_expired")),
        (ipv4(from, to_b, |ip| ip[10] = 0x55), Err("ip_checksum")),
        (ipv4(from, to_b, |ip| ip[11] = 0x01), Err("ip_checksum")),
        (ipv4([127, 0, 0, 1], to_b, |_| ()), Err("martian_source")),
        (ipv4([255; 4], to_b, |_| ()), Err("martian_source")),
        (ipv4(from, to_b, |ip| ip[3] = 47), Err("ip_total_length")),
        (ipv4(from, [192, 168, 0, 1], |_| ()), Err("no_route")),
        (ipv4(from, [127, 0, 0, 1], |_| ()), Err("martian_destination")),
        (ipv4(from, [255; 4], |_| ()), Err("martian_destination")),
        (arp, Err("not_ip")),
        (broadcast(ipv4(from, to_b, |_| ())), Err("link_multicast")),
        (ipv4(from, to_b, |ip| ip[0] = 0x55), Err("ip_version")),
        (ipv4(from, to_b, |ip| ip[0] = 0x44), Err("ip_header_length")),
    ];
    let bench = Bench::new(&routes(&[("198.51.100.0/24", 1), ("203.0.113.0/24", 2)]));
    let (run, [a, b, c]) = bench.replay(frames.iter().map(|(frame, _)| frame.clone()).collect(), &[]);
    let mut drops = HashMap::new();
    let mut expected = [Vec::new(), Vec::new(), Vec::new()];
    for (frame, what) in &frames {
        match what {
            Ok(port) => expected[*port].push(passed(frame, *port, HOPS[*port])),
            Err(reason) => *drops.entry((*reason).to_owned()).or_insert(0) += 1,
        }
    }
    assert_eq!([a.frames, b.frames, c.frames], expected);
    assert_eq!(run.json["drops"], serde_json::json!(drops));
    assert_eq!(run.count("/received"), 16);
}

#[test]
fn a_miss_goes_back_if_that_is_wanted() {
    let bench = Bench::new("# none\n");
    let frame = ipv4([192, 0, 2, 1], [198, 51, 100, 7], |_| ());
    let (run, [a, b, c]) = bench.replay(vec![frame.clone()], &["--miss", "return"]);
    assert_eq!([a.frames, b.frames, c.frames], [vec![passed(&frame, 0, SENDER)], vec![], vec![]]);
    assert_eq!(run.drops(), 0);
}

#[test]
fn frames_for_others_are_left_to_them() {
    let bench = Bench::new(&routes(&[("0.0.0.0/0", 1)]));
    let mut frame = ipv4([192, 0, 2, 1], [198, 51, 100, 7], |_| ());
    frame[5] ^= 1;
    let (run, outputs) = bench.replay(vec![frame.clone()], &[]);
    assert_eq!(run.count("/drops/other_station"), 1);
    assert!(outputs.iter().all(|output| output.frames.is_empty()));
    let (_, [_, b, _]) = bench.replay(vec![frame.clone()], &["--promiscuous"]);
    assert_eq!(b.frames, [passed(&frame, 1, HOPS[1])]);
}

#[test]
fn long_frames_in_several_buffers_are_routed_whole() {
    let bench = Bench::new(&routes(&[("198.51.100.0/24", 1)]));
    let frames: Vec<Vec<u8>> = (0..40_u16)
        .map(|number| {
            let payload = 3000 + usize::from(number) * 100;
            let total = u16::try_from(20 + payload).expect("short enough");
            let mut frame = ipv4([192, 0, 2, 1], [198, 51, 100, 7], |ip| {
                ip[2..4].copy_from_slice(&total.to_be_bytes());
                ip[4..6].copy_from_slice(&number.to_be_bytes());
            });
            frame.truncate(34);
            frame.extend((0..payload).map(|at| (at % 251).to_le_bytes()[0]));
            frame
        })
        .collect();
    let (run, [_, b, _]) = bench.replay(frames.clone(), &["--mtu", "9216"]);
    assert_eq!(run.count("/forwarded"), 40);
    let expected: Vec<Vec<u8>> = frames.iter().map(|frame| passed(frame, 1, HOPS[1])).collect();
    assert!(b.frames == expected, "frames differ");
}

#[test]
fn packets_longer_than_the_mtu_are_refused_to_the_byte() {
    let bench = Bench::new(&routes(&[("198.51.100.0/24", 1)]));
    let frame = |total: u16| {
        let mut frame = ipv4([192, 0, 2, 1], [198, 51, 100, 7], |ip| ip[2..4].copy_from_slice(&total.to_be_bytes()));
        frame.resize(14 + usize::from(total), 7);
        frame
    };
    // In one buffer and in several. What a NIC drops itself, 4 bytes further on, fwd never sees.
    for (mtu, option) in [(1500, "1500"), (68, "68"), (4000, "4000")] {
        let frames = [mtu - 1, mtu, mtu + 1, mtu + 4].map(frame);
        let (run, [_, b, _]) = bench.replay(frames.to_vec(), &["--mtu", option]);
        assert_eq!(run.json["drops"], serde_json::json!({"too_big": 2}), "MTU {mtu}");
        assert!(b.frames == [0, 1].map(|sent| passed(&frames[sent], 1, HOPS[1])), "MTU {mtu}: frames differ");
    }
}

#[test]
fn every_odd_capture_is_accounted_for() {
    let files = capture_files();
    let bench = Bench::new(&routes(&[("0.0.0.0/0", 1), ("::/0", 2), ("128.0.0.0/1", 0)]));
    let mut totals = [0; 2];
    // A run for many files, as beginning one takes longer than their few frames.
    for files in files.chunks(30) {
        let frames: Vec<_> = files.iter().flat_map(|file| Capture::read(file).frames).collect();
        let count = frames.len() as u64;
        let (run, outputs) = bench.replay(frames, &["--promiscuous"]);
        assert_eq!(run.count("/received"), count, "{files:?}: {}", run.json);
        let sent: usize = outputs.iter().map(|output| output.frames.len()).sum();
        assert_eq!(run.count("/forwarded"), sent as u64, "{files:?}: {}", run.json);
        totals[0] += count;
        totals[1] += run.count("/forwarded");
    }
    println!("{} files, {} frames, {} forwarded", files.len(), totals[0], totals[1]);
    assert!(totals[1] > 0);
}

#[test]
fn three_ports_and_several_workers_route_into_one_another() {
    // The generator's frames go to 198.19.0.0/16, its flows to one address each.
    let bench = Bench::new(&routes(&[("198.19.0.0/18", 0), ("198.19.64.0/18", 1), ("198.19.128.0/17", 2)]));
    let ports = ["a", "b", "c"].map(|name| format!("soft:{name}?wire=gen&flows=65536&count=65536"));
    let routes = bench.routes();
    let lcores = cores();
    let (first, last) = (lcores[0], lcores[lcores.len() - 1]);
    let triples = format!("(0,0,{first}),(0,1,{last}),(1,0,{last}),(1,1,{first}),(2,0,{first}),(2,1,{last})");
    for options in [&["--lcores", &triples][..], &["--queues", "2"], &["--batch", "1", "--ring-size", "64"]] {
        let mut arguments =
            vec!["l3", "--routes", &routes, "--exit-when-idle", "--json", "--quiet", "--duration", "120"];
        arguments.extend(PATIENT);
        arguments.extend(ports.iter().map(String::as_str));
        arguments.extend(options);
        let run = Fwd::run(arguments);
        assert_eq!(run.code, Some(0), "{}", run.stderr);
        accounted(&run);
        assert_eq!(run.drops(), 0, "{options:?}: {}", run.json);
        for (port, expected) in [(0, 3 * 16384), (1, 3 * 16384), (2, 3 * 32768)] {
            assert_eq!(run.count(&format!("/ports/{port}/tx_packets")), expected, "{options:?}: {}", run.json);
        }
    }
}

#[test]
fn a_full_table_sends_each_frame_where_an_oracle_says() {
    let table = full_table();
    let (text, oracle) = with_oracle(&table);
    let bench = Bench::new(&text);
    let mut next = random();
    let mut expected = [0; 3];
    let mut missed = 0;
    let frames = (0..100_000)
        .map(|_| {
            let (address, len, _) = table[usize::try_from(next()).expect("48 bits") % table.len()];
            let noise = u32::try_from(next() & 0xFFFF_FFFF).expect("masked");
            let to = address | noise.checked_shr(len.into()).unwrap_or(0);
            match oracle.get_lpm(&(to, 32)) {
                Some((_, port)) => expected[*port] += 1,
                None => missed += 1,
            }
            ipv4([192, 0, 2, 1], to.to_be_bytes(), |_| ())
        })
        .collect();
    let (run, outputs) = bench.replay(frames, &PATIENT);
    assert_eq!(run.count("/routes/ipv4"), table.len() as u64);
    assert_eq!((expected[0], missed), (0, 0));
    for (port, output) in outputs.iter().enumerate() {
        assert_eq!(run.count(&format!("/ports/{port}/tx_packets")), expected[port], "{}", run.json);
        assert_eq!(output.frames.len() as u64, expected[port]);
    }
    println!("{} routes, 100000 frames", table.len());
}

/// What the issue that asked for a router shows: five seconds of a generator through a full table.
#[test]
fn a_generator_runs_through_a_full_table_for_five_seconds() {
    let mut table = full_table();
    // The generator's flows go to one address each of 198.19.0.0/16, which nobody announces: many routes, one in another.
    let mut next = random();
    let mut inside = |len: u8| {
        let noise = u32::try_from(next() & 0xFFFF).expect("masked");
        let origin = u32::try_from(next() & 0xFFFF_FFFF).expect("masked");
        ((0xC613_0000 | noise) & u32::MAX << (32 - len), len, origin)
    };
    table.extend((16..=32).cycle().take(500).map(&mut inside));
    let mut seen = std::collections::HashSet::new();
    table.retain(|(address, len, _)| seen.insert((*address, *len)));
    let (text, oracle) = with_oracle(&table);
    let bench = Bench::new(&text);
    let routes = bench.routes();
    let ports = ["soft:a?wire=gen&flows=65536", "soft:b?wire=sink", "soft:c?wire=sink"];
    let options = ["--routes", &routes, "--duration", "5", "--json", "--quiet"];
    let run = Fwd::run(["l3"].into_iter().chain(ports).chain(options).chain(PATIENT));
    assert_eq!(run.code, Some(0), "{}", run.stderr);
    accounted(&run);
    assert_eq!(run.count("/routes/ipv4"), table.len() as u64);
    let by_flow: Vec<usize> = (0..=0xFFFF)
        .map(|flow| oracle.get_lpm(&(0xC613_0000 | flow, 32)).map(|(_, port)| *port).expect("198.19.0.0/16 is there"))
        .collect();
    let (rounds, rest) = (run.count("/received") / 65536, run.count("/received") % 65536);
    let rest = usize::try_from(rest).expect("few");
    assert!(rounds > 0, "{}", run.json);
    assert_eq!(run.drops(), 0, "{}", run.json);
    for port in 0..3 {
        let count = |flows: &[usize]| flows.iter().filter(|to| **to == port).count() as u64;
        let expected = rounds * count(&by_flow) + count(&by_flow[..rest]);
        assert_eq!(run.count(&format!("/ports/{port}/tx_packets")), expected, "{}", run.json);
    }
    println!("{} routes, {} frames", table.len(), run.count("/received"));
}

#[test]
fn a_hangup_replaces_the_routes_and_a_bad_file_does_not() {
    let bench = Bench::new(&routes(&[("198.19.0.0/16", 1)]));
    let mut child = Command::new(fwd());
    child.args(["l3", "soft:a?wire=gen&rate=20000", "soft:b", "soft:c", "--routes", &bench.routes()]);
    child.args(["--json", "--duration", "300"]).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = Process(child.spawn().expect("fwd starts"));
    let mut lines = BufReader::new(child.0.stderr.take().expect("piped")).lines();
    let mut until = |what: &str, is_it: &dyn Fn(&str) -> bool| {
        let found = lines.by_ref().map_while(Result::ok).find(|line| is_it(line));
        found.unwrap_or_else(|| panic!("fwd ended before: {what}"))
    };
    let answers = |line: &str| line.starts_with("fwd: routes");
    until("port b sends", &|line| line.contains("soft:b: rx") && !line.contains("tx 0.000"));
    let write = |text: &str| std::fs::write(bench.path("routes"), text).expect("a temporary file");

    write("198.19.0.0/16 via 02:00:00:00:00:01 port 2\n198.19.0.1/16 via 02:00:00:00:00:01 port 2\n");
    child.signal(Signal::HUP);
    let line = until("it refuses the file", &answers);
    for words in ["line 2, column 1", "198.19.0.0/16", "stay in force"] {
        assert!(line.contains(words), "{line}");
    }
    write(&routes(&[("198.19.0.0/16", 2), ("::/0", 0)]));
    child.signal(Signal::HUP);
    let line = until("it takes the file", &answers);
    assert!(line.contains("reloaded, 1 IPv4, 1 IPv6"), "{line}");
    until("the table says so", &|line| line.contains("reloaded 1 time, failed 1 time"));
    until("port c sends", &|line| line.contains("soft:c: rx") && !line.contains("tx 0.000"));
    std::fs::remove_file(bench.path("routes")).expect("it was there");
    child.signal(Signal::HUP);
    let line = until("it misses the file", &answers);
    assert!(line.contains("cannot read") && line.contains("stay in force"), "{line}");

    child.signal(Signal::INT);
    let reader = std::thread::spawn(move || lines.for_each(drop));
    let status = child.wait(Duration::from_secs(60)).expect("fwd ends after SIGINT");
    reader.join().expect("nothing can fail there");
    let mut stdout = String::new();
    child.0.stdout.take().expect("piped").read_to_string(&mut stdout).expect("text");
    let run =
        Fwd { code: status.code(), json: serde_json::from_str(&stdout).expect("an object"), stderr: String::new() };
    accounted(&run);
    assert_eq!(run.json["routes"], serde_json::json!({"ipv4": 1, "ipv6": 1, "reloads": 1, "failed_reloads": 2}));
    assert!(run.count("/ports/1/tx_packets") > 0 && run.count("/ports/2/tx_packets") > 0, "{}", run.json);
    assert_eq!(run.drops(), 0, "{}", run.json);
}

/// The routes of a table as text, to 64 next hops behind the second and third port, and the port of each prefix.
fn with_oracle(table: &[(u32, u8, u32)]) -> (String, PrefixMap<(u32, u8), usize>) {
    let mut oracle = PrefixMap::new();
    let mut text = String::new();
    for (address, len, origin) in table {
        let hop = origin.wrapping_mul(0x9E37_79B1) >> 26;
        let port = usize::from(hop.is_multiple_of(2)) + 1;
        oracle.insert((*address, *len), port);
        let address = Ipv4Addr::from(*address);
        writeln!(text, "{address}/{len} via 02:00:00:00:01:{hop:02x} port {port}").expect("a string takes all");
    }
    (text, oracle)
}

/// Xorshift (Marsaglia 2003): the same numbers in each run, of 48 bits.
fn random() -> impl FnMut() -> u64 {
    let mut state = 0x2545_F491_4F6C_DD1D_u64;
    move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state >> 16
    }
}

/// A real IPv4 table, the full one if it is there.
fn full_table() -> Vec<(u32, u8, u32)> {
    let route = |line: &str| {
        let (prefix, origin) = line.split_once(' ')?;
        let (address, len) = prefix.split_once('/')?;
        let address: Ipv4Addr = address.parse().ok()?;
        Some((address.to_bits(), len.parse().ok()?, origin.parse().ok()?))
    };
    // What no router forwards, however it is announced, is left out.
    let forwardable = |(address, _, _): &(u32, u8, u32)| !matches!(address >> 24, 0 | 127 | 169 | 224..);
    real_table("v4.txt.xz").lines().filter_map(route).filter(forwardable).collect()
}
