//! E0133: received
//! Packets that nobody has written.
fn main() {
    let mut batch = mempool::Batch::with_capacity(4);
    batch.received(4);
    println!("{batch:?}");
}
