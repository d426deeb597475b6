//! |unsafe_code: no rules expected
//! P2: the rules by which the macro makes a register, called alone.
use device::{ReadWrite, Reg};
use ixgbe::regs::Ixgbe;

const FORGED: Reg<Ixgbe, ReadWrite> = device::registers!(@value RDBAL 0x1000);

fn main() {
    println!("{FORGED:?}");
}
