//! The end of a program: exit codes, and errors of one line.

use crate::output::{Log, offer};
use clap::error::ErrorKind;
use std::fmt::Display;
use std::io::{self, IsTerminal as _};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

/// The error with which a program ends.
#[derive(Debug)]
pub enum Failure {
    /// The command line is wrong: exit code 2.
    Usage(String),
    /// The operation failed: exit code 1.
    Failed(anyhow::Error),
    /// The operation succeeded, but not as the command line expects: exit code 3.
    Unmet(String),
}

impl Failure {
    /// Creates the error for a wrong command line.
    pub fn usage(message: impl Display) -> Self {
        Self::Usage(message.to_string())
    }

    /// Returns the message in one line: object, cause and next step.
    #[must_use]
    pub fn message(&self) -> String {
        one_line(&match self {
            Self::Usage(message) | Self::Unmet(message) => message.clone(),
            Self::Failed(error) => with_limit(error),
        })
    }
}

impl<E: Into<anyhow::Error>> From<E> for Failure {
    fn from(error: E) -> Self {
        Self::Failed(error.into())
    }
}

/// Runs a program and returns its exit code: 0, 1 for a failure, 2 for a wrong command line, 3 for an expectation that
/// was not met. In the latter three cases it prints one line `program: object: cause; next step` on standard error.
pub fn run(program: &str, main: impl FnOnce() -> Result<(), Failure>) -> ExitCode {
    tracing_subscriber::fmt()
        .with_env_filter(
            tracing_subscriber::EnvFilter::builder()
                .with_default_directive(tracing::Level::WARN.into())
                .from_env_lossy(),
        )
        .with_writer(|| Log)
        .with_ansi(io::stderr().is_terminal())
        .without_time()
        .with_target(false)
        // Standard error may be closed: then nobody is told, and nothing else happens.
        .log_internal_errors(false)
        .init();
    device::sigbus::say_so(program);
    // A file that may not grow (`ulimit -f`) is an error of the write, and no end of the program.
    let _ = signal_hook::flag::register(signal_hook::consts::SIGXFSZ, Arc::default());
    let Err(failure) = main() else { return ExitCode::SUCCESS };
    // Nobody is left to tell if this fails.
    let _ = offer(io::stderr(), &format!("{program}: {}\n", failure.message()), Duration::from_secs(1));
    ExitCode::from(match failure {
        Failure::Failed(_) => 1,
        Failure::Usage(_) => 2,
        Failure::Unmet(_) => 3,
    })
}

/// The words of an error. One that the system gave without an object is, in these programs, about the files that a process may
/// have open.
fn with_limit(error: &anyhow::Error) -> String {
    match error.downcast_ref::<io::Error>().and_then(io::Error::raw_os_error) {
        Some(errno) if errno == rustix::io::Errno::MFILE.raw_os_error() => {
            format!("this process: {error}; raise the limit, for example: ulimit -n 1024")
        }
        _ => error.to_string(),
    }
}

/// Parses the command line. Help and version are printed on standard output, and the process ends with code 0.
///
/// # Errors
///
/// [`Failure::Usage`] with clap's message and tips in one line, and which help to read.
pub fn parse<A: clap::Parser>(program: &str) -> Result<A, Failure> {
    let matches = numbers_may_be_negative(A::command()).try_get_matches();
    let parsed = matches.and_then(|mut matches| A::from_arg_matches_mut(&mut matches));
    parsed.map_err(|error| match error.kind() {
        ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => match error.print() {
            Err(error) if error.kind() != io::ErrorKind::BrokenPipe => crate::output::lost(error),
            _ => std::process::exit(0),
        },
        kind => {
            let arguments: Vec<String> = std::env::args_os().map(|text| text.to_string_lossy().into_owned()).collect();
            let page = help_page(program, &A::command(), &arguments);
            if kind == ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand {
                return Failure::Usage(format!("command: missing; see {page}"));
            }
            Failure::Usage(format!("{}; see {page}", essence(&error.render().to_string())))
        }
    })
}

/// Takes `-1` after an option for its value, which the option refuses with its range, and not for an unknown option.
fn numbers_may_be_negative(command: clap::Command) -> clap::Command {
    let takes_value = |argument: &clap::Arg| argument.get_long().is_some() && argument.get_action().takes_values();
    command
        .mut_args(|argument| if takes_value(&argument) { argument.allow_negative_numbers(true) } else { argument })
        .mut_subcommands(numbers_may_be_negative)
}

/// What is wrong, and clap's tips; the usage and the advice to read help are left out.
fn essence(message: &str) -> String {
    let mut paragraphs = message.split("\n\n").map(one_line);
    let first = paragraphs.next().unwrap_or_default();
    let first = first.strip_prefix("error: ").unwrap_or(&first).to_owned();
    let tips =
        paragraphs.filter_map(|paragraph| paragraph.strip_prefix("tip: ").map(|tip| tip.replace(" tip: ", "; ")));
    std::iter::once(first).chain(tips).collect::<Vec<_>>().join("; ")
}

/// The page about what was typed: of the subcommand if one was named, else of the program.
fn help_page(program: &str, command: &clap::Command, arguments: &[String]) -> String {
    let known = |word: &&String| command.get_subcommands().any(|sub| sub.get_name() == word.as_str());
    match arguments.iter().skip(1).find(known) {
        Some(subcommand) => format!("{program} {subcommand} --help"),
        None => format!("{program} --help"),
    }
}

fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::{Arg, Command};

    #[test]
    fn tips_stay_and_usage_goes() {
        let command = || Command::new("p").subcommand(Command::new("list").arg(Arg::new("all").long("all")));
        let message = |line: &[&str]| {
            let error = command().try_get_matches_from(line).unwrap_err();
            let line: Vec<String> = line.iter().map(|word| (*word).to_owned()).collect();
            (essence(&error.render().to_string()), help_page("p", &command(), &line))
        };
        let (text, page) = message(&["p", "list", "--al"]);
        assert!(text.contains("'--al'") && text.contains("'--all'") && !text.contains("Usage"), "{text}");
        assert_eq!(page, "p list --help");
        let (text, page) = message(&["p", "lst"]);
        assert!(text.contains("'lst'") && text.contains("'list'") && !text.contains("try '--help'"), "{text}");
        assert_eq!(page, "p --help");
    }
}
