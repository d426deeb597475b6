//! E0499: nic
//! Nor have queues.
use mempool::{Batch, Pool, PoolConfig};
use nic::{PortConfig, RxQueue as _, open};

fn main() {
    let pool = Pool::new(&PoolConfig::default()).unwrap();
    let mut nic = open(&"soft:a".parse().unwrap(), &PortConfig::default(), &pool).unwrap();
    let receive = || _ = nic.rx[0].recv(&mut pool.cache(), &mut Batch::with_capacity(32));
    let again = || _ = nic.rx[0].recv(&mut pool.cache(), &mut Batch::with_capacity(32));
    std::thread::scope(|scope| {
        scope.spawn(receive);
        scope.spawn(again);
    });
}
