//! E0599|E0616|E0624: meta
//! The length of a packet is not for safe code to set.
fn main() {
    let pool = mempool::Pool::new(&mempool::PoolConfig::default()).unwrap();
    let mut packet = pool.alloc().unwrap();
    packet.meta = mempool::Meta::new(0, 65_535, packet.pool_id());
    println!("{packet:?}");
}
