//! QEMU's virtio-net whose other side another process plays: DPDK's vhost library in a testpmd on this host, which shares
//! the guest's memory through vhost-user. testpmd plays a capture into each NIC, and records what comes out of it.

use super::ours::{self, GIVE, as_user};
use super::virtio::{READY, TAKE};
use crate::checks::Checks;
use crate::frames;
use crate::machine::{Iommu, Rig, Setup};
use anyhow::{Context as _, Result, ensure};
use std::fs::{self, File};
use std::io::Write as _;
use std::path::Path;
use std::process::{ChildStdin, Stdio};
use std::time::{Duration, Instant};
use tests::{Process, command};

/// Frames each way.
const FRAMES: u32 = 20_000;

/// What differs between the scenarios.
struct Case {
    /// Properties of the NICs.
    properties: &'static str,
    iommu: Iommu,
    queues: u32,
}

impl Case {
    const fn new(properties: &'static str) -> Self {
        Self { properties, iommu: Iommu::None, queues: 1 }
    }

    /// Frames each way in each queue.
    fn frames(&self) -> u32 {
        FRAMES / self.queues
    }

    /// `fwd` on both NICs, as whom it takes.
    fn command(&self) -> String {
        let mut command = format!("fwd l2 {}", ours::PORTS);
        if self.queues > 1 {
            let lcores: Vec<_> =
                (0..self.queues).map(|queue| format!("(0,{queue},{queue}),(1,{queue},{queue})")).collect();
            command += &format!(" --queues {} --lcores '{}'", self.queues, lcores.join(","));
        }
        if self.iommu == Iommu::None { format!("{command} --unsafe-no-iommu") } else { as_user(&command) }
    }
}

pub(super) fn legacy(rig: &Rig, checks: &mut Checks) -> Result<()> {
    drive(rig, checks, &Case::new("disable-modern=on,disable-legacy=off"))
}

pub(super) fn transitional(rig: &Rig, checks: &mut Checks) -> Result<()> {
    drive(rig, checks, &Case::new("disable-modern=off,disable-legacy=off"))
}

pub(super) fn modern(rig: &Rig, checks: &mut Checks) -> Result<()> {
    drive(rig, checks, &Case::new("disable-legacy=on"))
}

pub(super) fn packed(rig: &Rig, checks: &mut Checks) -> Result<()> {
    drive(rig, checks, &Case::new("disable-legacy=on,packed=on"))
}

/// The back end asks QEMU for each translation that it lacks.
pub(super) fn iommu(rig: &Rig, checks: &mut Checks) -> Result<()> {
    let properties = "disable-legacy=on,iommu_platform=on,ats=on";
    drive(rig, checks, &Case { iommu: Iommu::Full, ..Case::new(properties) })
}

pub(super) fn mq(rig: &Rig, checks: &mut Checks) -> Result<()> {
    drive(rig, checks, &Case { queues: 4, ..Case::new("disable-legacy=on,mq=on,vectors=10") })
}

fn drive(rig: &Rig, checks: &mut Checks, case: &Case) -> Result<()> {
    if command(&["dpdk-testpmd", "--version"]).stdout(Stdio::null()).stderr(Stdio::null()).status().is_err() {
        checks.skip("no dpdk-testpmd in PATH; tests/setup installs it");
        return Ok(());
    }
    let captures = tempfile::tempdir()?;
    let capture = |name: &str| captures.path().join(name);
    let lanes: Vec<_> = (0..case.queues).flat_map(|queue| [(0, queue), (1, queue)]).collect();
    for (side, queue) in &lanes {
        frames::write(&capture(&format!("in{side}-{queue}")), *side, case.frames())?;
    }
    let sockets = rig.folder()?;
    let mut testpmd = Testpmd::start(sockets.path(), captures.path(), case)?;
    let mut words = Vec::new();
    for nic in 0..2 {
        let path = rig.inside(&sockets.path().join(format!("nic{nic}")));
        let place = 5 + nic;
        words.extend(["-chardev".to_owned(), format!("socket,id=line{nic},path={path}")]);
        words
            .extend(["-netdev".to_owned(), format!("vhost-user,id=far{nic},chardev=line{nic},queues={}", case.queues)]);
        let properties = case.properties;
        words.extend(["-device".to_owned(), format!("virtio-net-pci,netdev=far{nic},addr={place:#x},{properties}")]);
    }
    let qemu: Vec<&str> = words.iter().map(String::as_str).collect();
    let (cpus, iommu) = (case.queues.max(2), case.iommu);
    let mut vm = rig.boot(&Setup { qemu: &qemu, iommu, cpus, huge_pages: 64, ..Setup::default() })?;
    vm.sh(if iommu == Iommu::None { TAKE } else { GIVE })?;
    let command = format!("RUST_LOG=virtio=info {}", case.command());
    ours::start(&mut vm, &command)?;
    let said = vm.sh(&format!("{READY} cat /tmp/said"))?;
    let packed = case.properties.contains("packed=on");
    checks.equal("packed rings are in use", said.contains("VIRTIO_F_RING_PACKED"), packed);
    testpmd.tell("start")?;
    let whole = (0..case.frames()).map(|number| 16 + frames::frame(0, number).len() as u64).sum::<u64>() + 24;
    let recorded = |file: &str| fs::metadata(capture(file)).map_or(0, |file| file.len());
    let is_whole = |(side, queue): &(u8, u32)| recorded(&format!("out{side}-{queue}")) >= whole;
    vm.until("everything was forwarded", |_| lanes.iter().all(is_whole));
    let report = ours::finish(&mut vm, &command)?;
    testpmd.tell("stop")?;
    testpmd.tell("quit")?;
    let said = testpmd.end()?;
    for (side, queue) in lanes {
        checks.equal(
            format!(
                "{} frames from port {side}, queue {queue}, byte for byte and in order: differences",
                case.frames()
            ),
            frames::difference(&capture(&format!("out{}-{queue}", 1 - side)), side, case.frames())?,
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
    fn start(sockets: &Path, captures: &Path, case: &Case) -> Result<Self> {
        let log = captures.join("testpmd");
        // Each stream has a thread: one that waits for the guest to receive keeps none from taking what the guest sends. Else both could
        // wait for each other until one gives up.
        let streams = 4 * case.queues;
        let lcores: Vec<_> = (0..=streams).map(|lcore| format!("{lcore}@0-1")).collect();
        let mut words = ["setpriv", "--pdeathsig", "KILL", "dpdk-testpmd", "--no-pci"].map(str::to_owned).to_vec();
        words.extend(["--lcores".to_owned(), lcores.join(",")]);
        words.extend(["--no-telemetry", "--no-huge", "-m", "256", "--no-shconf"].map(str::to_owned));
        words.extend(["--file-prefix".to_owned(), format!("ringway-vm{}", std::process::id())]);
        // Ports in this order: the first two exchange frames, and the last two.
        for side in 0..2 {
            let file = |name: &str, queue: u32| captures.join(format!("{name}{side}-{queue}")).display().to_string();
            let files: Vec<_> = (0..case.queues)
                .map(|queue| format!("rx_pcap={},tx_pcap={}", file("in", queue), file("out", queue)))
                .collect();
            words.extend(["--vdev".to_owned(), format!("net_pcap{side},{}", files.join(","))]);
            let socket = sockets.join(format!("nic{side}")).display().to_string();
            let (queues, translates) = (case.queues, u8::from(case.iommu != Iommu::None));
            let options = format!("iface={socket},queues={queues},iommu-support={translates}");
            words.extend(["--vdev".to_owned(), format!("net_vhost{side},{options}")]);
        }
        words.extend(["--", "-i", "--no-flush-rx", "--disable-link-check"].map(str::to_owned));
        words.push(format!("--nb-cores={streams}"));
        words.extend(["--total-num-mbufs=16384", "--port-topology=paired"].map(str::to_owned));
        words.extend([format!("--rxq={}", case.queues), format!("--txq={}", case.queues)]);
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
