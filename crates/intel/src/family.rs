//! What makes one family of devices differ from another.

use device::{Bits, Device, Dma, ReadOnly, Reg, RegArray, RegisterMap, Regs};
use ethdev::PortConfig;
use std::fmt;

/// A family of devices with advanced descriptors: its register map, and what of its queues is not as in others.
///
/// # Safety
///
/// * The registers are those of the device's queues, and what the methods return makes a device of the family use a queue as the
///   datasheets of the 82599 and 82576 say of advanced descriptors in one buffer: it writes at most the bytes it was told into a
///   buffer, and the bits of descriptors are where the constants say.
/// * Values that the methods return for registers tell the device of no memory.
pub unsafe trait Family: RegisterMap + Sized {
    /// Settings of a port.
    type Config;

    /// A register that always has a bit that is clear, for noticing a device that is gone.
    const STATUS: Reg<Self, ReadOnly>;
    /// Registers of a receive queue.
    const RX: QueueRegisters<Self>;
    /// Registers of a transmit queue.
    const TX: QueueRegisters<Self>;

    /// Bits of a received descriptor's second word for errors of the frame itself.
    const FRAME_ERRORS: u64;
    /// Those for checksum errors, two in a row, L4 and IP, which are the end hosts' concern, not a forwarder's.
    const CHECKSUM_ERRORS: u64;
    /// Longest frame that the device sends, in bytes without frame check sequence.
    const LONGEST: u16;
    /// Most descriptors of a frame that it sends.
    const MOST_SEGMENTS: usize;

    /// Whether receiving is switched on as a whole before its queues are filled: until then an enabled queue may read as if it were not.
    const RECEIVER_FIRST: bool = false;

    /// The settings that every port has.
    fn port(config: &Self::Config) -> &PortConfig;

    /// What is written to enable receive queue `index`, with buffers of `kib` KiB, once it knows its ring: the control register comes
    /// last.
    fn enable_rx<D: Device>(regs: &Regs<Self, D>, index: u32, kib: u32, config: &Self::Config) -> Vec<Step<Self>>;

    /// What is written to enable transmit queue `index` once it knows its ring: the control register comes last.
    fn enable_tx<D: Device>(regs: &Regs<Self, D>, index: u32, config: &Self::Config) -> Vec<Step<Self>>;

    /// Whether the device wants to be asked for a report of each frame that it sends.
    fn reports_each(config: &Self::Config) -> bool {
        let _ = config;
        false
    }

    /// Lets the vector of receive queue `index` fire again.
    fn arm<D: Device>(regs: &Regs<Self, D>, index: u32);
}

/// A register and what is written to it.
pub type Step<F> = (Reg<F, Dma>, u32);

/// The registers that every queue of one direction has, of which there are two at least.
pub struct QueueRegisters<F> {
    /// Ring base address, low half.
    pub base_low: RegArray<F, Dma>,
    /// Ring base address, high half.
    pub base_high: RegArray<F, Dma>,
    /// Ring length in bytes.
    pub length: RegArray<F, Dma>,
    /// Ring head.
    pub head: RegArray<F, Dma>,
    /// Ring tail, the doorbell.
    pub tail: RegArray<F, Dma>,
    /// Queue control.
    pub control: RegArray<F, Dma>,
    /// The bit of the control register by which the queue is enabled.
    pub enable: Bits,
}

impl<F> QueueRegisters<F> {
    /// Where the tail register of a queue lies, which exists. Unlike by `at`, the processor need not be told what is known: that there is
    /// such a register, and where the address is aligned.
    #[inline(always)]
    pub(crate) const fn doorbell(&self, index: u32) -> u32 {
        let first = self.tail.at(0).offset();
        first + (self.tail.at(1).offset() - first) * index
    }
}

impl<F> fmt::Debug for QueueRegisters<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("QueueRegisters").field("control", &self.control).finish_non_exhaustive()
    }
}
