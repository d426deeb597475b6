//! The lookup loops, compiled twice on x86-64: for any CPU, and for those with POPCNT, BMI2 and AVX2. Steps of many addresses
//! are gathers there: of 8 or 16 addresses with AVX2, of 32 to 128 with AVX-512.
//!
//! Unsafe here are the calls of the second kind, allowed once the CPU was asked, and the gathers.

#[cfg(all(target_arch = "x86_64", feature = "std", not(miri)))]
mod avx2;
#[cfg(all(target_arch = "x86_64", feature = "std", not(miri)))]
mod avx2_v6;
#[cfg(all(target_arch = "x86_64", feature = "std", not(miri)))]
mod avx512;
#[cfg(all(target_arch = "x86_64", feature = "std", not(miri)))]
mod avx512_v4;
#[cfg(all(target_arch = "x86_64", feature = "std", not(miri)))]
mod avx512_v6;

use core::sync::atomic::Ordering;

use crate::NextHop;
#[cfg(all(target_arch = "x86_64", feature = "std", not(miri)))]
use crate::mem::Region;
use crate::mem::{Bytes, EntryRef, Leaf, NodeRef, PackedRef, View, arrive};
use crate::tables::{Layout, Tables, Width};
use crate::v4::{self, V4, word_of};
use crate::v6::{self, V6};

/// Which build of the loops this CPU can run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kernel {
    /// Any CPU.
    Portable,
    /// POPCNT, BMI1, BMI2 and AVX2, all there.
    #[cfg(all(target_arch = "x86_64", feature = "std", not(miri)))]
    Avx2(Avx2, Option<avx512::Avx512>),
}

/// Proof that the CPU was asked.
#[cfg(all(target_arch = "x86_64", feature = "std", not(miri)))]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Avx2(());

impl Kernel {
    /// The build that new tables use: the best this CPU can run, unless a test has chosen another.
    pub(crate) fn detect() -> Self {
        #[cfg(feature = "kernels")]
        if let Some(chosen) = crate::kernels::chosen() {
            return chosen;
        }
        Self::best()
    }

    /// The build of that name; if this CPU cannot run it, the instruction sets it lacks.
    #[cfg(all(feature = "kernels", target_arch = "x86_64", not(miri)))]
    pub(crate) fn named(choice: crate::kernels::Choice) -> Result<Self, std::string::String> {
        use crate::kernels::Choice;
        let mut missing = std::vec::Vec::new();
        macro_rules! needs {
            ($($feature:tt)*) => {$(
                if !std::is_x86_feature_detected!($feature) {
                    missing.push($feature);
                }
            )*};
        }
        if choice != Choice::Portable {
            needs!("popcnt" "bmi1" "bmi2" "avx2");
        }
        if choice == Choice::Avx512 {
            needs!("avx512f" "avx512vl" "avx512vpopcntdq");
        }
        match (choice, Self::best()) {
            _ if !missing.is_empty() => Err(missing.join(", ")),
            (Choice::Avx2, Self::Avx2(avx2, _)) => Ok(Self::Avx2(avx2, None)),
            (Choice::Avx512, best) => Ok(best),
            _ => Ok(Self::Portable),
        }
    }

    /// The build of that name, of which there is one.
    #[cfg(all(feature = "kernels", not(all(target_arch = "x86_64", not(miri)))))]
    pub(crate) fn named(choice: crate::kernels::Choice) -> Result<Self, std::string::String> {
        let portable = choice == crate::kernels::Choice::Portable;
        if portable { Ok(Self::Portable) } else { Err("x86-64 instructions".into()) }
    }

    /// The best build this CPU can run.
    fn best() -> Self {
        #[cfg(all(target_arch = "x86_64", feature = "std", not(miri)))]
        if std::is_x86_feature_detected!("popcnt")
            && std::is_x86_feature_detected!("bmi1")
            && std::is_x86_feature_detected!("bmi2")
            && std::is_x86_feature_detected!("avx2")
        {
            return Self::Avx2(Avx2(()), avx512::Avx512::detect());
        }
        Self::Portable
    }
}

/// Whether the byte per /16 is worth asking before the byte per /24, from what came of it lately: it is for addresses from
/// all over, not for those inside many routes.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Habit {
    /// Chunks before it is tried again.
    #[cfg(all(target_arch = "x86_64", feature = "std", not(miri)))]
    rest: u32,
}

#[cfg(all(target_arch = "x86_64", feature = "std", not(miri)))]
impl Habit {
    const REST: u32 = 31;

    #[inline(always)]
    fn asks(&mut self) -> bool {
        let asks = self.rest == 0;
        self.rest = self.rest.saturating_sub(1);
        asks
    }

    #[inline(always)]
    fn learn(&mut self, paid: bool) {
        self.rest = if paid { 0 } else { Self::REST };
    }
}

/// Runs `$body` in a function compiled for AVX2 where the tables say the CPU has it.
macro_rules! dispatch {
    ($(#[$doc:meta])* $name:ident $(<$param:ident: $bound:path>)?, $inner:ident,
     ($tables:ident: $ty:ty $(, $arg:ident: $arg_ty:ty)*) $(-> $ret:ty)?) => {
        $(#[$doc])*
        pub(crate) fn $name $(<$param: Copy + $bound>)? ($tables: $ty $(, $arg: $arg_ty)*) $(-> $ret)? {
            #[cfg(all(target_arch = "x86_64", feature = "std", not(miri)))]
            if let Kernel::Avx2(..) = $tables.kernel {
                #[target_feature(enable = "popcnt,bmi1,bmi2,avx2")]
                fn fast $(<$param: Copy + $bound>)? ($tables: $ty $(, $arg: $arg_ty)*) $(-> $ret)? {
                    $inner($tables $(, $arg)*)
                }
                // SAFETY: `Avx2` is only made where the CPU has the features.
                return unsafe { fast($tables $(, $arg)*) };
            }
            $inner($tables $(, $arg)*)
        }
    };
}

dispatch!(
    /// The longest match of one IPv4 address.
    #[inline]
    v4_one, v4_one_inner, (tables: &Tables<V4>, addr: u32) -> Option<NextHop>
);

/// The longest matches of IPv4 addresses.
#[inline(always)]
pub(crate) fn v4_burst<A: Copy + Into<u32>>(
    tables: &Tables<V4>,
    addrs: &[A],
    out: &mut [Option<NextHop>],
    habit: &mut Habit,
) {
    #[cfg(all(target_arch = "x86_64", feature = "std", not(miri)))]
    if let Kernel::Avx2(_, Some(avx512)) = tables.kernel {
        return avx512_v4::burst(tables, avx512, addrs, out, habit);
    }
    let _ = habit;
    v4_burst_narrow(tables, addrs, out);
}

dispatch!(
    /// The same without AVX-512.
    v4_burst_narrow<A: Into<u32>>, v4_burst_narrow_inner,
    (tables: &Tables<V4>, addrs: &[A], out: &mut [Option<NextHop>])
);
dispatch!(
    /// Answers the lanes of a chunk that lead beyond the /24.
    #[cold]
    v4_escapes<A: Into<u32>>, v4_escapes_inner,
    (tables: &Tables<V4>, addrs: &[A], out: &mut [Option<NextHop>], lanes: u64)
);
dispatch!(
    /// Answers the lanes of a chunk that lead beyond the /48.
    #[cold]
    v6_deep<A: Into<u128>>, v6_deep_inner,
    (tables: &Tables<V6>, addrs: &[A], out: &mut [Option<NextHop>], lanes: u64)
);
dispatch!(
    /// The longest match of one IPv6 address.
    #[inline]
    v6_one, v6_one_inner, (tables: &Tables<V6>, addr: u128) -> Option<NextHop>
);
dispatch!(
    /// The longest matches of IPv6 addresses.
    #[inline]
    v6_burst<A: Into<u128>>, v6_burst_inner, (tables: &Tables<V6>, addrs: &[A], out: &mut [Option<NextHop>])
);

#[inline(always)]
fn v4_one_inner(tables: &Tables<V4>, addr: u32) -> Option<NextHop> {
    if let Some(bytes) = &tables.bytes {
        let byte = bytes.get(addr);
        arrive();
        if byte != u8::ESCAPE {
            return NextHop::from_raw(word_of(&tables.palette, byte));
        }
    }
    NextHop::from_raw(v4::walk(tables, addr))
}

/// Splits a burst into chunks of 32 and 8 and single addresses.
macro_rules! in_chunks {
    ($tables:expr, $addrs:expr, $out:expr, $chunk:ident, $one:ident) => {
        let count = $addrs.len().min($out.len());
        let (addrs, rest) = $addrs[..count].as_chunks::<32>();
        let (out, rest_out) = $out[..count].as_chunks_mut::<32>();
        for (addrs, out) in addrs.iter().zip(out) {
            $chunk($tables, addrs, out);
        }
        let (addrs, rest) = rest.as_chunks::<8>();
        let (out, rest_out) = rest_out.as_chunks_mut::<8>();
        for (addrs, out) in addrs.iter().zip(out) {
            $chunk($tables, addrs, out);
        }
        for (addr, out) in rest.iter().zip(rest_out) {
            *out = $one($tables, (*addr).into());
        }
    };
}

#[inline(always)]
fn v4_burst_narrow_inner<A: Copy + Into<u32>>(tables: &Tables<V4>, addrs: &[A], out: &mut [Option<NextHop>]) {
    in_chunks!(tables, addrs, out, v4_chunk, v4_one_inner);
}

#[inline(always)]
fn v4_chunk<A: Copy + Into<u32>, const N: usize>(tables: &Tables<V4>, addrs: &[A; N], out: &mut [Option<NextHop>; N]) {
    if let Some(bytes) = &tables.bytes {
        let escapes = bytes_chunk(tables, bytes, addrs, out);
        // Few lanes are answered one by one, many together.
        if escapes.count_ones() as usize * 8 <= N {
            number_to_word(tables, out);
            if escapes != 0 {
                v4_escapes(tables, addrs, out, escapes);
            }
            return;
        }
    }
    let escapes = packed_chunk(tables, addrs, out);
    if tables.width == Width::Byte {
        number_to_word(tables, out);
    }
    if escapes != 0 {
        v4_escapes(tables, addrs, out, escapes);
    }
}

/// Puts next hops in the place of their numbers, of one byte, unless all are the same.
#[inline(always)]
fn number_to_word<F: Layout>(tables: &Tables<F>, out: &mut [Option<NextHop>]) {
    arrive();
    if !tables.direct.load(Ordering::Relaxed) {
        for out in out {
            let number = out.map_or(0, NextHop::raw);
            #[expect(clippy::cast_possible_truncation, reason = "numbers have a byte")]
            let word = word_of(&tables.palette, number as u8);
            *out = NextHop::from_raw(word);
        }
    }
}

/// Answers all lanes by their packed blocks: numbers of next hops where leaves are bytes, else next hops. Answers which
/// lanes lead deeper.
#[inline(always)]
fn packed_chunk<A: Copy + Into<u32>, const N: usize>(
    tables: &Tables<V4>,
    addrs: &[A; N],
    out: &mut [Option<NextHop>; N],
) -> u64 {
    #[cfg(all(target_arch = "x86_64", feature = "std", not(miri)))]
    if let Kernel::Avx2(avx2, _) = tables.kernel
        && N.is_multiple_of(8)
    {
        let mut escapes = 0;
        let eights = addrs.as_chunks::<8>().0.iter().zip(out.as_chunks_mut::<8>().0);
        for (index, (addrs, out)) in eights.enumerate() {
            let lanes = match (tables.width, &tables.wide_palette) {
                (Width::Byte, _) => avx2.packed_bytes(&tables.region, addrs, out),
                (Width::Short, Some(palette)) => avx2.packed_shorts(&tables.region, palette, addrs, out),
                (Width::Short, None) => 0,
                (Width::Word, _) => avx2.packed_words(&tables.region, addrs, out),
            };
            escapes |= u64::from(lanes) << (8 * index);
        }
        return escapes;
    }
    match (tables.width, &tables.wide_palette) {
        (Width::Byte, _) => packed_leaves(tables, addrs, out, |leaf: u8| leaf.into()),
        (Width::Short, Some(palette)) => packed_leaves(tables, addrs, out, |leaf: u16| word_of(palette, leaf)),
        (Width::Short, None) => 0,
        (Width::Word, _) => packed_leaves(tables, addrs, out, |leaf: u32| leaf),
    }
}

/// Reads root words for all lanes, then leaves for all lanes; answers which of these lead deeper.
#[inline(always)]
fn packed_leaves<L: Leaf, A: Copy + Into<u32>, const N: usize>(
    tables: &Tables<V4>,
    addrs: &[A; N],
    out: &mut [Option<NextHop>; N],
    word: impl Fn(L) -> u32,
) -> u64 {
    let mut blocks = [PackedRef::default(); N];
    for (block, addr) in blocks.iter_mut().zip(addrs) {
        *block = tables.region.root((*addr).into());
    }
    arrive();
    for ((addr, block), out) in addrs.iter().zip(&blocks).zip(&mut *out) {
        let leaf = tables.region.packed_leaf::<L>(*block, (*addr).into() >> 8);
        *out = NextHop::from_raw(word(leaf));
    }
    lanes_of(out, NextHop::from_raw(word(L::ESCAPE)))
}

/// Which lanes, of 64 at most, say `escape`. Few do: whether any does is asked first, which takes the compiler few
/// instructions.
#[inline(always)]
fn lanes_of(out: &[Option<NextHop>], escape: Option<NextHop>) -> u64 {
    if out.iter().fold(false, |any, out| any | (*out == escape)) {
        return (0..).zip(out).fold(0, |escapes, (lane, out)| escapes | u64::from(*out == escape) << lane);
    }
    0
}

/// Answers the given lanes, which lead beyond the /24.
#[inline(always)]
fn v4_escapes_inner<A: Copy + Into<u32>>(
    tables: &Tables<V4>,
    addrs: &[A],
    out: &mut [Option<NextHop>],
    mut lanes: u64,
) {
    while lanes != 0 {
        let lane = lanes.trailing_zeros() as usize;
        lanes &= lanes - 1;
        let (Some(addr), Some(out)) = (addrs.get(lane), out.get_mut(lane)) else { return };
        *out = NextHop::from_raw(v4::walk(tables, (*addr).into()));
    }
}

/// Reads the byte per /24 for all lanes, the numbers of next hops; answers which of them are to be looked up.
#[inline(always)]
fn bytes_chunk<A: Copy + Into<u32>, const N: usize>(
    tables: &Tables<V4>,
    bytes: &Bytes,
    addrs: &[A; N],
    out: &mut [Option<NextHop>; N],
) -> u64 {
    let mut escapes = 0;
    #[cfg(all(target_arch = "x86_64", feature = "std", not(miri)))]
    if let Kernel::Avx2(avx2, _) = tables.kernel
        && N.is_multiple_of(8)
    {
        let eights = addrs.as_chunks::<8>().0.iter().zip(out.as_chunks_mut::<8>().0);
        for (index, (addrs, out)) in eights.enumerate() {
            escapes |= u64::from(avx2.bytes(bytes, addrs, out)) << (8 * index);
        }
        return escapes;
    }
    let _ = tables;
    for (lane, (addr, out)) in addrs.iter().zip(out).enumerate() {
        let byte = bytes.get((*addr).into());
        escapes |= u64::from(byte == u8::ESCAPE) << lane;
        *out = NextHop::from_raw(byte.into());
    }
    escapes
}

#[inline(always)]
fn v6_one_inner(tables: &Tables<V6>, addr: u128) -> Option<NextHop> {
    NextHop::from_raw(v6::walk(tables, addr))
}

#[inline(always)]
fn v6_burst_inner<A: Copy + Into<u128>>(tables: &Tables<V6>, addrs: &[A], out: &mut [Option<NextHop>]) {
    #[cfg(all(target_arch = "x86_64", feature = "std", not(miri)))]
    if let Kernel::Avx2(avx2, avx512) = tables.kernel {
        return v6_gathers(tables, avx2, avx512, addrs, out);
    }
    in_chunks!(tables, addrs, out, v6_chunk, v6_one_inner);
}

/// What the assembly of IPv6 is written for.
const _: () = {
    use crate::mem::Roots;
    assert!(V6::ROOT_BITS == 16 && v6::LAST == 6 && NodeRef::SLOTS == 16);
    assert!(matches!(V6::SHAPE.strides.first_chunk(), Some([8, 4, 4, 4, 4, 4, 4])));
};

/// As many as there are at once, with gathers.
#[cfg(all(target_arch = "x86_64", feature = "std", not(miri)))]
#[inline(always)]
fn v6_gathers<A: Copy + Into<u128>>(
    tables: &Tables<V6>,
    avx2: Avx2,
    avx512: Option<avx512::Avx512>,
    addrs: &[A],
    out: &mut [Option<NextHop>],
) {
    use avx512::Avx512;
    let count = addrs.len().min(out.len());
    let (mut rest, mut rest_out) = (&addrs[..count], &mut out[..count]);
    macro_rules! chunks {
        ($count:literal, |$addrs:ident, $out:ident| $each:expr) => {{
            let (addrs, more) = rest.as_chunks::<$count>();
            let (out, more_out) = rest_out.as_chunks_mut::<$count>();
            for ($addrs, $out) in addrs.iter().zip(out) {
                $each;
            }
            (rest, rest_out) = (more, more_out);
        }};
    }
    if let Some(avx512) = avx512 {
        if tables.width == Width::Byte {
            chunks!(64, |addrs, out| v6_wide(tables, avx512, addrs, out, Avx512::bytes_64));
        }
        chunks!(32, |addrs, out| match tables.width {
            Width::Byte => v6_wide(tables, avx512, addrs, out, Avx512::bytes_32),
            Width::Short => v6_wide(tables, avx512, addrs, out, Avx512::shorts_32),
            Width::Word => v6_wide(tables, avx512, addrs, out, Avx512::words_32),
        });
    }
    chunks!(16, |addrs, out| {
        match tables.width {
            Width::Byte => avx2.bytes_16(&tables.region, addrs, out),
            Width::Short => avx2.shorts_16(&tables.region, addrs, out),
            Width::Word => avx2.words_16(&tables.region, addrs, out),
        }
        v6_found(tables, addrs, out, true);
    });
    in_chunks!(tables, rest, rest_out, v6_chunk, v6_one_inner);
}

/// Looks up a chunk in one piece.
#[cfg(all(target_arch = "x86_64", feature = "std", not(miri)))]
#[inline(always)]
fn v6_wide<A: Copy + Into<u128>, const N: usize, const M: usize>(
    tables: &Tables<V6>,
    avx512: avx512::Avx512,
    addrs: &[A; N],
    out: &mut [Option<NextHop>; N],
    walk: impl Fn(avx512::Avx512, &Region<V6>, &[avx512_v6::Highs; M], &mut [Option<NextHop>; N]) -> bool,
) {
    let mut highs = [const { avx512_v6::Highs::uninit() }; M];
    avx512.highs(addrs, &mut highs);
    let deep = walk(avx512, &tables.region, &highs, out);
    v6_found(tables, addrs, out, deep);
}

/// Puts next hops in the place of leaves, all ones of which lead deeper if `deep` says that there may be such.
#[inline(always)]
fn v6_found<A: Copy + Into<u128>>(tables: &Tables<V6>, addrs: &[A], out: &mut [Option<NextHop>], deep: bool) {
    let deep = if deep { lanes_of(out, NextHop::from_raw(tables.width.ones())) } else { 0 };
    match (tables.width, &tables.wide_palette) {
        (Width::Byte, _) => number_to_word(tables, out),
        (Width::Short, Some(palette)) => {
            arrive();
            for out in &mut *out {
                let number = out.map_or(0, NextHop::raw);
                #[expect(clippy::cast_possible_truncation, reason = "numbers have two bytes")]
                let word = word_of(palette, number as u16);
                *out = NextHop::from_raw(word);
            }
        }
        _ => {}
    }
    if deep != 0 {
        v6_deep(tables, addrs, out, deep);
    }
}

/// Lanes go through one step side by side before any takes the next, for which memory has been asked by then. Those that have
/// arrived drop out.
#[inline(always)]
fn v6_chunk<A: Copy + Into<u128>, const N: usize>(tables: &Tables<V6>, addrs: &[A; N], out: &mut [Option<NextHop>; N]) {
    let region = tables.region.view();
    // Lanes on their way, and where the nodes lie that they read next.
    let mut ways: [(usize, EntryRef); N] = core::array::from_fn(|lane| {
        let entry = v6::page_entry(region, v6::high(addrs[lane].into()));
        region.prefetch(entry);
        (lane, entry)
    });
    let mut count = N;
    let mut nodes = [(NodeRef::default(), 0); N];
    for level in 1..=v6::LAST {
        arrive();
        let mut left = 0;
        for at in 0..count {
            let (lane, entry) = ways[at];
            let node = region.node(entry);
            let slot = v6::slot_of(v6::high(addrs[lane % N].into()), level);
            nodes[lane % N] = (node, slot);
            // Written in any case, as a branch would be guessed wrong: a lane that has arrived is written over.
            let (child, has_child) = node.child(slot);
            ways[left % N] = (lane, child);
            left += usize::from(has_child);
        }
        count = left;
        for (_, entry) in &ways[..count] {
            region.prefetch(*entry);
        }
    }
    arrive();
    match tables.width {
        Width::Byte => v6_leaves::<u8, N>(region, &nodes, out),
        Width::Short => v6_leaves::<u16, N>(region, &nodes, out),
        Width::Word => v6_leaves::<u32, N>(region, &nodes, out),
    }
    for (lane, _) in &ways[..count] {
        out[lane % N] = NextHop::from_raw(tables.width.ones());
    }
    v6_found(tables, addrs, out, count > 0);
}

/// The leaves of nodes and slots.
#[inline(always)]
fn v6_leaves<L: Leaf, const N: usize>(
    region: View<'_, V6>,
    nodes: &[(NodeRef, u32); N],
    out: &mut [Option<NextHop>; N],
) {
    for ((node, slot), out) in nodes.iter().zip(out) {
        *out = NextHop::from_raw(region.leaf::<L>(*node, *slot).word());
    }
}

/// Answers the given lanes, which lead beyond the /48.
#[inline(always)]
fn v6_deep_inner<A: Copy + Into<u128>>(tables: &Tables<V6>, addrs: &[A], out: &mut [Option<NextHop>], mut lanes: u64) {
    while lanes != 0 {
        let lane = lanes.trailing_zeros() as usize;
        lanes &= lanes - 1;
        let (Some(addr), Some(out)) = (addrs.get(lane), out.get_mut(lane)) else { return };
        *out = NextHop::from_raw(v6::walk(tables, (*addr).into()));
    }
}

/// All kernels the CPU has, compared with each other; those it has not are named in a line that begins with `skipped:`. Not under
/// Miri, which has one.
#[cfg(test)]
#[cfg(not(any(loom, miri)))]
#[expect(clippy::cast_possible_truncation, reason = "slots and lanes are few")]
mod tests {
    use alloc::vec;
    use alloc::vec::Vec;

    use super::*;
    use crate::build::Blocks;
    use crate::hops::Hops;
    use crate::kernels::Choice;
    use crate::mem::PACKED_SLOTS;
    use crate::rib::{Built, HopId};
    use crate::{Config, Error, Family, Ipv4Prefix, Ipv6Prefix, Table};

    fn kernels() -> Vec<Kernel> {
        let named = |choice: Choice| {
            let skipped = |missing| skip::test!("kernel {} (this CPU has no {missing})", choice.name());
            Kernel::named(choice).map_err(skipped).ok()
        };
        Choice::ALL.into_iter().filter_map(named).collect()
    }

    /// The answers of every kernel are those of `expected`.
    fn all_answer<F: Family>(tables: &mut Tables<F>, addrs: &[F::Bits], expected: &[Option<NextHop>]) {
        for kernel in kernels() {
            tables.kernel = kernel;
            for burst in [1, 8, 16, 32, 64, 128, 253] {
                let mut answers = vec![None; addrs.len()];
                for (addrs, answers) in addrs.chunks(burst).zip(answers.chunks_mut(burst)) {
                    F::burst(tables, addrs, answers, &mut Habit::default());
                }
                assert_eq!(answers, expected, "{kernel:?} in bursts of {burst}");
            }
        }
    }

    fn number(hops: &mut Hops<impl Copy>, tables: &Tables<impl Layout>, word: u32) -> HopId {
        let id = hops.acquire(word);
        tables.set_palette(id, word);
        id
    }

    /// The audit's entry P9: gathers take the place of an IPv4 leaf for a number with a sign, so blocks end before 2 GiB. Of the
    /// address space that this takes, pages are backed only where blocks are written.
    #[test]
    fn p9_the_last_blocks_of_the_largest_ipv4_table_are_found_by_every_kernel() {
        for width in [Width::Byte, Width::Short, Width::Word] {
            let made = Tables::<V4>::new(usize::MAX, true, width, false, Kernel::Portable);
            let (mut tables, mut store) = match made {
                Err(Error::OutOfMemory { bytes }) => {
                    skip::test!("p9 IPv4 (the system refuses {bytes} bytes of address space)");
                    return;
                }
                made => made.unwrap(),
            };
            store.skip_to_last(2);
            let mut hops = Hops::new();
            let ids: Vec<HopId> = (1..=200).map(|word| number(&mut hops, &tables, word)).collect();
            let mut blocks = Blocks {
                tables: &tables,
                store: &mut store,
                hops: &mut hops,
                keeps_bytes: false,
                bytes: [0; PACKED_SLOTS],
            };
            let mut built = Vec::new();
            let slots_of = |block: usize| -> [Built; PACKED_SLOTS] {
                core::array::from_fn(|slot| Built::Hop(ids[(7 * block + slot) % ids.len()]))
            };
            while let Some(block) = V4::build_top(&mut blocks, &slots_of(built.len())) {
                built.push(block);
            }
            let block_bytes = PACKED_SLOTS * width.leaf_bytes();
            assert_eq!(built.len(), 2 * 4096 / block_bytes, "two chunks and no more");
            let (mut addrs, mut expected) = (Vec::new(), Vec::new());
            for (index, block) in built.iter().enumerate() {
                let top = 0x0a00_0000 + ((index as u32) << 13);
                tables.region.set_root(top, V4::root_block(*block).unwrap());
                for (slot, built) in (0..).zip(slots_of(index)) {
                    let Built::Hop(id) = built else { unreachable!() };
                    addrs.push(top | slot << 8 | 5);
                    expected.push(NextHop::from_raw(hops.get(id).word));
                }
            }
            all_answer(&mut tables, &addrs, &expected);
        }
    }

    /// The same for IPv6, whose gathers have places of 64 bits.
    #[test]
    fn p9_the_last_blocks_of_the_largest_ipv6_table_are_found_by_every_kernel() {
        for width in [Width::Byte, Width::Short, Width::Word] {
            let made = Tables::<V6>::new(usize::MAX, true, width, false, Kernel::Portable);
            let (mut tables, mut store) = match made {
                Err(Error::OutOfMemory { bytes }) => {
                    skip::test!("p9 IPv6 (the system refuses {bytes} bytes of address space)");
                    return;
                }
                made => made.unwrap(),
            };
            store.skip_to_last(4096);
            let mut hops = Hops::new();
            let ids: Vec<HopId> = (1..=200).map(|word| number(&mut hops, &tables, word)).collect();
            let mut blocks = Blocks {
                tables: &tables,
                store: &mut store,
                hops: &mut hops,
                keeps_bytes: false,
                bytes: [0; PACKED_SLOTS],
            };
            let (mut addrs, mut expected, mut tops) = (Vec::new(), Vec::new(), Vec::new());
            // Pages whose nodes have nodes below them, until nothing fits.
            let mut page = |blocks: &mut Blocks<'_, V6>, top: u32| -> Option<Built> {
                let leaves = |from: usize| -> [Built; 16] {
                    core::array::from_fn(|slot| Built::Hop(ids[(from + slot) % ids.len()]))
                };
                let below = V6::build_inner(blocks, 2, &leaves(top as usize + 30))?;
                let mut slots = leaves(top as usize);
                slots[15] = below;
                let node = V6::build_inner(blocks, 1, &slots)?;
                let built = V6::build_top(blocks, &[node; 256])?;
                let want = |built: Built| match built {
                    Built::Hop(id) => NextHop::from_raw(id),
                    _ => None,
                };
                for slot in 0..15_u128 {
                    addrs.push(u128::from(top) << 112 | 0x7f << 104 | slot << 100);
                    expected.push(want(slots[slot as usize]));
                }
                for slot in 0..16_u128 {
                    addrs.push(u128::from(top) << 112 | 0xff << 104 | 15 << 100 | slot << 96);
                    expected.push(want(leaves(top as usize + 30)[slot as usize]));
                }
                Some(built)
            };
            while let Some(built) = page(&mut blocks, tops.len() as u32) {
                tops.push(V6::root_block(built).unwrap());
            }
            assert!(tops.len() >= 12, "{}", tops.len());
            for (top, block) in (0..).zip(tops) {
                tables.region.set_root(top << 16, block);
            }
            // The numbers of these next hops are their words.
            assert!(ids.iter().all(|id| hops.get(*id).word == *id));
            all_answer(&mut tables, &addrs, &expected);
        }
    }
    /// Bursts of 253, so that every size of chunk occurs: 128, 64, 32, 16, 8 and 1.
    fn agree<F: Family>(routes: &[(F::Prefix, NextHop)], addrs: &[F::Bits], accelerator: bool) {
        let answers = Choice::ALL.into_iter().filter(|choice| crate::kernels::choose(*choice).is_ok()).map(|choice| {
            crate::kernels::choose(choice).unwrap();
            let config = Config { accelerator, ..Config::default() };
            let mut table = Table::<F>::from_routes(config, routes.iter().copied()).unwrap();
            // Tables that were changed, not only built.
            for (prefix, _) in routes.iter().step_by(3) {
                let _ = table.remove(*prefix);
            }
            for (prefix, hop) in routes.iter().step_by(6) {
                table.insert(*prefix, *hop).unwrap();
            }
            assert_eq!(table.writer.tables.kernel, Kernel::named(choice).unwrap());
            let mut answers = vec![None; addrs.len()];
            for (addrs, answers) in addrs.chunks(253).zip(answers.chunks_mut(253)) {
                F::burst(&table.writer.tables, addrs, answers, &mut Habit::default());
            }
            answers
        });
        let answers: Vec<_> = answers.collect();
        assert!(answers.iter().all(|other| *other == answers[0]));
        assert!(answers[0].iter().any(Option::is_some) && answers[0].iter().any(Option::is_none));
    }

    /// Up to 254, up to 65,534 and more next hops; routes on both sides of the /24 and the /48.
    #[test]
    fn kernels_agree() {
        let mut rng = fastrand::Rng::with_seed(12);
        for hops in [200, 20_000, 100_000] {
            let hop = |rng: &mut fastrand::Rng| NextHop::new(rng.u32(..hops)).unwrap();
            let v4: Vec<_> = (0..hops.max(20_000) + 20_000)
                .map(|_| (Ipv4Prefix::truncate(rng.u32(..1 << 28).into(), rng.u8(8..=32)).unwrap(), hop(&mut rng)))
                .collect();
            let v6: Vec<_> = (0..40_000)
                .map(|_| (Ipv6Prefix::truncate(rng.u128(..1 << 120).into(), rng.u8(12..=128)).unwrap(), hop(&mut rng)))
                .collect();
            let inside4 = |rng: &mut fastrand::Rng| u32::from(rng.choice(&v4).unwrap().0.address()) | rng.u32(..0x1000);
            let addrs4: Vec<_> =
                (0..10_000).map(|at| if at % 4 == 0 { rng.u32(..) } else { inside4(&mut rng) }).collect();
            let inside6 =
                |rng: &mut fastrand::Rng| u128::from(rng.choice(&v6).unwrap().0.address()) | rng.u128(..1 << 60);
            let addrs6: Vec<_> =
                (0..10_000).map(|at| if at % 4 == 0 { rng.u128(..) } else { inside6(&mut rng) }).collect();
            agree::<V4>(&v4, &addrs4, false);
            agree::<V4>(&v4, &addrs4, true);
            agree::<V6>(&v6, &addrs6, false);
        }
    }
}
