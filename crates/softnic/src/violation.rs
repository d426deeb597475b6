//! Mistakes that a driver can make, and what happens then.

use std::collections::VecDeque;
use std::fmt;

/// A ring: direction and queue number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Ring {
    /// Receive queue.
    Rx(u16),
    /// Transmit queue.
    Tx(u16),
}

impl fmt::Display for Ring {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Rx(queue) => write!(f, "receive queue {queue}"),
            Self::Tx(queue) => write!(f, "transmit queue {queue}"),
        }
    }
}

/// A mistake of the driver, to which a real 82599 would react with silence, a hang or a stray DMA.
///
/// ```
/// use device::{Bar as _, Device as _};
/// use softnic::{OnViolation, StrictNic, Violation};
///
/// let nic = StrictNic::builder().on_violation(OnViolation::Record).build();
/// nic.bar().read32(0x1_FFFC);
/// assert_eq!(nic.violations(), [Violation::UnknownRegister { offset: 0x1_FFFC, write: false }]);
/// ```
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Violation {
    /// An offset that is no register of the 82599, or that the model does not know.
    #[error("{} of unknown register {offset:#07x}", if *write { "write" } else { "read" })]
    UnknownRegister {
        /// Byte offset.
        offset: u32,
        /// Whether it was a write.
        write: bool,
    },
    /// A write to a register that can only be read.
    #[error("write of {value:#010x} to read-only register {name} at {offset:#07x}")]
    ReadOnlyRegister {
        /// Datasheet name.
        name: &'static str,
        /// Byte offset.
        offset: u32,
        /// The value written.
        value: u32,
    },
    /// A reserved bit was written as 1.
    #[error("write of {value:#010x} to {name} at {offset:#07x} sets reserved bits {bits:#010x}")]
    ReservedBits {
        /// Datasheet name.
        name: &'static str,
        /// Byte offset.
        offset: u32,
        /// The value written.
        value: u32,
        /// The reserved bits that were set in it.
        bits: u32,
    },
    /// A ring's base, length, head or thresholds were changed while the queue was enabled.
    #[error("{ring}: {name} changed while the queue is enabled")]
    RingChangedWhileEnabled {
        /// The ring.
        ring: Ring,
        /// Datasheet name of the register.
        name: &'static str,
    },
    /// A queue was enabled with a ring that cannot work.
    #[error("{ring} enabled with {cause}")]
    BadRing {
        /// The ring.
        ring: Ring,
        /// What is wrong with it.
        cause: &'static str,
    },
    /// A tail at or beyond the end of the ring.
    #[error("{ring}: tail {tail} is beyond the ring of {descriptors} descriptors")]
    TailBeyondRing {
        /// The ring.
        ring: Ring,
        /// The value written.
        tail: u32,
        /// Number of descriptors in the ring.
        descriptors: u32,
    },
    /// A tail other than 0 was written before the queue was enabled.
    #[error("{ring}: tail {tail} written while the queue is not enabled")]
    TailWhileDisabled {
        /// The ring.
        ring: Ring,
        /// The value written.
        tail: u32,
    },
    /// The device would have had to access memory that is not mapped.
    #[error("{ring}: DMA {what} at unmapped address {iova:#x}")]
    UnmappedDma {
        /// The ring.
        ring: Ring,
        /// The purpose of the access.
        what: &'static str,
        /// The device address (IOVA).
        iova: u64,
    },
    /// There is work on a ring, but bus mastering is off.
    #[error("{ring}: work for the device while bus mastering is off")]
    NotBusMaster {
        /// The ring.
        ring: Ring,
    },
    /// A receive descriptor was handed over with DD still set.
    #[error("receive queue {queue}: descriptor {index} was not re-armed: DD is still set")]
    ReceiveDescriptorDone {
        /// Queue number.
        queue: u16,
        /// Index in the ring.
        index: u32,
    },
    /// Memory was given to the device for receiving although the device has it already.
    #[error("{ring}: buffer {iova:#x} is already posted on {other}")]
    BufferPostedTwice {
        /// The ring to which it was given now.
        ring: Ring,
        /// The ring to which it had been given.
        other: Ring,
        /// The device address (IOVA).
        iova: u64,
    },
    /// A transmit descriptor for which the 82599 defines no outcome.
    #[error("transmit queue {queue}: descriptor {index}: {cause}")]
    TransmitDescriptor {
        /// Queue number.
        queue: u16,
        /// Index in the ring.
        index: u32,
        /// What is wrong with it.
        cause: TransmitFault,
    },
    /// Steps of the order that the datasheet requires were swapped or left out.
    #[error("{0}")]
    Order(&'static str),
}

/// What is wrong with a transmit descriptor.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TransmitFault {
    /// DD was set when the descriptor was handed over.
    #[error("DD is already set")]
    Done,
    /// Its length is 0.
    #[error("length is 0")]
    ZeroLength,
    /// The lengths of a frame's descriptors do not add up to PAYLEN.
    #[error("the descriptors of the frame hold {dtalen} bytes but PAYLEN is {paylen}")]
    PayloadLength {
        /// Sum of DTALEN.
        dtalen: u32,
        /// PAYLEN of the first descriptor.
        paylen: u32,
    },
    /// Its type is neither context (2) nor data (3).
    #[error("DTYP {0} is unknown")]
    UnknownType(u8),
    /// There is a context descriptor in the middle of a frame, or a frame mixes advanced and legacy descriptors.
    #[error("a frame's descriptors are of different kinds")]
    Mixed,
    /// It asks for IPsec offload, which the model does not have.
    #[error("asks for IPsec, which is not modelled")]
    Ipsec,
    /// CC is set or an offload is requested, but no context descriptor has been seen for the index.
    #[error("refers to context {0}, which was never set")]
    MissingContext(u8),
    /// IDX is beyond the two contexts of a queue.
    #[error("context index {0}: a queue has only 0 and 1")]
    ContextIndex(u8),
    /// The requested offload does not match the frame, or its context.
    #[error("its offloads cannot be done: {0}")]
    Context(&'static str),
    /// The frame is longer than the MAC sends.
    #[error("the frame is longer than 15872 bytes")]
    TooLong,
    /// The frame has more descriptors than drivers use; the queue has stopped.
    #[error("the frame does not end within 64 descriptors")]
    TooManyDescriptors,
    /// No CRC insertion is requested, and the frame does not end in its own CRC.
    #[error("IFCS is clear and the frame does not end in a correct FCS")]
    BadFcs,
}

/// What a model does with violations.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnViolation {
    /// Panic at the offending access.
    #[default]
    Panic,
    /// Store them for [`crate::StrictControl::violations`].
    Record,
    /// Count them and keep the last 64. Only those that cost nothing to find are looked for, and only mistakes that
    /// real hardware does not tolerate either: other drivers read registers that the model does not know, and take
    /// short cuts.
    Count,
}

/// Violations so far.
#[derive(Debug)]
pub(crate) struct Violations {
    mode: OnViolation,
    count: u64,
    kept: VecDeque<Violation>,
}

/// How many violations [`OnViolation::Count`] keeps.
const KEPT: usize = 64;

impl Violations {
    pub(crate) fn new(mode: OnViolation) -> Self {
        Self { mode, count: 0, kept: VecDeque::new() }
    }

    /// Whether buffers and descriptors are followed one by one.
    #[inline(always)]
    pub(crate) fn strict(&self) -> bool {
        self.mode != OnViolation::Count
    }

    /// Reports one.
    #[cold]
    pub(crate) fn report(&mut self, violation: Violation) {
        self.count += 1;
        match self.mode {
            OnViolation::Panic if !std::thread::panicking() => panic!("strict 82599: {violation}"),
            OnViolation::Count => {
                tracing::debug!("{violation}");
                if self.kept.len() >= KEPT {
                    self.kept.pop_front();
                }
            }
            OnViolation::Panic | OnViolation::Record => {}
        }
        self.kept.push_back(violation);
    }

    /// Reports one that silicon forgives: to tests only.
    #[cold]
    pub(crate) fn report_lax(&mut self, violation: Violation) {
        if self.strict() {
            self.report(violation);
        }
    }

    pub(crate) fn count(&self) -> u64 {
        self.count
    }

    pub(crate) fn take(&mut self) -> Vec<Violation> {
        std::mem::take(&mut self.kept).into()
    }

    /// The last few.
    pub(crate) fn kept(&self) -> Vec<Violation> {
        self.kept.iter().cloned().collect()
    }
}
