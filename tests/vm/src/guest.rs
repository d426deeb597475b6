//! The guest's shell behind a port of virtio-serial: scripts go in, output and exit status come back.
//!
//! Not a UART: QEMU's loses interrupts on a busy host, and the guest then waits for what is already there.

use anyhow::{Context as _, Result, bail};
use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{ChildStdin, ChildStdout};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

/// What a script printed and how it ended.
#[derive(Debug)]
pub(crate) struct Output {
    pub(crate) status: i32,
    /// Standard output and standard error.
    pub(crate) text: String,
}

/// The shell on the other side.
#[derive(Debug)]
pub(crate) struct Shell {
    input: ChildStdin,
    lines: Receiver<String>,
    scripts: u32,
}

impl Shell {
    pub(crate) fn new(input: ChildStdin, output: ChildStdout) -> Self {
        let (sender, lines) = channel();
        std::thread::spawn(move || {
            // A port may carry anything.
            for line in BufReader::new(output).split(b'\n').map_while(Result::ok) {
                let line = String::from_utf8_lossy(&line).trim_end_matches('\r').to_owned();
                if sender.send(line).is_err() {
                    return;
                }
            }
        });
        Self { input, lines, scripts: 0 }
    }

    /// Waits until the guest is up.
    pub(crate) fn ready(&mut self, patience: Duration) -> Result<()> {
        self.until("@@ready@@", patience).map(drop)
    }

    /// Runs `script` and waits for its end.
    pub(crate) fn run(&mut self, script: &str, patience: Duration) -> Result<Output> {
        self.scripts += 1;
        let mark = format!("{}@@", self.scripts);
        self.input.write_all(format!("{}\n@@run {mark}\n", script.trim_end()).as_bytes())?;
        self.input.flush()?;
        let (mut text, end) = self.until(&mark, patience).with_context(|| format!("script:\n{script}"))?;
        let status = end.strip_prefix("@@exit ").and_then(|rest| rest.split(' ').next()?.parse().ok());
        let Some(status) = status else { bail!("the guest answered {end:?}") };
        // The empty line before the mark.
        text.truncate(text.trim_end_matches('\n').len());
        Ok(Output { status, text })
    }

    /// Lines before the one that ends in `mark` after '@@', and that line.
    fn until(&mut self, mark: &str, patience: Duration) -> Result<(String, String)> {
        let deadline = Instant::now() + patience;
        let mut text = String::new();
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            match self.lines.recv_timeout(left) {
                Ok(line) if line.starts_with("@@") && line.ends_with(mark) => return Ok((text, line)),
                Ok(line) => {
                    text.push_str(&line);
                    text.push('\n');
                }
                Err(RecvTimeoutError::Timeout) => {
                    bail!("no answer from the guest within {} s; so far:\n{text}", patience.as_secs())
                }
                Err(RecvTimeoutError::Disconnected) => bail!("the guest is gone; so far:\n{text}"),
            }
        }
    }
}
