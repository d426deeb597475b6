//! `fwd macswap`: frames go back to where they came from.

use crate::worker::Mode;
use mempool::Batch;

#[derive(Debug, Default)]
pub(crate) struct Macswap;

impl Mode for Macswap {
    const NAME: &'static str = "macswap";

    fn output(port: usize) -> Option<usize> {
        Some(port)
    }

    #[inline(always)]
    fn rewrite(&mut self, batch: &mut Batch) {
        let mut is_start = true;
        for packet in batch.iter_mut() {
            let continues = packet.continues();
            if is_start {
                swap(packet.data_mut());
            }
            is_start = !continues;
        }
    }
}

/// Exchanges destination (bytes 0 to 5) and source (6 to 11). Frames without both pass unchanged.
#[inline(always)]
fn swap(frame: &mut [u8]) {
    if let Some(addresses) = frame.first_chunk_mut::<12>() {
        let (destination, source) = addresses.split_at_mut(6);
        destination.swap_with_slice(source);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use mempool::{Pool, PoolConfig};

    #[test]
    fn only_the_first_segment_of_a_frame_has_addresses() {
        let pool = Pool::new(&PoolConfig { slots: 64, ..PoolConfig::default() }).unwrap();
        let (mut cache, mut batch) = (pool.cache(), Batch::with_capacity(4));
        let frame: Vec<u8> = (0..20).collect();
        for (continues, len) in [(true, 20), (false, 20), (false, 11), (false, 12)] {
            let mut packet = cache.alloc().unwrap();
            packet.append(len).unwrap().copy_from_slice(&frame[..len]);
            packet.set_continues(continues);
            batch.push(packet).unwrap();
        }
        Macswap.rewrite(&mut batch);
        let swapped = [6, 7, 8, 9, 10, 11, 0, 1, 2, 3, 4, 5, 12, 13, 14, 15, 16, 17, 18, 19];
        assert_eq!(batch[0].data(), swapped);
        assert_eq!(batch[1].data(), frame, "the second segment is not a header");
        assert_eq!(batch[2].data(), &frame[..11], "too short to have both");
        assert_eq!(batch[3].data(), &swapped[..12]);
    }
}
