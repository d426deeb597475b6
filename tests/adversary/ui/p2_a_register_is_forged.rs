//! E0133|E0423|E0451|E0599|E0603|E0624: declared
//! P2: a register that safe code may write, at the offset of one that tells the device an address.
use device::{ReadWrite, Reg};
use ixgbe::regs::Ixgbe;

fn main() {
    let forged: Reg<Ixgbe, ReadWrite> = Reg::declared("RDBAL", 0x1000);
    println!("{forged:?}");
}
