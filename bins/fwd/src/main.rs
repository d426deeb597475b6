//! `fwd`: forwards packets between ports of user-space NIC drivers.

#![forbid(unsafe_code)]

mod args;
mod demo;
mod devices;
mod doctor;
mod json;
mod l2;
mod l3;
mod macswap;
mod output;
mod plan;
mod registers;
mod run;
mod rxonly;
mod selftest;
mod summary;
mod worker;
mod workers;

use args::{Args, Command};
use cli::exit::{self, Failure};
use std::process::ExitCode;

fn main() -> ExitCode {
    exit::run("fwd", || {
        let args: Args = exit::parse("fwd")?;
        match args.command {
            None => demo::run(args.demo),
            Some(Command::L2(args)) => run::run::<l2::L2>(&args),
            Some(Command::L3(args)) => l3::run(&args),
            Some(Command::Macswap(args)) => run::run::<macswap::Macswap>(&args),
            Some(Command::Rxonly(args)) => run::run::<rxonly::Rxonly>(&args),
            Some(Command::Doctor(args)) => doctor::run(&args),
            Some(Command::Devices(args)) => devices::list(&args),
            Some(Command::Selftest(args)) => selftest::run(&args),
            Some(Command::Registers(args)) => registers::print(&args),
            Some(Command::Bind { addresses, driver, force }) => devices::bind(&addresses, &driver, force),
            Some(Command::Unbind { addresses, force }) => devices::unbind(&addresses, force),
        }
    })
}

/// A wrong command line, from the modules.
fn usage<T>(message: impl std::fmt::Display) -> Result<T, Failure> {
    Err(Failure::usage(message))
}
