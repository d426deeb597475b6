//! TAP interfaces at which software NICs are.

use nic::Address;

const ETHERNET: usize = 14;

/// Which of the ports is at an interface of this network namespace whose MTU is below the frames, `largest` bytes long without check
/// sequence, and what to do. The MTU is without a VLAN tag too, which kernels let pass; so such frames are not judged closer than that.
pub(super) fn of_taps(ports: &[Address], largest: usize) -> Option<String> {
    ports.iter().find_map(|port| {
        let Address::Soft(spec) = port else { return None };
        let (_, settings) = spec.split_once('?')?;
        let interface = settings.split('&').find_map(|setting| setting.strip_prefix("wire=tap:"))?;
        let mtu = usize::try_from(tap::mtu(interface).ok()?).ok()?;
        let needed = largest.saturating_sub(ETHERNET);
        (needed > mtu).then(|| {
            let name = port.name();
            format!(
                "{interface}, at which {name} is, has an MTU of {mtu}, and frames of {largest} bytes need {needed}: \
                     ip link set {interface} mtu {needed}"
            )
        })
    })
}
