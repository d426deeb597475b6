//! Answers of the kernel that carry a chain of capabilities (`struct vfio_info_cap_header`), read with bounds checks.

use std::ops::RangeInclusive;

/// `struct vfio_region_info` and its sparse-mmap capability.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RegionInfo {
    /// Bytes; 0 for a region the device does not have.
    pub(crate) size: u64,
    /// Where it starts in the device's file.
    pub(crate) offset: u64,
    /// The parts that may be mapped: offset in the region and bytes, ordered.
    pub(crate) mappable: Vec<(u64, u64)>,
}

impl RegionInfo {
    /// `None` when the answer is cut short or does not hold together.
    pub(crate) fn parse(bytes: &[u8]) -> Option<Self> {
        const MMAP: u32 = 4;
        const CAPS: u32 = 8;
        const SPARSE_MMAP: u16 = 1;
        let (flags, first) = (u32_at(bytes, 4)?, u32_at(bytes, 12)?);
        let (size, offset) = (u64_at(bytes, 16)?, u64_at(bytes, 24)?);
        offset.checked_add(size)?;
        let mut mappable = Vec::new();
        if flags & MMAP != 0 {
            let capabilities = if flags & CAPS != 0 { chain(bytes, first)? } else { Vec::new() };
            mappable = match capabilities.iter().find(|capability| capability.id == SPARSE_MMAP) {
                Some(sparse) => pairs(sparse.body)?,
                None => vec![(0, size)],
            };
            mappable.sort_unstable();
            mappable.retain(|(_, len)| *len > 0);
            let mut end = 0;
            for &(start, len) in &mappable {
                if start < end {
                    return None;
                }
                end = start.checked_add(len).filter(|end| *end <= size)?;
            }
        }
        Some(Self { size, offset, mappable })
    }

    /// How many bytes from the start of the region may be mapped.
    pub(crate) fn mappable_from_start(&self) -> u64 {
        self.mappable.first().filter(|(start, _)| *start == 0).map_or(0, |(_, len)| *len)
    }
}

/// `struct vfio_iommu_type1_info` with its IOVA ranges and the number of mappings that are left.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct IommuInfo {
    /// The smallest page the IOMMU maps, in bytes.
    pub(super) page_size: u64,
    /// IOVAs it translates, first to last; `None` from kernels before 5.4, which do not say.
    pub(super) ranges: Option<Vec<RangeInclusive<u64>>>,
    /// Mappings that can still be made.
    pub(super) mappings_left: Option<u32>,
}

impl IommuInfo {
    /// `None` when the answer is cut short or does not hold together.
    pub(super) fn parse(bytes: &[u8]) -> Option<Self> {
        const PAGE_SIZES: u32 = 1;
        const CAPS: u32 = 2;
        const IOVA_RANGE: u16 = 1;
        const DMA_AVAIL: u16 = 3;
        let flags = u32_at(bytes, 4)?;
        let sizes = if flags & PAGE_SIZES != 0 { u64_at(bytes, 8)? } else { 4096 };
        let page_size = 1_u64.checked_shl(sizes.trailing_zeros())?;
        let capabilities = if flags & CAPS != 0 { chain(bytes, u32_at(bytes, 16)?)? } else { Vec::new() };
        let body = |id| capabilities.iter().find(|capability| capability.id == id).map(|capability| capability.body);
        let ranges = match body(IOVA_RANGE) {
            Some(body) => Some(pairs(body)?.into_iter().map(|(first, last)| first..=last).collect()),
            None => None,
        };
        Some(Self { page_size, ranges, mappings_left: body(DMA_AVAIL).and_then(|body| u32_at(body, 0)) })
    }
}

struct Capability<'a> {
    id: u16,
    /// What follows the header, up to the end of the answer.
    body: &'a [u8],
}

/// Walks the chain from offset `first`: id (16 bits), version (16 bits), offset of the next (32 bits). Offsets must grow,
/// as the kernel appends, so the walk ends.
fn chain(bytes: &[u8], first: u32) -> Option<Vec<Capability<'_>>> {
    const HEADER: usize = 8;
    let mut capabilities = Vec::new();
    let (mut offset, mut least) = (usize::try_from(first).ok()?, HEADER);
    while offset != 0 {
        if offset < least {
            return None;
        }
        let header = bytes.get(offset..)?;
        let [low, high] = *header.first_chunk::<2>()?;
        let next = u32_at(header, 4)?;
        capabilities.push(Capability { id: u16::from_ne_bytes([low, high]), body: header.get(HEADER..)? });
        least = offset + HEADER;
        offset = usize::try_from(next).ok()?;
    }
    Some(capabilities)
}

/// A count (32 bits), 32 reserved bits, then that many pairs of 64-bit numbers.
fn pairs(body: &[u8]) -> Option<Vec<(u64, u64)>> {
    let count = usize::try_from(u32_at(body, 0)?).ok()?;
    let bytes = body.get(8..)?.get(..count.checked_mul(16)?)?;
    bytes.chunks_exact(16).map(|pair| Some((u64_at(pair, 0)?, u64_at(pair, 8)?))).collect()
}

fn u32_at(bytes: &[u8], offset: usize) -> Option<u32> {
    Some(u32::from_ne_bytes(*bytes.get(offset..)?.first_chunk()?))
}

fn u64_at(bytes: &[u8], offset: usize) -> Option<u64> {
    Some(u64::from_ne_bytes(*bytes.get(offset..)?.first_chunk()?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn words(words: &[u32]) -> Vec<u8> {
        words.iter().flat_map(|word| word.to_ne_bytes()).collect()
    }

    /// argsz, flags, index, cap_offset, size, offset.
    fn region(flags: u32, cap_offset: u32, size: u32, tail: &[u32]) -> Vec<u8> {
        let mut bytes = words(&[0, flags, 0, cap_offset, size, 0, 0x1000, 7]);
        bytes.extend(words(tail));
        bytes
    }

    #[test]
    fn a_region_without_capabilities_maps_whole_or_not() {
        let info = RegionInfo::parse(&region(7, 0, 0x8_0000, &[])).unwrap();
        assert_eq!((info.size, info.offset), (0x8_0000, 7 << 32 | 0x1000));
        assert_eq!(info.mappable_from_start(), 0x8_0000);
        let info = RegionInfo::parse(&region(3, 0, 0x100, &[])).unwrap();
        assert_eq!((info.mappable_from_start(), info.mappable.len()), (0, 0), "I/O ports");
    }

    #[test]
    fn sparse_areas_are_ordered_and_bounded() {
        // A capability of another kind first, then two areas out of order.
        let tail = [2 | 1 << 16, 48, 0, 0, 1 | 1 << 16, 0, 2, 0, 0x3000, 0, 0x1000, 0, 0, 0, 0x2000, 0];
        let info = RegionInfo::parse(&region(15, 32, 0x4000, &tail)).unwrap();
        assert_eq!(info.mappable, [(0, 0x2000), (0x3000, 0x1000)]);
        assert_eq!(info.mappable_from_start(), 0x2000);
        assert_eq!(RegionInfo::parse(&region(15, 32, 0x3800, &tail)), None, "beyond the region");
        let overlap = [1, 0, 2, 0, 0, 0, 0x2000, 0, 0x1000, 0, 0x1000, 0];
        assert_eq!(RegionInfo::parse(&region(15, 32, 0x4000, &overlap)), None);
        let late = [1, 0, 1, 0, 0x1000, 0, 0x1000, 0];
        assert_eq!(RegionInfo::parse(&region(15, 32, 0x4000, &late)).unwrap().mappable_from_start(), 0);
    }

    #[test]
    fn hostile_chains_are_refused() {
        for (cap_offset, tail) in [
            (32, vec![1, 32]),                                // points to itself
            (40, vec![0, 0, 1, 32]),                          // points back
            (4, vec![]),                                      // into the header
            (u32::MAX, vec![]),                               // far away
            (36, vec![]),                                     // the header does not fit
            (32, vec![1, 0]),                                 // no count
            (32, vec![1, 0, u32::MAX, 0]),                    // too many areas
            (32, vec![1, 0, 1, 0, 0, 0, u32::MAX]),           // half an area
            (32, vec![1, 0, 1, 0, u32::MAX, u32::MAX, 1, 0]), // offset wraps
        ] {
            assert_eq!(RegionInfo::parse(&region(15, cap_offset, 0x4000, &tail)), None, "{cap_offset} {tail:?}");
        }
    }

    /// argsz, flags, page sizes, cap_offset, padding.
    fn iommu(flags: u32, sizes: u64, cap_offset: u32, tail: &[u32]) -> Vec<u8> {
        let mut bytes = words(&[0, flags]);
        bytes.extend(sizes.to_ne_bytes());
        bytes.extend(words(&[cap_offset, 0]));
        bytes.extend(words(tail));
        bytes
    }

    #[test]
    fn iova_ranges_and_mappings_left() {
        let tail = [1 | 1 << 16, 64, 2, 0, 0, 0, 0xFEDF_FFFF, 0, 0xFEF0_0000, 0, u32::MAX, 0x7F, 3 | 1 << 16, 0, 65535];
        // 24 bytes of structure, 48 of ranges: the next capability is at 72.
        let mut tail = tail.to_vec();
        tail[1] = 72;
        let info = IommuInfo::parse(&iommu(3, 0x4020_1000, 24, &tail)).unwrap();
        assert_eq!(info.page_size, 4096);
        assert_eq!(info.ranges.unwrap(), [0..=0xFEDF_FFFF, 0xFEF0_0000..=0x7F_FFFF_FFFF]);
        assert_eq!(info.mappings_left, Some(65535));
    }

    #[test]
    fn kernels_that_say_less_are_understood() {
        let info = IommuInfo::parse(&iommu(1, 0x4020_1000, 0, &[])).unwrap();
        assert_eq!((info.page_size, info.ranges, info.mappings_left), (4096, None, None));
        assert_eq!(IommuInfo::parse(&iommu(1, 0, 0, &[])), None, "no page size at all");
        assert_eq!(IommuInfo::parse(&iommu(2, 0, 0, &[])).unwrap().page_size, 4096);
    }

    proptest! {
        // Miri is some hundred times slower and has no files for failures.
        #![proptest_config(ProptestConfig {
            cases: if cfg!(miri) { 4 } else { 256 },
            failure_persistence: None,
            ..ProptestConfig::default()
        })]

        #[test]
        fn no_bytes_panic(mut bytes in prop::collection::vec(any::<u8>(), 0..200), small: u8, flags in 0..16_u8) {
            // Offsets that often fall inside make the chains longer.
            for at in [12, 16, 36, 44] {
                if let Some(field) = bytes.get_mut(at..at + 4) {
                    field.copy_from_slice(&u32::from(small).to_ne_bytes());
                }
            }
            if let Some(field) = bytes.get_mut(4..8) {
                field.copy_from_slice(&u32::from(flags).to_ne_bytes());
            }
            if let Some(info) = RegionInfo::parse(&bytes) {
                prop_assert!(info.mappable_from_start() <= info.size);
            }
            let _ = IommuInfo::parse(&bytes);
        }
    }
}
