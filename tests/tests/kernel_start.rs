//! The first moments of `fwd l3 --kernel`, with twins that were there before: what Linux sees of them, and what becomes of packets and
//! signals that come while Linux's tables are read. Needs root; says why when it is skipped.

use rustix::process::Signal;
use serde_json::Value;
use std::fmt::Write as _;
use std::fs::File;
use std::os::unix::net::UnixListener;
use std::process::{Command, Stdio};
use std::time::Duration;
use tests::{Capture, Fwd, Namespace, Process, eventually, fwd, namespaces_possible, set, with_checksum};

const TWINS: [&str; 2] = ["rwt0", "rwt1"];
const MACS: [[u8; 6]; 2] = [[2, 0, 0, 0, 0, 0xA0], [2, 0, 0, 0, 0, 0xB0]];
const HOPS: [&str; 2] = ["02:00:00:00:00:a1", "02:00:00:00:00:b1"];
/// Long enough for a busy machine.
const PATIENCE: Duration = Duration::from_secs(120);

/// Each change starts and ends sessions of routing protocols.
#[test]
fn a_carrier_comes_once_and_goes_once() {
    let Some(router) = router() else { return };
    let changes = || TWINS.map(|twin| carrier_changes(&router, twin));
    let before = changes();
    let mut run = start(&router, &["soft:a", "soft:b"]);
    eventually("the twins have carriers", || TWINS.iter().all(|twin| has_carrier(&router, twin)));
    assert_eq!(changes(), before.map(|before| before + 1));
    assert_eq!(stop(&mut run).code, Some(0));
    assert_eq!(changes(), before.map(|before| before + 2));
}

/// As the port has a link, and Linux would answer nobody there.
#[test]
fn a_carrier_that_somebody_takes_comes_back() {
    let Some(router) = router() else { return };
    let mut run = start(&router, &["soft:a", "soft:b"]);
    let have_carriers = || TWINS.iter().all(|twin| has_carrier(&router, twin));
    eventually("the twins have carriers", have_carriers);
    let before = carrier_changes(&router, TWINS[0]);
    router.output(&["ip", "link", "set", TWINS[0], "carrier", "off"]);
    eventually("it has one again", || carrier_changes(&router, TWINS[0]) >= before + 2 && have_carriers());
    assert_eq!(stop(&mut run).code, Some(0));
}

/// Opening a port may take as long as somebody else likes, and then fail.
#[test]
fn there_is_no_carrier_before_all_ports_are_open() {
    let Some(router) = router() else { return };
    let folder = tempfile::tempdir().expect("a temporary folder");
    let socket = folder.path().join("socket");
    let before = TWINS.map(|twin| carrier_changes(&router, twin));
    let back_end = UnixListener::bind(&socket).expect("a socket");
    let mut run = start(&router, &["soft:a", &format!("vhost-user:{}", socket.display())]);
    // It says nothing, so the port is not open while this is.
    let (silent, _) = back_end.accept().expect("fwd connects");
    assert!(TWINS.iter().all(|twin| !has_carrier(&router, twin)));
    run.signal(Signal::INT);
    let ended = end(&mut run);
    assert_eq!(ended.code, Some(1), "{}", ended.stderr);
    assert!(ended.stderr.contains("interrupted by a signal"), "{}", ended.stderr);
    assert_eq!(TWINS.map(|twin| carrier_changes(&router, twin)), before);
    drop(silent);
}

/// Packets that were there before the first poll find the tables read.
#[test]
fn the_first_packets_pass_by_the_ports() {
    let Some(router) = router() else { return };
    let folder = tempfile::tempdir().expect("a temporary folder");
    let (input, output) = (folder.path().join("in.pcap"), folder.path().join("out.pcap"));
    for (at, twin) in TWINS.iter().enumerate() {
        // Another one would have Linux forget the neighbours.
        router.output(&["ip", "link", "set", twin, "address", &tests::words(MACS[at])]);
        router.output(&["ip", "address", "add", &format!("10.87.{at}.1/24"), "dev", twin]);
        let neighbour = format!("10.87.{at}.2");
        router.output(&["ip", "neigh", "add", &neighbour, "lladdr", HOPS[at], "dev", twin, "nud", "permanent"]);
    }
    let frames: Vec<Vec<u8>> = (0..200).map(packet).collect();
    Capture { frames }.write(&input);
    let mac = |at: usize| tests::words(MACS[at]);
    let ports = [
        format!("soft:a?wire=pcap:{}&mac={}", input.display(), mac(0)),
        format!("soft:b?wire=pcap:,{}&mac={}", output.display(), mac(1)),
    ];
    let [first, second] = &ports;
    let ended = end(&mut start(&router, &[first, second, "--exit-when-idle"]));
    let by_the_host = ended.json.pointer("/kernel/twins/0/to_host").and_then(Value::as_u64);
    assert_eq!(
        (ended.count("/received"), ended.count("/forwarded"), by_the_host),
        (200, 200, Some(0)),
        "{}",
        ended.json
    );
}

/// How far the reading has come by then depends on the machine, and what is asserted does not.
#[test]
fn a_signal_while_tables_are_read_ends_the_run_as_any() {
    let Some(router) = router() else { return };
    let folder = tempfile::tempdir().expect("a temporary folder");
    let routes = folder.path().join("routes");
    let mut lines = String::new();
    for number in 0..200_000_u32 {
        let [_, high, low, last] = number.to_be_bytes();
        writeln!(lines, "route add 11.{high}.{low}.{last}/32 dev {}", TWINS[0]).expect("a string takes all");
    }
    std::fs::write(&routes, lines).expect("a temporary file");
    router.output(&["ip", "-batch", routes.to_str().expect("a path in UTF-8")]);
    let mut run = start(&router, &["soft:a?wire=tap:rwka", "soft:b?wire=tap:rwkb"]);
    eventually("the last port is open", || {
        run.still_runs();
        router.succeeds(&["ip", "link", "show", "rwkb"])
    });
    let ended = stop(&mut run);
    if ended.code == Some(0) {
        assert_eq!(ended.count("/received"), ended.count("/forwarded") + ended.count("/to_host") + ended.drops());
    } else {
        assert!(ended.code == Some(1) && ended.stderr.contains("interrupted by a signal while"), "{}", ended.stderr);
    }
}

/// A service has no screen: its log says it when it happens.
#[test]
fn a_new_remark_is_logged_once_while_a_quiet_run_goes_on() {
    let Some(router) = router() else { return };
    let folder = tempfile::tempdir().expect("a temporary folder");
    let log = folder.path().join("log");
    let said = || std::fs::read_to_string(&log).expect("a log");
    let mut command = command(&router, &["soft:a", "soft:b"]);
    let log_file = File::create(&log).expect("a temporary file");
    let mut run = Process(command.stdout(Stdio::null()).stderr(log_file).spawn().expect("fwd starts"));
    eventually("the twins have carriers", || TWINS.iter().all(|twin| has_carrier(&router, twin)));
    assert!(!said().contains("has an MTU"), "{}", said());
    for (twin, mtu) in [("rwt0", 3000), ("rwt1", 4000)] {
        router.output(&["ip", "link", "set", twin, "mtu", &mtu.to_string()]);
        let words = format!("{twin} has an MTU of {mtu} bytes, and its port 1500");
        eventually("it is logged", || {
            run.still_runs();
            said().contains(&words)
        });
    }
    run.signal(Signal::INT);
    assert_eq!(run.wait(PATIENCE).and_then(|status| status.code()), Some(0), "{}", said());
    assert_eq!(said().matches("has an MTU of").count(), 2, "{}", said());
}

/// A namespace that forwards, with twins that are up, unless this host cannot; then says why.
fn router() -> Option<Namespace> {
    if let Err(reason) = namespaces_possible(&[]) {
        skip::test!("{reason}");
        return None;
    }
    let router = Namespace::new();
    for setting in ["ipv4/ip_forward=1", "ipv4/conf/all/rp_filter=0"] {
        set(&router, setting);
    }
    for twin in TWINS {
        router.output(&["ip", "tuntap", "add", twin, "mode", "tap"]);
        router.output(&["ip", "link", "set", twin, "up"]);
    }
    Some(router)
}

fn start(router: &Namespace, ports: &[&str]) -> Process {
    let mut command = command(router, ports);
    Process(command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("fwd starts"))
}

fn command(router: &Namespace, ports: &[&str]) -> Command {
    let program = fwd().to_str().expect("a path in UTF-8");
    let kernel = format!("--kernel={}", TWINS.join(","));
    router.command(&[&[program, "l3"][..], ports, &[&kernel, "--json", "--quiet", "--duration", "900"]].concat())
}

/// Ends it as a user would.
fn stop(run: &mut Process) -> Fwd {
    run.still_runs();
    run.signal(Signal::INT);
    end(run)
}

fn end(run: &mut Process) -> Fwd {
    let status = run.wait(PATIENCE).expect("fwd ends");
    let read = |pipe: Option<&mut dyn std::io::Read>| {
        let mut text = Vec::new();
        pipe.expect("piped").read_to_end(&mut text).expect("what it wrote");
        text
    };
    let stdout = read(run.0.stdout.as_mut().map(|pipe| pipe as &mut dyn std::io::Read));
    let stderr = read(run.0.stderr.as_mut().map(|pipe| pipe as &mut dyn std::io::Read));
    Fwd::of(&std::process::Output { status, stdout, stderr })
}

/// A packet of UDP by the router, from the first link to the second.
fn packet(number: u16) -> Vec<u8> {
    let [high, low] = number.to_be_bytes();
    let header = [0x45, 0, 0, 46, high, low, 0, 0, 64, 17, 0, 0, 10, 87, 0, 2, 10, 87, 1, 2];
    let header = with_checksum(header.to_vec());
    [&MACS[0][..], &[2, 0, 0, 0, 0, 0xA1, 8, 0], &header, &[7; 26]].concat()
}

fn link(router: &Namespace, interface: &str) -> Value {
    let text = router.output(&["ip", "-statistics", "-statistics", "-json", "link", "show", "dev", interface]);
    let links: Value = serde_json::from_str(&text).expect("ip prints JSON");
    links[0].clone()
}

/// How often the carrier has come or gone.
fn carrier_changes(router: &Namespace, interface: &str) -> u64 {
    let link = link(router, interface);
    link.pointer("/stats64/tx/carrier_changes").and_then(Value::as_u64).expect("ip counts changes")
}

fn has_carrier(router: &Namespace, interface: &str) -> bool {
    link(router, interface)["flags"].as_array().expect("flags").iter().any(|flag| flag == "LOWER_UP")
}
