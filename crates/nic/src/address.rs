//! Device addresses: a device has the same name everywhere.

use crate::{Error, Result};
use device::{Host, PciAddress};
use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

/// The address of a device.
///
/// | form | device |
/// |---|---|
/// | `0000:03:00.0`, `03:00.0` | a PCI function; the driver follows from its ids |
/// | `soft:NAME`, `soft:NAME?key=value&key=value` | a software 82599 in this process |
/// | `vfio-user:PATH` | a device that another process serves on a Unix socket |
/// | `vhost-user:PATH` | a virtio-net device whose back end (a switch) listens at a Unix socket |
/// | `vhost-user:PATH?server` | the same, but the back end connects to a socket made here |
/// | `null:NAME` | no device: as many frames as are asked for, and a drain for what is sent |
///
/// ```
/// use nic::Address;
///
/// let address: Address = "03:00.0".parse()?;
/// assert_eq!(address.to_string(), "0000:03:00.0");
/// let address: Address = "soft:a?wire=loop".parse()?;
/// assert_eq!(address.name(), "soft:a");
/// assert!("eth0".parse::<Address>().unwrap_err().to_string().contains("0000:03:00.0"));
/// # Ok::<(), nic::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Address {
    /// A PCI function.
    Pci(PciAddress),
    /// A software 82599; the text after `soft:`.
    Soft(String),
    /// A device that another process serves on the Unix socket at this path.
    VfioUser(PathBuf),
    /// A virtio-net device whose back end is another process.
    VhostUser {
        /// The path of the Unix socket.
        path: PathBuf,
        /// If true, this process listens at the socket and the back end connects to it; if false, this process connects
        /// to the back end.
        server: bool,
    },
    /// No device; its name.
    Null(String),
}

impl Address {
    /// Returns the address without its settings, which follow a `?`.
    #[must_use]
    pub fn name(&self) -> String {
        let address = self.to_string();
        match self {
            Self::Soft(_) => address.split('?').next().unwrap_or(&address).to_owned(),
            Self::VhostUser { path, .. } => format!("vhost-user:{}", path.display()),
            Self::Pci(_) | Self::VfioUser(_) | Self::Null(_) => address,
        }
    }

    /// Returns whether the device is implemented in software, by a thread of this process or by another process, and so
    /// needs a core too.
    #[must_use]
    pub fn is_soft(&self) -> bool {
        matches!(self, Self::Soft(_) | Self::VfioUser(_) | Self::VhostUser { .. })
    }

    /// Returns the NUMA node of the device, if the host reports one. It is the best place for the device's packets and
    /// threads.
    #[must_use]
    pub fn numa_node(&self) -> Option<u32> {
        match self {
            Self::Pci(address) => Host::system().pci_device(*address).ok()?.numa_node,
            Self::Soft(_) | Self::VfioUser(_) | Self::VhostUser { .. } | Self::Null(_) => None,
        }
    }
}

impl FromStr for Address {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let refuse = |cause| Err(Error::Address { text: text.to_owned(), cause });
        let Some((kind, rest)) = text.split_once(':') else { return refuse("not the address of a device") };
        let (name, setting) = rest.split_once('?').map_or((rest, None), |(name, setting)| (name, Some(setting)));
        match (kind, setting) {
            ("soft", _) if name.is_empty() => refuse("a software NIC without a name"),
            ("soft", _) => Ok(Self::Soft(rest.to_owned())),
            ("vfio-user", _) if rest.is_empty() => refuse("no socket is named"),
            ("vfio-user", _) => Ok(Self::VfioUser(rest.into())),
            ("vhost-user", _) if name.is_empty() => refuse("no socket is named"),
            ("vhost-user", None) => Ok(Self::VhostUser { path: name.into(), server: false }),
            ("vhost-user", Some("server")) => Ok(Self::VhostUser { path: name.into(), server: true }),
            ("vhost-user", _) => refuse("the only setting of such a device is ?server"),
            ("null", None) if !name.is_empty() => Ok(Self::Null(name.to_owned())),
            ("null", _) => refuse("a port without a device has a name and no settings"),
            _ => text.parse().map(Self::Pci).or_else(|_| refuse("not the address of a device")),
        }
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Pci(address) => address.fmt(f),
            Self::Soft(spec) => write!(f, "soft:{spec}"),
            Self::VfioUser(path) => write!(f, "vfio-user:{}", path.display()),
            Self::Null(name) => write!(f, "null:{name}"),
            Self::VhostUser { path, server } => {
                write!(f, "vhost-user:{}{}", path.display(), if *server { "?server" } else { "" })
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_forms_round_trip() {
        for (text, display, soft) in [
            ("0000:03:00.0", "0000:03:00.0", false),
            ("03:00.1", "0000:03:00.1", false),
            ("soft:a", "soft:a", true),
            ("soft:a?wire=pcap:/x:y,z&mtu=1", "soft:a?wire=pcap:/x:y,z&mtu=1", true),
            ("vfio-user:/run/a:b.sock", "vfio-user:/run/a:b.sock", true),
            ("vhost-user:/run/a:b.sock", "vhost-user:/run/a:b.sock", true),
            ("vhost-user:/run/a.sock?server", "vhost-user:/run/a.sock?server", true),
            ("null:a", "null:a", false),
        ] {
            let address: Address = text.parse().unwrap();
            assert_eq!(address.to_string(), display);
            assert_eq!(address.is_soft(), soft);
            assert_eq!(display.parse::<Address>().unwrap(), address);
        }
    }

    #[test]
    fn other_forms_are_refused_in_one_line_that_says_what_there_is() {
        let malformed =
            ["", "eth0", "soft:", "soft:?wire=gen", "Soft:a", "03:00", "tap:x", "0000:03:00.9", "vfio-user:"];
        for text in malformed.into_iter().chain([
            "vhost-user:",
            "vhost-user:?server",
            "vhost-user:/a?serve",
            "null:",
            "null:a?b",
        ]) {
            let message = text.parse::<Address>().unwrap_err().to_string();
            assert!(message.contains("soft:NAME") && message.contains("03:00.0"), "{message}");
            assert!(!message.contains('\n'));
        }
    }
}
