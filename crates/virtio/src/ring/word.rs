//! Words in memory that a device shares.

use std::sync::atomic::{AtomicU8, AtomicU16, AtomicU32, AtomicU64, Ordering};

/// A word that the device may write at any moment, little-endian there and a plain number here.
///
/// What is read of it is carried on by value: [`Self::read_once`] is the only way to look, so a second look at the same
/// thing stands out.
#[repr(transparent)]
pub(crate) struct Word<A>(A);

macro_rules! word {
    ($($atomic:ty, $plain:ty;)*) => {$(
        impl Word<$atomic> {
            /// What is there now; the device may have changed it when this returns.
            #[inline(always)]
            pub(crate) fn read_once(&self, order: Ordering) -> $plain {
                <$plain>::from_le(self.0.load(order))
            }

            /// Writes it for the device.
            #[inline(always)]
            pub(crate) fn write(&self, value: $plain, order: Ordering) {
                self.0.store(value.to_le(), order);
            }
        }
    )*};
}

word! {
    AtomicU8, u8;
    AtomicU16, u16;
    AtomicU32, u32;
    AtomicU64, u64;
}
