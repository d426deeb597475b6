//! The rival: a process with DPDK's tables in it, which measures when told to. `benches/lpm/run` builds it and says in
//! `LPM_RIVAL` where it is.

use std::io::{BufRead as _, BufReader, Write as _};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use lpm::NextHop;

use super::{Bench, TRACE};

pub(crate) struct Rival {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

/// A way to look up in one of DPDK's tables.
pub(crate) struct RivalSubject {
    pub(crate) name: String,
    number: usize,
}

impl Rival {
    /// Starts it with these routes and traces; `None` if there is none.
    pub(crate) fn start<F: Bench>(
        routes: &[(F::Prefix, NextHop)],
        traces: &[(&'static str, Vec<F::Bits>)],
    ) -> Option<Self> {
        let program = std::env::var_os("LPM_RIVAL")?;
        let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("rival-{}", std::process::id()));
        let mut bytes = Vec::new();
        let family = if F::BITS == 32 { 4 } else { 6 };
        for number in [family, routes.len(), traces.len(), TRACE] {
            bytes.extend(u32::try_from(number).expect("small").to_ne_bytes());
        }
        for (prefix, hop) in routes {
            let (bits, len) = F::route(*prefix);
            bytes.extend(bits.to_be_bytes());
            bytes.extend(u32::from(len).to_ne_bytes());
            bytes.extend((hop.get() + 1).to_ne_bytes());
        }
        for addr in traces.iter().flat_map(|(_, addrs)| addrs) {
            bytes.extend(F::wide(*addr).to_be_bytes());
        }
        std::fs::write(&path, bytes).expect("room for a temporary file");
        // Its tables, and the routes it keeps beside them, are of fixed sizes for the most part.
        let megabytes = if routes.len() > 10_000 { "2560" } else { "1280" };
        let mut child = Command::new(program)
            .arg(&path)
            .arg(megabytes)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("the rival starts");
        let input = child.stdin.take().expect("piped");
        let output = BufReader::new(child.stdout.take().expect("piped"));
        let mut rival = Self { child, input, output };
        // Its first answer says that it has read the file.
        rival.ask("list");
        std::fs::remove_file(path).expect("it was written above");
        Some(rival)
    }

    /// The ways to look up that it has for this family.
    pub(crate) fn subjects(&mut self) -> Vec<RivalSubject> {
        let names = self.ask("list");
        let named = names.split(',').enumerate().filter(|(_, name)| !name.is_empty());
        named.map(|(number, name)| RivalSubject { name: name.to_owned(), number }).collect()
    }

    /// Fills the table of a subject, unless it is filled: the time it took in ns and the bytes it holds, or why it cannot be.
    pub(crate) fn load(&mut self, subject: &RivalSubject) -> Result<(f64, usize), String> {
        let answer = self.ask(&format!("load {}", subject.number));
        if let Some(reason) = answer.strip_prefix("no ") {
            return Err(reason.to_owned());
        }
        let (time, bytes) = answer.split_once(' ').expect("two numbers");
        Ok((number(time), number(bytes) as usize))
    }

    /// The hash over its answers for a trace, see [`super::hash`].
    pub(crate) fn check(&mut self, subject: &RivalSubject, trace: usize) -> u64 {
        self.ask(&format!("check {} {trace}", subject.number)).parse().expect("a number")
    }

    /// Looks a trace up: ns.
    pub(crate) fn time(&mut self, subject: &RivalSubject, trace: usize) -> f64 {
        number(&self.ask(&format!("time {} {trace}", subject.number)))
    }

    /// ns a change of its table takes on average.
    pub(crate) fn update(&mut self, subject: &RivalSubject) -> f64 {
        number(&self.ask(&format!("update {}", subject.number)))
    }

    fn ask(&mut self, command: &str) -> String {
        let mut answer = String::new();
        writeln!(self.input, "{command}").and_then(|()| self.input.flush()).expect("the rival listens");
        self.output.read_line(&mut answer).expect("the rival answers");
        assert!(answer.ends_with('\n'), "the rival is gone: {:?}", self.child.wait());
        answer.trim_end().to_owned()
    }
}

impl Drop for Rival {
    fn drop(&mut self) {
        // It reads nothing that could be lost.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn number(text: &str) -> f64 {
    text.parse().expect("a number")
}
