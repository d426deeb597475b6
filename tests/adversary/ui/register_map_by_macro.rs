//! E0133: given
//! Which writes are harmless is a promise, in the macro too.
device::registers! {
    /// Registers that all may write.
    pub map Mine for |_ids: PciIds| true;
    promise device::MapPromise::given();
    /// Where the ring lies.
    RDBAL @ 0x1000, rw, rdbal {};
}

fn main() {
    println!("{RDBAL:?}");
}
