//! Looks the addresses of one file up in the table of another.
//!
//! `cargo run --release -p ringway-lpm --example lpm_lookup -- [--stats] [--accelerate] TABLE ADDRESSES`
//!
//! TABLE has a line `PREFIX NEXTHOP` per route, ADDRESSES an address per line, IPv4 and IPv6 as they come; empty lines
//! and lines that start with `#` are passed over. Prints `ADDRESS NEXTHOP`, or `ADDRESS -` without a route.

use std::fmt::Display;
use std::io::{BufWriter, ErrorKind, Write};
use std::net::IpAddr;
use std::process::ExitCode;
use std::str::FromStr;
use std::time::{Duration, Instant};

use lpm::{Config, Family, NextHop, Table, V4, V6};

const USAGE: &str = "usage: lpm_lookup [--stats] [--accelerate] TABLE ADDRESSES";

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("lpm_lookup: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> Result<(), String> {
    let (mut stats, mut config, mut files) = (false, Config::default(), Vec::new());
    for arg in std::env::args().skip(1) {
        match arg.as_str() {
            "--stats" => stats = true,
            "--accelerate" => config.accelerator = true,
            flag if flag.starts_with('-') => return Err(format!("unknown option {flag}; {USAGE}")),
            _ => files.push(arg),
        }
    }
    let [table, addresses] = files.as_slice() else { return Err(USAGE.into()) };
    let text = read(table)?;
    let (mut routes4, mut routes6) = (Vec::new(), Vec::new());
    let started = Instant::now();
    for (number, line) in lines(&text) {
        let at = |cause: &dyn Display| format!("{table}, line {number}: {cause}");
        let mut words = line.split_ascii_whitespace();
        let (Some(prefix), Some(hop), None) = (words.next(), words.next(), words.next()) else {
            return Err(at(&"write PREFIX NEXTHOP"));
        };
        let hop: u32 =
            hop.parse().map_err(|_| at(&format!("next hop {hop:?} is not a number; write 0 to {}", NextHop::MAX)))?;
        let hop = NextHop::new(hop).map_err(|error| at(&error))?;
        if prefix.contains(':') {
            routes6.push((prefix.parse().map_err(|error| at(&error))?, hop));
        } else {
            routes4.push((prefix.parse().map_err(|error| at(&error))?, hop));
        }
    }
    let parsed = started.elapsed();
    let (table4, load4) = load::<V4>(config, routes4)?;
    let (table6, load6) = load::<V6>(config, routes6)?;

    let text = read(addresses)?;
    let mut asked = Vec::new();
    for (number, line) in lines(&text) {
        asked.push(
            IpAddr::from_str(line).map_err(|_| format!("{addresses}, line {number}: {line:?} is not an address"))?,
        );
    }
    let only4: Vec<_> =
        asked.iter().filter_map(|addr| if let IpAddr::V4(addr) = addr { Some(*addr) } else { None }).collect();
    let only6: Vec<_> =
        asked.iter().filter_map(|addr| if let IpAddr::V6(addr) = addr { Some(*addr) } else { None }).collect();
    let (hops4, time4) = look_up(&table4, &only4);
    let (hops6, time6) = look_up(&table6, &only6);

    let (mut hops4, mut hops6) = (hops4.into_iter(), hops6.into_iter());
    let mut out = BufWriter::new(std::io::stdout().lock());
    for addr in asked {
        let hop = if addr.is_ipv4() { hops4.next() } else { hops6.next() };
        let written = match hop.flatten() {
            Some(hop) => writeln!(out, "{addr} {hop}"),
            None => writeln!(out, "{addr} -"),
        };
        match written {
            Err(error) if error.kind() == ErrorKind::BrokenPipe => return Ok(()),
            written => written.map_err(|error| format!("cannot write the answers: {error}"))?,
        }
    }
    out.flush().map_err(|error| format!("cannot write the answers: {error}"))?;
    if stats {
        eprintln!("parsed in {:.1} ms", parsed.as_secs_f64() * 1e3);
        report("IPv4", &table4, load4, only4.len(), time4);
        report("IPv6", &table6, load6, only6.len(), time6);
    }
    Ok(())
}

fn read(path: &str) -> Result<String, String> {
    std::fs::read_to_string(path).map_err(|error| format!("cannot read {path}: {error}; {USAGE}"))
}

fn lines(text: &str) -> impl Iterator<Item = (usize, &str)> {
    (1..).zip(text.lines().map(str::trim)).filter(|(_, line)| !line.is_empty() && !line.starts_with('#'))
}

fn load<F: Family>(config: Config, routes: Vec<(F::Prefix, NextHop)>) -> Result<(Table<F>, Duration), String> {
    let started = Instant::now();
    let table = Table::from_routes(config, routes).map_err(|error| error.to_string())?;
    Ok((table, started.elapsed()))
}

fn look_up<F: Family>(table: &Table<F>, addrs: &[F::Addr]) -> (Vec<Option<NextHop>>, Duration) {
    let mut hops = vec![None; addrs.len()];
    let started = Instant::now();
    table.reader().lookup_batch(addrs, &mut hops);
    (hops, started.elapsed())
}

fn report<F: Family>(name: &str, table: &Table<F>, load: Duration, lookups: usize, time: Duration) {
    if table.is_empty() && lookups == 0 {
        return;
    }
    let memory = table.memory_use();
    let rate = if time.is_zero() { 0.0 } else { lookups as f64 / time.as_secs_f64() / 1e6 };
    eprintln!(
        "{name}: {} routes loaded in {:.1} ms; lookups read {} bytes, {} held, {} for the routes; {lookups} lookups, {rate:.1} million per second",
        table.len(),
        load.as_secs_f64() * 1e3,
        memory.read,
        memory.held,
        memory.routes
    );
}
