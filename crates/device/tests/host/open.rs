//! Opening devices of made trees: what is refused, and the path through sysfs on plain files.
#![expect(unsafe_code, reason = "registers of a made device")]

use crate::tree::{Tree, address};
use device::{
    Bar as _, Device as _, DmaMemory, Host, MemoryRequest, PageSize, PciFunction as _, SysfsDevice, VfioDevice,
};
use std::fs::{File, read, write};
use std::os::unix::fs::FileExt as _;
use std::path::PathBuf;

const MEMORY: u16 = 2;
const BUS_MASTER: u16 = 4;
const INTX_DISABLE: u16 = 1 << 10;

/// Configuration space of an 82599.
const CONFIG: [u8; 256] = {
    let mut config = [0; 256];
    [config[0], config[1], config[2], config[3]] = [0x86, 0x80, 0xfb, 0x10];
    [config[8], config[9], config[10], config[11]] = [1, 0, 0, 2];
    config
};

/// A function without driver and IOMMU group, whose registers and configuration space are files. Each test has an address
/// of its own, since a process opens an address once.
struct Plain {
    tree: Tree,
    name: &'static str,
}

impl Plain {
    fn new(name: &'static str) -> Self {
        let tree = Tree::new();
        let folder = tree.nic(name);
        let mut config = CONFIG;
        config[4] = 0x05; // I/O and bus master, as a careless predecessor left it
        write(tree.path(&format!("{folder}/config")), config).expect("config");
        File::create(tree.path(&format!("{folder}/resource0")))
            .and_then(|file| file.set_len(0x8_0000))
            .expect("resource0");
        tree.file(&format!("{folder}/enable"), "0\n");
        Self { tree, name }
    }

    fn host(&self) -> Host {
        self.tree.host()
    }

    fn file(&self, name: &str) -> PathBuf {
        self.tree.path(&format!("sys/bus/pci/devices/{}/{name}", self.name))
    }

    fn open(&self) -> device::Result<SysfsDevice> {
        // SAFETY: no device stands behind this tree.
        unsafe { SysfsDevice::open_without_iommu(&self.host(), address(self.name)) }
    }

    fn refusal(&self) -> String {
        self.open().expect_err("refused").to_string()
    }

    fn command(&self) -> u16 {
        let config = read(self.file("config")).expect("config");
        u16::from_le_bytes([config[4], config[5]])
    }
}

#[test]
fn sysfs_gives_registers_with_bus_mastering_off() {
    let plain = Plain::new("0000:10:00.0");
    let device = plain.open().unwrap();
    assert_eq!((device.name(), device.ids().device, device.numa_node()), ("0000:10:00.0", 0x10fb, None));
    let quiet = 1 | MEMORY | INTX_DISABLE;
    assert_eq!(plain.command(), quiet, "memory on, bus master and interrupts off, the rest untouched");
    assert_eq!(read(plain.file("enable")).unwrap(), b"1");

    let registers = File::options().read(true).write(true).open(plain.file("resource0")).unwrap();
    registers.write_all_at(&0xCAFE_0001_u32.to_le_bytes(), 0x7_FFFC).unwrap();
    assert_eq!((device.bar().size(), device.bar().read32(0x7_FFFC)), (0x8_0000, 0xCAFE_0001));
    // SAFETY: a file, not a device.
    unsafe { device.bar().write32(0x18, 0x1234_5678) };
    let mut bytes = [0; 4];
    registers.read_exact_at(&mut bytes, 0x18).unwrap();
    assert_eq!(u32::from_le_bytes(bytes), 0x1234_5678);

    device.set_bus_master(true).unwrap();
    assert_eq!(plain.command(), quiet | BUS_MASTER);
    assert!(device.reset().unwrap_err().to_string().contains("no way to reset it"));
    assert_eq!(plain.command() & BUS_MASTER, 0, "off even though the reset failed");
    write(plain.file("reset"), "").unwrap();
    device.set_bus_master(true).unwrap();
    device.reset().unwrap();
    assert_eq!((plain.command(), read(plain.file("reset")).unwrap()), (quiet, b"1".to_vec()));
    assert!(device.enable_msix(1).unwrap_err().to_string().contains("no interrupts on the path through sysfs"));

    device.set_bus_master(true).unwrap();
    drop(device);
    assert_eq!(plain.command() & BUS_MASTER, 0);
    assert_eq!(read(plain.file("enable")).unwrap(), b"0");
}

#[test]
fn a_device_is_open_once() {
    let plain = Plain::new("0000:11:00.0");
    let device = plain.open().unwrap();
    assert!(plain.refusal().contains("this process has it open already"));
    drop(device);
    drop(plain.open().unwrap());

    let other = File::open(plain.file("config")).unwrap();
    rustix::fs::flock(&other, rustix::fs::FlockOperation::NonBlockingLockExclusive).unwrap();
    assert!(plain.refusal().contains("another program has the device open through sysfs"));
    drop(other);
    plain.open().unwrap();
}

#[test]
fn sysfs_refuses_what_others_own() {
    let plain = Plain::new("0000:12:00.0");
    plain.tree.driver(plain.name, "ixgbe");
    let text = plain.refusal();
    assert!(text.contains("driver ixgbe has it") && text.contains("0000:12:00.0/driver/unbind"), "{text}");
    let plain = Plain::new("0000:12:00.1");
    plain.tree.group(plain.name, 3);
    let text = plain.refusal();
    assert!(text.contains("IOMMU group 3") && text.contains("fwd bind 0000:12:00.1"), "{text}");
}

#[test]
fn sysfs_refuses_regions_that_cannot_be() {
    let plain = Plain::new("0000:13:00.0");
    write(plain.file("resource"), "0xfb580000 0xfbffffff 0x140204\n").unwrap();
    assert!(
        plain.refusal().contains("524288 bytes where its region has 11010048"),
        "shorter than the region: a bus error waiting"
    );
    write(plain.file("resource"), "").unwrap();
    let device = plain.open().unwrap();
    assert_eq!((device.bar().size(), device.bar().read32(0)), (0, u32::MAX));
    assert!(device.region(0).unwrap_err().to_string().contains("no base address region 0"));
}

#[test]
fn sysfs_reaches_io_ports_and_other_regions() {
    let plain = Plain::new("0000:16:00.0");
    let absent = "0x0 0x0 0x0\n";
    let lines = format!("0xc000 0xc01f 0x40101\n{absent}{absent}{absent}0xfe000000 0xfe003fff 0x14220c\n");
    write(plain.file("resource"), lines).unwrap();
    for (name, len) in [("resource0", 0x20), ("resource4", 0x4000)] {
        File::create(plain.file(name)).and_then(|file| file.set_len(len)).unwrap();
    }
    write(plain.file("config"), CONFIG).unwrap();
    let device = plain.open().unwrap();
    assert!(!device.has_iommu());
    let (ports, memory) = (device.region(0).unwrap(), device.region(4).unwrap());
    assert_eq!(plain.command(), 1 | MEMORY | INTX_DISABLE, "ports are decoded");
    assert_eq!((ports.size(), memory.size()), (0x20, 0x4000));
    // SAFETY: a file, not a device.
    unsafe { ports.write8(0x12, 0x5A) };
    // SAFETY: as above.
    unsafe { memory.write16(0x3FFE, 0x1234) };
    assert_eq!(read(plain.file("resource0")).unwrap()[0x12], 0x5A);
    assert_eq!(read(plain.file("resource4")).unwrap()[0x3FFE..], [0x34, 0x12]);
    assert_eq!((ports.read8(0x12), ports.read16(0x12), ports.read32(0x10)), (0x5A, 0x5A, 0x5A_0000));
    assert_eq!((ports.read8(0x20), memory.read8(0x3FFF), device.bar().read8(0x12)), (0xFF, 0x12, 0x5A));
    assert!(device.region(1).is_err());
}

#[test]
fn a_device_that_is_gone_is_an_error() {
    let plain = Plain::new("0000:14:00.0");
    write(plain.file("config"), [0xFF; 256]).unwrap();
    assert!(plain.refusal().contains("does not answer"));
    assert_eq!(read(plain.file("enable")).unwrap(), b"0", "a failed open leaves nothing switched on");
    write(plain.file("config"), []).unwrap();
    assert!(plain.refusal().contains("configuration space ends at 0x0"));
}

#[test]
fn without_an_iommu_only_huge_pages_are_for_devices() {
    let plain = Plain::new("0000:15:00.0");
    let device = plain.open().unwrap();
    let ordinary = MemoryRequest { bytes: 8192, pages: PageSize::Ordinary, numa_node: None };
    let memory = DmaMemory::allocate(&ordinary).unwrap();
    assert!(device.dma().map(&memory).unwrap_err().to_string().contains("ordinary pages move"));

    let huge = match DmaMemory::allocate(&MemoryRequest { bytes: 4 << 20, pages: PageSize::Huge2M, numa_node: None }) {
        Ok(huge) => huge,
        Err(error) => return skip::test!("{error}"),
    };
    match device.dma().map(&huge) {
        Ok(translation) => {
            let pages = huge.physical_pages().unwrap();
            for (offset, page) in [(0, 0), (0x1F_FFFF, 0), (0x20_0000, 1), (0x3F_FFFF, 1)] {
                let pointer = huge.base().as_ptr().wrapping_add(offset);
                assert_eq!(translation.iova(pointer), pages[page] + (offset as u64 & 0x1F_FFFF));
            }
            assert_eq!(translation.iova(huge.base().as_ptr().wrapping_add(huge.len())), u64::MAX);
        }
        Err(error) => skip::test!("{error}"),
    }
}

#[test]
fn vfio_says_why_a_device_cannot_be_opened() {
    let tree = Tree::new();
    tree.nic("0000:20:00.0");
    let refusal = |tree: &Tree| VfioDevice::open(&tree.host(), address("0000:20:00.0")).unwrap_err().to_string();
    assert!(refusal(&tree).contains("no IOMMU is on"));
    tree.group("0000:20:00.0", 4000);
    tree.driver("0000:20:00.0", "ixgbe");
    assert_eq!(refusal(&tree), "0000:20:00.0: kernel driver ixgbe has it; bind it to VFIO: sudo fwd bind 0000:20:00.0");
    tree.driver("0000:20:00.0", "vfio-pci");
    assert!(refusal(&tree).contains("dev/vfio/vfio"));
    tree.file("dev/vfio/vfio", "");
    tree.file("dev/vfio/4000", "");
    let text = refusal(&tree);
    assert!(
        text.contains("dev/vfio/vfio: Inappropriate ioctl for device") && text.contains("not a VFIO node"),
        "{text}"
    );
    tree.file("sys/kernel/iommu_groups/4000/name", "vfio-noiommu");
    assert!(refusal(&tree).contains("VFIO runs without an IOMMU"), "refused with a reason");
}

/// The map of registers that a driver chooses by the ids is that of the device whose registers it writes.
#[test]
fn a_made_tree_cannot_give_a_device_other_ids() {
    let plain = Plain::new("0000:17:00.0");
    for (name, text) in
        [("vendor", "0x1af4\n"), ("device", "0x1041\n"), ("class", "0x010000\n"), ("revision", "0x07\n")]
    {
        write(plain.file(name), text).unwrap();
    }
    let ids = plain.open().unwrap().ids();
    assert_eq!((ids.to_string().as_str(), ids.class, ids.revision), ("8086:10fb", 0x2_0000, 1));
}

/// A folder that is replaced after it was opened: configuration space and registers stay those of one function.
#[test]
fn regions_are_of_the_function_that_was_opened() {
    let plain = Plain::new("0000:18:00.0");
    let registers = File::options().write(true).open(plain.file("resource0")).unwrap();
    registers.write_all_at(&[0xEE; 4], 8).unwrap();
    let device = plain.open().unwrap();
    let folder = plain.tree.path("sys/bus/pci/devices/0000:18:00.0");
    std::fs::rename(&folder, folder.with_file_name("away")).unwrap();
    plain.tree.nic("0000:18:00.0");
    File::create(plain.file("resource0")).and_then(|file| file.set_len(0x8_0000)).unwrap();
    assert_eq!(device.region(0).unwrap().read32(8), 0xEEEE_EEEE);
}
