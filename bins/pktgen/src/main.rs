//! `pktgen`: sends numbered frames, and counts them elsewhere.

#![forbid(unsafe_code)]

mod args;
mod bench;
mod calibrate;
mod clock;
mod control;
mod files;
mod frames;
mod host;
mod lane;
mod machine;
mod pacing;
mod page;
mod ping;
mod receive;
mod report;
mod report_folders;
mod rfc2544;
mod run;
mod tail;
mod traffic;
mod transmit;
mod trial;

use args::{Args, Command};
use std::process::ExitCode;

fn main() -> ExitCode {
    cli::exit::run("pktgen", || {
        let args: Args = cli::exit::parse("pktgen")?;
        match args.command {
            Command::Tx(mut args) => {
                args.traffic.own = args.hosting.answering.own();
                run::transmit(&args)
            }
            Command::Rx(args) => run::receive(&args),
            Command::Run(mut args) => {
                args.run.traffic.own = args.run.hosting.answering.own();
                trial::run(&args)
            }
            Command::Calibrate(args) => calibrate::run(&args),
            Command::Ping(args) => ping::run(&args),
            Command::Rfc2544(args) => rfc2544::run(&args),
            Command::Bench(args) => bench::run(&args),
            Command::Report(args) => report_folders::run(&args),
        }
    })
}
