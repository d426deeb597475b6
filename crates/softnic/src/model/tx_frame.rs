//! The descriptors of one frame to send: their layout, what can be wrong with them, the bytes they lead to (datasheet 7.2.3).

use super::Io;
use super::offload::{Context, LEGACY_IC, Request, TSE, VLE};
use crate::dma::{Hint, Unmapped};
use crate::violation::TransmitFault;

/// Longest frame the MAC sends, without CRC.
pub(super) const LONGEST: usize = 15_872;

/// Most descriptors of a frame, or of what is cut into frames. The device's own limit is 40 (DPDK's driver keeps to it); Linux's
/// driver may come to 49, with a kernel that is built for 45 fragments.
pub(super) const MOST_DESCRIPTORS: usize = 64;

/// DD of a transmit descriptor, in quadword 1.
pub(super) const DD: u64 = 1 << 32;
pub(super) const EOP: u64 = 1 << 24;
pub(super) const IFCS: u64 = 1 << 25;
pub(super) const RS: u64 = 1 << 27;
pub(super) const DEXT: u64 = 1 << 29;
const CC: u64 = 1 << 39;
const POPTS: u64 = 0x3F << 40;

/// One descriptor of a frame.
#[derive(Clone, Copy, Debug)]
pub(super) struct Segment {
    pub(super) index: u32,
    pub(super) address: u64,
    pub(super) high: u64,
}

/// Whether quadword 1 is that of a context descriptor.
pub(super) fn is_context(high: u64) -> bool {
    high & DEXT != 0 && high >> 20 & 0xF == 2
}

/// IDX: which context a context descriptor sets, or a data descriptor refers to.
pub(super) fn slot(high: u64) -> u8 {
    u8::try_from(high >> 36 & 7).unwrap_or(0)
}

/// Checks a frame's descriptors; its bytes and offloads, or the index and the mistake.
#[inline]
pub(super) fn check(
    segments: &[Segment],
    contexts: &[Option<Context>; 2],
    insert_crc: bool,
) -> Result<(usize, Option<Request>), (u32, TransmitFault)> {
    let first = segments[0];
    let extended = first.high & DEXT;
    let mut total = 0;
    for segment in segments {
        let fail = |cause| Err((segment.index, cause));
        let kind = segment.high >> 20 & 0xF;
        if segment.high & DEXT != extended || (extended != 0 && kind == 2) {
            return fail(TransmitFault::Mixed);
        }
        if extended != 0 && kind != 3 {
            return fail(TransmitFault::UnknownType(u8::try_from(kind).unwrap_or(0)));
        }
        let length = (segment.high & 0xFFFF) as usize;
        if length == 0 {
            return fail(TransmitFault::ZeroLength);
        }
        total += length;
    }
    let fail = |cause| Err((first.index, cause));
    let own_crc = !(insert_crc && first.high & IFCS != 0);
    let wanted = if extended == 0 { LEGACY_IC | VLE } else { TSE | VLE | POPTS | CC };
    let request = if first.high & wanted == 0 {
        None
    } else {
        request(first.high, extended != 0, contexts, total).map_err(|cause| (first.index, cause))?
    };
    let headers = request.as_ref().and_then(Request::segments).map_or(0, Context::headers);
    if extended != 0 {
        let paylen = u32::try_from(first.high >> 46).unwrap_or(0);
        if paylen as usize + headers != total {
            let dtalen = u32::try_from(total).unwrap_or(u32::MAX);
            return fail(TransmitFault::PayloadLength { dtalen, paylen });
        }
    }
    if request.as_ref().map_or(total, |request| request.longest(total)) > LONGEST {
        return fail(TransmitFault::TooLong);
    }
    if own_crc && (total <= 4 || request.is_some()) {
        return fail(TransmitFault::BadFcs);
    }
    Ok((total, request))
}

/// The offloads of a frame of `total` bytes; none if it only names a context.
#[cold]
fn request(
    high: u64,
    extended: bool,
    contexts: &[Option<Context>; 2],
    total: usize,
) -> Result<Option<Request>, TransmitFault> {
    if !extended {
        return Ok(Some(Request::legacy(high)));
    }
    let index = slot(high);
    let context = contexts.get(usize::from(index)).ok_or(TransmitFault::ContextIndex(index))?;
    let context = context.ok_or(TransmitFault::MissingContext(index))?;
    if high & (TSE | VLE | POPTS) == 0 {
        return Ok(None);
    }
    let request = Request::Advanced { context, bits: high };
    request.check(total)?;
    Ok(Some(request))
}

/// Reads a whole frame.
pub(super) fn fetch(io: &Io<'_>, hint: &mut Hint, segments: &[Segment], frame: &mut [u8]) -> Result<(), Unmapped> {
    let mut rest = frame;
    for segment in segments {
        let (part, after) = rest.split_at_mut(((segment.high & 0xFFFF) as usize).min(rest.len()));
        io.memory.read(hint, segment.address, part)?;
        rest = after;
    }
    Ok(())
}

/// Reads no more of a frame than its destination address: enough for a wire that only counts.
#[inline]
pub(super) fn glance(
    io: &Io<'_>,
    hint: &mut Hint,
    segments: &[Segment],
    frame: &mut [u8],
    bytes: usize,
) -> Result<(), Unmapped> {
    let first = (segments[0].high & 0xFFFF) as usize;
    if first < 8 && first < bytes {
        return fetch(io, hint, segments, frame);
    }
    io.memory.read(hint, segments[0].address, &mut frame[..first.min(8)])
}

/// Makes a fetched frame what goes on the wire: without its own CRC, and padded. `None` if its own CRC is wrong.
pub(super) fn finish(frame: &mut [u8], bytes: usize, insert_crc: bool, pad: bool) -> Option<usize> {
    let mut len = bytes;
    if !insert_crc {
        len = bytes.checked_sub(4)?;
        if frame[len..bytes] != crc32fast::hash(&frame[..len]).to_le_bytes() {
            return None;
        }
    }
    if pad && len < 60 {
        frame[len..60].fill(0);
        len = 60;
    }
    Some(len)
}
