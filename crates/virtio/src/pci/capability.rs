//! Where a device's registers are: vendor capabilities in configuration space (Virtio 1.2, section 4.1.4).
//!
//! The list and what it points at are the device's word, so every number is checked against the regions that there are.

use super::window::Window;
use crate::Result;
use device::{Bar as _, Error, PciFunction};
use std::sync::Arc;

/// The registers of a modern device. (Its ISR status is for interrupts by line, which this driver does not use.)
pub(super) struct Layout<B> {
    /// Common configuration, section 4.1.4.3.
    pub(super) common: Window<B>,
    /// Notifications, section 4.1.4.4.
    pub(super) notify: Window<B>,
    /// Bytes between the places of two notification offsets.
    pub(super) multiplier: u32,
    /// Device configuration, section 4.1.4.6.
    pub(super) device: Window<B>,
}

/// `struct virtio_pci_cap`, and what follows it for notifications.
struct Pointer {
    kind: u8,
    bar: u8,
    offset: u32,
    len: u32,
    multiplier: u32,
}

/// Capability id of vendors.
const VENDOR: u8 = 0x09;
/// `cfg_type` of the structures that this driver uses.
const COMMON: u8 = 1;
const NOTIFY: u8 = 2;
const DEVICE: u8 = 4;

/// The registers that the capabilities lead to; `None` if there are no such capabilities. Of several for the same structure
/// the first that can be used counts.
///
/// # Errors
///
/// When configuration space cannot be read, or a structure is missing or lies where nothing is.
pub(super) fn find<F: PciFunction>(function: &F) -> Result<Option<Layout<F::Bar>>> {
    let pointers = pointers(function)?;
    if !pointers.iter().any(|pointer| pointer.kind == COMMON) {
        return Ok(None);
    }
    let mut regions = Vec::new();
    let mut first = |kind| {
        let mut trouble = "there is none".to_owned();
        for pointer in pointers.iter().filter(|pointer| pointer.kind == kind) {
            match window(function, pointer, &mut regions) {
                Ok(window) => return Ok((window, pointer.multiplier)),
                Err(cause) => trouble = cause,
            }
        }
        let (name, _, _) = shape(kind);
        let cause = format!("virtio capability of its {name} registers: {trouble}");
        Err(Error::unusable(function.name(), cause, "such a device cannot be used"))
    };
    let ((common, _), (notify, multiplier), (device, _)) = (first(COMMON)?, first(NOTIFY)?, first(DEVICE)?);
    Ok(Some(Layout { common, notify, multiplier, device }))
}

fn pointers<F: PciFunction>(function: &F) -> Result<Vec<Pointer>> {
    let config = function.config();
    let mut pointers = Vec::new();
    for capability in config.capabilities()?.into_iter().filter(|capability| capability.id == VENDOR) {
        let at = u16::from(capability.offset);
        let [_, _, len, kind] = config.read(at)?;
        let needed = if kind == NOTIFY { 20 } else { 16 };
        if len < needed || ![COMMON, NOTIFY, DEVICE].contains(&kind) {
            continue;
        }
        let [bar] = config.read(at + 4)?;
        let (offset, len) = (config.read32(at + 8)?, config.read32(at + 12)?);
        let multiplier = if kind == NOTIFY { config.read32(at + 16)? } else { 0 };
        pointers.push(Pointer { kind, bar, offset, len, multiplier });
    }
    Ok(pointers)
}

/// Returns the name, alignment and least length of a structure.
fn shape(kind: u8) -> (&'static str, u32, u32) {
    match kind {
        COMMON => ("common", 4, 56),
        NOTIFY => ("notification", 2, 2),
        _ => ("device", 4, 1),
    }
}

/// Returns the part of a region that a capability points at, or why there is none.
fn window<F: PciFunction>(
    function: &F,
    pointer: &Pointer,
    regions: &mut Vec<(u8, Arc<F::Bar>)>,
) -> std::result::Result<Window<F::Bar>, String> {
    let Pointer { kind, bar, offset, len, .. } = *pointer;
    let (_, align, least) = shape(kind);
    if bar > 5 {
        return Err(format!("base address region {bar} is reserved"));
    }
    if len < least || !offset.is_multiple_of(align) {
        return Err(format!("{len} bytes at {offset:#x} are too few, or not aligned to {align}"));
    }
    let region = match regions.iter().find(|(known, _)| *known == bar) {
        Some((_, region)) => Arc::clone(region),
        None => {
            let region = Arc::new(function.region(bar).map_err(|error| error.to_string())?);
            regions.push((bar, Arc::clone(&region)));
            region
        }
    };
    let end = u64::from(offset) + u64::from(len);
    if end > region.size() as u64 {
        return Err(format!("it ends at {end:#x} of region {bar}, which has {:#x} bytes", region.size()));
    }
    Ok(Window::new(region, offset, len))
}
