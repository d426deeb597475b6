//! Bounded waits, for this family's registers.

use crate::regs::Igb;
pub(crate) use intel::{modify, read, wait};

/// [`intel::Timed`] for this family.
pub(crate) type Timed<D> = intel::Timed<Igb, D>;
