//! E0382: port
//! A port is gone once it is closed.
use nic::{Port as _, PortConfig, open};

fn main() {
    let pool = mempool::Pool::new(&mempool::PoolConfig::default()).unwrap();
    let nic = open(&"soft:a".parse().unwrap(), &PortConfig::default(), &pool).unwrap();
    nic.port.close().unwrap();
    nic.port.close().unwrap();
}
