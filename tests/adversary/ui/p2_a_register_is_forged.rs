//! E0133: given
//! P2: a register that safe code may write, at the offset of one that tells the device an address.
use device::{MapPromise, ReadWrite, Reg};
use ixgbe::regs::Ixgbe;

fn main() {
    let forged: Reg<Ixgbe, ReadWrite> = Reg::declared(MapPromise::given(), "RDBAL", 0x1000);
    println!("{forged:?}");
}
