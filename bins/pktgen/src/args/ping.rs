//! `pktgen ping`.

use cli::args::PortOptions;
use nic::Address;
use station::InterfaceAddress;
use std::net::IpAddr;
use std::time::Duration;

#[derive(clap::Args, Debug)]
pub(crate) struct PingArgs {
    /// Port that sends
    #[arg(value_name = "PORT")]
    pub(crate) port: Address,

    /// Address to ping
    #[arg(value_name = "ADDRESS")]
    pub(crate) address: IpAddr,

    /// Addresses of the port: with the prefix of its link (192.0.2.1/24). A link-local ADDRESS needs none
    #[arg(long, value_name = "IP/LEN", value_delimiter = ',')]
    pub(crate) source: Vec<InterfaceAddress>,

    /// Router to what is not on the link
    #[arg(long, value_name = "IP")]
    pub(crate) gateway: Option<IpAddr>,

    /// Pings to send
    #[arg(long, value_name = "N", default_value_t = 100, value_parser = clap::value_parser!(u64).range(1..=1 << 40))]
    pub(crate) count: u64,

    /// Time from one to the next (100us, 10ms, 1s)
    #[arg(long, value_name = "TIME", default_value = "10ms", value_parser = interval)]
    pub(crate) interval: Duration,

    /// How long a reply may take: one that is later is late, and its ping is lost
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = timeout)]
    pub(crate) timeout: Duration,

    /// Bytes of data in a ping
    #[arg(long, value_name = "BYTES", default_value_t = 56)]
    pub(crate) size: u16,

    /// Ping by the kernel too, after the port, and set both side by side; another address with --kernel=ADDRESS. Needs the right
    /// to raw sockets, or to ping sockets (net.ipv4.ping_group_range)
    #[arg(long, value_name = "ADDRESS", num_args = 0..=1, require_equals = true)]
    pub(crate) kernel: Option<Option<IpAddr>>,

    /// Ping by the kernel too, and by this interface of it
    #[arg(long, value_name = "NAME")]
    pub(crate) kernel_interface: Option<String>,

    /// Print one JSON object at the end, on standard output
    #[arg(long)]
    pub(crate) json: bool,

    /// Print only the table
    #[arg(long, short)]
    pub(crate) quiet: bool,

    #[command(flatten)]
    pub(crate) port_options: PortOptions,
}

impl PingArgs {
    /// Whom the kernel is to ping, if anybody.
    pub(crate) fn kernel(&self) -> Option<IpAddr> {
        let wanted = self.kernel.is_some() || self.kernel_interface.is_some();
        wanted.then(|| self.kernel.flatten().unwrap_or(self.address))
    }
}

fn interval(text: &str) -> Result<Duration, String> {
    match cli::args::time(text) {
        Some(time) if (Duration::from_micros(10)..=Duration::from_secs(3600)).contains(&time) => Ok(time),
        _ => Err("write a time from 10us to 3600s, such as 10ms".to_owned()),
    }
}

fn timeout(text: &str) -> Result<Duration, String> {
    match cli::args::time(text) {
        Some(time) if (Duration::from_millis(1)..=Duration::from_secs(60)).contains(&time) => Ok(time),
        _ => Err("write a time from 1ms to 60s, such as 500ms".to_owned()),
    }
}
