//! SIGBUS: an access to mapped memory that has no page. A peer may take away pages that it shares, or memory may run
//! out.

use rustix::io::Errno;
use std::ffi::c_int;
use std::io;
use std::sync::OnceLock;

/// A handler for `sigaction(2)` with `SA_SIGINFO`: it is given the signal's number, information on where it happened,
/// and the context.
pub type Handler = extern "C" fn(c_int, *mut libc::siginfo_t, *mut libc::c_void);

/// The action for SIGBUS before one of our handlers was installed. Each handler needs a value of its own.
#[derive(Debug)]
pub struct Previous(OnceLock<libc::sigaction>);

impl Previous {
    /// Creates an empty value, for a handler that is not installed yet.
    #[must_use]
    pub const fn none() -> Self {
        Self(OnceLock::new())
    }

    /// Installs `handler`, which passes on with [`Self::pass_on`] the signals that do not concern it.
    ///
    /// # Errors
    ///
    /// Those of `sigaction(2)`.
    ///
    /// # Safety
    ///
    /// `handler` does only what a signal handler may do (Linux signal-safety(7)). It is installed only once in a
    /// process.
    pub unsafe fn replace_by(&self, handler: Handler) -> rustix::io::Result<()> {
        // SAFETY: all zeros is a valid sigaction: the default handler, no flags, an empty mask.
        let mut before: libc::sigaction = unsafe { std::mem::zeroed() };
        // SAFETY: sigaction only writes what the signal does now into a live value.
        if unsafe { libc::sigaction(libc::SIGBUS, std::ptr::null(), &raw mut before) } != 0 {
            return Err(last_errno());
        }
        // Before the handler can run.
        self.0.get_or_init(|| before);
        let mut action = before;
        action.sa_sigaction = handler as usize;
        action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK;
        // SAFETY: a valid action, whose handler does only what one may, as the caller promises.
        let installed = unsafe { libc::sigaction(libc::SIGBUS, &raw const action, std::ptr::null_mut()) };
        if installed == 0 { Ok(()) } else { Err(last_errno()) }
    }

    /// Passes the signal to the handler that was there before, if that was installed with `SA_SIGINFO`; else lets the
    /// access end the process.
    ///
    /// # Safety
    ///
    /// It is called by the handler, with the handler's own arguments.
    pub unsafe fn pass_on(&self, signal: c_int, info: *mut libc::siginfo_t, context: *mut libc::c_void) {
        // Rust's own, which finds stack overflows, is of this kind. One without SA_SIGINFO is not called: the access would be
        // repeated for ever if it did nothing about it.
        if let Some(before) = self.0.get()
            && before.sa_flags & libc::SA_SIGINFO != 0
        {
            // SAFETY: a handler that was installed with SA_SIGINFO has this type.
            let handler = unsafe { std::mem::transmute::<usize, Handler>(before.sa_sigaction) };
            handler(signal, info, context);
            return;
        }
        // SAFETY: all zeros is a valid sigaction: the default handler, to which the access is repeated.
        let default: libc::sigaction = unsafe { std::mem::zeroed() };
        // SAFETY: the action is valid.
        unsafe { libc::sigaction(libc::SIGBUS, &raw const default, std::ptr::null_mut()) };
    }
}

fn last_errno() -> Errno {
    Errno::from_io_error(&io::Error::last_os_error()).unwrap_or(Errno::INVAL)
}

static BEFORE_WORDS: Previous = Previous::none();
static WORDS: OnceLock<String> = OnceLock::new();

/// Makes an unhandled SIGBUS print one line on standard error before it ends the process, in the form of an error. Call
/// it at the start of the program; `program` is its name.
pub fn say_so(program: &str) {
    let words = || {
        format!(
            "{program}: SIGBUS: mapped memory cannot be had: a process that shares it has taken pages away, or memory has run \
             out; share it with whom you trust, or have more memory or huge pages\n"
        )
    };
    let mut first = false;
    WORDS.get_or_init(|| {
        first = true;
        words()
    });
    if first {
        // SAFETY: the handler calls write(2) and hands on; it is installed here only, once.
        // Without it the process ends all the same, without a word.
        let _ = unsafe { BEFORE_WORDS.replace_by(say_words) };
    }
}

/// The handler. It only loads an atomic and calls write.
extern "C" fn say_words(signal: c_int, info: *mut libc::siginfo_t, context: *mut libc::c_void) {
    if let Some(words) = WORDS.get() {
        // SAFETY: the bytes of a string that is never dropped.
        unsafe { libc::write(libc::STDERR_FILENO, words.as_ptr().cast(), words.len()) };
    }
    // SAFETY: these are the handler's arguments.
    unsafe { BEFORE_WORDS.pass_on(signal, info, context) };
}
