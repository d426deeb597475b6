//! E0277|E0308: Dma
//! Where a ring lies is not for safe code to say.
use device::{Device, Regs};
use ixgbe::regs::{Ixgbe, RDBAL};

fn point_anywhere<D: Device>(regs: &Regs<Ixgbe, D>) {
    regs.write(RDBAL.at(0), 0xdead_0000);
}

fn main() {
    println!("{}", std::any::type_name_of_val(&point_anywhere::<softnic::StrictNic>));
}
