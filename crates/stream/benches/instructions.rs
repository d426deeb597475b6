//! Counts instructions with callgrind: a line for each kind of stream, with what a frame costs over a bare copy of its bytes, and over a
//! constant one. `--check` has only those with a limit, and fails if one is above it. `instructions case CASE` is what it runs under valgrind
//! to get there; without `--bench`, as in tests, it does nothing.

use std::hint::black_box;
use std::process::{Command, ExitCode};
use stream::{Definition, Stream};

const BURST: usize = 32;
/// Bursts that are counted, and those before.
const COUNTED: usize = 400;
const WARM_UP: usize = 20;
/// Bytes left for a tag.
const TAIL: usize = 8;

/// A name, and the stream that it is.
const CASES: [(&str, &str); 12] = [
    ("constant", "frame = ['ethernet', 'ipv4', 'udp']"),
    ("20000 flows", "flows = 20000\nframe = ['ethernet', 'ipv4', 'udp']"),
    (
        "20000 flows, 4 fields",
        "flows = 20000\nframe = ['ethernet', { ipv4 = { source = { random = true, flow = true }, destination = { random = true, flow = \
         true } } }, { udp = { source = { random = true, flow = true }, destination = { random = true, flow = true } } }]",
    ),
    ("1 random", "frame = ['ethernet', { ipv4 = { source = { random = true } } }, 'udp']"),
    (
        "2 counted",
        "frame = ['ethernet', { ipv4 = { source = { from = '10.0.0.0', to = '10.255.255.255' }, \
         destination = { from = '11.0.0.0', to = '11.255.255.254' } } }, 'udp']",
    ),
    (
        "2 random",
        "frame = ['ethernet', { ipv4 = { source = { random = true }, destination = { random = true } } }, 'udp']",
    ),
    (
        "2 random, IPv6",
        "size = 76\nframe = ['ethernet', { ipv6 = { source = { random = true, from = '2001:2::', to = '2001:2::ffff:ffff' }, destination = \
         { random = true, from = '2001:2::', to = '2001:2::ffff:ffff' } } }, 'udp']",
    ),
    (
        "4 random",
        "frame = ['ethernet', { ipv4 = { source = { random = true }, destination = { random = true } } }, \
         { udp = { source = { random = true }, destination = { random = true } } }]",
    ),
    (
        "4 counted",
        "frame = ['ethernet', { ipv4 = { source = { from = '10.0.0.0', to = '10.255.255.255' }, destination = { from = '11.0.0.0', \
         to = '11.255.255.254' } } }, { udp = { source = { from = 1, to = 65535 }, destination = { from = 1, to = 65534 } } }]",
    ),
    (
        "6 random",
        "frame = ['ethernet', { vlan = { id = { random = true } } }, { ipv4 = { source = { random = true }, destination = { random = true }, \
         id = { random = true } } }, { udp = { source = { random = true }, destination = { random = true } } }]",
    ),
    (
        "2 random of odd ranges",
        "frame = ['ethernet', { ipv4 = { source = { random = true, to = '200.0.0.0' }, destination = { random = true, to = '100.0.0.0' } } }, 'udp']",
    ),
    ("imix, 20000 flows", "size = 'imix'\nflows = 20000\nframe = ['ethernet', 'ipv4', 'udp']"),
];

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let has = |name: &str| arguments.iter().any(|argument| argument == name);
    let done = match arguments.first().map(String::as_str) {
        Some("case") => run(&arguments[1..]),
        _ if has("--bench") => table(has("--check")),
        _ => Ok(()),
    };
    done.map_or_else(
        |error| {
            eprintln!("instructions: {error}");
            ExitCode::FAILURE
        },
        |()| ExitCode::SUCCESS,
    )
}

/// Instructions over a constant frame that a case may take: a table of headers 40; two fields with both checksums 75, and each further
/// one 25.
fn limit(name: &str) -> Option<f64> {
    Some(match name {
        "20000 flows" | "20000 flows, 4 fields" => 40.0,
        "1 random" | "2 counted" | "2 random" => 75.0,
        "4 random" | "4 counted" => 125.0,
        "6 random" => 175.0,
        _ => return None,
    })
}

fn table(only_limits: bool) -> Result<(), String> {
    let constant = instructions("constant", "fill")?;
    let mut above = Vec::new();
    for (name, _) in CASES.iter().filter(|(name, _)| !only_limits || limit(name).is_some()) {
        let [all, copy] = ["fill", "copy"].map(|what| instructions(name, what));
        let (all, copy) = (all?, copy?);
        let over = all - constant;
        let may = limit(name).map_or(String::new(), |limit| format!(" limit={limit:.0}"));
        println!(
            "{name}: burst={BURST} instructions_per_packet={all:.1} over_a_copy={:.1} over_a_constant_frame={over:.1}{may}",
            all - copy
        );
        above.extend(limit(name).filter(|limit| over > *limit).map(|limit| format!("{name}: {over:.1} of {limit:.0}")));
    }
    if above.is_empty() { Ok(()) } else { Err(format!("above their limits: {}", above.join(", "))) }
}

fn instructions(name: &str, what: &str) -> Result<f64, String> {
    let program = std::env::current_exe().map_err(|error| format!("cannot find this program: {error}"))?;
    let mut command = Command::new("valgrind");
    command.args(["--tool=callgrind", "--callgrind-out-file=/dev/null"]);
    command.args(["--collect-atstart=no", "--toggle-collect=*counted*"]);
    command.arg(program).args(["case", name, what]);
    let output = command
        .output()
        .map_err(|error| format!("cannot run valgrind: {error}; install the Debian package valgrind"))?;
    let said = String::from_utf8_lossy(&output.stderr);
    let count = said.lines().find_map(|line| line.split("Collected : ").nth(1));
    let count: f64 =
        count.and_then(|count| count.trim().parse().ok()).ok_or_else(|| format!("valgrind failed: {said}"))?;
    Ok(count / (COUNTED * BURST) as f64)
}

fn run(arguments: &[String]) -> Result<(), String> {
    let [name, what] = arguments else { return Err("usage: instructions case NAME fill|copy".into()) };
    let (_, text) = CASES.iter().find(|(case, _)| case == name).ok_or("there is no such case")?;
    let definition = Definition::parse(name, &format!("[[stream]]\n{text}\n")).map_err(|error| error.to_string())?;
    let mut stream = Stream::new(&definition[0], TAIL, 1).map_err(|error| error.to_string())?;
    let sizes: Vec<usize> = stream.sizes().take(BURST).map(usize::from).collect();
    let mut buffers = vec![[0xAA_u8; 2048]; BURST];
    let template = [0x55; 2048];
    for _ in 0..WARM_UP {
        fill(&mut stream, &mut buffers);
    }
    match what.as_str() {
        "fill" => (0..COUNTED).for_each(|_| counted_fill(&mut stream, black_box(&mut buffers))),
        _ => (0..COUNTED).for_each(|_| counted_copy(black_box(&sizes), black_box(&template), black_box(&mut buffers))),
    }
    Ok(())
}

/// As a sender does: buffers of the sizes that come next.
#[inline(always)]
fn fill(stream: &mut Stream, buffers: &mut [[u8; 2048]]) {
    if let Some(size) = stream.size() {
        stream.fill(buffers.iter_mut().map(|buffer| &mut buffer[..size.into()]));
    } else {
        let mut sizes = [0_u16; BURST];
        stream.next_sizes(&mut sizes);
        stream.fill(buffers.iter_mut().zip(sizes).map(|(buffer, size)| &mut buffer[..size.into()]));
    }
}

#[inline(never)]
fn counted_fill(stream: &mut Stream, buffers: &mut [[u8; 2048]]) {
    fill(stream, buffers);
}

#[inline(never)]
fn counted_copy(sizes: &[usize], template: &[u8; 2048], buffers: &mut [[u8; 2048]]) {
    for (buffer, size) in buffers.iter_mut().zip(sizes) {
        buffer[..*size].copy_from_slice(&template[..*size]);
    }
}
