//! |unsafe_code: no rules expected|unsafe
//! `unsafe` in a macro of ours must not stand for the word of a crate that forbids unsafe code.
device::registers! {
    /// Registers that all may write.
    pub unsafe map Mine for |_ids: PciIds| true;
    /// Where the ring lies.
    RDBAL @ 0x1000, rw, rdbal {};
}

fn main() {
    println!("{RDBAL:?}");
}
