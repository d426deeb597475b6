//! E0133: given
//! P2: the same with an array.
use device::{MapPromise, ReadWrite, RegArray};
use ixgbe::regs::Ixgbe;

fn main() {
    let forged: RegArray<Ixgbe, ReadWrite> = RegArray::declared(MapPromise::given(), "RDBAL", 0x1000, 0x40, 64);
    println!("{forged:?}");
}
