//! IOMMU, interrupt remapping and VFIO's modules.

use super::{Finding, breaks, costs, counted, fine, unknown};
use crate::remedy::{self, Remedy};
use crate::{Host, StatusKind};

/// Whether an IOMMU translates (`/sys/class/iommu`, `/sys/kernel/iommu_groups`).
pub(super) fn iommu(host: &Host) -> Finding {
    if let Some(why) = host.unseen_sys() {
        return unknown("iommu", why);
    }
    if is_on(host) {
        let units = host.names(&host.sys("class/iommu"));
        let units = if units.is_empty() { "on".to_owned() } else { format!("on ({})", units.join(", ")) };
        return fine("iommu", format!("{units}, {}", counted(groups(host).len(), "group")));
    }
    let what = if groups(host).is_empty() { "no IOMMU is on" } else { "VFIO was told to run without an IOMMU" };
    breaks("iommu", what, "no card can be opened through VFIO (software NICs run)", host.iommu_on())
}

/// Whether interrupts are remapped: the names of interrupt chips then begin with "IR-" (`/proc/interrupts`).
pub(super) fn interrupt_remapping(host: &Host) -> Finding {
    const CHECK: &str = "interrupt remapping";
    if let Some(why) = host.unseen_sys() {
        return unknown(CHECK, why);
    }
    if !is_on(host) {
        return unknown(CHECK, "not looked at, as no IOMMU is on");
    }
    let Some(table) = host.read(&host.proc("interrupts")).ok().filter(|table| !table.is_empty()) else {
        return unknown(CHECK, "/proc/interrupts cannot be read, which would tell");
    };
    if table.split_whitespace().any(|word| word.starts_with("IR-")) {
        return fine(CHECK, "on");
    }
    let unsafe_too = host.sys("module/vfio_iommu_type1/parameters/allow_unsafe_interrupts");
    let remedy = remedy::remap_interrupts(host);
    if host.read(&unsafe_too).is_ok_and(|value| value == "Y") {
        let effect = "a card can forge interrupts of other devices, so it is not confined";
        return costs(CHECK, "off, and allow_unsafe_interrupts tells VFIO to go on without", effect, remedy);
    }
    breaks(CHECK, "off", "VFIO refuses to open any card (VFIO_SET_IOMMU: EPERM)", remedy)
}

/// The kernel modules: loaded, or at least installed (`/lib/modules/RELEASE/modules.dep`).
pub(super) fn modules(host: &Host) -> Finding {
    const CHECK: &str = "VFIO modules";
    if let Some(why) = host.unseen_sys() {
        return unknown(CHECK, why);
    }
    let missing = missing_modules(host);
    if missing.is_empty() {
        return fine(CHECK, "vfio-pci and vfio_iommu_type1 are loaded");
    }
    let what = format!("{} {} not loaded", missing.join(" and "), if missing.len() == 1 { "is" } else { "are" });
    let effect = "no card can be bound or opened";
    let Some(release) = host.read(&host.proc("sys/kernel/osrelease")).ok().filter(|release| !release.is_empty()) else {
        // Whether they are installed depends on the kernel's version.
        return breaks(CHECK, what, effect, remedy::load_vfio());
    };
    let folder = host.file("lib/modules").join(&release);
    let lists = ["modules.dep", "modules.builtin"].map(|list| host.read(&folder.join(list)).unwrap_or_default());
    if lists.iter().all(String::is_empty) {
        let remedy = remedy::load_vfio();
        let how = format!("install the modules of kernel {release}; in a container, load them on its host");
        return breaks(
            CHECK,
            format!("{what}, and no modules of this kernel are installed"),
            effect,
            Remedy { how, ..remedy },
        );
    }
    let installed = |name: &&str| lists.iter().any(|list| list.contains(&format!("/{name}.ko")));
    if missing.iter().all(installed) {
        return breaks(CHECK, what, effect, remedy::load_vfio());
    }
    let how = format!("run a kernel with CONFIG_VFIO_PCI and CONFIG_VFIO_IOMMU_TYPE1 ({release} has not both)");
    breaks(CHECK, format!("{what}, nor part of this kernel"), effect, Remedy::words(how))
}

/// `/dev/vfio/vfio`, through which every card is opened. Says nothing while the modules are missing, as it is then too.
/// Whether they are does not matter where this user may open it.
pub(super) fn container(host: &Host) -> Option<Finding> {
    const CHECK: &str = "VFIO container";
    if host.unseen_sys().is_none() && !missing_modules(host).is_empty() {
        return None;
    }
    Some(match host.container_status() {
        None => fine(CHECK, format!("this user may open {}", host.dev("vfio/vfio").display())),
        Some(status) => {
            let remedy = match status.kind {
                StatusKind::NodeMissing => Remedy::words("in a container, pass /dev/vfio in"),
                _ => status.next_step,
            };
            breaks(CHECK, status.reason, "no card can be opened", remedy)
        }
    })
}

/// Kernel lockdown, which forbids access past VFIO (Linux `Documentation/admin-guide/LSM`, lockdown).
pub(super) fn lockdown(host: &Host) -> Finding {
    const CHECK: &str = "kernel lockdown";
    if let Some(why) = host.unseen_sys() {
        return unknown(CHECK, why);
    }
    let text = match host.read(&host.sys("kernel/security/lockdown")) {
        Ok(text) => text,
        // securityfs is a file system of its own, which a container rarely has, and a kernel need not have either.
        Err(_) if host.names(&host.sys("kernel/security")).is_empty() && !lacks_securityfs(host) => {
            return unknown(CHECK, "/sys/kernel/security is not mounted here, which would tell");
        }
        Err(_) => String::new(),
    };
    let mode = text.split_whitespace().find_map(|word| word.strip_prefix('[')?.strip_suffix(']'));
    match mode {
        None | Some("none") => fine(CHECK, "off"),
        Some(mode) if is_on(host) => fine(CHECK, format!("{mode}; VFIO works all the same")),
        Some(mode) => {
            let effect = "--unsafe-no-iommu does not work either: cards cannot be opened past VFIO";
            costs(CHECK, mode, effect, Remedy::words("use an IOMMU, or switch Secure Boot off"))
        }
    }
}

fn lacks_securityfs(host: &Host) -> bool {
    let kinds = host.read(&host.proc("filesystems"));
    kinds.is_ok_and(|kinds| !kinds.split_whitespace().any(|kind| kind == "securityfs"))
}

fn is_on(host: &Host) -> bool {
    groups(host).iter().any(|group| !group.parse().is_ok_and(|group| host.is_noiommu(group)))
}

fn groups(host: &Host) -> Vec<String> {
    host.names(&host.sys("kernel/iommu_groups"))
}

fn missing_modules(host: &Host) -> Vec<&'static str> {
    let driver = host.sys("bus/pci/drivers/vfio-pci").exists() || host.sys("module/vfio_pci").exists();
    let type1 = host.sys("module/vfio_iommu_type1").exists();
    [("vfio-pci", driver), ("vfio_iommu_type1", type1)]
        .into_iter()
        .filter(|(_, there)| !there)
        .map(|(name, _)| name)
        .collect()
}
