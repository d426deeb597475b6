//! Checksum offload: Linux on this host sends through `fwd l2` in the guest, from one TAP interface to another, and leaves
//! checksums to the device. It also judges those of what arrives.

use super::ours::{self, GIVE, PORTS, as_user};
use super::virtio::{READY, host_up};
use crate::checks::Checks;
use crate::machine::{Iommu, Machine, Rig, Setup};
use anyhow::{Context as _, Result, ensure};
use std::fs::{self, File};
use std::io::Write as _;
use std::process::Stdio;
use std::time::Duration;
use tests::{Namespace, Process, namespaces_possible};

/// Bytes of a TCP stream each way, and datagrams.
const STREAM: usize = 2 << 20;
const DATAGRAMS: u64 = 200;
const PORT: &str = "5000";

pub(super) fn checksum(rig: &Rig, checks: &mut Checks) -> Result<()> {
    if let Err(reason) = namespaces_possible(&["bash", "ping", "tcpdump"]) {
        checks.skip(reason);
        return Ok(());
    }
    rig.give_tun()?;
    // Between two NICs that have it, sums stay partial; for one that has not, fwd completes them.
    for (second, about) in [("", "both NICs"), ("csum=off,guest_csum=off,", "one NIC")] {
        drive(rig, checks, second, about)?;
    }
    Ok(())
}

fn drive(rig: &Rig, checks: &mut Checks, second: &str, about: &str) -> Result<()> {
    let taps = [0, 1].map(|nic| format!("rwvm{}n{nic}", std::process::id()));
    let mut words = Vec::new();
    for (nic, (tap, properties)) in taps.iter().zip(["", second]).enumerate() {
        words.extend(["-netdev".to_owned(), format!("tap,id=tap{nic},ifname={tap},script=no,downscript=no")]);
        let place = 5 + nic;
        let device =
            format!("virtio-net-pci,netdev=tap{nic},addr={place:#x},{properties}disable-legacy=on,iommu_platform=on");
        words.extend(["-device".to_owned(), device]);
    }
    let qemu: Vec<&str> = words.iter().map(String::as_str).collect();
    let mut vm = rig.boot(&Setup { qemu: &qemu, iommu: Iommu::Full, huge_pages: 32, ..Setup::default() })?;
    let hosts = [Namespace::new(), Namespace::new()];
    for (nic, (host, tap)) in hosts.iter().zip(&taps).enumerate() {
        host_up(host, tap, nic + 1)?;
    }
    vm.sh(GIVE)?;
    let command = as_user(&format!("fwd l2 {PORTS} --checksum-offload"));
    let command = format!("RUST_LOG=virtio=info {command}");
    ours::start(&mut vm, &command)?;
    let said = vm.sh(&format!("{READY} cat /tmp/said"))?;
    let with = said.matches("VIRTIO_NET_F_CSUM, VIRTIO_NET_F_GUEST_CSUM").count();
    checks.equal(format!("{about} with checksum offload"), with, if second.is_empty() { 2 } else { 1 });
    let ping = hosts[0].command(&["ping", "-c", "10", "-i", "0.1", "-w", "60", "10.9.0.2"]).output()?;
    checks.answers("  this host pings itself through fwd", &String::from_utf8_lossy(&ping.stdout), 10);
    let folder = tempfile::tempdir()?;
    let seen = folder.path().join("seen");
    let watch = ["tcpdump", "-i", &taps[0], "-Q", "out", "-n", "-v", "-c", "5", "tcp"];
    let mut watcher = hosts[0].command(&watch);
    let errors = File::create(folder.path().join("watcher"))?;
    let mut watcher = Process(watcher.stdout(File::create(&seen)?).stderr(errors).spawn()?);
    vm.until("tcpdump listens", |_| {
        fs::read_to_string(folder.path().join("watcher")).is_ok_and(|said| said.contains("listening on"))
    });
    for (from, to) in [(0, 1), (1, 0)] {
        stream(rig, &mut vm, checks, &hosts, from, to)?;
    }
    ensure!(watcher.wait(Duration::from_secs(20)).is_some(), "tcpdump has not seen five frames");
    checks.contains("  Linux left the sums of what it sent to the NIC", &fs::read_to_string(&seen)?, "(incorrect");
    for (from, to) in [(0, 1), (1, 0)] {
        let script = format!(
            "for port in $(seq {DATAGRAMS}); do echo x >/dev/udp/10.9.0.{}/$((6000 + port)); done; true",
            to + 1
        );
        ensure!(hosts[from].succeeds(&["bash", "-c", &script]), "datagrams cannot be sent");
        // Nobody waits for them, which is said of those with a right checksum only.
        vm.until("datagrams have come through", |_| counter(&hosts[to], "Udp:", "NoPorts") >= DATAGRAMS);
        checks.equal(format!("  datagrams to host {to}"), counter(&hosts[to], "Udp:", "NoPorts"), DATAGRAMS);
    }
    let wrong = |host: &Namespace| ["Tcp:", "Udp:"].map(|protocol| counter(host, protocol, "InCsumErrors"));
    checks.equal("  wrong checksums at either end", hosts.each_ref().map(wrong), [[0, 0]; 2]);
    let report = ours::finish(&mut vm, &command)?;
    checks.equal("  drops", report["drops"].to_string(), "{}".to_owned());
    Ok(())
}

/// Sends a stream from one host to the other.
fn stream(
    rig: &Rig,
    vm: &mut Machine,
    checks: &mut Checks,
    hosts: &[Namespace; 2],
    from: usize,
    to: usize,
) -> Result<()> {
    let arrived = tempfile::NamedTempFile::new()?;
    let bytes: Vec<u8> = (0..STREAM).map(|n| (n.wrapping_mul(2_654_435_761) >> 11).to_le_bytes()[0]).collect();
    let busybox = rig.busybox();
    let nc = busybox.to_str().context("a path in UTF-8")?;
    // This nc ends with its input, at either end, so both are kept open.
    let mut server = hosts[to].command(&[nc, "nc", "-l", "-p", PORT]);
    let _server = Process(server.stdin(Stdio::piped()).stdout(arrived.reopen()?).spawn()?);
    let listens = ["sh", "-c", "grep -q ':1388 .* 0A ' /proc/net/tcp /proc/net/tcp6"];
    vm.until("nc listens", |_| hosts[to].succeeds(&listens));
    let mut client = hosts[from].command(&[nc, "nc", &format!("10.9.0.{}", to + 1), PORT]);
    let mut client = Process(client.stdin(Stdio::piped()).stdout(Stdio::null()).spawn()?);
    let mut input = client.0.stdin.take().context("nc has no input")?;
    let sent = bytes.clone();
    let writer = std::thread::spawn(move || input.write_all(&sent).map(|()| input));
    let size = || arrived.as_file().metadata().map_or(0, |file| file.len());
    vm.until("the stream has come through", |_| size() >= STREAM as u64);
    let whole = fs::read(arrived.path())? == bytes;
    checks.that(whole, format!("  a TCP stream of {STREAM} bytes from host {from} to host {to}, byte for byte"));
    drop(client);
    // If anything is left to write, nobody takes it any more.
    drop(writer.join());
    Ok(())
}

/// A count of `/proc/net/snmp`.
fn counter(host: &Namespace, protocol: &str, name: &str) -> u64 {
    let said = host.output(&["cat", "/proc/net/snmp"]);
    let mut lines = said.lines().filter(|line| line.starts_with(protocol));
    let (Some(names), Some(values)) = (lines.next(), lines.next()) else { return u64::MAX };
    let place = names.split_whitespace().position(|word| word == name);
    place.and_then(|place| values.split_whitespace().nth(place)?.parse().ok()).unwrap_or(u64::MAX)
}
