//! What rings have in memory, word for word: four descriptors at a time as one by one.

use super::*;
use crate::fake::{FakeConfig, FakeDevice, FakeTransport};
use crate::transport::Transport as _;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};

/// Of a packed descriptor's second word (Virtio 1.2, section 2.8.1).
const AVAIL: u64 = 1 << 55;
const USED: u64 = 1 << 63;

/// A ring's memory as the device sees it.
struct Shared {
    layout: Layout,
    base: NonNull<Word<AtomicU64>>,
    _transport: FakeTransport,
    _memory: RingMemory,
}

impl Shared {
    fn with<R>(layout: Layout, ring: impl FnOnce(Area, Layout) -> R) -> (R, Self) {
        let transport = FakeDevice::new(FakeConfig::default()).transport();
        let mut memory = RingMemory::allocate(transport.dma(), &[layout], None).expect("memory for a ring");
        let area = memory.rings.pop().expect("a ring");
        let base = area.at(0, layout.end().div_ceil(8));
        (ring(area, layout), Self { layout, base, _transport: transport, _memory: memory })
    }

    fn packed(size: u16) -> (Packed, Self) {
        Self::with(Layout { size, packed: true }, |area, layout| Packed::new(area, layout, false, false))
    }

    fn word(&self, index: usize) -> &Word<AtomicU64> {
        assert!(index < self.layout.end().div_ceil(8), "beyond the ring");
        // SAFETY: as many words, by the assertion.
        let word = unsafe { self.base.add(index) };
        // SAFETY: the memory is this value's too, and all access to it is atomic.
        unsafe { word.as_ref() }
    }

    fn read(&self, index: usize) -> u64 {
        self.word(index).read_once(Ordering::Acquire)
    }

    fn write(&self, index: usize, value: u64) {
        self.word(index).write(value, Ordering::Release);
    }

    /// Whether the device takes the packed descriptor at a place for available, on a lap with this wrap counter (section 2.8.1).
    fn is_available(&self, place: usize, wrap: bool) -> bool {
        let flags = self.read(2 * place + 1);
        (flags & AVAIL != 0) == wrap && (flags & USED != 0) != wrap
    }
}

/// The device's and the driver's wrap counter at a position.
fn wrap(position: usize, size: usize) -> bool {
    (position / size).is_multiple_of(2)
}

/// Moves an empty ring to a position, as after so many buffers.
fn move_to<R: Virtqueue>(ring: &mut R, position: usize) {
    let state = ring.state_mut();
    while usize::from(state.avail) < position {
        let count = (position - usize::from(state.avail)).min(state.size());
        state.posted(count);
        state.reclaimed(count);
    }
    state.published = state.avail;
}

/// Writes four at a time where the processor can. Returns for how many it did.
fn write_fours<W: Writer>(to: &mut W, (first, count): (usize, usize)) -> usize {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    if fours::are_here() {
        for n in (0..count / fours::STEP * fours::STEP).step_by(fours::STEP) {
            at_once::write_four(to, n, first + n);
        }
        return count / fours::STEP * fours::STEP;
    }
    let _ = (to, first, count);
    0
}

/// The first descriptor of a burst is shown last, on each lap, whatever the lap before has left there, and also where the burst goes on
/// behind the ring's end.
#[test]
fn a_packed_burst_is_shown_as_a_whole() {
    const SIZE: usize = 16;
    const BURST: usize = 12;
    let (laps, places, twice) = ([2, 3], [0, 3, 4, 8, 11, 12, 15], [false, true]);
    let cases = laps.into_iter().flat_map(|lap| places.map(move |place| lap * SIZE + place));
    let cases = cases.flat_map(|position| twice.map(|in_fours| (position, in_fours)));
    for (position, in_fours, reported) in cases.flat_map(|(position, fours)| twice.map(|left| (position, fours, left)))
    {
        let what = format!("position {position}, in fours: {in_fours}, reported: {reported}");
        let (mut ring, shared) = Shared::packed(16);
        // What the driver made available on the lap before, or what the device reported there.
        for earlier in position - SIZE..position {
            let wrap = wrap(earlier, SIZE);
            let flags = if wrap { AVAIL } else { 0 } | if wrap == reported { USED } else { 0 };
            shared.write(2 * (earlier % SIZE) + 1, flags | 60);
        }
        move_to(&mut ring, position);
        let first = |posted| (shared.is_available(position % SIZE, wrap(position, SIZE)), posted);
        let mut posted = 0;
        while posted < BURST {
            let ahead = |to: &mut _, run| if in_fours { write_fours(to, run) } else { 0 };
            posted += ring.post(BURST - posted, true, 100, ahead, |n, _| Some((n as u64, 0)));
            assert_eq!(first(posted), (false, posted), "{what}");
        }
        assert_eq!((posted, ring.unpublished()), (BURST, BURST), "{what}");
        ring.publish();
        let shown: Vec<_> =
            (position..position + SIZE).map(|at| shared.is_available(at % SIZE, wrap(at, SIZE))).collect();
        assert_eq!(shown, [[true; BURST].as_slice(), &[false; SIZE - BURST]].concat(), "{what}");
    }
}

#[cfg(all(target_arch = "x86_64", not(miri)))]
mod at_once {
    use super::*;
    use crate::ring::fours::{Four, STEP};

    impl Shared {
        fn split(size: u16) -> (Split, Self) {
            Self::with(Layout { size, packed: false }, |area, layout| Split::new(area, layout, false, false))
        }

        fn words(&self) -> Vec<u64> {
            (0..self.layout.end().div_ceil(8)).map(|index| self.read(index)).collect()
        }

        /// Puts a report into a split ring's used entry, which is 32 bits behind a word's beginning.
        fn report_split(&self, place: usize, id: u32, len: u32) {
            let at = self.layout.device() / 8 + place;
            self.write(at, self.read(at) & u64::from(u32::MAX) | u64::from(id) << 32);
            self.write(at + 1, self.read(at + 1) >> 32 << 32 | u64::from(len));
        }

        /// Shows a split ring's used index.
        fn show_used(&self, index: u16) {
            let at = self.layout.device() / 8;
            self.write(at, self.read(at) >> 32 << 32 | u64::from(index) << 16);
        }
    }

    /// Words in the order of the loops, or from that.
    fn paired([a, b, c, d]: [u64; STEP]) -> [u64; STEP] {
        [a, c, b, d]
    }

    fn four(words: [u64; STEP]) -> Four {
        // SAFETY: as many words.
        unsafe { std::mem::transmute(paired(words)) }
    }

    fn words(four: Four) -> [u64; STEP] {
        // SAFETY: as many words.
        paired(unsafe { std::mem::transmute::<Four, [u64; STEP]>(four) })
    }

    /// Addresses of four buffers, and by how much they are longer than the shortest.
    fn buffers(id: usize) -> ([u64; STEP], [u32; STEP]) {
        ([0, 1, 2, 3].map(|n| (id as u64 + n).wrapping_mul(0x9e37_79b9_7f4a_7c15)), [0, 1486, 1, 65_535])
    }

    pub(super) fn write_four<W: Writer>(to: &mut W, n: usize, id: usize) {
        let (addresses, more) = buffers(id);
        // SAFETY: the callers ask for the processor, and stay within the ring.
        unsafe { to.write_four(n, id, four(addresses), four(more.map(u64::from))) };
    }

    fn write_each<W: Writer>(to: &mut W, n: usize, id: usize) {
        let (addresses, more) = buffers(id);
        for lane in 0..STEP {
            // SAFETY: as above.
            unsafe { to.write(n + lane, id + lane, addresses[lane], more[lane]) };
        }
    }

    fn is_possible() -> bool {
        if !fours::are_here() {
            skip::test!("kernel avx2 (this CPU has no AVX2)");
        }
        fours::are_here()
    }

    /// Makes runs of these numbers of descriptors from `position` on in two rings, the second one's four at a time, and returns what
    /// stands in the first descriptor's second word of both before they are published.
    fn write_both<R: Virtqueue>(
        rings: [(&mut R, &Shared); 2],
        (position, runs): (usize, &[usize]),
        (writable, len): (bool, u32),
    ) -> [u64; 2] {
        let mut in_fours = false;
        rings.map(|(ring, shared)| {
            let first = 2 * (position % ring.size()) + 1;
            move_to(ring, position);
            let mut unshown = 0;
            for (place, run) in runs.iter().enumerate() {
                let id = usize::from(ring.state().avail) % ring.size();
                let mut to = ring.writer(writable, len);
                for n in (0..*run).step_by(STEP) {
                    if in_fours { write_four(&mut to, n, id + n) } else { write_each(&mut to, n, id + n) }
                }
                if place == 0 {
                    unshown = shared.read(first);
                }
                ring.written(to, *run);
                assert_eq!(shared.read(first), unshown, "it is shown when the burst is published");
            }
            ring.publish();
            in_fours = true;
            unshown
        })
    }

    #[test]
    fn four_descriptors_are_written_as_one_by_one() {
        if !is_possible() {
            return;
        }
        for (size, of) in
            [(16, (true, 2060)), (16, (false, 26)), (1 << 14, (true, u32::MAX - 65_535)), (1 << 14, (false, 0))]
        {
            let of_lap = usize::from(size);
            let left = [4, 8, 9, 12, 15, 16];
            let positions = [1, 2, 3].into_iter().flat_map(|lap| left.map(|left| lap * of_lap - left));
            let runs: [&[usize]; 3] = [&[8], &[4, 4], &[8, 4]];
            for (position, runs) in positions.flat_map(|position| runs.map(|runs| (position, runs))) {
                let what = format!("{size} descriptors, from {position} on, {runs:?}, {of:?}");
                let place = position % of_lap;
                // A run ends where the ring does at the latest.
                let mut end = place;
                if runs.iter().any(|run| {
                    end = end % of_lap + run;
                    end > of_lap
                }) {
                    continue;
                }
                let ((mut a, of_a), (mut b, of_b)) = (Shared::split(size), Shared::split(size));
                write_both([(&mut a, &of_a), (&mut b, &of_b)], (position, runs), of);
                assert!(of_a.words() == of_b.words(), "split, {what}");
                let ((mut a, of_a), (mut b, of_b)) = (Shared::packed(size), Shared::packed(size));
                let unshown = write_both([(&mut a, &of_a), (&mut b, &of_b)], (position, runs), of);
                assert!(of_a.words() == of_b.words(), "packed, {what}");
                let shown = of_a.read(2 * place + 1);
                assert_eq!(unshown, [0, shown ^ (AVAIL | USED)], "packed, {what}");
                assert!(of_a.is_available(place, wrap(position, of_lap)), "packed, {what}");
            }
        }
    }

    /// What a reader makes of four reports from the `n`th on: the lengths, if all are of those ids, both ways.
    fn assert_lens<R: Virtqueue>(ring: &mut R, n: usize, expected: Option<[u32; STEP]>, what: &str) {
        let first = usize::from(ring.state().used) % ring.size() + n;
        let (reader, count) = ring.reader(8).expect("no fault");
        assert_eq!(count, 8, "{what}");
        let each = [0, 1, 2, 3].map(|lane| {
            // SAFETY: one of those counted.
            let report = unsafe { reader.at::<true>(n + lane) };
            reader.len_of(report, first + lane)
        });
        // SAFETY: four of those counted; the callers ask for the processor.
        let at_once = unsafe { reader.lens_of_four(n, first) }.map(words);
        let each = if each.contains(&None) { None } else { Some(each.map(Option::unwrap_or_default)) };
        assert_eq!((each, at_once), (expected, expected.map(|lens| lens.map(u64::from))), "{what}");
    }

    const LENS: [u32; STEP] = [0, u32::MAX, 72, 1 << 31];

    /// Positions of a ring of 16 on each kind of lap, up to the last before positions begin again, from which eight places follow.
    fn positions() -> impl Iterator<Item = (usize, usize)> {
        let positions = [0, 5, 16, 24, 37, 65_520, 65_528];
        positions.into_iter().flat_map(|position| [0, 1, 4].map(|n| (position, n)))
    }

    #[test]
    fn four_reports_of_a_split_ring_are_read_as_one_by_one() {
        if !is_possible() {
            return;
        }
        for (position, n) in positions() {
            let (mut ring, shared) = Shared::split(16);
            move_to(&mut ring, position);
            ring.state_mut().posted(8);
            ring.publish();
            let first = position % 16 + n;
            let report = |change: [u32; STEP]| {
                for lane in 0..STEP {
                    shared.report_split(first + lane, u32::from(number(first + lane)) ^ change[lane], LENS[lane]);
                }
            };
            report([0; STEP]);
            shared.show_used(ring.state().avail);
            assert_lens(&mut ring, n, Some(LENS), "right ids");
            for (lane, other) in
                (0..STEP).flat_map(|lane| [1, 2, 4, 16, 1 << 15, 1 << 16, 1 << 31].map(|bit| (lane, bit)))
            {
                let mut change = [0; STEP];
                change[lane] = other;
                report(change);
                assert_lens(&mut ring, n, None, &format!("position {position}, {n} on: {other:#x} in report {lane}"));
            }
        }
    }

    #[test]
    fn four_reports_of_a_packed_ring_are_read_as_one_by_one() {
        if !is_possible() {
            return;
        }
        /// Flags that say nothing of a used descriptor.
        const OTHERS: u64 = 0x7f7f << 48;
        for (position, n) in positions() {
            let (mut ring, shared) = Shared::packed(16);
            move_to(&mut ring, position);
            let first = position % 16 + n;
            let used = if wrap(position, 16) { AVAIL | USED } else { 0 };
            let report = |change: [u64; STEP]| {
                for lane in 0..STEP {
                    let id = (first + lane) as u64;
                    shared.write(2 * (first + lane), u64::MAX);
                    shared.write(2 * (first + lane) + 1, (used | id << 32 | u64::from(LENS[lane])) ^ change[lane]);
                }
            };
            for change in [0, OTHERS] {
                report([change; STEP]);
                assert_lens(&mut ring, n, Some(LENS), "right ids and flags");
            }
            let flags = [AVAIL, USED, AVAIL | USED];
            let ids = [1, 2, 4, 16, 1 << 15].map(|bit| bit << 32);
            for (lane, other) in (0..STEP).flat_map(|lane| flags.into_iter().chain(ids).map(move |bits| (lane, bits))) {
                let mut change = [0; STEP];
                change[lane] = other;
                report(change);
                assert_lens(&mut ring, n, None, &format!("position {position}, {n} on: {other:#x} in report {lane}"));
            }
        }
    }
}
