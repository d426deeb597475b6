//! `fwd` without arguments: ten seconds of forwarding between two software NICs.

use crate::args::ForwardArgs;
use crate::l2::L2;
use cli::args::RunOptions;
use cli::exit::Failure;
use cli::screen::Screen;
use nic::Address;
use std::time::Duration;

const PORTS: [&str; 2] = ["soft:left?wire=gen&flows=64", "soft:right?wire=gen&flows=64"];
const LENGTH: Duration = Duration::from_secs(10);

pub(crate) fn run(mut options: RunOptions) -> Result<(), Failure> {
    let length = *options.duration.get_or_insert(LENGTH);
    let mut screen = Screen::new(options.json, options.quiet);
    screen.say(&format!(
        "Demo, {} s: two software 82599 NICs, each fed with 60-byte frames by a\n\
         generator. What one receives, the ixgbe driver takes from its descriptor ring\n\
         and sends out of the other. Ctrl-C ends it. The same as:\n  \
         fwd l2 '{}' '{}'",
        length.as_secs_f64(),
        PORTS[0],
        PORTS[1],
    ));
    let ports: Result<Vec<Address>, _> = PORTS.iter().map(|port| port.parse()).collect();
    let (json, quiet) = (options.json, options.quiet);
    crate::run::run::<L2>(&ForwardArgs { ports: ports?, run: options, ..ForwardArgs::default() })?;
    if !quiet {
        Screen::new(json, quiet).say(
            "\nWith NICs of this host (82599, X520, X540, X550, or a virtual machine's virtio-net):\n  \
             fwd devices               which there are, and whether they can be used\n  \
             fwd doctor                whether this host is ready, and what mends it\n  \
             sudo fwd bind ADDRESS     give one to user space\n  \
             fwd l2 ADDRESS ADDRESS    forward between two\n\
             fwd --help has the rest.",
        );
    }
    Ok(())
}
