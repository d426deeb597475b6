//! E0133|E0423|E0451|E0599|E0603|E0624: declared
//! P2: the same with an array.
use device::{ReadWrite, RegArray};
use ixgbe::regs::Ixgbe;

fn main() {
    let forged: RegArray<Ixgbe, ReadWrite> = RegArray::declared("RDBAL", 0x1000, 0x40, 64);
    println!("{forged:?}");
}
