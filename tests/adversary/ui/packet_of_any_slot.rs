//! E0133: from_slot
//! Two packets of one slot.
use mempool::{Packet, Pool, PoolConfig};

fn main() {
    let packet = Pool::new(&PoolConfig::default()).unwrap().alloc().unwrap();
    let twin = Packet::from_slot(packet.slot(), packet.meta());
    println!("{twin:?}");
}
