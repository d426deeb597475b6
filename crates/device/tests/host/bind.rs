//! Binding on a made tree, with a thread that plays the kernel behind sysfs.

use crate::tree::{Tree, address, relink};
use device::{Host, IfInUse};
use rustix::fs::{CWD, FileType, Mode};
use std::fs::OpenOptions;
use std::io::{Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

const A: &str = "0000:03:00.0";

/// Answers writes to sysfs as the kernel does: `unbind` removes the driver link, `drivers_probe` sets it to the driver of
/// `driver_override`, or else to the one that knows the device. Attributes that act are pipes here.
struct Kernel {
    tree: Tree,
    written: Arc<Mutex<Vec<String>>>,
    threads: Vec<(PathBuf, JoinHandle<()>)>,
}

impl Kernel {
    fn with_driver(driver: Option<&'static str>, broken: Option<&'static str>) -> Self {
        let tree = Tree::new();
        tree.nic(A);
        for known in ["vfio-pci", "ixgbe"] {
            tree.file(&format!("sys/bus/pci/drivers/{known}/unbind"), "");
        }
        relink(&tree.path(&format!("sys/bus/pci/devices/{A}/driver")), driver);
        let mut kernel = Self { tree, written: Arc::default(), threads: Vec::new() };
        let link = kernel.tree.path(&format!("sys/bus/pci/devices/{A}/driver"));
        for known in ["vfio-pci", "ixgbe"] {
            let link = link.clone();
            kernel.serve(&format!("drivers/{known}/unbind"), move |_| relink(&link, None));
        }
        let wish = kernel.tree.path(&format!("sys/bus/pci/devices/{A}/driver_override"));
        kernel.serve("drivers_probe", move |_| {
            let wish = std::fs::read_to_string(&wish).unwrap();
            let driver = Some(wish.trim()).filter(|wish| !wish.is_empty()).unwrap_or("ixgbe");
            relink(&link, Some(driver).filter(|driver| Some(*driver) != broken));
        });
        kernel
    }

    fn serve(&mut self, attribute: &str, act: impl Fn(&str) + Send + 'static) {
        let path = self.tree.path(&format!("sys/bus/pci/{attribute}"));
        std::fs::remove_file(&path).unwrap();
        rustix::fs::mknodat(CWD, &path, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
        let mut pipe = OpenOptions::new().read(true).write(true).open(&path).unwrap();
        let (written, attribute) = (Arc::clone(&self.written), attribute.to_owned());
        let thread = std::thread::spawn(move || {
            let mut buffer = [0; 64];
            loop {
                let len = pipe.read(&mut buffer).unwrap();
                let text = std::str::from_utf8(&buffer[..len]).unwrap();
                // A pipe keeps no writes apart.
                let texts = text.strip_suffix("stop");
                for text in texts.unwrap_or(text).split_inclusive(A) {
                    written.lock().unwrap().push(format!("{attribute} {text}"));
                    act(text);
                }
                if texts.is_some() {
                    return;
                }
            }
        });
        self.threads.push((path, thread));
    }

    fn host(&self) -> Host {
        self.tree.host()
    }

    fn driver(&self) -> Option<String> {
        self.host().pci_device(address(A)).unwrap().driver
    }

    fn wait_for(&self, driver: &str) {
        while self.driver().as_deref() != Some(driver) {
            std::thread::yield_now();
        }
    }

    fn written(&self) -> Vec<String> {
        std::mem::take(&mut self.written.lock().unwrap())
    }
}

impl Drop for Kernel {
    fn drop(&mut self) {
        for (path, thread) in self.threads.drain(..) {
            stop(&path);
            thread.join().unwrap();
        }
    }
}

fn stop(pipe: &Path) {
    OpenOptions::new().write(true).open(pipe).unwrap().write_all(b"stop").unwrap();
}

#[test]
fn bind_and_back() {
    let kernel = Kernel::with_driver(Some("ixgbe"), None);
    kernel.host().bind(address(A), "vfio-pci", IfInUse::Refuse).unwrap();
    assert_eq!(kernel.driver().as_deref(), Some("vfio-pci"));
    assert_eq!(kernel.written(), [format!("drivers/ixgbe/unbind {A}"), format!("drivers_probe {A}")]);
    assert_eq!(kernel.tree.text(&format!("sys/bus/pci/devices/{A}/driver_override")), "vfio-pci");

    kernel.host().bind(address(A), "vfio-pci", IfInUse::Refuse).unwrap();
    assert_eq!(kernel.written(), [""; 0], "nothing to do the second time");

    kernel.host().restore(address(A)).unwrap();
    kernel.wait_for("ixgbe");
    assert_eq!(kernel.tree.text(&format!("sys/bus/pci/devices/{A}/driver_override")), "\n");
    assert_eq!(kernel.written(), [format!("drivers/vfio-pci/unbind {A}"), format!("drivers_probe {A}")]);
}

#[test]
fn a_device_without_driver_is_bound_and_unbound() {
    let kernel = Kernel::with_driver(None, None);
    kernel.host().bind(address(A), "vfio-pci", IfInUse::Refuse).unwrap();
    assert_eq!(kernel.written(), [format!("drivers_probe {A}")]);
    kernel.host().unbind(address(A), IfInUse::Refuse).unwrap();
    assert_eq!(kernel.driver(), None);
}

#[test]
fn a_driver_that_does_not_take_the_device_gives_it_back() {
    let kernel = Kernel::with_driver(Some("ixgbe"), Some("vfio-pci"));
    let text = kernel.host().bind(address(A), "vfio-pci", IfInUse::Refuse).unwrap_err().to_string();
    assert!(text.contains("vfio-pci did not take it (no driver took it); it is not in an IOMMU group"), "{text}");
    assert_eq!(kernel.tree.text(&format!("sys/bus/pci/devices/{A}/driver_override")), "\n");
    assert_eq!(
        kernel.written().last().unwrap(),
        &format!("drivers_probe {A}"),
        "probed once more without the override"
    );
}

#[test]
fn a_driver_that_is_not_loaded_is_named() {
    let tree = Tree::new();
    tree.nic(A);
    for driver in ["vfio-pci", "", "../../../x"] {
        let text = tree.host().bind(address(A), driver, IfInUse::TakeAnyway).unwrap_err().to_string();
        assert!(text.contains("sudo modprobe"), "{text}");
    }
    assert_eq!(tree.text(&format!("sys/bus/pci/devices/{A}/driver_override")), "(null)\n", "untouched");
}

const V4: &str = "Iface\tDestination\tGateway\tFlags\tRefCnt\tUse\tMetric\tMask\tMTU\tWindow\tIRTT\n";
const ANY6: &str = "00000000000000000000000000000000";

fn v6_route(interface: &str, flags: &str) -> String {
    format!("{ANY6} 00 {ANY6} 00 fe800000000000000000000000000001 00000400 00000001 00000000 {flags} {interface}\n")
}

#[test]
fn an_interface_in_use_is_refused_with_its_use() {
    let route = |rows: &str| ("proc/net/route", format!("{V4}{rows}"));
    let cases = [
        (route("eth7\t00000000\t010200C0\t0003\t0\t0\t0\t00000000\t0\t0\t0\n"), Some("eth7 carries the default route")),
        (route("eth7\t0A000000\t00000000\t0001\t0\t0\t0\t000000FF\t0\t0\t0\n"), Some("eth7 is up with an address")),
        (route("eth8\t00000000\t010200C0\t0003\t0\t0\t0\t00000000\t0\t0\t0\n"), None),
        (("proc/net/ipv6_route", v6_route("eth7", "00000003")), Some("eth7 carries the default route")),
        (("proc/net/ipv6_route", v6_route("eth7", "00200200")), None),
        (
            ("proc/net/if_inet6", "20010db8000000000000000000000001 02 40 00 80 eth7\n".into()),
            Some("eth7 is up with an address"),
        ),
        (("proc/net/if_inet6", "fe800000000000000000000000000001 02 40 20 80 eth7\n".into()), None),
        (("sys/class/net/eth7/upper_bond0/x", String::new()), Some("eth7 is up and carries bond0")),
        (("proc/net/route", "truncated\neth9".into()), None),
    ];
    for ((file, text), expected) in cases {
        let tree = Tree::new();
        tree.nic(A);
        tree.driver(A, "ixgbe");
        tree.file("sys/bus/pci/drivers/vfio-pci/unbind", "");
        tree.interface(A, "eth7", "0x1003\n");
        tree.file(file, &text);
        let device = tree.host().pci_device(address(A)).unwrap();
        let used = tree.host().use_of(&device);
        assert_eq!(used.is_some(), expected.is_some(), "{file} {text}: {used:?}");
        if let Some(expected) = expected {
            for result in [
                tree.host().bind(address(A), "vfio-pci", IfInUse::Refuse),
                tree.host().unbind(address(A), IfInUse::Refuse),
            ] {
                let error = result.unwrap_err().to_string();
                assert!(error.contains(expected) && error.contains("take the interface down"), "{error}");
            }
            assert_eq!(tree.text(&format!("sys/bus/pci/devices/{A}/driver_override")), "(null)\n", "untouched");
        }
        tree.file("sys/class/net/eth7/flags", "0x1002\n");
        assert_eq!(tree.host().use_of(&device), None, "an interface that is down is not in use");
    }
}

#[test]
fn force_takes_an_interface_in_use() {
    let kernel = Kernel::with_driver(Some("ixgbe"), None);
    kernel.tree.interface(A, "eth7", "0x1003\n");
    kernel.tree.file("proc/net/route", &format!("{V4}eth7\t00000000\t010200C0\t0003\t0\t0\t0\t00000000\t0\t0\t0\n"));
    assert!(kernel.host().bind(address(A), "vfio-pci", IfInUse::Refuse).is_err());
    kernel.host().bind(address(A), "vfio-pci", IfInUse::TakeAnyway).unwrap();
    assert_eq!(kernel.driver().as_deref(), Some("vfio-pci"));
}

#[test]
fn a_host_that_may_not_be_written_says_so() {
    use std::os::unix::fs::PermissionsExt;
    let tree = Tree::new();
    tree.nic(A);
    tree.file("sys/bus/pci/drivers/vfio-pci/unbind", "");
    let file = tree.path(&format!("sys/bus/pci/devices/{A}/driver_override"));
    std::fs::set_permissions(&file, PermissionsExt::from_mode(0o444)).unwrap();
    if OpenOptions::new().write(true).open(&file).is_ok() {
        return skip::test!("this user (root) may write everything");
    }
    let text = tree.host().bind(address(A), "vfio-pci", IfInUse::Refuse).unwrap_err().to_string();
    assert!(text.contains("driver_override: Permission denied (os error 13); run this as root"), "{text}");
}
