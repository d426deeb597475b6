//! E0382: packet
//! A packet is gone once it is in a batch.
fn main() {
    let pool = mempool::Pool::new(&mempool::PoolConfig::default()).unwrap();
    let packet = pool.alloc().unwrap();
    let mut batch = mempool::Batch::with_capacity(4);
    batch.push(packet).unwrap();
    println!("{:?}", packet.data());
}
