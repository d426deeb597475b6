//! A guest in QEMU, and the soft NICs that are its cards.

use crate::complaints::complaints;
use crate::guest::{Output, Shell};
use anyhow::{Context as _, Result, bail, ensure};
use softnic::{SoftControl, VfioUserServer};
use std::cell::RefCell;
use std::fmt::Write as _;
use std::fs::{self, File};
use std::io;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::rc::Rc;
use std::time::{Duration, Instant};

/// How long a boot may take: 10 s on an idle machine.
const BOOT: Duration = Duration::from_secs(300);
/// How long anything else may take.
const PATIENCE: Duration = Duration::from_secs(300);
/// How long traffic may take to come through: half a minute on an idle machine.
const TRAFFIC: Duration = Duration::from_secs(300);
/// Lines of the guest's console that are shown when something went wrong.
const TAIL: usize = 60;

/// A kernel of the guests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kernel {
    /// That of the guests' Debian.
    Stable,
    /// Debian 12's: 6.1.
    Old,
    /// The newest of the backports.
    New,
}

impl Kernel {
    /// As `tests/vm/build` calls it in names of files.
    fn name(self) -> &'static str {
        match self {
            Self::Stable => "stable",
            Self::Old => "old",
            Self::New => "new",
        }
    }
}

/// What `tests/vm/build` has built, and our programs.
#[derive(Debug)]
pub(crate) struct Rig {
    cache: PathBuf,
    kernel: Kernel,
    programs: PathBuf,
    /// Of each machine that has ended: what its kernel complained of.
    complaints: Complaints,
}

type Complaints = Rc<RefCell<Vec<Vec<String>>>>;

/// Which IOMMU the guest has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Iommu {
    #[default]
    None,
    /// Intel VT-d with interrupt remapping.
    Full,
    /// Intel VT-d that does not remap interrupts.
    NoRemapping,
}

/// A machine to be.
#[derive(Debug, Default)]
pub(crate) struct Setup<'s> {
    /// Specifications of its soft NICs, such as `a?wire=gen`. The first is 0000:00:05.0, then 06.0 and so on.
    pub(crate) nics: &'s [&'s str],
    /// Properties of virtio NICs that QEMU plays, such as `packed=on`, which follow the soft ones. Each ends in a wire
    /// ([`Machine::wire`]).
    pub(crate) virtio: &'s [&'s str],
    /// Likewise of QEMU's 82576s (`-device igb`), which follow the soft NICs and come before the virtio NICs. Their virtual
    /// functions are in the way of a neighbour, so each takes two places: 0000:00:05.0, then 07.0 and so on.
    pub(crate) igb: &'s [&'s str],
    pub(crate) iommu: Iommu,
    /// `dpdk-testpmd-old`, if it could be had ([`Rig::has_old_dpdk`]).
    pub(crate) old_dpdk: bool,
    /// Cores; 0 means 2.
    pub(crate) cpus: u32,
    /// Huge pages of 2 MiB.
    pub(crate) huge_pages: u32,
    /// Two NUMA nodes with a core each; the NICs are on node 1, behind a root port: 0000:41:00.0, 0000:42:00.0 and so on.
    pub(crate) numa: bool,
    /// The NICs sit behind one bridge of plain PCI, so that the IOMMU cannot tell them apart: 0000:01:05.0 and so on.
    pub(crate) one_group: bool,
    /// More words for the kernel.
    pub(crate) kernel: &'s str,
    /// More words for QEMU.
    pub(crate) qemu: &'s [&'s str],
}

/// A guest that is up.
#[derive(Debug)]
pub(crate) struct Machine {
    shell: Shell,
    qemu: Child,
    nics: Vec<VfioUserServer>,
    wires: Vec<UnixStream>,
    /// Below QEMU's root: sockets, the initramfs and the console.
    folder: tempfile::TempDir,
    /// Parts of lines that the kernel is meant to complain with, each from a place in the console on.
    expected: Vec<(usize, &'static str)>,
    complaints: Complaints,
}

impl Rig {
    /// Where `tests/vm/run` says.
    pub(crate) fn find(kernel: Kernel) -> Result<Self> {
        let cache = PathBuf::from(std::env::var_os("RINGWAY_VM").context("RINGWAY_VM is not set")?);
        let programs = std::env::current_exe()?.parent().context("a program has a folder")?.to_owned();
        for file in [cache.join("vmlinux-stable"), cache.join("initramfs"), programs.join("fwd")] {
            ensure!(file.exists(), "{} is missing", file.display());
        }
        Ok(Self { cache, kernel, programs, complaints: Rc::default() })
    }

    /// Whether its kernel could be had.
    pub(crate) fn has_kernel(&self) -> bool {
        self.of_kernel("vmlinux").exists() && self.of_kernel("modules").exists()
    }

    /// Whether the guest can have the DPDK of Debian 12, 22.11.
    pub(crate) fn has_old_dpdk(&self) -> bool {
        self.cache.join("dpdk-old").exists()
    }

    fn of_kernel(&self, what: &str) -> PathBuf {
        self.cache.join(format!("{what}-{}", self.kernel.name()))
    }

    /// QEMU's root: it runs in a chroot.
    fn root(&self) -> PathBuf {
        self.cache.join("root")
    }

    /// A busybox that runs anywhere.
    pub(crate) fn busybox(&self) -> PathBuf {
        self.root().join("usr/bin/busybox")
    }

    /// A new folder that QEMU sees.
    pub(crate) fn folder(&self) -> Result<tempfile::TempDir> {
        Ok(tempfile::Builder::new().prefix("vm").tempdir_in(self.root().join("run"))?)
    }

    /// `path` as QEMU sees it.
    pub(crate) fn inside(&self, path: &Path) -> String {
        format!("/{}", path.strip_prefix(self.root()).unwrap_or(path).display())
    }

    /// Lets QEMU have TAP interfaces.
    pub(crate) fn give_tun(&self) -> Result<()> {
        let node = self.root().join("dev/net/tun");
        if node.exists() {
            return Ok(());
        }
        fs::create_dir_all(self.root().join("dev/net"))?;
        let made = Command::new("mknod").arg(&node).args(["c", "10", "200"]).status()?;
        // Another scenario may have been faster.
        ensure!(made.success() || node.exists(), "{} cannot be made", node.display());
        Ok(())
    }

    /// What the kernels of all machines since the last call complained of, each from boot to end.
    pub(crate) fn complaints(&self) -> Vec<Vec<String>> {
        self.complaints.take()
    }

    /// Boots a machine. One of some twenty guests of four cores dies in early boot, of the emulation: a machine that does not
    /// get ready is started once more.
    pub(crate) fn boot(&self, setup: &Setup<'_>) -> Result<Machine> {
        self.start(setup).or_else(|error| {
            println!("   again   the guest was not ready, and is started once more: {error:#}");
            self.complaints.take();
            self.start(setup)
        })
    }

    fn start(&self, setup: &Setup<'_>) -> Result<Machine> {
        let folder = self.folder()?;
        let file = |name: &str| folder.path().join(name);
        fs::hard_link(self.of_kernel("vmlinux"), file("vmlinux"))?;
        self.initramfs(&file("initramfs"), setup.old_dpdk)?;
        let socket = |index: usize| file(&format!("nic{index}"));
        let serve = |(index, spec): (usize, &&str)| VfioUserServer::start(spec, &socket(index));
        let nics = setup.nics.iter().enumerate().map(serve).collect::<Result<Vec<_>, _>>()?;
        let wire = |index: usize| file(&format!("wire{index}"));
        let wired: Vec<_> = (setup.igb.iter().map(|properties| ("igb", *properties)))
            .chain(setup.virtio.iter().map(|properties| ("virtio-net-pci", *properties)))
            .collect();
        let listeners = (0..wired.len()).map(|index| UnixListener::bind(wire(index))).collect::<Result<Vec<_>, _>>()?;
        let inside = |path: &Path| self.inside(path);
        let mut qemu = Command::new("setpriv");
        qemu.args(["--pdeathsig", "KILL", "chroot"]).arg(self.root()).arg("qemu-system-x86_64");
        // DMA mappings of a card are file descriptors of this memory.
        qemu.args(["-accel", "tcg,thread=multi", "-cpu", "max", "-m", "1024", "-nodefaults", "-no-reboot"]);
        qemu.args(["-smp", &if setup.cpus == 0 { 2 } else { setup.cpus }.to_string()]);
        qemu.args(["-display", "none", "-kernel", &inside(&file("vmlinux")), "-initrd", &inside(&file("initramfs"))]);
        qemu.args(["-serial", &format!("file:{}", inside(&file("console")))]);
        qemu.args(["-chardev", "stdio,id=scripts", "-device", "virtio-serial-pci,addr=0x1e"]);
        qemu.args(["-device", "virtserialport,chardev=scripts"]);
        // On a busy host the kernel's test of its timer can fail, and then it panics.
        // Lines of the console begin with their level, as those of `dmesg -r`.
        let words = "console=ttyS0 console_msg_format=syslog panic=-1 no_timer_check";
        let mut kernel = format!("{words} {}", setup.kernel);
        if setup.huge_pages > 0 {
            write!(kernel, " hugepagesz=2M hugepages={}", setup.huge_pages)?;
        }
        if setup.iommu != Iommu::None {
            let remapping = if setup.iommu == Iommu::Full { "on" } else { "off" };
            qemu.args(["-device", &format!("intel-iommu,intremap={remapping},caching-mode=on")]);
            kernel.push_str(" intel_iommu=on");
        }
        if setup.numa {
            qemu.args(["-machine", "q35"]);
            for node in ["0", "1"] {
                qemu.args(["-object", &format!("memory-backend-memfd,id=m{node},size=512M,share=on")]);
                qemu.args(["-numa", &format!("node,nodeid={node},cpus={node},memdev=m{node}")]);
            }
            qemu.args(["-device", "pxb-pcie,id=far,bus_nr=64,numa_node=1,bus=pcie.0"]);
        } else {
            qemu.args(["-object", "memory-backend-memfd,id=mem,size=1024M,share=on"]);
            qemu.args(["-machine", "q35,memory-backend=mem"]);
        }
        if setup.one_group {
            qemu.args(["-device", "pcie-pci-bridge,id=plain,bus=pcie.0,addr=0x5"]);
        }
        for index in 0..nics.len() {
            let mut place = format!("\"addr\":\"{:#x}\"", index + 5);
            if setup.numa {
                qemu.args(["-device", &format!("pcie-root-port,id=port{index},bus=far,chassis={}", index + 1)]);
                place = format!("\"bus\":\"port{index}\"");
            }
            if setup.one_group {
                place.push_str(",\"bus\":\"plain\"");
            }
            let path = inside(&socket(index));
            let socket = format!("\"socket\":{{\"type\":\"unix\",\"path\":\"{path}\"}}");
            qemu.args(["-device", &format!("{{\"driver\":\"vfio-user-pci\",{place},{socket}}}")]);
        }
        for (index, (driver, properties)) in wired.iter().enumerate() {
            let path = inside(&wire(index));
            let address = format!("addr.type=unix,addr.path={path}");
            qemu.args(["-netdev", &format!("stream,id=wire{index},server=off,{address}")]);
            let place = nics.len() + index + index.min(setup.igb.len()) + 5;
            let device = format!("{driver},netdev=wire{index},addr={place:#x},{properties}");
            qemu.args(["-device", device.trim_end_matches(',')]);
        }
        qemu.args(setup.qemu).args(["-append", &kernel]);
        qemu.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(File::create(file("qemu"))?);
        let mut qemu = qemu.spawn().context("cannot start QEMU")?;
        let (Some(input), Some(output)) = (qemu.stdin.take(), qemu.stdout.take()) else { bail!("QEMU has no pipes") };
        let wires = Vec::new();
        let (shell, complaints) = (Shell::new(input, output), Rc::clone(&self.complaints));
        let mut machine = Machine { shell, qemu, nics, wires, folder, expected: Vec::new(), complaints };
        machine.shell.ready(BOOT).map_err(|error| machine.explain(error))?;
        // QEMU has connected all of them before the guest began to run.
        for listener in listeners {
            listener.set_nonblocking(true)?;
            let (stream, _) = listener.accept().context("QEMU has not connected a wire")?;
            stream.set_nonblocking(false)?;
            machine.wires.push(stream);
        }
        Ok(machine)
    }

    /// The guest's root: what was built, and our programs behind it. A kernel unpacks archives one after the other.
    fn initramfs(&self, to: &Path, old_dpdk: bool) -> Result<()> {
        fs::copy(self.cache.join("initramfs"), to)?;
        let mut archive = File::options().append(true).open(to)?;
        io::copy(&mut File::open(self.of_kernel("modules"))?, &mut archive)?;
        if old_dpdk {
            io::copy(&mut File::open(self.cache.join("dpdk-old"))?, &mut archive)?;
        }
        let tree = tempfile::tempdir()?;
        let folder = tree.path().join("usr/local/bin");
        fs::create_dir_all(&folder)?;
        for program in ["fwd", "pktgen", "nat44", "hashes"] {
            fs::copy(self.programs.join(program), folder.join(program))?;
        }
        let script = "find usr | cpio -o -H newc --quiet";
        let made = Command::new("sh").args(["-c", script]).current_dir(tree.path()).stdout(archive).status()?;
        ensure!(made.success(), "cpio failed");
        Ok(())
    }
}

impl Machine {
    /// Runs a shell script in the guest. A status other than 0 is an error.
    pub(crate) fn sh(&mut self, script: &str) -> Result<String> {
        let output = self.try_sh(script)?;
        if output.status != 0 {
            return Err(self.explain(anyhow::anyhow!("{script}: status {}: {}", output.status, output.text)));
        }
        Ok(output.text)
    }

    /// Runs a shell script in the guest, for at most [`PATIENCE`].
    pub(crate) fn try_sh(&mut self, script: &str) -> Result<Output> {
        self.shell.run(script, PATIENCE).map_err(|error| self.explain(error))
    }

    /// Watches and disturbs the NIC `index` and its wire.
    pub(crate) fn nic(&self, index: usize) -> SoftControl {
        self.nics[index].control()
    }

    /// Says what the kernel will complain with from now on: the scenario means it to.
    pub(crate) fn expect(&mut self, words: &[&'static str]) {
        let now = fs::metadata(self.folder.path().join("console")).map_or(0, |file| file.len());
        let now = usize::try_from(now).unwrap_or(usize::MAX);
        self.expected.extend(words.iter().map(|words| (now, *words)));
    }

    /// The other end of NIC `index` of those that QEMU plays.
    pub(crate) fn wire(&self, index: usize) -> &UnixStream {
        &self.wires[index]
    }

    /// Waits until `holds`, for at most [`TRAFFIC`]; what did not become true shows in the checks that follow.
    pub(crate) fn until(&self, what: &str, holds: impl Fn(&Self) -> bool) {
        let deadline = Instant::now() + TRAFFIC;
        while !holds(self) {
            if Instant::now() > deadline {
                println!("   waited in vain: {what}");
                for nic in &self.nics {
                    println!("           {:?}", nic.control().wire_counters());
                }
                return;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Adds the end of what the guest and QEMU said to an error.
    fn explain(&self, error: anyhow::Error) -> anyhow::Error {
        let tail = |name| {
            let text = fs::read(self.folder.path().join(name)).unwrap_or_default();
            let text = String::from_utf8_lossy(&text).into_owned();
            let lines: Vec<_> = text.lines().collect();
            lines[lines.len().saturating_sub(TAIL)..].join("\n")
        };
        anyhow::anyhow!("{error:#}\n--- console:\n{}\n--- QEMU:\n{}", tail("console"), tail("qemu"))
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        // It has no disk, so there is nothing to shut down.
        let _ = self.qemu.kill();
        let _ = self.qemu.wait();
        let console = fs::read(self.folder.path().join("console")).unwrap_or_default();
        let lines = complaints(&String::from_utf8_lossy(&console), &self.expected);
        self.complaints.borrow_mut().push(lines);
    }
}
