//! E0133: given
//! P2: the same with an array, and a word that nobody gave.
use device::{MapPromise, ReadWrite, RegArray};
use ixgbe::regs::Ixgbe;

const FORGED: RegArray<Ixgbe, ReadWrite> = device::registers!(@value MapPromise::given(); RDBAL 0x1000, 0x40, 64);

fn main() {
    println!("{FORGED:?}");
}
