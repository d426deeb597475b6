//! Discovery and status on made trees.

use crate::tree::{Tree, address};
use device::{Host, StatusKind};

const A: &str = "0000:03:00.0";
const B: &str = "0000:03:00.1";

#[test]
fn devices_are_read_whole_and_in_order() {
    let tree = Tree::new();
    tree.nic(B);
    let folder = tree.nic(A);
    tree.file(&format!("{folder}/numa_node"), "1\n");
    tree.file(&format!("{folder}/class"), "0x020000\n");
    tree.driver(A, "ixgbe");
    tree.group(A, 12);
    tree.interface(A, "eth7", "0x1002\n");
    let bridge = tree.nic("0000:00:1c.0");
    tree.file(&format!("{bridge}/class"), "0x060400\n");
    tree.folder("sys/bus/pci/devices/0000:09:00.0"); // vanishing: no attributes any more
    tree.folder("sys/bus/pci/devices/not-an-address");

    let all = tree.host().pci_devices().unwrap();
    assert_eq!(all.iter().map(|d| d.address.to_string()).collect::<Vec<_>>(), ["0000:00:1c.0", A, B]);
    let nics = tree.host().network_controllers().unwrap();
    assert_eq!(nics.len(), 2);
    let nic = &nics[0];
    assert_eq!((nic.ids.vendor, nic.ids.device, nic.ids.class, nic.ids.revision), (0x8086, 0x10fb, 0x02_0000, 1));
    assert_eq!(nic.subsystem, (0x8086, 0x7a11));
    assert_eq!((nic.driver.as_deref(), nic.numa_node, nic.iommu_group), (Some("ixgbe"), Some(1), Some(12)));
    assert_eq!(nic.interfaces, ["eth7"]);
    assert_eq!(nic.region(0).unwrap().len, 0x8_0000);
    assert!(nic.region(1).is_none());
    assert_eq!((nics[1].driver.as_deref(), nics[1].numa_node, nics[1].iommu_group), (None, None, None));
}

#[test]
fn interfaces_of_a_virtio_function_are_found_on_its_child() {
    let tree = Tree::new();
    let folder = tree.nic(A);
    tree.folder(&format!("{folder}/virtio3/net/eth0"));
    assert_eq!(tree.host().pci_device(address(A)).unwrap().interfaces, ["eth0"]);
}

#[test]
fn a_wrong_address_and_a_missing_sysfs_say_what_to_do() {
    let tree = Tree::new();
    let text = tree.host().pci_device(address(A)).unwrap_err().to_string();
    assert!(text.contains("no PCI device at that address; list"), "{text}");
    let text = Host::at(tree.path("nowhere")).pci_devices().unwrap_err().to_string();
    assert!(text.contains("mount /sys"), "{text}");
    let folder = tree.nic(A);
    tree.file(&format!("{folder}/vendor"), "0x18086");
    assert!(tree.host().pci_device(address(A)).unwrap_err().to_string().contains("0x18086"));
}

#[test]
fn this_host_can_be_listed() {
    match Host::system().pci_devices() {
        Ok(devices) => assert!(devices.is_sorted_by_key(|device| device.address)),
        Err(error) => skip::test!("{error}"),
    }
}

fn status(tree: &Tree) -> (StatusKind, String) {
    let host = tree.host();
    let status = host.status(&host.pci_device(address(A)).unwrap());
    assert_eq!(status.is_usable(), status.kind == StatusKind::Ready);
    assert_eq!(status.next_step.is_empty(), status.is_usable(), "every other case has a next step");
    (status.kind, status.to_string())
}

/// A tree whose device A is ready to be opened.
fn ready() -> Tree {
    let tree = Tree::new();
    tree.nic(A);
    tree.driver(A, "vfio-pci");
    tree.group(A, 12);
    tree.file("dev/vfio/vfio", "");
    tree.file("dev/vfio/12", "");
    tree
}

#[test]
fn ready_when_bound_and_accessible() {
    assert_eq!(status(&ready()), (StatusKind::Ready, "ready, in IOMMU group 12".into()));
}

#[test]
fn bridges_and_driverless_neighbours_leave_a_group_viable() {
    let tree = ready();
    tree.nic("0000:00:1c.0");
    tree.driver("0000:00:1c.0", "pcieport");
    tree.group("0000:00:1c.0", 12);
    tree.nic(B);
    tree.group(B, 12);
    assert_eq!(status(&tree).0, StatusKind::Ready);
    tree.driver(B, "ixgbe");
    let (kind, text) = status(&tree);
    assert_eq!(kind, StatusKind::GroupNotViable);
    assert!(text.contains(&format!("{B} shares IOMMU group 12")) && text.contains(&format!("fwd bind {B}")), "{text}");
}

#[test]
fn missing_nodes_are_named() {
    for node in ["vfio/vfio", "vfio/12"] {
        let tree = ready();
        std::fs::remove_file(tree.path(&format!("dev/{node}"))).unwrap();
        let (kind, text) = status(&tree);
        assert_eq!(kind, StatusKind::NodeMissing);
        assert!(text.contains(node), "{text}");
    }
}

#[test]
fn a_node_that_may_not_be_opened_names_chown() {
    use std::os::unix::fs::PermissionsExt;
    let tree = ready();
    std::fs::set_permissions(tree.path("dev/vfio/12"), PermissionsExt::from_mode(0o000)).unwrap();
    let (kind, text) = status(&tree);
    if kind == StatusKind::Ready {
        return skip::test!("this user (root) may open everything");
    }
    assert_eq!(kind, StatusKind::NodeDenied);
    assert!(text.contains("sudo chown $USER") && text.contains("dev/vfio/12"), "{text}");
}

#[test]
fn vfio_without_an_iommu_is_refused() {
    let tree = ready();
    tree.file("sys/kernel/iommu_groups/12/name", "vfio-noiommu\n");
    assert_eq!(status(&tree).0, StatusKind::NoIommuMode);
    let tree = ready();
    tree.file("dev/vfio/noiommu-12", "");
    let (kind, text) = status(&tree);
    assert_eq!(kind, StatusKind::NoIommuMode);
    assert!(text.contains("could overwrite any memory"), "{text}");
}

#[test]
fn without_a_group_the_kernel_option_of_this_processor_is_named() {
    for (cpu, option) in [
        ("vendor_id\t: GenuineIntel\nflags\t\t: fpu vme", "intel_iommu=on"),
        ("vendor_id\t: AuthenticAMD\nflags\t\t: fpu vme", "AMD-Vi"),
        ("vendor_id\t: AuthenticAMD\nflags\t\t: fpu hypervisor vme", "virtual IOMMU"),
    ] {
        let tree = Tree::new();
        tree.nic(A);
        tree.driver(A, "ixgbe");
        tree.file("proc/cpuinfo", cpu);
        let (kind, text) = status(&tree);
        assert_eq!(kind, StatusKind::NoIommuGroup);
        assert!(text.contains("no IOMMU is on (driver ixgbe has it)") && text.contains(option), "{text}");
    }
    let tree = Tree::new();
    tree.nic(A);
    tree.nic(B);
    tree.group(B, 1);
    let (kind, text) = status(&tree);
    assert_eq!(kind, StatusKind::NoIommuGroup);
    assert!(text.contains("but not for this device (no driver has it)"), "{text}");
}

#[test]
fn drivers_other_than_vfio_ask_for_a_bind() {
    let tree = Tree::new();
    tree.nic(A);
    tree.group(A, 12);
    assert_eq!(status(&tree), (StatusKind::NoDriver, format!("no driver has it; bind it to VFIO: sudo fwd bind {A}")));
    tree.driver(A, "ixgbe");
    let (kind, text) = status(&tree);
    assert_eq!(kind, StatusKind::KernelDriver);
    assert!(text.contains("kernel driver ixgbe has it") && text.contains(&format!("fwd bind {A}")), "{text}");
    tree.interface(A, "eth7", "0x1003\n");
    tree.file("proc/net/route", "Iface\tDestination\neth7\t000A0A0A\t00000000\t0001\t0\t0\t0\t00FFFFFF\t0\t0\t0\n");
    let (kind, text) = status(&tree);
    assert_eq!(kind, StatusKind::InUse);
    assert!(text.contains("eth7 is up with an address"), "{text}");
}
