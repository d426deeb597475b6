//! Counters of a worker, and how the main thread reads them without disturbing it.

use nic::{RxCounters, TxCounters};
use std::ops::{AddAssign, Sub};
use std::sync::atomic::{AtomicU64, Ordering};

/// From a list of reasons and their names: the enum, in the order of the list.
macro_rules! reasons {
    ($($(#[$doc:meta])* $reason:ident = $name:literal;)*) => {
        /// The reason why a received frame was not sent on.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[repr(usize)]
        pub enum Reason {
            $($(#[$doc])* $reason,)*
        }

        impl Reason {
            /// All reasons.
            pub const ALL: [Self; [$($name),*].len()] = [$(Self::$reason),*];

            /// Returns the reason's name in tables and JSON.
            #[must_use]
            pub fn name(self) -> &'static str {
                match self {
                    $(Self::$reason => $name,)*
                }
            }
        }
    };
}

reasons! {
    /// The device marked the frame bad.
    RxFrameError = "rx_frame_error";
    /// The device reported a length of 0, or more than the buffer holds.
    RxBadLength = "rx_bad_length";
    /// The frame came in more buffers than the largest frame needs.
    RxTooLong = "rx_too_long";
    /// The frame came in more buffers than a batch (`--batch`) has packets.
    RxBatchTooSmall = "rx_batch_too_small";
    /// The frame was in the receive ring when the run ended.
    RxUnread = "rx_unread";
    /// The frame has a VLAN tag that is not known, or several, or had no room for the one to leave with.
    Vlan = "vlan";
    /// The frame is neither IPv4 nor IPv6.
    NotIp = "not_ip";
    /// The frame is for a group of stations on the link, which a router does not forward.
    LinkMulticast = "link_multicast";
    /// The frame is for another station on the link.
    OtherStation = "other_station";
    /// The IP version is not that of the EtherType.
    IpVersion = "ip_version";
    /// The IP header is cut off, or gives a length that is too short.
    IpHeaderLength = "ip_header_length";
    /// The length of the IP packet does not match its header or the frame.
    IpTotalLength = "ip_total_length";
    /// The IPv4 header checksum is wrong.
    IpChecksum = "ip_checksum";
    /// Packets may not come from the IP source address.
    MartianSource = "martian_source";
    /// No router sends to the IP destination address.
    MartianDestination = "martian_destination";
    /// The time to live or hop limit is used up.
    TtlExpired = "ttl_expired";
    /// The IPv4 header has options, and somebody else was to read them.
    IpOptions = "ip_options";
    /// There is no route to the destination.
    NoRoute = "no_route";
    /// The packet is longer than the MTU of the output port.
    TooBig = "too_big";
    /// The station that the route leads to is not known, or its port is down.
    Unresolved = "unresolved";
    /// The destination is an address of this host.
    ForHost = "for_host";
    /// The route says to drop it.
    Blackhole = "blackhole";
    /// The route says that the destination is unreachable.
    Unreachable = "unreachable";
    /// The route says that the destination is forbidden.
    Prohibited = "prohibited";
    /// The host's own routing decides where it goes.
    LeftToHost = "left_to_host";
    /// The host was to send it, to see whether the station is still there.
    Probe = "probe";
    /// It was for the host, to whom the queue was full.
    HostFull = "host_full";
    /// The output ring had no room in time.
    TxFull = "tx_full";
    /// No device can send a frame of this length.
    TxBadLength = "tx_bad_length";
    /// The frame has more segments than the output ring has descriptors.
    TxTooManySegments = "tx_too_many_segments";
    /// The frame's buffer cannot be mapped for the output device.
    TxUnmappedPool = "tx_unmapped_pool";
    /// The output ring took the frame, but the device had not sent it when the device went away or the run ended.
    TxUnsent = "tx_unsent";
}

/// Totals of one (port, queue) pair, and of the queue that sends its frames.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Frames received from the receive queue.
    pub rx_packets: u64,
    /// Bytes of these frames, without frame check sequence.
    pub rx_bytes: u64,
    /// Frames handed to the transmit queue.
    pub tx_packets: u64,
    /// Bytes of these frames, without frame check sequence.
    pub tx_bytes: u64,
    /// Frames received that went to the host, by a TAP interface for example.
    pub to_host: u64,
    /// Frames sent that came from the host, and not from a receive queue.
    pub from_host: u64,
    /// Time-stamp counter cycles of the polls that moved packets.
    pub cycles: u64,
    /// Frames dropped, by [`Reason`].
    pub drops: [u64; Reason::ALL.len()],
}

impl Counters {
    /// Returns the number of frames dropped for `reason`.
    #[must_use]
    pub fn dropped(&self, reason: Reason) -> u64 {
        self.drops[reason as usize]
    }

    /// Counts `frames` as dropped for `reason`.
    pub fn drop_frames(&mut self, reason: Reason, frames: u64) {
        self.drops[reason as usize] += frames;
    }

    /// Returns the number of frames dropped at input, by the receive queue: those reasons come first.
    #[must_use]
    pub fn dropped_in(&self) -> u64 {
        self.drops[..=Reason::RxUnread as usize].iter().sum()
    }

    /// Returns the number of frames dropped at output: those reasons come last.
    #[must_use]
    pub fn dropped_out(&self) -> u64 {
        self.drops[Reason::TxFull as usize..].iter().sum()
    }

    /// Sets the counters that come from a receive queue.
    pub fn set_rx(&mut self, rx: RxCounters) {
        (self.rx_packets, self.rx_bytes) = (rx.packets, rx.bytes);
        self.drops[Reason::RxFrameError as usize] = rx.frame_errors;
        self.drops[Reason::RxBadLength as usize] = rx.bad_length;
        self.drops[Reason::RxTooLong as usize] = rx.too_long;
        self.drops[Reason::RxBatchTooSmall as usize] = rx.batch_too_small;
    }

    /// Sets the counters that come from a transmit queue.
    pub fn set_tx(&mut self, tx: TxCounters) {
        (self.tx_packets, self.tx_bytes) = (tx.packets, tx.bytes);
        self.drops[Reason::TxUnsent as usize] = 0;
        self.unsend(tx.lost);
        self.drops[Reason::TxBadLength as usize] = tx.bad_length + tx.too_long;
        self.drops[Reason::TxTooManySegments as usize] = tx.too_many_segments;
        self.drops[Reason::TxUnmappedPool as usize] = tx.unmapped_pool;
    }

    /// Moves `frames` from sent to dropped, as the device has not sent them, with as many bytes as the frames have on
    /// average.
    pub fn unsend(&mut self, frames: u64) {
        let frames = frames.min(self.tx_packets);
        self.tx_bytes -= self.tx_bytes / self.tx_packets.max(1) * frames;
        self.tx_packets -= frames;
        self.drop_frames(Reason::TxUnsent, frames);
    }

    fn words(&mut self) -> impl Iterator<Item = &mut u64> {
        let Self { rx_packets, rx_bytes, tx_packets, tx_bytes, to_host, from_host, cycles, drops } = self;
        [rx_packets, rx_bytes, tx_packets, tx_bytes, to_host, from_host, cycles].into_iter().chain(drops)
    }
}

impl AddAssign for Counters {
    fn add_assign(&mut self, mut other: Self) {
        self.words().zip(other.words()).for_each(|(mine, theirs)| *mine += *theirs);
    }
}

impl Sub for Counters {
    type Output = Self;

    fn sub(mut self, mut other: Self) -> Self {
        self.words().zip(other.words()).for_each(|(mine, theirs)| *mine = mine.saturating_sub(*theirs));
        self
    }
}

/// [`Counters`] that one worker publishes every few milliseconds, on cache lines of their own. A reader may see some
/// values of one publication and some of the next; each is correct for some moment.
#[derive(Debug)]
#[repr(align(128))]
pub struct Published {
    words: [AtomicU64; 7 + Reason::ALL.len()],
    idle: AtomicU64,
    publications: AtomicU64,
}

impl Default for Published {
    fn default() -> Self {
        let words = std::array::from_fn(|_| AtomicU64::new(0));
        Self { words, idle: AtomicU64::new(0), publications: AtomicU64::new(0) }
    }
}

impl Published {
    /// Makes `counters` visible. `idle` is true if no packet moved since the last publication.
    pub fn publish(&self, mut counters: Counters, idle: bool) {
        for (shared, own) in self.words.iter().zip(counters.words()) {
            shared.store(*own, Ordering::Relaxed);
        }
        self.idle.store(if idle { self.idle.load(Ordering::Relaxed) + 1 } else { 0 }, Ordering::Relaxed);
        // Whoever sees the new number sees what was stored before it.
        self.publications.store(self.publications.load(Ordering::Relaxed) + 1, Ordering::Release);
    }

    /// Returns the counters as last published.
    #[must_use]
    pub fn read(&self) -> Counters {
        let mut counters = Counters::default();
        for (shared, own) in self.words.iter().zip(counters.words()) {
            *own = shared.load(Ordering::Relaxed);
        }
        counters
    }

    /// Returns how many publications in a row were idle.
    #[must_use]
    pub fn idle(&self) -> u64 {
        self.idle.load(Ordering::Relaxed)
    }

    /// Returns the number of publications.
    #[must_use]
    pub fn publications(&self) -> u64 {
        self.publications.load(Ordering::Acquire)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_published_is_read() {
        let mut counters = Counters {
            rx_packets: 1,
            rx_bytes: 2,
            tx_packets: 3,
            tx_bytes: 4,
            cycles: 5,
            to_host: 6,
            from_host: 7,
            ..Counters::default()
        };
        for (reason, count) in Reason::ALL.into_iter().zip(10..) {
            counters.drop_frames(reason, count);
        }
        let published = Published::default();
        published.publish(counters, false);
        assert_eq!(published.read(), counters);
        assert_eq!(published.idle(), 0);
        published.publish(counters, true);
        published.publish(counters, true);
        assert_eq!((published.idle(), published.publications()), (2, 3));

        let mut sent = TxCounters::default();
        (sent.packets, sent.bytes, sent.bad_length, sent.lost) = (10, 1000, 1, 4);
        // Told again and again, and once more at the end.
        for in_flight in [0, 0, 3] {
            counters.set_tx(sent);
            counters.unsend(in_flight);
            assert_eq!(counters.tx_packets + counters.dropped(Reason::TxUnsent), 10);
            assert_eq!(counters.dropped(Reason::TxUnsent), 4 + in_flight);
        }
        assert_eq!(counters.tx_bytes, 300);

        let mut twice = counters;
        twice += counters;
        assert_eq!(twice - counters, counters);
        assert_eq!(counters.dropped_in(), 10 + 11 + 12 + 13 + 14);
        assert_eq!(counters.dropped_out(), 10 + Reason::TxFull as u64 + 1 + 7);
    }
}
