//! How a program ends: exit codes, and errors of one line.

use clap::error::ErrorKind;
use std::fmt::Display;
use std::io::{self, IsTerminal as _, Write as _};
use std::process::ExitCode;

/// Why a program did not do what it was asked to.
#[derive(Debug)]
pub enum Failure {
    /// The command line is wrong: exit code 2.
    Usage(String),
    /// It could not be done: exit code 1.
    Failed(anyhow::Error),
}

impl Failure {
    /// A wrong command line.
    pub fn usage(message: impl Display) -> Self {
        Self::Usage(message.to_string())
    }
}

impl<E: Into<anyhow::Error>> From<E> for Failure {
    fn from(error: E) -> Self {
        Self::Failed(error.into())
    }
}

/// Runs a program and turns its result into an exit code: 0, 1 for a failure, 2 for a wrong command line, each with one
/// line `program: object: cause; next step` on standard error. A reader of our output that has gone away is no failure.
pub fn run(program: &str, main: impl FnOnce() -> Result<(), Failure>) -> ExitCode {
    tracing_subscriber::fmt()
        .with_env_filter(
            tracing_subscriber::EnvFilter::builder()
                .with_default_directive(tracing::Level::WARN.into())
                .from_env_lossy(),
        )
        .with_writer(io::stderr)
        .with_ansi(io::stderr().is_terminal())
        .without_time()
        .with_target(false)
        .init();
    let (message, code) = match main() {
        Ok(()) => return ExitCode::SUCCESS,
        Err(Failure::Failed(error)) if is_broken_pipe(&error) => return ExitCode::SUCCESS,
        Err(Failure::Failed(error)) => (error.to_string(), 1),
        Err(Failure::Usage(message)) => (message, 2),
    };
    // Nobody is left to tell if this fails.
    let _ = writeln!(io::stderr(), "{program}: {}", one_line(&message));
    ExitCode::from(code)
}

/// Reads the command line. Help and version go to standard output and end the process with code 0.
///
/// # Errors
///
/// [`Failure::Usage`] with clap's message in one line.
pub fn parse<A: clap::Parser>(program: &str) -> Result<A, Failure> {
    A::try_parse().map_err(|error| match error.kind() {
        ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => error.exit(),
        ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => {
            Failure::Usage(format!("command: missing; see {program} --help"))
        }
        _ => {
            let text = error.render().to_string();
            // The first paragraph says what is wrong; usage and tips follow after blank lines.
            let first = text.split("\n\n").next().unwrap_or(&text);
            let first = first.strip_prefix("error: ").unwrap_or(first);
            Failure::Usage(format!("{}; see {program} --help", one_line(first)))
        }
    })
}

fn is_broken_pipe(error: &anyhow::Error) -> bool {
    error.downcast_ref::<io::Error>().is_some_and(|error| error.kind() == io::ErrorKind::BrokenPipe)
}

fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}
