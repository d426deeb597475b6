//! How a packet generator is steered while it runs, without I/O: requests as lines of JSON ([`Request`]), scripts of such lines
//! ([`Step`]), and connections whose buffers are bounded ([`Session`]).
//!
//! ```
//! use control::{Request, Step};
//!
//! assert_eq!(Request::parse(r#"{"do": "stop"}"#)?, Request::Stop {});
//! assert!(Request::parse("stop").is_err());
//! let script = Step::script("{\"do\": \"stop\"}\n\n# Later.\n{\"sleep\": 0.5}\n")?;
//! assert_eq!(script.len(), 2);
//! # Ok::<(), control::Error>(())
//! ```

#![forbid(unsafe_code)]

mod error;
mod lines;
mod request;
mod session;

pub use error::Error;
pub use lines::{LONGEST_LINE, Lines};
pub use request::{Expect, Request, Set, Step};
pub use session::{Answer, ROOM, Session, Subscription, done, refused};

/// The program of the README is tested with the examples.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
