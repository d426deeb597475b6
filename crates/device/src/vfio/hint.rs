//! What an error number of VFIO means in plain words, and what to do next.

use crate::remedy;
use crate::{Error, Host};
use std::io;
use std::path::Path;

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
        let object = object.into();
        let errno = source.raw_os_error().unwrap_or(0);
        let hint = next_step(self, errno, &object).unwrap_or_else(|| hint(self, errno).to_owned());
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

/// Cause and next step of `errno` from `operation` on `object`, where the next step is a command of this host.
fn next_step(operation: Operation, errno: i32, object: &str) -> Option<String> {
    use Operation as O;
    let host = Host::system();
    let (cause, remedy) = match (operation, errno) {
        (O::OpenContainer, libc::ENOENT | libc::ENODEV) => {
            ("VFIO is not loaded, or the container that this runs in lacks /dev/vfio", remedy::load_vfio())
        }
        (O::OpenContainer | O::OpenGroup, libc::EACCES) => {
            ("the node belongs to another user", host.open_node(Path::new(object)))
        }
        (O::OpenGroup, libc::EBUSY) => (
            "another program has it open, or has the device open through /dev/vfio/devices",
            host.end_holders(Path::new(object)),
        ),
        (O::SetIommu, libc::EPERM) => (
            "the host cannot remap interrupts, so a device could forge them",
            remedy::remap_interrupts(&host).in_words(),
        ),
        (O::SetIommu, libc::EINVAL | libc::ENODEV) => {
            ("no IOMMU backend can serve the group (the IOMMU must be cache coherent, too)", remedy::load_vfio())
        }
        (O::MapDma, libc::ENOMEM) => (
            "more locked memory than this user is allowed, or the IOMMU is out of memory",
            remedy::raise_memlock(&host),
        ),
        _ => return None,
    };
    Some(format!("{cause}; {remedy}"))
}

/// Cause and next step of `errno` in words; empty when the number says it all.
fn hint(operation: Operation, errno: i32) -> &'static str {
    use Operation as O;
    match (operation, errno) {
        (_, libc::EMFILE) => "this process may open no more files; raise the limit: ulimit -n 4096",
        (O::OpenGroup, libc::ENOENT) => {
            "the device is not bound to vfio-pci, or the IOMMU is off; fwd doctor says which, and what to do"
        }
        (O::OpenGroup | O::OpenContainer, libc::EPERM) => {
            "a security policy or a container forbids it, or this is VFIO without an IOMMU, which is refused here"
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
        (O::Reset | O::GetDevice | O::AskDevice | O::MapRegion | O::SetIrqs, libc::ENODEV | libc::EIO) => {
            "the device was removed or does not answer; see: sudo dmesg | tail"
        }
        (O::OpenContainer | O::OpenGroup | O::AskGroup, libc::ENOTTY) => "this is not a VFIO node",
        _ => "",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every row of the table of errors of the kernel's VFIO: what fails how, and words of the line that is printed.
    #[test]
    fn every_known_cause_has_its_words() {
        use Operation as O;
        for (operation, errno, words) in [
            (O::OpenContainer, libc::ENOENT, "VFIO is not loaded"),
            (O::OpenContainer, libc::ENODEV, "sudo modprobe -a vfio-pci vfio_iommu_type1"),
            (O::OpenContainer, libc::EACCES, "sudo chown"),
            (O::OpenContainer, libc::ENOTTY, "not a VFIO node"),
            (O::OpenContainer, libc::EMFILE, "ulimit -n"),
            (O::OpenGroup, libc::ENOENT, "not bound to vfio-pci, or the IOMMU is off"),
            (O::OpenGroup, libc::EACCES, "sudo chown"),
            (O::OpenGroup, libc::EPERM, "a security policy or a container forbids it"),
            (O::OpenGroup, libc::EBUSY, "another program has it open"),
            (O::OpenGroup, libc::EBUSY, "sudo fuser -v object"),
            (O::OpenGroup, libc::ENODEV, "empty or just being removed"),
            (O::SetContainer, libc::EBUSY, "a kernel driver still owns DMA"),
            (O::SetContainer, libc::EPERM, "cannot be mixed"),
            (O::SetContainer, libc::EINVAL, "not viable"),
            (O::SetIommu, libc::EPERM, "the host cannot remap interrupts"),
            (O::SetIommu, libc::EINVAL, "vfio_iommu_type1"),
            (O::SetIommu, libc::ENODEV, "vfio_iommu_type1"),
            (O::MapDma, libc::ENOMEM, "LimitMEMLOCK"),
            (O::MapDma, libc::ENOMEM, "sudo prlimit --memlock=unlimited --pid $$"),
            (O::MapDma, libc::EINVAL, "outside the ranges"),
            (O::MapDma, libc::EEXIST, "overlaps"),
            (O::MapDma, libc::ENOSPC, "dma_entry_limit"),
            (O::MapDma, libc::EFAULT, "not present or not writable"),
            (O::UnmapDma, libc::EINVAL, "only a whole mapping"),
            (O::GetDevice, libc::ENODEV, "not bound to vfio-pci, or was removed"),
            (O::GetDevice, libc::EACCES, "VF token"),
            (O::GetDevice, libc::EBUSY, "another program has it open"),
            (O::GetDevice, libc::EIO, "does not answer"),
            (O::MapRegion, libc::EINVAL, "does not let this region be mapped"),
            (O::SetIrqs, libc::EINVAL, "another kind of interrupt is on"),
            (O::SetIrqs, libc::ENOSPC, "no interrupt vectors left"),
            (O::Reset, libc::EINVAL, "no reset of its own that works"),
            (O::Reset, libc::EAGAIN, "try again"),
            (O::Reset, libc::ENODEV, "was removed"),
        ] {
            let text = operation.failed("object", io::Error::from_raw_os_error(errno)).to_string();
            assert!(text.contains(words) && text.contains(" object: "), "{operation:?} {errno}: {text}");
            assert_eq!(text.lines().count(), 1, "{text}");
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
