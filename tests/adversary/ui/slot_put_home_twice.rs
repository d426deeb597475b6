//! E0133: put
//! A slot that a packet still has.
use mempool::{Pool, PoolConfig};

fn main() {
    let pool = Pool::new(&PoolConfig::default()).unwrap();
    let packet = pool.alloc().unwrap();
    pool.cache().put(&[packet.slot()]);
    println!("{packet:?}");
}
