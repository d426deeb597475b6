//! What somebody does to a port in testpmd beside forwarding: DPDK's `net_ixgbe` stops and starts it with another MTU, sets filters, tables
//! and rules, reads link, module and counters, and asks for PAUSE.
//!
//! The first of two cards plays a capture in which each frame has its fate, and records what testpmd sends back; the second has more frames
//! than anybody takes.

use super::wire::{ADDRESS, CARD, FAR, TAGGED_ADDRESS, VLAN, datagram, ethernet, hash};
use crate::checks::Checks;
use crate::frames;
use crate::machine::Machine;
use anyhow::{Context as _, Result};
use std::path::Path;

/// Queues that the table leads to, and those of the rules: for a flow, and for an EtherType.
const SPREAD: u16 = 3;
const OF_FLOW: u16 = 3;
const OF_TYPE: u16 = 4;
const QUEUES: u16 = 5;
/// Of local experiments (IEEE 802), and the one beside it, which no rule has.
const ETHERTYPE: u16 = 0x88B5;
const RULES: [&str; 2] = [
    "flow create 0 ingress pattern eth type is 0x88b5 / end actions queue index 4 / end",
    "flow create 0 ingress pattern eth / ipv4 src is 10.9.200.1 dst is 10.9.0.1 \
     / udp src is 4242 dst is 7777 / end actions queue index 3 / end",
];
/// Of which only Flow Director could take notice, which the model does not have.
const REFUSED: &str = "flow create 0 ingress pattern eth / ipv4 src spec 10.9.0.0 src mask 255.255.255.0 \
     / udp / end actions queue index 1 / end";
const MTU: usize = 9000;
/// PAUSE frames of the capture.
const PAUSES: usize = 3;

/// Two cards and the program that has them.
pub(super) struct Session {
    pub(super) about: &'static str,
    pub(super) program: &'static str,
    pub(super) ids: [&'static str; 2],
}

/// What is to become of a frame.
#[derive(Clone, Copy, PartialEq)]
enum Fate {
    /// A queue of [`SPREAD`], as hash and table have it.
    Hashed,
    Queue(u16),
    Dropped,
}

/// A frame, and without the tag that the card takes off.
struct Frame {
    bytes: Vec<u8>,
    tagged: bool,
    fate: Fate,
}

impl Session {
    /// Its cards, the first of which is `nic` of the machine.
    pub(super) fn nics(&self, nic: usize, folder: &Path) -> Result<[String; 2]> {
        let [input, output] = ["in", "out"].map(|name| folder.join(format!("{name}{nic}")));
        frames::write_all(&input, capture().iter().map(|frame| &*frame.bytes))?;
        let [a, b] = self.ids;
        Ok([
            format!("{nic}?id={a}&link=down&mac=02:00:00:00:00:0a&wire=pcap:{},{}", input.display(), output.display()),
            format!("{}?id={b}&link=down&wire=gen&size=1500&rate=100000&mode=drop", nic + 1),
        ])
    }

    /// Entries of the table for hashes.
    fn entries(&self) -> u16 {
        if self.ids[0] == "x550" { 512 } else { 128 }
    }

    /// Whether DPDK leads a flow to a queue by the card's filters of five-tuples. On an X550 it has Flow Director do so.
    fn knows_flows(&self) -> bool {
        self.ids[0] != "x550"
    }

    /// Whether there is a module to read. DPDK 22.11 dies of the question where there is no cage.
    fn has_module(&self) -> bool {
        self.ids[0] == "10fb"
    }

    /// What testpmd is told before the frames come.
    fn setup(&self) -> Vec<String> {
        let words = [
            "port stop 0",
            "port config mtu 0 9000",
            "port start 0",
            "set promisc 0 off",
            "vlan set filter on 0",
            "vlan set strip on 0",
            "rx_vlan add 42 0",
            "set flow_ctrl autoneg off 0",
            "set flow_ctrl rx on 0",
            "set flow_ctrl autoneg off 1",
            "set flow_ctrl tx on 1",
        ];
        let mut words: Vec<_> = words.into_iter().chain(RULES).map(str::to_owned).collect();
        let entries: Vec<_> = (0..self.entries()).map(|entry| format!("({entry},{})", queue_of(entry))).collect();
        // A word of testpmd has less than 128 bytes.
        words.extend(entries.chunks(12).map(|part| format!("port config 0 rss reta {}", part.join(","))));
        words.extend(
            ["set portlist 0", "set fwd io retry", "set burst tx delay 100 retry 10000", "start"].map(Into::into),
        );
        words
    }

    /// What it is asked afterwards.
    fn questions(&self) -> Vec<String> {
        // All bits; written out, those of 512 entries are too long a word.
        let masks = vec!["-1"; usize::from(self.entries() / 64)].join(",");
        let mut words = Vec::new();
        for port in [0, 1] {
            words.extend(["info", "stats", "xstats"].map(|what| format!("show port {what} {port}")));
        }
        words.push(format!("show port 0 rss reta {} ({masks})", self.entries()));
        if self.has_module() {
            words.push("show port 0 module_eeprom".to_owned());
        }
        let rest = ["show port 0 rss-hash key", "show port 0 flow_ctrl", "flow list 0", REFUSED, "stop", "quit"];
        words.extend(rest.map(Into::into));
        words
    }

    /// Runs it on the cards from `first` on.
    pub(super) fn run(&self, vm: &mut Machine, checks: &mut Checks, first: usize, folder: &Path) -> Result<()> {
        let about = self.about;
        let capture = capture();
        let passed: Vec<_> = capture.iter().filter(|frame| frame.fate != Fate::Dropped).collect();
        self.start(vm, first)?;
        tell(vm, &self.setup())?;
        vm.sh("for try in $(seq 3000); do grep -q 'testpmd> start' /tmp/testpmd && exit; sleep 0.1; done; cat /tmp/testpmd; exit 1")?;
        for nic in [first, first + 1] {
            vm.nic(nic).set_link(true);
        }
        vm.until("all frames have come back, and the other card is late", |vm| {
            let counters = [first, first + 1].map(|nic| vm.nic(nic).wire_counters());
            counters[0].sent >= passed.len() as u64
                && vm.nic(first).transmit_idle()
                && counters[1].sent > 0
                && counters[1].missed > 0
        });
        vm.nic(first + 1).set_link(false);
        tell(vm, &self.questions())?;
        let said = vm.sh("for try in $(seq 3000); do kill -0 $(cat /tmp/pid) 2>/dev/null || break; sleep 0.1; done
             tr -d '\\r' </tmp/testpmd; dmesg | grep -c 'DMAR:.*fault'; true")?;
        let said = without_echo(&said);
        let shows = |checks: &mut Checks, what: &str, part: &str| {
            let found = said.contains(part);
            checks.that(found, format!("{about}: {what}"));
            if !found {
                println!("           wanted: {part}");
            }
            found
        };
        let mut all = true;
        for (what, part) in [
            ("link and speed", "Link status: up\nLink speed: 10 Gbps"),
            ("MTU", "MTU: 9000"),
            ("promiscuous mode is off", "Promiscuous mode: disabled"),
            ("tags are filtered and taken off", "strip on, filter on"),
            ("PAUSE frames are obeyed", "Rx pause: on"),
            ("a rule of an EtherType is taken", "Flow rule #0 created"),
            ("it ends", "Bye..."),
        ] {
            all &= shows(checks, what, part);
        }
        let rules = ["Flow rule #", "Caught PMD error"].map(|part| said.matches(part).count());
        let wanted = if self.knows_flows() { [2, 1] } else { [1, 2] };
        checks.equal(format!("{about}: rules that are taken, and refused"), rules, wanted);
        if self.has_module() {
            all &= shows(checks, "the module can be read", "MODULE EEPROM length");
        }
        if !all {
            said.lines().for_each(|line| println!("           {line}"));
        }
        checks.that(said.ends_with("\n0"), "no faults of the IOMMU");
        self.spread(checks, &said, &passed)?;
        self.counters(vm, checks, &said, [first, capture.len(), passed.len()]);
        came_back(checks, about, &folder.join(format!("out{first}")), &passed)?;
        for nic in [first, first + 1] {
            let (count, last) = vm.nic(nic).violations();
            checks.that(count == 0, format!("nothing that the datasheet forbids was done to NIC {nic}: {last:?}"));
        }
        Ok(())
    }

    /// Starts testpmd on both cards.
    fn start(&self, vm: &mut Machine, first: usize) -> Result<()> {
        let [a, b] = [first, first + 1].map(|nic| format!("0000:00:{:02x}.0", nic + 5));
        let program = self.program;
        vm.sh(&format!(
            "modprobe vfio-pci
             for nic in {a} {b}; do
                 echo vfio-pci >/sys/bus/pci/devices/$nic/driver_override
                 echo $nic >/sys/bus/pci/drivers_probe
             done
             rm -f /tmp/commands; mkfifo /tmp/commands
             {program} -l 0,1 -n 1 --in-memory -a {a} -a {b} -- -i --no-flush-rx --disable-link-check --no-lsc-interrupt \
             --nb-cores=1 --rxq={QUEUES} --txq={QUEUES} \
             --rxd=512 --txd=512 --mbuf-size=10240 --total-num-mbufs=8192 <>/tmp/commands >/tmp/testpmd 2>&1 &
             echo $! >/tmp/pid"
        ))
        .map(drop)
    }

    /// Which queue each frame has come through.
    fn spread(&self, checks: &mut Checks, said: &str, passed: &[&Frame]) -> Result<()> {
        let table: Vec<u16> = said
            .lines()
            .filter_map(|line| {
                line.split_once("RSS RETA configuration: hash index=")?.1.split_once(", queue=")?.1.trim().parse().ok()
            })
            .collect();
        let wanted: Vec<_> = (0..self.entries()).map(queue_of).collect();
        checks.that(
            table == wanted,
            format!("{}: the table of hashes is read back, {} entries", self.about, table.len()),
        );
        let key =
            said.split("RSS key:").nth(1).and_then(|rest| rest.split_whitespace().next()).context("no key is shown")?;
        let key =
            (0..key.len() / 2).map(|at| Ok(u8::from_str_radix(key.get(2 * at..2 * at + 2).unwrap_or_default(), 16)?));
        let key = key.collect::<Result<Vec<_>>>()?;
        let mut wanted = vec![0; QUEUES.into()];
        for frame in passed {
            let queue = match frame.fate {
                Fate::Queue(queue) if queue != OF_FLOW || self.knows_flows() => queue,
                _ => {
                    let ip = &frame.bytes[if frame.tagged { 18 } else { 14 }..];
                    queue_of(u16::try_from(hash(&key, &ip[12..20]) % u64::from(self.entries()))?)
                }
            };
            wanted[usize::from(queue)] += 1;
        }
        let of_queue = |queue: u16| {
            let block = said.split(&format!("Forward Stats for RX Port= 0/Queue= {queue} ->")).nth(1).unwrap_or("");
            field(block, "RX-packets:").unwrap_or(0)
        };
        let found: Vec<_> = (0..QUEUES).map(of_queue).collect();
        checks.equal(format!("{}: frames by queue, as key, table and rules have it", self.about), found, wanted);
        Ok(())
    }

    /// Statistics of both ports, as their wires.
    fn counters(&self, vm: &Machine, checks: &mut Checks, said: &str, [first, all, passed]: [usize; 3]) {
        let about = self.about;
        let [wire, late] = [first, first + 1].map(|nic| vm.nic(nic).wire_counters());
        let counts = [wire.delivered, wire.dropped].map(usize::try_from);
        checks.equal(format!("{about}: frames let through, and others"), counts, [Ok(passed), Ok(all - passed)]);
        let block = |what: &str, port: usize| said.split(&format!("{what} for port {port}")).nth(1).unwrap_or("");
        let stats = ["RX-packets:", "TX-packets:", "RX-bytes:", "TX-bytes:", "RX-missed:"]
            .map(|name| field(block("NIC statistics", 0), name));
        // Without the tags that the card took off.
        let wanted = [wire.delivered, wire.sent, wire.sent_bytes, wire.sent_bytes, 0].map(Some);
        checks.equal(format!("{about}: show port stats, as the wire"), stats, wanted);
        let xstats = |port| said.split(&format!("NIC extended statistics for port {port}")).nth(1).unwrap_or("");
        let of = |port, name: &str| field(xstats(port), &format!("\n{name}: "));
        let names = ["rx_good_packets", "tx_good_packets", "rx_flow_control_xoff_packets", "rx_oversize_errors"];
        let found = names.map(|name| of(0, name));
        checks.equal(
            format!("{about}: show port xstats, {names:?}"),
            found,
            [Some(wire.delivered), Some(wire.sent), Some(PAUSES as u64), Some(1)],
        );
        let stops =
            ["tx_flow_control_xoff_packets", "tx_flow_control_xon_packets"].map(|name| of(1, name).unwrap_or(0));
        checks.that(stops[0] > 0, format!("{about}: a card that is late says stop: {stops:?} XOFF and XON"));
        checks.equal(
            "  as the wire, and so what was missed",
            (stops.iter().sum(), field(block("NIC statistics", 1), "RX-missed:")),
            (late.sent, Some(late.missed)),
        );
    }
}

/// What testpmd says, without the commands that it repeats: they may be in the middle of a line, as they are not buffered.
/// Nothing but an interrupt of the link, which is off, would come between a prompt and the end of a command.
fn without_echo(said: &str) -> String {
    let (first, rest) = said.split_once("testpmd> ").unwrap_or((said, ""));
    let parts = rest.split("testpmd> ").map(|part| part.split_once('\n').map_or("", |(_, after)| after));
    std::iter::once(first).chain(parts).collect()
}

/// Testpmd's commands come through a pipe that stays open.
fn tell(vm: &mut Machine, words: &[String]) -> Result<()> {
    let words: Vec<_> = words.iter().map(|line| format!("'{line}'")).collect();
    vm.sh(&format!("printf '%s\\n' {} >/tmp/commands", words.join(" "))).map(drop)
}

/// The number behind `name`.
fn field(text: &str, name: &str) -> Option<u64> {
    text.split(name).nth(1)?.split_whitespace().next()?.parse().ok()
}

/// What the table says.
fn queue_of(entry: u16) -> u16 {
    (entry * 7 + entry / 5) % SPREAD
}

/// What testpmd has sent back is what came through, in whatever order.
fn came_back(checks: &mut Checks, about: &str, out: &Path, passed: &[&Frame]) -> Result<()> {
    let mut found = Vec::new();
    frames::read(out, |bytes| found.push(bytes.to_vec()))?;
    let mut wanted: Vec<_> = passed
        .iter()
        .map(|frame| if frame.tagged { [&frame.bytes[..12], &frame.bytes[16..]].concat() } else { frame.bytes.clone() })
        .collect();
    found.sort_unstable();
    wanted.sort_unstable();
    checks
        .that(found == wanted, format!("{about}: {} frames come back, without their tags, byte for byte", found.len()));
    Ok(())
}

/// All frames, in the order of the wire.
fn capture() -> Vec<Frame> {
    let mut capture = Vec::new();
    let mut add = |count: usize, tagged: bool, fate: Fate, make: &dyn Fn(usize) -> Vec<u8>| {
        for _ in 0..count {
            let bytes = make(capture.len());
            capture.push(Frame { bytes, tagged, fate });
        }
    };
    for _ in 0..4 {
        add(100, false, Fate::Hashed, &|number| ethernet(CARD, None, &datagram(number, ADDRESS)));
        add(10, false, Fate::Queue(OF_FLOW), &|number| ethernet(CARD, None, &ruled(number, 7777)));
        // The same but for a port.
        add(5, false, Fate::Hashed, &|number| ethernet(CARD, None, &ruled(number, 7778)));
        add(10, false, Fate::Queue(OF_TYPE), &|number| typed(ETHERTYPE, 60 + number));
        add(5, false, Fate::Queue(0), &|number| typed(ETHERTYPE + 1, 60 + number));
        add(10, false, Fate::Dropped, &|number| ethernet(FAR, None, &datagram(number, ADDRESS)));
        add(10, true, Fate::Hashed, &|number| ethernet(CARD, Some(VLAN), &datagram(number, TAGGED_ADDRESS)));
        add(10, true, Fate::Dropped, &|number| ethernet(CARD, Some(VLAN + 1), &datagram(number, TAGGED_ADDRESS)));
    }
    add(PAUSES, false, Fate::Dropped, &|_| {
        let mut frame = typed(0x8808, 60);
        frame[..6].copy_from_slice(&[1, 0x80, 0xC2, 0, 0, 1]);
        frame[14..18].copy_from_slice(&[0, 1, 0, 1]);
        frame
    });
    add(1, false, Fate::Queue(0), &|_| typed(ETHERTYPE + 1, MTU + 14));
    add(1, false, Fate::Dropped, &|_| typed(ETHERTYPE + 1, MTU + 15));
    capture
}

/// A frame of so many bytes.
fn typed(ethertype: u16, bytes: usize) -> Vec<u8> {
    let mut frame = [&CARD[..], &FAR, &ethertype.to_be_bytes()].concat();
    frame.extend((frame.len()..bytes).map(|at| u8::try_from(at % 251).unwrap_or(0)));
    frame
}

/// A datagram with the addresses and the source port of the first rule.
fn ruled(number: usize, port: u16) -> Vec<u8> {
    let mut ip = datagram(number, ADDRESS);
    ip[12..16].copy_from_slice(&[10, 9, 200, 1]);
    ip[20..22].copy_from_slice(&4242_u16.to_be_bytes());
    ip[22..24].copy_from_slice(&port.to_be_bytes());
    // Testpmd looks at no checksum.
    ip
}
