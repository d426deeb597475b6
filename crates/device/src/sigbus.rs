//! SIGBUS: memory that is mapped and cannot be had. A peer may take away pages that it shares, or memory runs out.

use rustix::io::Errno;
use std::ffi::c_int;
use std::io;
use std::sync::OnceLock;

/// A handler as `sigaction(2)` has it with `SA_SIGINFO`: number of the signal, where it happened, context.
pub type Handler = extern "C" fn(c_int, *mut libc::siginfo_t, *mut libc::c_void);

/// What handled SIGBUS before one of our handlers: a value for each of them.
#[derive(Debug)]
pub struct Previous(OnceLock<libc::sigaction>);

impl Previous {
    /// Nothing yet.
    #[must_use]
    pub const fn none() -> Self {
        Self(OnceLock::new())
    }

    /// Installs `handler`, which hands on with [`Self::pass_on`] what is not its own.
    ///
    /// # Errors
    ///
    /// What `sigaction(2)` fails with.
    ///
    /// # Safety
    ///
    /// `handler` does only what a signal handler may do (Linux signal-safety(7)). It is installed once in a process.
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

    /// Hands the signal to the handler that was there before, or lets the access end the process.
    ///
    /// # Safety
    ///
    /// Called by the handler, with its own arguments.
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

/// Has a SIGBUS that nobody handles say one line on standard error before it ends the process, as an error would. For the
/// start of `program`.
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
