//! DMA address spaces: what memory a device can reach, and at which addresses.

use crate::{DmaMemory, Error, Result};
use std::fmt;
use std::mem::ManuallyDrop;
use std::sync::{Arc, Mutex, PoisonError};

/// How a pointer into a region is turned into the address that the device uses (IOVA).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Translation {
    /// IOVA = pointer + `delta`, wrapping.
    Linear {
        /// The difference between the two addresses.
        delta: u64,
    },
    /// No IOMMU: each page has its own bus address.
    Paged {
        /// Pointer to the region's first byte, as an address of this process.
        base: u64,
        /// log2 of the page size.
        shift: u32,
        /// Bus address of each page.
        pages: Arc<[u64]>,
    },
}

impl Translation {
    /// Returns the device's address of `pointer`, which must point into the region. For any other pointer the result is
    /// an address that the device may not be able to reach.
    #[inline]
    #[must_use]
    pub fn iova(&self, pointer: *const u8) -> u64 {
        let address = pointer as u64;
        match self {
            Self::Linear { delta } => address.wrapping_add(*delta),
            Self::Paged { base, shift, pages } => {
                let offset = address.wrapping_sub(*base);
                let page = offset.checked_shr(*shift).and_then(|page| usize::try_from(page).ok());
                let bus = page.and_then(|page| pages.get(page));
                bus.map_or(u64::MAX, |bus| bus.wrapping_add(offset & !(u64::MAX << shift)))
            }
        }
    }
}

/// Maps memory into one device's address space and unmaps it: the IOMMU behind a [`DmaDomain`].
///
/// # Safety
///
/// After `map` has returned a translation, the device reaches exactly the region, at the translated addresses; after
/// `unmap` has returned `Ok`, it reaches the region no longer. (Devices that an IOMMU cannot tell apart, as those of
/// one IOMMU group, are one device here: what another of them still has mapped, both reach, and the other's domain
/// keeps it allocated.) If `unmap` has returned an error, or either function has unwound, it is not known whether the
/// region is mapped.
pub unsafe trait DmaMapper: Send + Sync {
    /// Maps a whole region for reading and writing.
    ///
    /// # Errors
    ///
    /// If the address space is full, a limit is reached, or this access path cannot map such memory.
    fn map(&self, memory: &Arc<DmaMemory>) -> Result<Translation>;

    /// Removes a mapping made by `map`.
    ///
    /// # Errors
    ///
    /// If the mapping may still be in force.
    fn unmap(&self, memory: &Arc<DmaMemory>, translation: &Translation) -> Result<()>;

    /// Sets the lowest address at which `map` places memory from now on, as long as there is room there. By default it does
    /// nothing, for mappers that have no choice.
    fn set_floor(&self, floor: u64) {
        let _ = floor;
    }
}

/// One device's DMA address space. A region mapped here stays allocated until the domain is dropped or unmaps it.
/// Mappings leave the IOMMU before memory is unmapped, and if a mapping cannot be removed, its memory is kept for ever,
/// and the log says so.
pub struct DmaDomain {
    mapper: Box<dyn DmaMapper>,
    mapped: Mutex<Vec<Mapping>>,
}

/// Memory that the device reaches. Dropping this value, by unwinding or otherwise, leaves the memory allocated for ever:
/// it is freed by whoever has unmapped it.
struct Mapping {
    memory: ManuallyDrop<Arc<DmaMemory>>,
    translation: Arc<Translation>,
}

impl DmaDomain {
    /// Creates a domain in which nothing is mapped.
    #[must_use]
    pub fn new(mapper: Box<dyn DmaMapper>) -> Self {
        Self { mapper, mapped: Mutex::default() }
    }

    /// Maps a region, or returns the mapping that it already has. The first call for a region makes a system call.
    ///
    /// # Errors
    ///
    /// Those of [`DmaMapper::map`].
    pub fn map(&self, memory: &Arc<DmaMemory>) -> Result<Arc<Translation>> {
        let mut mapped = self.mapped.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = mapped.iter().find(|known| Arc::ptr_eq(&known.memory, memory)) {
            return Ok(Arc::clone(&known.translation));
        }
        mapped.reserve(1);
        // Held while it is not known whether the memory is mapped.
        let held = ManuallyDrop::new(Arc::clone(memory));
        match self.mapper.map(memory) {
            Ok(translation) => {
                let translation = Arc::new(translation);
                mapped.push(Mapping { memory: held, translation: Arc::clone(&translation) });
                Ok(translation)
            }
            Err(error) => {
                drop(ManuallyDrop::into_inner(held));
                Err(error)
            }
        }
    }

    /// Has memory mapped at `floor` or above from now on, where the address space has room there and the access path a choice.
    /// What [`Self::map`] returns tells whether it did. For tests of a device's high addresses.
    pub fn set_floor(&self, floor: u64) {
        self.mapper.set_floor(floor);
    }

    /// Removes a mapping, so that the region can be freed before the domain is. A region that is not mapped is not an
    /// error.
    ///
    /// # Errors
    ///
    /// Those of [`DmaMapper::unmap`]; the region then stays mapped and allocated.
    pub fn unmap(&self, memory: &Arc<DmaMemory>) -> Result<()> {
        let mut mapped = self.mapped.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(place) = mapped.iter().position(|known| Arc::ptr_eq(&known.memory, memory)) else { return Ok(()) };
        self.mapper.unmap(memory, &mapped[place].translation)?;
        let gone = mapped.swap_remove(place);
        drop(ManuallyDrop::into_inner(gone.memory));
        Ok(())
    }

    /// Returns the number of mapped regions.
    #[must_use]
    pub fn mappings(&self) -> usize {
        self.mapped.lock().unwrap_or_else(PoisonError::into_inner).len()
    }
}

impl Drop for DmaDomain {
    fn drop(&mut self) {
        let mapped = std::mem::take(self.mapped.get_mut().unwrap_or_else(PoisonError::into_inner));
        let mut kept: Vec<(usize, Error)> = Vec::new();
        for Mapping { memory, translation } in mapped {
            match self.mapper.unmap(&memory, &translation) {
                Ok(()) => drop(ManuallyDrop::into_inner(memory)),
                Err(error) => kept.push((memory.len(), error)),
            }
        }
        // Last, as a subscriber may panic.
        for (len, error) in kept {
            tracing::error!("{len} bytes of DMA memory are kept for ever: {error}");
        }
    }
}

impl fmt::Debug for DmaDomain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DmaDomain").field("mappings", &self.mappings()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{MemoryRequest, PageSize};
    use std::panic::{AssertUnwindSafe, catch_unwind};
    use tracing::span;

    fn memory() -> Arc<DmaMemory> {
        DmaMemory::allocate(&MemoryRequest { bytes: 4096, pages: PageSize::Ordinary, numa_node: None }).unwrap()
    }

    #[test]
    fn any_translation_answers_any_pointer() {
        let page = |shift| Translation::Paged { base: 0x1000, shift, pages: [u64::MAX, 0x9000].into() };
        assert_eq!(page(12).iova(0x2fff as *const u8), 0x9fff);
        assert_eq!(page(12).iova(0x3000 as *const u8), u64::MAX, "behind the last page");
        assert_eq!(page(12).iova(std::ptr::null()), u64::MAX, "before the first");
        assert_eq!(page(12).iova(0x1002 as *const u8), 1, "addresses wrap");
        assert_eq!([64, u32::MAX].map(|shift| page(shift).iova(0x1000 as *const u8)), [u64::MAX; 2], "no such pages");
    }

    /// An IOMMU that says no, or panics, or does as it is told, by how much of it is left.
    struct Moody {
        unmap: fn(usize) -> Result<()>,
        asked: Mutex<usize>,
    }

    // SAFETY: there is no device.
    unsafe impl DmaMapper for Moody {
        fn map(&self, _: &Arc<DmaMemory>) -> Result<Translation> {
            Ok(Translation::Linear { delta: 0 })
        }

        fn unmap(&self, _: &Arc<DmaMemory>, _: &Translation) -> Result<()> {
            let mut asked = self.asked.lock().unwrap_or_else(PoisonError::into_inner);
            *asked += 1;
            (self.unmap)(*asked)
        }
    }

    fn domain(unmap: fn(usize) -> Result<()>) -> DmaDomain {
        DmaDomain::new(Box::new(Moody { unmap, asked: Mutex::new(0) }))
    }

    /// A logger with a broken output.
    struct Panicking;

    impl tracing::Subscriber for Panicking {
        fn enabled(&self, _: &tracing::Metadata<'_>) -> bool {
            true
        }

        fn new_span(&self, _: &span::Attributes<'_>) -> span::Id {
            span::Id::from_u64(1)
        }

        fn record(&self, _: &span::Id, _: &span::Record<'_>) {}

        fn record_follows_from(&self, _: &span::Id, _: &span::Id) {}

        fn event(&self, _: &tracing::Event<'_>) {
            panic!("the log is full");
        }

        fn enter(&self, _: &span::Id) {}

        fn exit(&self, _: &span::Id) {}
    }

    #[test]
    fn p6_a_logger_that_panics_frees_nothing_that_is_mapped() {
        let memories = [memory(), memory(), memory()];
        let domain = domain(|asked| match asked {
            2 => Ok(()),
            _ => Err(Error::unusable("the test", "it stays mapped", "")),
        });
        memories.iter().for_each(|memory| drop(domain.map(memory).unwrap()));
        tracing::subscriber::with_default(Panicking, || {
            catch_unwind(AssertUnwindSafe(|| drop(domain))).unwrap_err();
        });
        assert_eq!(memories.each_ref().map(Arc::strong_count), [2, 1, 2], "the second was unmapped, and is freed");
    }

    #[test]
    fn p6_an_unmapping_that_panics_frees_nothing_that_is_mapped() {
        let memories = [memory(), memory(), memory()];
        let domain = domain(|asked| if asked == 2 { panic!("no") } else { Ok(()) });
        memories.iter().for_each(|memory| drop(domain.map(memory).unwrap()));
        catch_unwind(AssertUnwindSafe(|| drop(domain))).unwrap_err();
        assert_eq!(memories.each_ref().map(Arc::strong_count), [1, 2, 2]);
    }

    #[test]
    fn what_is_unmapped_is_freed_once() {
        let (memory, domain) = (memory(), domain(|_| Ok(())));
        domain.map(&memory).unwrap();
        domain.map(&memory).unwrap();
        assert_eq!((domain.mappings(), Arc::strong_count(&memory)), (1, 2));
        domain.unmap(&memory).unwrap();
        domain.unmap(&memory).unwrap();
        assert_eq!((domain.mappings(), Arc::strong_count(&memory)), (0, 1));
    }
}
