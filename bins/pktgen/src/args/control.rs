//! What steers a run.

use super::RunArgs;
use std::convert::Infallible;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::str::FromStr;

/// `pktgen run`: what it does, and what steers it.
#[derive(clap::Args, Debug)]
pub(crate) struct SteeredArgs {
    #[command(flatten)]
    pub(crate) run: RunArgs,

    #[command(flatten)]
    pub(crate) control: ControlArgs,
}

/// What steers a run while it runs.
#[derive(clap::Args, Clone, Debug, Default)]
pub(crate) struct ControlArgs {
    /// Listen for requests, a JSON object a line: at a Unix socket (/run/pktgen.sock; only its owner may connect), or on loopback
    /// (127.0.0.1:9000; any user of this host may). Without --duration or --count the run then ends by the request quit
    #[arg(long, value_name = "ADDR", value_parser = address)]
    pub(crate) control: Option<ControlAddress>,

    /// Do what the lines of a file say, once frames count: requests as for --control, {"sleep": SECONDS} and {"expect": ...}. Each get prints
    /// a line of JSON. The run ends with its last line; the exit code is 3 if an expectation is not met
    #[arg(long, value_name = "FILE")]
    pub(crate) script: Option<PathBuf>,

    /// Open a live screen where standard output is a terminal: ports, streams, loss and latency, and keys: s starts and stops, + and -
    /// change rates by 10 %, c clears, q quits. Without --duration or --count the run then ends by q, or when the terminal goes away
    #[arg(long, conflicts_with_all = ["json", "quiet"])]
    pub(crate) live: bool,

    /// Send nothing that counts until the request start
    #[arg(long)]
    pub(crate) stopped: bool,
}

/// Where requests come from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ControlAddress {
    Unix(PathBuf),
    Tcp(SocketAddr),
}

fn address(text: &str) -> Result<ControlAddress, String> {
    let is_path = text.contains('/');
    let port =
        text.rsplit_once(':').filter(|(_, port)| !port.is_empty() && port.bytes().all(|byte| byte.is_ascii_digit()));
    let Some((host, port)) = port.filter(|_| !is_path) else {
        return match text {
            "" => Err("write a path, or an address such as 127.0.0.1:9000".to_owned()),
            path => PathBuf::from_str(path).map(ControlAddress::Unix).map_err(|never: Infallible| match never {}),
        };
    };
    let host = if host == "localhost" { "127.0.0.1" } else { host };
    match format!("{host}:{port}").parse::<SocketAddr>() {
        Ok(address) if address.ip().is_loopback() => Ok(ControlAddress::Tcp(address)),
        Ok(_) => {
            Err("only loopback addresses are listened at, such as 127.0.0.1:9000: whoever connects steers the run"
                .to_owned())
        }
        Err(_) => Err("write an address such as 127.0.0.1:9000, or a path with a slash".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_paths_or_loopback() {
        for path in ["/run/pktgen.sock", "./a:1", "a.sock", "a:b"] {
            assert_eq!(address(path), Ok(ControlAddress::Unix(path.into())));
        }
        for (text, expected) in
            [("127.0.0.1:9000", "127.0.0.1:9000"), ("[::1]:1", "[::1]:1"), ("localhost:0", "127.0.0.1:0")]
        {
            assert_eq!(address(text), Ok(ControlAddress::Tcp(expected.parse().unwrap())));
        }
        for text in ["", "192.0.2.1:9000", "0.0.0.0:9000", "[::]:9000", "127.0.0.1:99999", ":9000", "host:80"] {
            assert!(address(text).is_err(), "{text}");
        }
    }
}
