//! Registers of a device in another process: by messages, by mapped memory where the server offers it, and doorbells as
//! plain stores.

use super::connection::Connection;
use super::message::region;
use crate::{Bar, MappedBar};
use serde_json::Value;
use std::fmt;
use std::sync::Arc;

/// The register window of a [`super::VfioUserDevice`]. If the server is gone, registers read all ones.
pub struct VfioUserBar {
    pub(super) connection: Arc<Connection>,
    pub(super) size: usize,
    /// Parts of the region that are mapped: where each begins, and its registers.
    pub(super) mapped: Vec<(u32, MappedBar)>,
    pub(super) doorbells: Option<(Vec<Doorbells>, MappedBar)>,
}

/// Registers that take effect when they are written to shared memory: `count` of them from offset `first` of the region
/// on, `stride` bytes apart, in the memory from `at` on with the same stride.
///
/// # Invariants
///
/// `stride` is a power of two of at least 4, `span` is `count * stride`, `first` and `at` are multiples of 4, and neither
/// `first + span` nor `at + span` overflows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Doorbells {
    first: u32,
    stride: u32,
    span: u32,
    at: u32,
}

impl Doorbells {
    /// From `{"first": …, "stride": …, "count": …, "at": …}`; `None` if it is not that, or does not lie in a region of
    /// `region` bytes and a memory of `memory` bytes.
    pub(super) fn parse(value: &Value, region: usize, memory: usize) -> Option<Self> {
        let field = |key: &str| u32::try_from(value.get(key)?.as_u64()?).ok();
        let (first, stride, count, at) = (field("first")?, field("stride")?, field("count")?, field("at")?);
        let span = count.checked_mul(stride)?;
        let inside = |from: u32, len: usize| from.checked_add(span).is_some_and(|end| end as usize <= len);
        let fits = inside(first, region) && inside(at, memory);
        let aligned = stride.is_power_of_two() && stride >= 4 && first % 4 == 0 && at % 4 == 0;
        (fits && aligned).then_some(Self { first, stride, span, at })
    }

    /// Where in the memory the register at `offset` is, if it is one of them.
    #[inline(always)]
    fn locate(&self, offset: u32) -> Option<u32> {
        let distance = offset.wrapping_sub(self.first);
        (distance < self.span && distance & (self.stride - 1) == 0).then(|| self.at + distance)
    }
}

impl VfioUserBar {
    fn in_region(&self, offset: u32) -> bool {
        offset.is_multiple_of(4) && (offset as usize).checked_add(4).is_some_and(|end| end <= self.size)
    }

    /// The mapped part that a register lies in, and where in it.
    #[inline]
    fn mapped(&self, offset: u32) -> Option<(&MappedBar, u32)> {
        self.mapped.iter().find_map(|(start, bar)| {
            let distance = offset.checked_sub(*start)?;
            ((distance as usize) < bar.size()).then_some((bar, distance))
        })
    }
}

impl Bar for VfioUserBar {
    fn size(&self) -> usize {
        self.size
    }

    fn read32(&self, offset: u32) -> u32 {
        if self.connection.is_broken() || !self.in_region(offset) {
            return u32::MAX;
        }
        if let Some((bar, offset)) = self.mapped(offset) {
            return bar.read32(offset);
        }
        self.connection.read(region::BAR0, offset.into()).map_or(u32::MAX, u32::from_le_bytes)
    }

    #[inline]
    unsafe fn write32(&self, offset: u32, value: u32) {
        if let Some((doorbells, memory)) = &self.doorbells
            && let Some(at) = doorbells.iter().find_map(|doorbells| doorbells.locate(offset))
        {
            // SAFETY: the same register, reached another way; promised by the caller.
            unsafe { memory.write32(at, value) }
        } else if let Some((bar, offset)) = self.mapped(offset) {
            // SAFETY: promised by the caller.
            unsafe { bar.write32(offset, value) }
        } else if self.in_region(offset) {
            // A write to a device that is gone is lost, as on a bus; reads tell.
            let _ = self.connection.write(region::BAR0, offset.into(), &value.to_le_bytes());
        }
    }
}

impl fmt::Debug for VfioUserBar {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("VfioUserBar")
            .field("size", &self.size)
            .field("mapped", &self.mapped)
            .field("doorbells", &self.doorbells)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn doorbells_are_found_and_nothing_beside_them() {
        let good = json!({ "first": 0x1018, "stride": 64, "count": 64, "at": 0x2000 });
        let doorbells = Doorbells::parse(&good, 0x2_0000, 0x4000).unwrap();
        assert_eq!(doorbells.locate(0x1018), Some(0x2000));
        assert_eq!(doorbells.locate(0x1FD8), Some(0x2FC0));
        for other in [0, 0x1014, 0x101C, 0x1010, 0x2018, u32::MAX] {
            assert_eq!(doorbells.locate(other), None, "{other:#x}");
        }
    }

    #[test]
    fn doorbells_outside_the_region_or_the_memory_are_refused() {
        for bad in [
            json!(null),
            json!({ "first": 0x1018, "stride": 64, "count": 64 }),
            json!({ "first": 0x1018, "stride": 48, "count": 64, "at": 0 }),
            json!({ "first": 0x1018, "stride": 0, "count": 64, "at": 0 }),
            json!({ "first": 0x1018, "stride": 2, "count": 64, "at": 0 }),
            json!({ "first": 0x1019, "stride": 64, "count": 64, "at": 0 }),
            json!({ "first": 0x1018, "stride": 64, "count": 64, "at": 0x3004 }),
            json!({ "first": 0x1_F018, "stride": 64, "count": 64, "at": 0 }),
            json!({ "first": 0x1018, "stride": 1 << 31, "count": 2, "at": 0 }),
            json!({ "first": u32::MAX - 3, "stride": 64, "count": 1, "at": 0 }),
            json!({ "first": -1, "stride": 64, "count": 1, "at": 0 }),
        ] {
            assert_eq!(Doorbells::parse(&bad, 0x2_0000, 0x4000), None, "{bad}");
        }
    }
}
