//! Receives frames, swaps their MAC addresses and sends them back. `cargo run -p nic --example echo -- [ADDRESS [FRAMES]]`

use mempool::{Batch, Pool, PoolConfig};
use nic::{Address, PortConfig, open};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut args = std::env::args().skip(1);
    let address: Address = args.next().as_deref().unwrap_or("soft:echo?wire=gen").parse()?;
    let frames: u64 = args.next().as_deref().unwrap_or("1000000").parse()?;

    let pool = Pool::new(&PoolConfig::default())?;
    let mut nic = open(&address, &PortConfig::default(), &pool)?;
    let (mut cache, mut batch) = (pool.cache(), Batch::with_capacity(32));
    while nic.tx[0].counters().packets < frames {
        // What the ring had no room for is still in front, swapped already.
        let (waiting, mut is_start) = (batch.len(), true);
        nic.rx[0].recv(&mut cache, &mut batch);
        for packet in batch.iter_mut().skip(waiting) {
            if let (true, Some(macs)) = (is_start, packet.data_mut().first_chunk_mut::<12>()) {
                macs.rotate_left(6);
            }
            is_start = !packet.continues();
        }
        nic.tx[0].send(&mut cache, &mut batch);
    }
    println!("{address}: {} frames came in, {} went back", nic.rx[0].counters().packets, nic.tx[0].counters().packets);
    Ok(nic.close()?)
}
