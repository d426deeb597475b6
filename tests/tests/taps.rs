//! TAP interfaces that are down, come up, go down and are deleted, under soft NICs and under the programs. Needs root; says why
//! when it is skipped.

use ethdev::{Port as _, TxQueue as _};
use ixgbe::{Config, Opened};
use mempool::Batch;
use serde_json::Value;
use softnic::{SoftControl, SoftDevice, WireError};
use std::io::Read as _;
use std::process::{Output, Stdio};
use std::time::Duration;
use tests::{Fwd, Namespace, Process, eventually, frame, fwd, namespaces_possible, pktgen, pool};

/// Long enough for a busy machine.
const PATIENCE: Duration = Duration::from_secs(120);

/// A namespace to make interfaces in, unless this host cannot; then says why.
fn namespace() -> Option<Namespace> {
    if let Err(reason) = namespaces_possible(&[]) {
        skip::test!("{reason}");
        return None;
    }
    let namespace = Namespace::new();
    // The host must not send or receive of its own accord, nor answer.
    namespace.output(&["sh", "-c", "echo 1 > /proc/sys/net/ipv6/conf/default/disable_ipv6 || true"]);
    Some(namespace)
}

fn set(namespace: &Namespace, interface: &str, what: &[&str]) {
    namespace.output(&[&["ip", "link", "set", interface], what].concat());
}

/// Frames that Linux has received by an interface.
fn received(namespace: &Namespace, interface: &str) -> u64 {
    let text = namespace.output(&["ip", "-json", "-statistics", "link", "show", "dev", interface]);
    let links: Value = serde_json::from_str(&text).expect("ip prints JSON");
    links.pointer("/0/stats64/rx/packets").and_then(Value::as_u64).expect("ip counts frames")
}

/// A soft NIC on a TAP interface of another namespace, and its driver.
struct Nic {
    control: SoftControl,
    opened: Opened<SoftDevice>,
    pool: mempool::Pool,
}

impl Nic {
    fn open(namespace: &Namespace, interface: &str) -> Self {
        let spec = format!("{interface}?wire=tap:{interface}");
        let device = namespace.within(|| SoftDevice::open(&spec).expect("a TAP interface"));
        let (control, pool) = (device.control(), pool(1024, 2048));
        let opened = ixgbe::open(device, &Config::default(), &pool).expect("the driver opens it");
        Self { control, opened, pool }
    }

    fn is_up(&self) -> bool {
        self.opened.port.link().expect("the device is there").up
    }

    /// Hands frames to the transmit ring, which has room.
    fn send(&mut self, frames: u32) {
        let (mut cache, mut batch) = (self.pool.cache(), Batch::with_capacity(64));
        for number in 0..frames {
            let mut packet = cache.alloc().expect("buffers are left");
            packet.append(60).expect("a frame fits").copy_from_slice(&frame(number, 60));
            batch.push(packet).expect("the batch has room");
        }
        let sent = self.opened.tx[0].send(&mut cache, &mut batch);
        assert_eq!(sent, frames as usize, "the ring has room");
    }

    /// Stops the device. Returns what its wire says then, and the frames that were sent and lost.
    fn close(self) -> (Option<WireError>, u64, u64) {
        let Opened { port, rx, tx, .. } = self.opened;
        drop((rx, tx));
        port.close().expect("a soft NIC stops");
        let counters = self.control.wire_counters();
        (self.control.wire_error(), counters.sent, counters.lost)
    }
}

#[test]
fn the_link_is_up_while_the_interface_is_and_frames_wait_for_it() {
    let Some(namespace) = namespace() else { return };
    let mut nic = Nic::open(&namespace, "rwlink");
    assert!(!nic.is_up(), "a new interface is down");
    let cause = nic.control.no_carrier().expect("it is down");
    assert!(cause.contains("rwlink is down") && cause.contains("ip link set rwlink up"), "{cause}");
    let mut sent = 0;
    for frames in [5, 3] {
        nic.send(frames);
        sent += u64::from(frames);
        set(&namespace, "rwlink", &["up"]);
        eventually("the link comes up", || nic.is_up());
        eventually("frames that waited leave", || nic.control.transmit_idle());
        assert_eq!(received(&namespace, "rwlink"), sent, "all that were handed over, however long ago");
        set(&namespace, "rwlink", &["down"]);
        eventually("the link goes down", || !nic.is_up());
    }
    set(&namespace, "rwlink", &["up"]);
    eventually("the link comes up", || nic.is_up());
    assert_eq!(nic.control.no_carrier(), None);
    assert_eq!(nic.close(), (None, 8, 0));
}

#[test]
fn frames_left_over_when_the_interface_is_down_are_an_error() {
    let Some(namespace) = namespace() else { return };
    let mut nic = Nic::open(&namespace, "rwleft");
    nic.send(4);
    let (error, sent, lost) = nic.close();
    assert_eq!((sent, lost), (0, 4));
    assert!(matches!(error, Some(WireError::NotTaken { frames: 4, .. })), "{error:?}");
    let text = error.expect("just looked at").to_string();
    assert!(text.contains("4 frames to be sent were lost") && text.contains("ip link set rwleft up"), "{text}");
}

#[test]
fn a_deleted_interface_takes_the_link_down_for_good() {
    let Some(namespace) = namespace() else { return };
    let mut nic = Nic::open(&namespace, "rwgone");
    set(&namespace, "rwgone", &["up"]);
    eventually("the link comes up", || nic.is_up());
    nic.send(2);
    eventually("frames leave", || nic.control.transmit_idle());
    namespace.output(&["ip", "link", "delete", "rwgone"]);
    eventually("the link goes down", || !nic.is_up());
    nic.send(7);
    // One of the same name is another.
    namespace.output(&["ip", "tuntap", "add", "rwgone", "mode", "tap"]);
    set(&namespace, "rwgone", &["up"]);
    eventually("the device knows", || nic.control.wire_gone());
    assert!(!nic.is_up());
    let (error, sent, lost) = nic.close();
    assert_eq!((sent, lost), (2, 7));
    assert_eq!(error, Some(WireError::Gone { interface: "rwgone".to_owned(), frames: 7 }));
}

#[test]
fn pktgen_waits_for_an_interface_that_is_down_and_says_so() {
    let Some(namespace) = namespace() else { return };
    let words = ["tx", "soft:a?wire=tap:rwpkt", "--count", "1000", "--json", "--quiet"];
    let program = pktgen().to_str().expect("a path in UTF-8");
    let run = Fwd::of(&namespace.command(&[&[program], &words[..]].concat()).output().expect("pktgen starts"));
    assert_eq!(run.code, Some(1), "{} {}", run.stderr, run.json);
    for word in ["pktgen: soft:a: ", "the interface rwpkt is down", "ip link set rwpkt up"] {
        assert!(run.stderr.contains(word), "{}", run.stderr);
    }
}

/// `fwd l2` from a source of so many frames into a TAP interface, which `then` does something to once it is there.
fn forward(namespace: &Namespace, source: &str, tap: &str, then: impl FnOnce()) -> Fwd {
    let program = fwd().to_str().expect("a path in UTF-8");
    let (source, sink) = (format!("soft:g?wire=gen&{source}"), format!("soft:t?wire=tap:{tap}"));
    let words = [program, "l2", &source, &sink, "--exit-when-idle", "--json", "--quiet", "--duration", "900"];
    let mut process = namespace.command(&words);
    let mut process = Process(process.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("fwd starts"));
    eventually("fwd makes the interface", || namespace.succeeds(&["ip", "link", "show", tap]));
    then();
    let status = process.wait(PATIENCE).expect("fwd ends");
    let (mut stdout, mut stderr) = (Vec::new(), Vec::new());
    process.0.stdout.take().expect("piped").read_to_end(&mut stdout).expect("readable");
    process.0.stderr.take().expect("piped").read_to_end(&mut stderr).expect("readable");
    let run = Fwd::of(&Output { status, stdout, stderr });
    assert_eq!(run.count("/received"), run.count("/forwarded") + run.drops(), "{}", run.json);
    run
}

#[test]
fn fwd_keeps_frames_for_an_interface_that_comes_up_later() {
    let Some(namespace) = namespace() else { return };
    // Fewer than descriptors.
    let run = forward(&namespace, "count=100", "rwlate", || {
        set(&namespace, "rwlate", &["up"]);
    });
    assert_eq!((run.code, run.count("/forwarded"), run.drops()), (Some(0), 100, 0), "{} {}", run.stderr, run.json);
}

#[test]
fn fwd_ends_with_an_error_when_its_interface_goes_with_its_namespace() {
    let (Some(namespace), Some(other)) = (namespace(), namespace()) else { return };
    let run = forward(&namespace, "count=400", "rwmoved", || {
        set(&namespace, "rwmoved", &["netns", &other.holder().to_string()]);
        drop(other);
    });
    assert_eq!(run.code, Some(1), "{} {}", run.stderr, run.json);
    assert_eq!(run.count("/received"), 400);
    let error = run.json.pointer("/error").and_then(Value::as_str).expect("the object says what went wrong");
    assert!(error.contains("rwmoved was deleted") && error.contains("400 frames to be sent were lost"), "{error}");
}

#[test]
fn what_is_no_tap_interface_is_named_with_a_next_step() {
    let Some(namespace) = namespace() else { return };
    let program = fwd().to_str().expect("a path in UTF-8");
    namespace.output(&["ip", "tuntap", "add", "rwtun", "mode", "tun"]);
    namespace.output(&["ip", "tuntap", "add", "rwmany", "mode", "tap", "multi_queue"]);
    for (interface, cause) in
        [("lo", "loopback"), ("rwtun", "TUN device"), ("rwmany", "multi_queue"), ("a/b", "such a name")]
    {
        let port = format!("soft:a?wire=tap:{interface}");
        let run = namespace.command(&[program, "rxonly", &port]).output().expect("fwd starts");
        let text = String::from_utf8_lossy(&run.stderr);
        assert_eq!(run.status.code(), Some(1), "{text}");
        assert!(text.contains(&format!("TAP interface {interface}")) && text.contains(cause), "{text}");
        assert!(text.contains("; choose") || text.contains("make it anew"), "{text}");
    }
    let [first, second] = ["soft:a?wire=tap:rwone", "soft:b?wire=tap:rwone"];
    let run = namespace.command(&[program, "l2", first, second]).output().expect("fwd starts");
    let text = String::from_utf8_lossy(&run.stderr);
    assert!(text.contains("rwone") && text.contains("has it open already"), "{text}");
}
