//! A function of one's own gets whole bursts of frames that mean something, and what it writes stays.

use benches::{FRAME, Rig, VirtioRig, Work};
use mempool::Packet;

/// Calls a rig's `forward_with`, and its `burst` of [`Work::Forward`].
fn check(burst: usize, mut forward: impl FnMut(&mut dyn FnMut(&mut [Packet])) -> usize) {
    let (mut packets, mut marked) = (0, 0);
    for _ in 0..2000 {
        let sent = forward(&mut |batch: &mut [Packet]| {
            assert_eq!(batch.len(), burst);
            for packet in batch {
                let frame = packet.data_mut();
                assert_eq!((frame.len(), &frame[12..15]), (usize::from(FRAME), &[8, 0, 0x45][..]));
                let header: u32 =
                    frame[14..34].chunks(2).map(|pair| u32::from(pair[0]) << 8 | u32::from(pair[1])).sum();
                assert_eq!((header & 0xffff) + (header >> 16), 0xffff, "the header's checksum is right");
                marked += usize::from(frame[0] == 0xAA);
                frame[0] = 0xAA;
                packets += 1;
            }
        });
        assert_eq!(sent, burst);
    }
    assert_eq!(packets, 2000 * burst);
    assert!(marked > 0 && marked < packets, "buffers come again, and each was new once");
}

#[test]
fn a_function_sees_each_packet_of_a_burst() {
    for burst in [1, 32, 128] {
        let mut rig = Rig::new(burst, 512);
        check(burst, |function| rig.forward_with(|batch| function(batch)));
        assert_eq!(rig.burst(Work::Forward), burst);
        for packed in [false, true] {
            let mut rig = VirtioRig::new(packed, burst, 512);
            check(burst, |function| rig.forward_with(|batch| function(batch)));
            assert_eq!(rig.burst(Work::Forward), burst);
        }
    }
}
