//! Feature bits and which of them the driver uses (Virtio 1.2, sections 5.1.3 and 6).

use crate::transport::Interface;
use std::fmt;
use std::ops::BitOr;

/// A set of feature bits.
///
/// ```
/// use virtio::Features;
///
/// let set = Features::RING_PACKED | Features::MRG_RXBUF;
/// assert!(set.contains(Features::MRG_RXBUF));
/// assert_eq!(set.to_string(), "VIRTIO_NET_F_MRG_RXBUF, VIRTIO_F_RING_PACKED");
/// ```
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct Features(pub u64);

macro_rules! features {
    ($($(#[$doc:meta])* $name:ident = $bit:literal, $text:literal;)*) => {
        impl Features {
            $($(#[$doc])* pub const $name: Self = Self(1 << $bit);)*
        }
        const NAMES: &[(u32, &str)] = &[$(($bit, $text)),*];
        /// What the driver uses where a device offers it: every feature that it has a name for.
        const USED: Features = Features($(1 << $bit)|*);
    };
}

features! {
    /// The device completes checksums of frames that it is given to send.
    CSUM = 0, "VIRTIO_NET_F_CSUM";
    /// The device may deliver frames whose checksums are incomplete, or report that it has verified them.
    GUEST_CSUM = 1, "VIRTIO_NET_F_GUEST_CSUM";
    /// The device reports its MTU.
    MTU = 3, "VIRTIO_NET_F_MTU";
    /// The device has a MAC address.
    MAC = 5, "VIRTIO_NET_F_MAC";
    /// A received frame may span several buffers.
    MRG_RXBUF = 15, "VIRTIO_NET_F_MRG_RXBUF";
    /// The device reports whether its link is up.
    STATUS = 16, "VIRTIO_NET_F_STATUS";
    /// There is a control queue.
    CTRL_VQ = 17, "VIRTIO_NET_F_CTRL_VQ";
    /// The control queue accepts receive modes.
    CTRL_RX = 18, "VIRTIO_NET_F_CTRL_RX";
    /// The control queue accepts VLAN filters.
    CTRL_VLAN = 19, "VIRTIO_NET_F_CTRL_VLAN";
    /// There are several pairs of queues.
    MQ = 22, "VIRTIO_NET_F_MQ";
    /// The control queue accepts a MAC address.
    CTRL_MAC_ADDR = 23, "VIRTIO_NET_F_CTRL_MAC_ADDR";
    /// Header and data may be divided over descriptors in any way (legacy devices).
    ANY_LAYOUT = 27, "VIRTIO_F_ANY_LAYOUT";
    /// Notifications are requested by ring position.
    EVENT_IDX = 29, "VIRTIO_F_EVENT_IDX";
    /// The device follows Virtio 1.0 or later.
    VERSION_1 = 32, "VIRTIO_F_VERSION_1";
    /// Addresses are translated by the platform's IOMMU.
    ACCESS_PLATFORM = 33, "VIRTIO_F_ACCESS_PLATFORM";
    /// Packed virtqueues.
    RING_PACKED = 34, "VIRTIO_F_RING_PACKED";
    /// Buffers are used in the order in which they were made available.
    IN_ORDER = 35, "VIRTIO_F_IN_ORDER";
    /// The device orders its memory accesses as the platform's devices do.
    ORDER_PLATFORM = 36, "VIRTIO_F_ORDER_PLATFORM";
    /// The device reports a hash of each received frame.
    HASH_REPORT = 57, "VIRTIO_NET_F_HASH_REPORT";
    /// The control queue accepts RSS settings.
    RSS = 60, "VIRTIO_NET_F_RSS";
}

impl Features {
    /// Returns whether all of `other` are in the set.
    #[inline]
    #[must_use]
    pub const fn contains(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    /// Returns the set without those of `other`.
    #[must_use]
    pub const fn without(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }
}

impl BitOr for Features {
    type Output = Self;

    fn bitor(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

impl fmt::Display for Features {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut separator = "";
        for bit in (0..u64::BITS).filter(|bit| self.0 >> bit & 1 == 1) {
            match NAMES.iter().find(|(known, _)| *known == bit) {
                Some((_, name)) => write!(f, "{separator}{name}")?,
                None => write!(f, "{separator}bit {bit}")?,
            }
            separator = ", ";
        }
        Ok(())
    }
}

impl fmt::Debug for Features {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Features({self})")
    }
}

/// Offloads, which are used only if they are asked for: few forwarders have a use for them, and most of what a device could
/// lie about is in their header fields.
pub(crate) const OFFLOADS: Features = Features(Features::CSUM.0 | Features::GUEST_CSUM.0);

/// Pairs of a feature and what it needs (sections 5.1.3.1 and 6.1). A device may offer nonsense; the dependent one is
/// dropped then.
const NEEDS: &[(Features, Features)] = &[
    (Features::CTRL_RX, Features::CTRL_VQ),
    (Features::CTRL_VLAN, Features::CTRL_VQ),
    (Features::CTRL_MAC_ADDR, Features::CTRL_VQ),
    (Features::ACCESS_PLATFORM, Features::VERSION_1),
    (Features::RING_PACKED, Features::VERSION_1),
    (Features::IN_ORDER, Features::VERSION_1),
    (Features::ORDER_PLATFORM, Features::VERSION_1),
    (Features::HASH_REPORT, Features::CTRL_VQ),
    // With buffers that may be any part of a frame, received headers need no descriptors of their own.
    (Features::HASH_REPORT, Features::MRG_RXBUF),
    (Features::RSS, Features::CTRL_VQ),
    // For a device with one pair of queues there is nothing to spread.
    (Features::RSS, Features::MQ),
];

/// The features to use of those `offered`, leaving out `refused`. `pairs_without_control`: queue pairs need no control
/// queue to be turned on.
pub(crate) fn choose(
    offered: Features,
    refused: Features,
    interface: Interface,
    pairs_without_control: bool,
) -> Features {
    let mut chosen = Features(offered.0 & USED.0).without(refused);
    chosen = match interface {
        Interface::Legacy => Features(chosen.0 & 0xffff_ffff),
        Interface::Modern => chosen.without(Features::ANY_LAYOUT),
    };
    if !pairs_without_control && !chosen.contains(Features::CTRL_VQ) {
        chosen = chosen.without(Features::MQ);
    }
    for (feature, needed) in NEEDS {
        if !chosen.contains(*needed) {
            chosen = chosen.without(*feature);
        }
    }
    chosen
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_the_driver_knows_is_chosen() {
        let chosen = choose(Features(u64::MAX), Features::default(), Interface::Modern, false);
        assert_eq!(chosen, USED.without(Features::ANY_LAYOUT));
        assert_eq!(
            choose(Features(u64::MAX), Features::MQ, Interface::Modern, false),
            chosen.without(Features::MQ | Features::RSS)
        );
    }

    #[test]
    fn what_lacks_its_foundation_is_dropped() {
        for (feature, needed) in NEEDS {
            let chosen = choose(Features(u64::MAX).without(*needed), Features::default(), Interface::Modern, false);
            assert!(!chosen.contains(*feature), "{feature} without {needed}");
        }
        let no_control = Features(u64::MAX).without(Features::CTRL_VQ);
        assert!(!choose(no_control, Features::default(), Interface::Modern, false).contains(Features::MQ));
        assert!(choose(no_control, Features::default(), Interface::Modern, true).contains(Features::MQ));
    }

    #[test]
    fn a_legacy_device_has_32_bits() {
        let chosen = choose(Features(u64::MAX), Features::default(), Interface::Legacy, false);
        assert_eq!(chosen.0 >> 32, 0);
        assert!(chosen.contains(Features::ANY_LAYOUT));
    }
}
