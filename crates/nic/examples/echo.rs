//! Receives frames, swaps their MAC addresses and sends them back.
//!
//! `cargo run -p ringway-nic --example echo -- [ADDRESS [FRAMES]]`

use mempool::{Batch, Pool, PoolConfig, frames_mut};
use nic::{Address, PortConfig, RxQueue as _, TxQueue as _, open};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut args = std::env::args().skip(1);
    let address: Address = args.next().as_deref().unwrap_or("soft:echo?wire=gen").parse()?;
    let frames: u64 = args.next().as_deref().unwrap_or("1000000").parse()?;

    let pool = Pool::new(&PoolConfig::default())?;
    let mut nic = open(&address, &PortConfig::default(), &pool)?;
    let (mut cache, mut batch) = (pool.cache(), Batch::with_capacity(32));
    while nic.tx[0].counters().packets < frames {
        // Only what came in just now: what the ring had no room for before is swapped already.
        for frame in frames_mut(nic.rx[0].recv(&mut cache, &mut batch)) {
            if let Some(macs) = frame[0].data_mut().first_chunk_mut::<12>() {
                macs.rotate_left(6);
            }
        }
        nic.tx[0].send(&mut cache, &mut batch);
    }
    println!("{address}: {} frames came in, {} went back", nic.rx[0].counters().packets, nic.tx[0].counters().packets);
    nic.close()?;
    Ok(())
}
