//! E0499|E0502|E0505: batch
//! So are its bytes.
use mempool::{Batch, Pool, PoolConfig};
use nic::{PortConfig, TxQueue as _, open};

fn main() {
    let pool = Pool::new(&PoolConfig::default()).unwrap();
    let mut nic = open(&"soft:a".parse().unwrap(), &PortConfig::default(), &pool).unwrap();
    let (mut cache, mut batch) = (pool.cache(), Batch::with_capacity(32));
    cache.alloc_batch(&mut batch, 32, 60);
    let bytes = batch[0].data_mut();
    nic.tx[0].send(&mut cache, &mut batch);
    bytes[0] = 1;
}
