//! Software NICs that no cable connects.

use super::figures::Figures;
use nic::Address;

/// What to do if the first direction by which no probe has come is between two of them.
pub(super) fn of_deaf(ports: &[Address], figures: &[Figures]) -> Option<String> {
    let deaf = figures.iter().find(|figures| !figures.is_answered())?;
    of_pair(ports, [deaf.from, deaf.to])
}

/// The same of two ports, if nothing is at either that frames could come back from.
fn of_pair(ports: &[Address], pair: [usize; 2]) -> Option<String> {
    let [from, to] = pair.map(|port| ports.get(port).and_then(soft));
    let ([from, from_wire], [to, to_wire]) = (from?, to?);
    let is_peer = |name: &str| ports.iter().filter_map(soft).any(|[_, wire]| wire.strip_prefix("peer:") == Some(name));
    let ends = |wire: &str| ["sink", "gen"].contains(&wire);
    let is_loose = from != to && ends(from_wire) && ends(to_wire) && !is_peer(from) && !is_peer(to);
    is_loose.then(|| format!("no cable connects soft:{from} and soft:{to}: name one, as soft:{from}?wire=peer:{to}"))
}

/// The name of a software NIC, and what it is plugged into.
fn soft(port: &Address) -> Option<[&str; 2]> {
    let Address::Soft(spec) = port else { return None };
    let (name, settings) = spec.split_once('?').unwrap_or((spec, ""));
    let wire = settings.split('&').find_map(|setting| setting.strip_prefix("wire="));
    Some([name, wire.unwrap_or("sink")])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_two_software_nics_at_nothing_are_loose() {
        for (ports, expected) in [
            (&["soft:a", "soft:b"][..], Some("soft:a and soft:b: name one, as soft:a?wire=peer:b")),
            (&["soft:a?id=x550&wire=sink", "soft:b?wire=gen&size=60"], Some("as soft:a?wire=peer:b")),
            (&["soft:a?wire=peer:b", "soft:b"], None),
            (&["soft:a", "soft:b?wire=peer:a"], None),
            // Crossed: others are at the other ends.
            (&["soft:a", "soft:b", "soft:c?wire=peer:a", "soft:d?wire=peer:b"], None),
            (&["soft:a?wire=tap:x", "soft:b?wire=tap:y"], None),
            (&["soft:a?wire=loop", "soft:b"], None),
            (&["soft:a?wire=pcap:in,out", "soft:b"], None),
            (&["soft:a", "vhost-user:/b"], None),
        ] {
            let ports: Vec<Address> = ports.iter().map(|port| port.parse().unwrap()).collect();
            let said = of_pair(&ports, [0, 1]);
            assert_eq!(said.is_some(), expected.is_some(), "{ports:?}: {said:?}");
            assert!(expected.is_none_or(|words| said.unwrap().ends_with(words)), "{ports:?}");
        }
        assert_eq!(of_pair(&["soft:a".parse().unwrap()], [0, 0]), None);
    }
}
