//! What makes one family of devices differ from another.

use device::{ReadOnly, Reg, RegisterMap};

/// A family of devices: its register map, and what of it the parts here need.
pub trait Family: RegisterMap + Sized {
    /// A register that always has a bit that is clear, for noticing a device that is gone.
    const STATUS: Reg<Self, ReadOnly>;
}
