//! The wires that the port of a soft NIC can be plugged into.

mod fifo;
mod generator;
mod impaired;
mod looped;
mod memory;
mod pcap;
mod peer;
mod sink;
mod tap;

use crate::WireError;

pub(crate) use fifo::FrameFifo;
pub(crate) use generator::{Generator, GeneratorSetup, MOST_RATE, SIZES as GENERATOR_SIZES};
pub use impaired::Impairments;
pub(crate) use impaired::{ImpairedWire, KNOBS, Knobs, Written};
pub(crate) use looped::LoopWire;
pub(crate) use memory::{MemoryPort, MemoryWire};
pub use pcap::replay;
pub(crate) use pcap::{Claim, PcapWire, check as check_captures, output_file};
pub(crate) use peer::{Cable, PeerWire};
pub(crate) use sink::SinkWire;
pub(crate) use tap::{TapWire, check_name as check_tap_name};

/// Counters of frames that crossed the wire, in addition to the device's own statistics. Bytes are without CRC.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct WireCounters {
    /// Frames the device took from the wire: `delivered + dropped`.
    pub offered: u64,
    /// Bytes of these frames.
    pub offered_bytes: u64,
    /// Frames written to receive descriptors.
    pub delivered: u64,
    /// Bytes of these frames on the wire.
    pub delivered_bytes: u64,
    /// Frames discarded by filters, by size limits, or because a queue had no descriptors (DROP_EN).
    pub dropped: u64,
    /// Frames that never reached the device because its packet buffer was full (MPC). Not in `offered`.
    pub missed: u64,
    /// Frames that the wire took from the device. For a capture, those in the file and those of [`WireError::Lost`].
    pub sent: u64,
    /// Bytes of these frames.
    pub sent_bytes: u64,
    /// Frames for which there was no receiver, and those that were still to be sent when their queue was stopped while
    /// the wire had no carrier. Not in `sent`.
    pub lost: u64,
    /// Frames the device could not send: bad descriptors, offloads that cannot be done, or (of a virtual function that is not
    /// trusted) another source address than its own.
    pub discarded: u64,
    /// Steps in which frames waited since the other end had asked for a pause (PAUSE).
    pub held_back: u64,
}

/// What a wire did with a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sent {
    Yes,
    /// No room now: try again.
    Full,
    /// Gone; nobody was there.
    Lost,
    /// Not a frame (never said by a wire).
    Bad,
}

/// One end of a cable. Frames are without CRC.
pub(crate) trait Wire: Send {
    /// Once a step, before anything else: takes in what has arrived, into at most `room` bytes of packet buffer.
    /// When not `receiving`, a wire that cannot wait loses its frames.
    fn poll(&mut self, receiving: bool, room: usize);

    /// The frame at the head of the packet buffer.
    fn front(&mut self) -> Option<&[u8]>;

    /// Removes it.
    fn pop(&mut self);

    /// Bytes in the packet buffer. It is empty where a source keeps what there is no room for.
    fn held(&self) -> usize {
        0
    }

    /// Frames lost since the last call because the packet buffer was full.
    fn missed(&mut self) -> u64 {
        0
    }

    /// Whether a frame may be dropped for want of descriptors; a source that waits keeps it.
    fn may_drop(&self) -> bool {
        false
    }

    /// Sends a frame.
    fn transmit(&mut self, frame: &[u8]) -> Sent;

    /// Whether `transmit` looks at the bytes; otherwise it is not called.
    fn needs_bytes(&self) -> bool {
        true
    }

    /// Whether the other end is up.
    fn carrier(&self) -> bool {
        true
    }

    /// Whether this end sends light; without, the other has no carrier.
    fn set_light(&mut self, _on: bool) {}

    /// Why there is no carrier and what to do, if the wire can say.
    fn no_carrier(&self) -> Option<String> {
        None
    }

    /// Whether the other end is gone for good: what is still to be sent never will be.
    fn is_gone(&self) -> bool {
        false
    }

    /// Frames that were still to be sent when their queue was stopped, while there was no carrier.
    fn strand(&mut self, _frames: u64) {}

    /// Who should be at the other end and is not.
    fn missing_peer(&self) -> Option<String> {
        None
    }

    /// Whether it attaches above the MAC, as a host's capture does: no minimum length, no padding.
    fn host(&self) -> bool {
        false
    }

    /// Whether the checksums of every frame that it brings are known to be right, so that the device need not work them
    /// out again.
    fn sums_known(&self) -> bool {
        false
    }

    /// Whether everything a finite source has was taken.
    fn finished(&mut self) -> bool {
        true
    }

    /// Writes out what is buffered, as far as goes without waiting; whether nothing is left.
    fn flush(&mut self) -> bool {
        true
    }

    /// Whether nothing is under way that becomes due by itself.
    fn is_quiet(&self) -> bool {
        true
    }

    /// What a cable with knobs has done so far.
    fn impairments(&self) -> Option<Impairments> {
        None
    }

    /// Writes out what is buffered before the wire is taken away. Waits a second at most.
    fn finish(&mut self) {}

    /// What was lost on the way, if anything: the frames sent are not where they should be, or those to receive are not
    /// all that there were.
    fn error(&self) -> Option<WireError> {
        None
    }
}
