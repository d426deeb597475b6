//! QEMU's virtio-net whose other side another process plays: DPDK's vhost library in a testpmd on this host, which shares
//! the guest's memory through vhost-user. testpmd plays a capture into each NIC, and records what comes out of it.

use super::ours;
use super::virtio::{READY, TAKE};
use crate::checks::Checks;
use crate::frames;
use crate::machine::{Rig, Setup};
use anyhow::{Context as _, Result, ensure};
use std::fs::{self, File};
use std::io::Write as _;
use std::path::Path;
use std::process::{ChildStdin, Stdio};
use std::time::{Duration, Instant};
use tests::{Process, command};

/// Frames each way.
const FRAMES: u32 = 20_000;

pub(super) fn split(rig: &Rig, checks: &mut Checks) -> Result<()> {
    drive(rig, checks, "disable-legacy=on")
}

pub(super) fn packed(rig: &Rig, checks: &mut Checks) -> Result<()> {
    drive(rig, checks, "disable-legacy=on,packed=on")
}

fn drive(rig: &Rig, checks: &mut Checks, properties: &str) -> Result<()> {
    if command(&["dpdk-testpmd", "--version"]).stdout(Stdio::null()).stderr(Stdio::null()).status().is_err() {
        println!("   skipped: no dpdk-testpmd in PATH; tests/setup installs it");
        return Ok(());
    }
    let captures = tempfile::tempdir()?;
    let capture = |name: &str| captures.path().join(name);
    for side in [0, 1] {
        frames::write(&capture(&format!("in{side}")), side, FRAMES)?;
    }
    let sockets = rig.folder()?;
    let mut testpmd = Testpmd::start(sockets.path(), captures.path())?;
    let mut words = Vec::new();
    for nic in 0..2 {
        let path = rig.inside(&sockets.path().join(format!("nic{nic}")));
        let place = 5 + nic;
        words.extend(["-chardev".to_owned(), format!("socket,id=line{nic},path={path}")]);
        words.extend(["-netdev".to_owned(), format!("vhost-user,id=far{nic},chardev=line{nic}")]);
        words.extend(["-device".to_owned(), format!("virtio-net-pci,netdev=far{nic},addr={place:#x},{properties}")]);
    }
    let qemu: Vec<&str> = words.iter().map(String::as_str).collect();
    let mut vm = rig.boot(&Setup { qemu: &qemu, huge_pages: 32, ..Setup::default() })?;
    vm.sh(TAKE)?;
    let command = format!("RUST_LOG=virtio=info fwd l2 {} --unsafe-no-iommu", ours::PORTS);
    ours::start(&mut vm, &command)?;
    let said = vm.sh(&format!("{READY} cat /tmp/said"))?;
    let packed = properties.contains("packed=on");
    checks.equal("packed rings are in use", said.contains("VIRTIO_F_RING_PACKED"), packed);
    testpmd.tell("start")?;
    let whole = (0..FRAMES).map(|number| 16 + frames::frame(0, number).len() as u64).sum::<u64>() + 24;
    let recorded = |side: u32| fs::metadata(capture(&format!("out{side}"))).map_or(0, |file| file.len());
    vm.until("everything was forwarded", |_| (0..2).all(|side| recorded(side) >= whole));
    let report = ours::finish(&mut vm, &command)?;
    testpmd.tell("stop")?;
    testpmd.tell("quit")?;
    let said = testpmd.end()?;
    for side in [0, 1] {
        checks.equal(
            format!("{FRAMES} frames from port {side}, byte for byte and in order: differences"),
            frames::difference(&capture(&format!("out{}", 1 - side)), side, FRAMES)?,
            None,
        );
    }
    let all = Some(2 * u64::from(FRAMES));
    checks.equal("received and forwarded", ["received", "forwarded"].map(|name| report[name].as_u64()), [all; 2]);
    checks.equal("drops", report["drops"].to_string(), "{}".to_owned());
    checks.contains("testpmd ends", &said, "Bye...");
    Ok(())
}

/// A testpmd with a back end for each NIC, and a capture port for each back end.
struct Testpmd {
    process: Process,
    input: ChildStdin,
    log: std::path::PathBuf,
}

impl Testpmd {
    /// Starts it and waits until both back ends listen in `sockets`.
    fn start(sockets: &Path, captures: &Path) -> Result<Self> {
        let log = captures.join("testpmd");
        let mut words = ["setpriv", "--pdeathsig", "KILL", "dpdk-testpmd", "--lcores", "0@0-1,1@0-1", "--no-pci"]
            .map(str::to_owned)
            .to_vec();
        words.extend(["--no-telemetry", "--no-huge", "-m", "256", "--no-shconf"].map(str::to_owned));
        words.extend(["--file-prefix".to_owned(), format!("ringway-vm{}", std::process::id())]);
        // Ports in this order: the first two exchange frames, and the last two.
        for side in 0..2 {
            let file = |name: &str| captures.join(format!("{name}{side}")).display().to_string();
            let socket = sockets.join(format!("nic{side}")).display().to_string();
            words.extend([
                "--vdev".to_owned(),
                format!("net_pcap{side},rx_pcap={},tx_pcap={}", file("in"), file("out")),
            ]);
            words.extend(["--vdev".to_owned(), format!("net_vhost{side},iface={socket},queues=1")]);
        }
        words.extend(["--", "-i", "--no-flush-rx", "--disable-link-check", "--nb-cores=1"].map(str::to_owned));
        words.extend(["--total-num-mbufs=16384", "--port-topology=paired"].map(str::to_owned));
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        let mut child = command(&words);
        child.stdin(Stdio::piped()).stdout(File::create(&log)?).stderr(File::options().append(true).open(&log)?);
        let mut process = Process(child.spawn().context("testpmd cannot be started")?);
        let input = process.0.stdin.take().context("testpmd has no input")?;
        let mut testpmd = Self { process, input, log };
        // Where the guest does not keep up it tries again, for five seconds.
        testpmd.tell("set fwd io retry")?;
        testpmd.tell("set burst tx delay 100 retry 50000")?;
        let deadline = Instant::now() + PATIENCE;
        while !(0..2).all(|side| sockets.join(format!("nic{side}")).exists()) {
            let ended = testpmd.process.0.try_wait()?;
            ensure!(ended.is_none() && Instant::now() < deadline, "testpmd does not listen: {}", testpmd.said()?);
            std::thread::sleep(Duration::from_millis(20));
        }
        Ok(testpmd)
    }

    fn tell(&mut self, command: &str) -> Result<()> {
        writeln!(self.input, "{command}").context("testpmd has ended")
    }

    fn said(&self) -> Result<String> {
        Ok(String::from_utf8_lossy(&fs::read(&self.log)?).into_owned())
    }

    /// Waits for its end; returns what it has said.
    fn end(mut self) -> Result<String> {
        ensure!(self.process.wait(PATIENCE).is_some(), "testpmd does not end: {}", self.said()?);
        self.said()
    }
}

/// Long enough for a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);
