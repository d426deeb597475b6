//! What lies in the buffers: hardware made of memory writes descriptors, and no frame.

use crate::FRAME;
use mempool::{Batch, Error, Pool, PoolConfig};

/// UDP over IPv4, port 9 to port 9, from 192.0.2.1 to 198.51.100.1, as a station receives it.
pub(crate) const TEMPLATE: [u8; FRAME as usize] = {
    let headers = [
        2, 0, 0, 0, 0, 0, 2, 0, 0, 0, 0, 9, 8, 0, // Ethernet
        0x45, 0, 0, 46, 0, 0, 0, 0, 64, 17, 0x8e, 0x89, 192, 0, 2, 1, 198, 51, 100, 1, // IPv4
        0, 9, 0, 9, 0, 26, 0x13, 0x72, // UDP, with the checksum over zeros
    ];
    let mut frame = [0; FRAME as usize];
    let mut at = 0;
    while at < headers.len() {
        frame[at] = headers[at];
        at += 1;
    }
    frame
};

/// A pool with that frame in each buffer, where a received frame begins.
pub(crate) fn pool(slots: usize) -> Result<Pool, Error> {
    let pool = Pool::new(&PoolConfig { slots, ..PoolConfig::default() })?;
    let mut all = Batch::with_capacity(slots);
    pool.cache().alloc_batch(&mut all, slots, FRAME.into());
    all.iter_mut().for_each(|packet| packet.data_mut().copy_from_slice(&TEMPLATE));
    Ok(pool)
}
