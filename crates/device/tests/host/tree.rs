//! A made tree of `/sys`, `/proc` and `/dev`.

use device::{Host, PciAddress};
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

pub(crate) struct Tree {
    root: tempfile::TempDir,
}

impl Tree {
    pub(crate) fn new() -> Self {
        let tree = Self { root: tempfile::tempdir().unwrap() };
        tree.folder("sys/bus/pci/devices");
        tree.file("sys/bus/pci/drivers_probe", "");
        tree
    }

    pub(crate) fn host(&self) -> Host {
        Host::at(self.root.path())
    }

    pub(crate) fn path(&self, path: &str) -> PathBuf {
        self.root.path().join(path)
    }

    pub(crate) fn folder(&self, path: &str) {
        fs::create_dir_all(self.path(path)).unwrap();
    }

    pub(crate) fn file(&self, path: &str, text: &str) {
        let path = self.path(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    pub(crate) fn text(&self, path: &str) -> String {
        fs::read_to_string(self.path(path)).unwrap()
    }

    /// An 82599 (class 0x020000) without driver, group or interface.
    pub(crate) fn nic(&self, address: &str) -> String {
        let folder = format!("sys/bus/pci/devices/{address}");
        for (name, text) in [
            ("vendor", "0x8086\n"),
            ("device", "0x10fb\n"),
            ("class", "0x020000\n"),
            ("revision", "0x01\n"),
            ("subsystem_vendor", "0x8086\n"),
            ("subsystem_device", "0x7a11\n"),
            ("numa_node", "-1\n"),
            ("driver_override", "(null)\n"),
            ("resource", "0x00000000fb580000 0x00000000fb5fffff 0x0000000000140204\n"),
        ] {
            self.file(&format!("{folder}/{name}"), text);
        }
        folder
    }

    pub(crate) fn driver(&self, address: &str, driver: &str) {
        self.file(&format!("sys/bus/pci/drivers/{driver}/unbind"), "");
        relink(&self.path(&format!("sys/bus/pci/devices/{address}/driver")), Some(driver));
    }

    pub(crate) fn group(&self, address: &str, group: u32) {
        self.folder(&format!("sys/kernel/iommu_groups/{group}/devices"));
        let member = self.path(&format!("sys/kernel/iommu_groups/{group}/devices/{address}"));
        symlink(format!("../../../../bus/pci/devices/{address}"), member).unwrap();
        let link = self.path(&format!("sys/bus/pci/devices/{address}/iommu_group"));
        symlink(format!("../../../../kernel/iommu_groups/{group}"), link).unwrap();
    }

    pub(crate) fn interface(&self, address: &str, name: &str, flags: &str) {
        self.folder(&format!("sys/bus/pci/devices/{address}/net/{name}"));
        self.file(&format!("sys/class/net/{name}/flags"), flags);
    }
}

pub(crate) fn address(text: &str) -> PciAddress {
    text.parse().unwrap()
}

/// Points a `driver` link at a driver, or removes it.
pub(crate) fn relink(link: &Path, driver: Option<&str>) {
    let _ = fs::remove_file(link);
    if let Some(driver) = driver {
        symlink(format!("../../drivers/{driver}"), link).unwrap();
    }
}
