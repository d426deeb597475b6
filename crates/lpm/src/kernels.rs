//! The lookup loops by name, for tests that run each of them on one machine.
//!
//! ```
//! use lpm::kernels::{self, Choice};
//! for kernel in Choice::ALL {
//!     match kernels::choose(kernel) {
//!         Ok(()) => assert!(lpm::Ipv4Table::new()?.lookup([192, 0, 2, 1].into()).is_none()),
//!         Err(missing) => println!("skipped: kernel {} (this CPU has no {missing})", kernel.name()),
//!     }
//! }
//! kernels::choose_best();
//! assert!(Choice::ALL.contains(&kernels::current()));
//! # Ok::<(), lpm::Error>(())
//! ```

use std::cell::Cell;
use std::string::String;

use crate::lookup::Kernel;

/// A build of the lookup loops.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Choice {
    /// For any CPU.
    Portable,
    /// For x86-64 with POPCNT, BMI1 and BMI2.
    Popcnt,
    /// The same with AVX2.
    Avx2,
    /// The same with AVX-512 F, VL and VPOPCNTDQ.
    Avx512,
}

impl Choice {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Portable, Self::Popcnt, Self::Avx2, Self::Avx512];

    /// The name in lower case, as `avx512`.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Portable => "portable",
            Self::Popcnt => "popcnt",
            Self::Avx2 => "avx2",
            Self::Avx512 => "avx512",
        }
    }

    /// The instruction sets it takes beyond those of the build before.
    pub(crate) fn needs(self) -> &'static str {
        match self {
            Self::Portable => "",
            Self::Popcnt => "popcnt, bmi1 or bmi2",
            Self::Avx2 => "avx2",
            Self::Avx512 => "avx512f, avx512vl or avx512vpopcntdq",
        }
    }
}

std::thread_local! {
    static CHOSEN: Cell<Option<Kernel>> = const { Cell::new(None) };
}

/// Lets tables that this thread makes from now on use these loops, wherever they move.
///
/// # Errors
/// The instruction sets that this CPU has not, with commas between them. Nothing is changed then.
pub fn choose(choice: Choice) -> Result<(), String> {
    let kernel = Kernel::named(choice)?;
    CHOSEN.set(Some(kernel));
    Ok(())
}

/// Lets tables that this thread makes from now on use the best loops the CPU can run, as without a choice.
pub fn choose_best() {
    CHOSEN.set(None);
}

/// The loops that tables use which this thread makes from now on.
#[must_use]
pub fn current() -> Choice {
    Kernel::detect().choice()
}

pub(crate) fn chosen() -> Option<Kernel> {
    CHOSEN.get()
}
