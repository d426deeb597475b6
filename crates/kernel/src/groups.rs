//! Multicast groups whose frames the kernel wants of an interface (`/proc/net/dev_mcast`): a data path that is in front of it has them
//! received.

/// Returns the MAC addresses of the groups that an interface of this thread's network namespace is to receive, those first that it was
/// told first: what it has joined itself, and the interfaces on it, such as VLANs and macvlans. `None` if the kernel does not say. Of an
/// interface that is not there, or is no Ethernet, there are none.
///
/// ```
/// assert_eq!(kernel::groups_of(u32::MAX), Some(Vec::new()));
/// ```
#[must_use]
pub fn groups_of(interface: u32) -> Option<Vec<[u8; 6]>> {
    std::fs::read_to_string("/proc/thread-self/net/dev_mcast").ok().map(|text| listed(&text, interface))
}

/// Of lines of index, name, two counts and address.
fn listed(text: &str, interface: u32) -> Vec<[u8; 6]> {
    let group = |line: &str| {
        let mut words = line.split_whitespace();
        words.next()?.parse().ok().filter(|index: &u32| *index == interface)?;
        let digits = words.nth(3).filter(|digits| digits.len() == 12)?;
        let [_, _, octets @ ..] = u64::from_str_radix(digits, 16).ok()?.to_be_bytes();
        Some(octets)
    };
    text.lines().filter_map(group).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_are_those_of_the_interface_in_their_order() {
        let text = "2    eth0            1     0     333300000001\n2    eth0            3     1     01005e000001\n\
            22   rw0             1     0     3333ff00002a\n3    ib0             1     0     00ffffffff12401bffff000000000000ffffffff\n\
            2    eth0            1     0     3333ff12345z\n2    eth0\n\n";
        assert_eq!(listed(text, 2), [[0x33, 0x33, 0, 0, 0, 1], [1, 0, 0x5E, 0, 0, 1]]);
        assert_eq!(listed(text, 22), [[0x33, 0x33, 0xFF, 0, 0, 0x2A]]);
        assert!(listed(text, 3).is_empty() && listed(text, 4).is_empty());
    }
}
