//! What a PCI function is.

use device::PciIds;

/// The name of a device that there is a driver for.
///
/// # Errors
///
/// For any other device: what it is, as far as known, in a few words.
///
/// ```
/// let ids = device::PciIds { vendor: 0x8086, device: 0x10fb, ..Default::default() };
/// assert!(nic::identify(ids).is_ok());
/// let ids = device::PciIds { vendor: 0x1af4, device: 0x1041, ..Default::default() };
/// assert_eq!(nic::identify(ids).unwrap_err(), "modern virtio-net: no driver yet");
/// ```
pub fn identify(ids: PciIds) -> Result<&'static str, String> {
    if let Some(kind) = virtio::identify(ids) {
        return Err(format!("{kind}: no driver yet"));
    }
    ixgbe::Model::identify(ids).map(|model| model.name).map_err(|error| error.to_string())
}
