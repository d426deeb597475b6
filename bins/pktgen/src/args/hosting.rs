//! Ports as hosts.

use cli::exit::Failure;
use cli::human::counted;
use station::InterfaceAddress;
use std::net::IpAddr;
use std::str::FromStr;

/// What ports answer.
#[derive(clap::Args, Clone, Debug, Default)]
pub(crate) struct Answering {
    /// Addresses of ports, for which they answer ARP, neighbour discovery and ping: of the first port, the second, ..., such as
    /// 192.0.2.1/24,198.51.100.1/24; one port has several with a plus (192.0.2.1/24+2001:db8::1/64), or none with a hyphen
    #[arg(long, value_name = "IP/LEN,...", value_delimiter = ',', allow_hyphen_values = true)]
    pub(crate) answer: Vec<Addresses>,
}

/// What ports answer, and whom they send to.
#[derive(clap::Args, Clone, Debug, Default)]
pub(crate) struct Hosting {
    #[command(flatten)]
    pub(crate) answering: Answering,

    /// Routers that ports send to: of the first, the second, ...; their MAC addresses are asked for before the start, in place of
    /// --dst-mac. A hyphen for none
    #[arg(long, value_name = "IP,...", value_delimiter = ',', allow_hyphen_values = true)]
    #[arg(requires = "answer", conflicts_with = "dst_mac")]
    pub(crate) gateway: Vec<Gateway>,
}

/// The addresses of one port; none for a hyphen.
#[derive(Clone, Debug)]
pub(crate) struct Addresses(Vec<InterfaceAddress>);

/// A router, or none.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Gateway(Option<IpAddr>);

impl Answering {
    /// Returns the addresses of a port.
    pub(crate) fn addresses(&self, port: usize) -> &[InterfaceAddress] {
        self.answer.get(port).map_or(&[], |addresses| &addresses.0)
    }

    /// Returns the addresses of all ports.
    pub(crate) fn own(&self) -> Vec<Vec<IpAddr>> {
        self.answer.iter().map(|Addresses(all)| all.iter().map(InterfaceAddress::ip).collect()).collect()
    }

    /// Refuses addresses for more ports than there are.
    pub(crate) fn check(&self, ports: usize) -> Result<(), Failure> {
        fits("--answer", self.answer.len(), ports)
    }
}

impl Hosting {
    /// Returns the router of a port.
    pub(crate) fn gateway(&self, port: usize) -> Option<IpAddr> {
        self.gateway.get(port)?.0
    }

    /// What it adds to the addresses of frames, in words; nothing without one.
    pub(crate) fn words(&self) -> String {
        let list = |words: Vec<String>| words.join(",");
        let or_none = |word: String| if word.is_empty() { "-".to_owned() } else { word };
        let of_port =
            |Addresses(all): &Addresses| or_none(all.iter().map(ToString::to_string).collect::<Vec<_>>().join("+"));
        let answer = list(self.answering.answer.iter().map(of_port).collect());
        let of_port = |Gateway(router): &Gateway| or_none(router.map_or_else(String::new, |router| router.to_string()));
        let gateways = list(self.gateway.iter().map(of_port).collect());
        let answer = if answer.is_empty() { answer } else { format!(", answering {answer}") };
        if gateways.is_empty() { answer } else { format!("{answer}, routers {gateways}") }
    }

    /// Refuses what does not fit so many ports.
    pub(crate) fn check(&self, ports: usize) -> Result<(), Failure> {
        self.answering.check(ports)?;
        fits("--gateway", self.gateway.len(), ports)?;
        for port in 0..ports {
            let addresses = self.answering.addresses(port);
            let has = |gateway: &IpAddr| addresses.iter().any(|own| own.ip().is_ipv4() == gateway.is_ipv4());
            if let Some(gateway) = self.gateway(port).filter(|gateway| !has(gateway)) {
                let family = if gateway.is_ipv4() { "IPv4" } else { "IPv6" };
                let problem = format!("port {} has no {family} address to ask from; give it one by --answer", port + 1);
                return Err(Failure::usage(format!("--gateway {gateway}: {problem}")));
            }
        }
        Ok(())
    }
}

/// Refuses more values than there are ports.
pub(super) fn fits(option: &str, given: usize, ports: usize) -> Result<(), Failure> {
    if given <= ports {
        return Ok(());
    }
    Err(Failure::usage(format!(
        "{option}: there are {given} of them, and {}; leave some out",
        counted(ports as u64, "port")
    )))
}

impl FromStr for Addresses {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text == "-" {
            return Ok(Self(Vec::new()));
        }
        let parse = |address: &str| address.parse().map_err(|error: station::Error| error.to_string());
        Ok(Self(text.split('+').map(parse).collect::<Result<_, _>>()?))
    }
}

impl FromStr for Gateway {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text == "-" {
            return Ok(Self(None));
        }
        let gateway = text.parse().ok().filter(|gateway| station::is_unicast(*gateway));
        gateway
            .map(|gateway| Self(Some(gateway)))
            .ok_or_else(|| "write the address of a router, such as 192.0.2.254".to_owned())
    }
}
