//! What an error number of VFIO means in plain words, and what to do next.

use crate::Error;
use std::io;

/// What was tried.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Operation {
    OpenContainer,
    OpenGroup,
    AskGroup,
    SetContainer,
    SetIommu,
    AskIommu,
    MapDma,
    UnmapDma,
    GetDevice,
    AskDevice,
    MapRegion,
    SetIrqs,
    Reset,
}

impl Operation {
    /// The error of this operation on `object`.
    pub(super) fn failed(self, object: impl Into<String>, source: io::Error) -> Error {
        let hint = source.raw_os_error().map_or("", |errno| hint(self, errno));
        Error::system(self.words(), object, source, hint)
    }

    fn words(self) -> &'static str {
        match self {
            Self::OpenContainer | Self::OpenGroup => "open",
            Self::AskGroup => "ask for the state of group",
            Self::SetContainer => "attach to a VFIO container group",
            Self::SetIommu => "switch on the IOMMU for group",
            Self::AskIommu => "ask for the IOMMU's address ranges of group",
            Self::MapDma => "map for DMA",
            Self::UnmapDma => "unmap from DMA",
            Self::GetDevice => "open through VFIO",
            Self::AskDevice => "ask VFIO about",
            Self::MapRegion => "map registers of",
            Self::SetIrqs => "set up interrupts of",
            Self::Reset => "reset",
        }
    }
}

/// Cause and next step of `errno` from `operation`; empty when the number says it all.
pub(super) fn hint(operation: Operation, errno: i32) -> &'static str {
    use Operation as O;
    match (operation, errno) {
        (O::OpenContainer, libc::ENOENT | libc::ENODEV) => {
            "VFIO is not loaded: sudo modprobe vfio-pci; in a container, pass /dev/vfio in"
        }
        (O::OpenContainer, libc::EACCES) => {
            "the node belongs to root alone: sudo chmod 666 /dev/vfio/vfio (that is its usual mode)"
        }
        (O::OpenGroup, libc::ENOENT) => {
            "the device is not bound to vfio-pci, or the IOMMU is off (intel_iommu=on, VT-d or AMD-Vi in the firmware)"
        }
        (O::OpenGroup, libc::EACCES) => "the node belongs to another user: sudo chown $USER that node",
        (O::OpenGroup | O::OpenContainer, libc::EPERM) => {
            "a security policy or a container forbids it, or this is VFIO without an IOMMU, which is refused here"
        }
        (O::OpenGroup, libc::EBUSY) => {
            "another program has it open, or has the device open through /dev/vfio/devices; end that program"
        }
        (O::OpenGroup, libc::ENODEV) => "the group is empty or just being removed; bind the device to vfio-pci again",
        (O::SetContainer, libc::EBUSY) => {
            "a kernel driver still owns DMA for a device of this group; bind every device of the group to vfio-pci"
        }
        (O::SetContainer, libc::EPERM) => {
            "devices with and without an IOMMU cannot be mixed, and those without are refused here"
        }
        (O::SetContainer, libc::EINVAL) => {
            "the group is attached already, or is not viable; end other users of the group"
        }
        (O::SetIommu, libc::EPERM) => {
            "the host cannot remap interrupts, so a device could forge them; enable interrupt remapping (x2APIC) in the firmware. \
             allow_unsafe_interrupts=1 would hide the danger, not remove it"
        }
        (O::SetIommu, libc::EINVAL | libc::ENODEV) => {
            "no IOMMU backend that can serve the group: sudo modprobe vfio_iommu_type1; the IOMMU must also be cache coherent"
        }
        (O::MapDma, libc::ENOMEM) => {
            "more locked memory than this user is allowed, or the IOMMU is out of memory; raise the limit: \
             ulimit -l unlimited, LimitMEMLOCK=infinity, or sudo prlimit --memlock=unlimited --pid $$"
        }
        (O::MapDma, libc::EINVAL) => {
            "outside the ranges the IOMMU translates, or not aligned to its pages; please report this"
        }
        (O::MapDma, libc::EEXIST) => "overlaps a mapping that exists; please report this",
        (O::MapDma, libc::ENOSPC) => {
            "all mappings are taken; use fewer, larger regions, or raise vfio_iommu_type1.dma_entry_limit"
        }
        (O::MapDma, libc::EFAULT) => {
            "a page is not present or not writable; reserve enough huge pages on that NUMA node"
        }
        (O::UnmapDma, libc::EINVAL) => "only a whole mapping can be removed; please report this",
        (O::GetDevice, libc::ENODEV) => "the device is not bound to vfio-pci, or was removed",
        (O::GetDevice, libc::EINVAL | libc::EACCES | libc::EPERM) => {
            "for a virtual function whose physical function is bound to vfio-pci, a VF token is needed, which is not supported yet"
        }
        (O::GetDevice, libc::EBUSY) => "another program has it open; end that program",
        (O::MapRegion, libc::EINVAL) => "VFIO does not let this region be mapped",
        (O::SetIrqs, libc::EINVAL) => "another kind of interrupt is on, or the device has fewer vectors",
        (O::SetIrqs, libc::ENOSPC) => "the host has no interrupt vectors left; ask for fewer",
        (O::Reset, libc::EINVAL) => {
            "the device has no reset of its own that works (FLR, power management, bus); bind it to its kernel driver and back"
        }
        (O::Reset, libc::EAGAIN) => "the device or its bus is busy with another reset; try again",
        (O::Reset | O::AskDevice | O::SetIrqs, libc::ENODEV | libc::EIO) => {
            "the device was removed; see: sudo dmesg | tail"
        }
        (O::OpenContainer | O::OpenGroup | O::AskGroup, libc::ENOTTY) => "this is not a VFIO node",
        _ => "",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_known_cause_has_its_words() {
        use Operation as O;
        for (operation, errno, words) in [
            (O::OpenGroup, libc::ENOENT, "not bound to vfio-pci, or the IOMMU is off (intel_iommu=on"),
            (O::OpenGroup, libc::EACCES, "chown"),
            (O::OpenGroup, libc::EBUSY, "another program has it open"),
            (O::OpenGroup, libc::ENODEV, "empty or just being removed"),
            (O::OpenContainer, libc::ENOENT, "modprobe vfio-pci"),
            (O::SetContainer, libc::EBUSY, "a kernel driver still owns DMA"),
            (O::SetContainer, libc::EPERM, "cannot be mixed"),
            (O::SetIommu, libc::EPERM, "interrupt remapping"),
            (O::SetIommu, libc::EINVAL, "modprobe vfio_iommu_type1"),
            (O::SetIommu, libc::ENODEV, "modprobe vfio_iommu_type1"),
            (O::MapDma, libc::ENOMEM, "LimitMEMLOCK"),
            (O::MapDma, libc::EINVAL, "outside the ranges"),
            (O::MapDma, libc::EEXIST, "overlaps"),
            (O::MapDma, libc::ENOSPC, "dma_entry_limit"),
            (O::MapDma, libc::EFAULT, "not present or not writable"),
            (O::UnmapDma, libc::EINVAL, "only a whole mapping"),
            (O::SetIrqs, libc::EINVAL, "another kind of interrupt is on"),
            (O::Reset, libc::EINVAL, "no reset of its own that works"),
            (O::Reset, libc::EAGAIN, "try again"),
        ] {
            assert!(hint(operation, errno).contains(words), "{operation:?} {errno}: {}", hint(operation, errno));
        }
        assert_eq!(hint(O::AskIommu, libc::EIO), "");
    }

    #[test]
    fn an_error_is_operation_object_cause_and_next_step() {
        let source = io::Error::from_raw_os_error(libc::EACCES);
        let text = Operation::OpenGroup.failed("/dev/vfio/12", source).to_string();
        assert!(
            text.starts_with("cannot open /dev/vfio/12: Permission denied (os error 13); the node belongs"),
            "{text}"
        );
    }
}
