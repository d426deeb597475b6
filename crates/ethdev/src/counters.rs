//! Counters of queues and devices.

use std::sync::atomic::{AtomicU64, Ordering};

/// The counters of a receive queue since it was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RxCounters {
    /// Frames handed to the application.
    pub packets: u64,
    /// Bytes of these frames, without frame check sequence.
    pub bytes: u64,
    /// Frames dropped because the device marked them bad, or reported something about them that was not negotiated.
    pub frame_errors: u64,
    /// Frames dropped because the device reported a length of 0, or more than the buffer holds.
    pub bad_length: u64,
    /// Frames dropped because they came in more buffers than the largest frame needs.
    pub too_long: u64,
    /// Frames dropped because a batch is too small for their segments.
    pub batch_too_small: u64,
    /// Times that frames were waiting and the pool had no buffer to replace theirs. This queue loses no frame by it.
    pub no_buffers: u64,
}

impl RxCounters {
    /// Returns the number of frames that arrived in a descriptor and did not reach the application.
    #[must_use]
    pub fn dropped(&self) -> u64 {
        [self.bad_length, self.too_long, self.batch_too_small].into_iter().fold(self.frame_errors, u64::saturating_add)
    }
}

/// The counters of a transmit queue since it was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TxCounters {
    /// Frames handed to the device.
    pub packets: u64,
    /// Bytes of these frames, without padding and frame check sequence.
    pub bytes: u64,
    /// Frames dropped because they are empty, have an empty segment, or are shorter than the device can send.
    pub bad_length: u64,
    /// Frames dropped because they are longer than the device, or its MTU, allows.
    pub too_long: u64,
    /// Frames dropped because they have more segments than the ring has descriptors.
    pub too_many_segments: u64,
    /// Frames dropped because their pool could not be mapped for the device.
    pub unmapped_pool: u64,
    /// Of the frames handed to the device, those that it had not reported sent when it went away: a vhost-user back end that
    /// ended or was reset, or a virtio device that asked for its reset. Whether they were sent is not known.
    pub lost: u64,
}

impl TxCounters {
    /// Returns the number of frames that were taken out of a batch and not handed to the device.
    #[must_use]
    pub fn dropped(&self) -> u64 {
        [self.too_long, self.too_many_segments, self.unmapped_pool]
            .into_iter()
            .fold(self.bad_length, u64::saturating_add)
    }
}

/// 64-bit totals of a port as its device counts them, since it was opened. None of them ever decreases.
///
/// A virtio device does not count; its totals are those of its queues.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Statistics {
    /// Good frames received.
    pub rx_packets: u64,
    /// Bytes of these frames, with frame check sequence.
    pub rx_bytes: u64,
    /// Good frames sent.
    pub tx_packets: u64,
    /// Bytes of these frames, with frame check sequence.
    pub tx_bytes: u64,
    /// Frames lost because no descriptor or no buffer of the device was free for them.
    pub rx_missed: u64,
    /// Frames that the device dropped as faulty.
    pub rx_errors: RxErrors,
    /// Number of counters that could not be read in time when the device was last asked; their values here are older.
    pub unread: usize,
}

/// Frames dropped by a device before they reached a receive ring, by what was wrong with them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RxErrors {
    /// Frames with a wrong check sequence.
    pub crc: u64,
    /// Frames whose length field does not match their length.
    pub length: u64,
    /// Frames shorter than the shortest allowed.
    pub undersize: u64,
    /// Frames longer than the longest allowed.
    pub oversize: u64,
}

impl RxErrors {
    /// Returns the sum of all these errors.
    #[must_use]
    pub fn total(&self) -> u64 {
        [self.length, self.undersize, self.oversize].into_iter().fold(self.crc, u64::saturating_add)
    }
}

impl Statistics {
    /// Bytes of a frame check sequence, which the totals include.
    pub const CRC: u64 = 4;

    /// Returns the totals of a port whose device does not count: frames, and their bytes without frame check sequence, of each receive queue
    /// and of each transmit queue.
    ///
    /// ```
    /// use ethdev::Statistics;
    ///
    /// let totals = Statistics::of_queues([[1, 60], [2, 120]], [[10, 600]]);
    /// assert_eq!([totals.rx_packets, totals.rx_bytes, totals.tx_packets, totals.tx_bytes], [3, 192, 10, 640]);
    /// ```
    #[must_use]
    pub fn of_queues(rx: impl IntoIterator<Item = [u64; 2]>, tx: impl IntoIterator<Item = [u64; 2]>) -> Self {
        let add = |[frames, all]: [u64; 2], [more, bytes]: [u64; 2]| [frames + more, all + bytes + more * Self::CRC];
        let [rx_packets, rx_bytes] = rx.into_iter().fold([0; 2], add);
        let [tx_packets, tx_bytes] = tx.into_iter().fold([0; 2], add);
        Self { rx_packets, rx_bytes, tx_packets, tx_bytes, ..Self::default() }
    }
}

/// Frames and bytes of a queue, on cache lines of their own: the queue writes them after each burst, and its port reads them for
/// [`Statistics::of_queues`].
#[derive(Debug, Default)]
#[repr(align(128))]
pub struct QueueTotals([AtomicU64; 2]);

impl QueueTotals {
    /// Writes both.
    #[inline]
    pub fn set(&self, packets: u64, bytes: u64) {
        self.0[0].store(packets, Ordering::Relaxed);
        self.0[1].store(bytes, Ordering::Relaxed);
    }

    /// Returns both; the frames may be of one burst and the bytes of the next.
    #[must_use]
    pub fn get(&self) -> [u64; 2] {
        self.0.each_ref().map(|count| count.load(Ordering::Relaxed))
    }
}
