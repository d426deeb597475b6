//! DMA address spaces: what a device can reach, and at which address it sees it.

use crate::{DmaMemory, Error, Result};
use std::fmt;
use std::mem::ManuallyDrop;
use std::sync::{Arc, Mutex, PoisonError};

/// How to turn a pointer into a region into the address the device uses (IOVA).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Translation {
    /// IOVA = pointer + `delta`, wrapping.
    Linear {
        /// The constant.
        delta: u64,
    },
    /// No IOMMU: each page has a bus address of its own.
    Paged {
        /// Address of the region's first byte.
        base: u64,
        /// log2 of the page size.
        shift: u32,
        /// Bus address of each page.
        pages: Arc<[u64]>,
    },
}

impl Translation {
    /// The device's address of `pointer`, which must point into the region; for any other pointer the answer is
    /// an address the device may not reach.
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

/// Puts memory into, and takes it out of, one device's address space: the IOMMU behind a [`DmaDomain`].
///
/// # Safety
///
/// After `map` returned a translation, the device reaches exactly the region at the translated addresses; when
/// `unmap` has returned `Ok` it reaches it no longer. (Where an IOMMU cannot tell devices apart, as those of one IOMMU
/// group, they are one device here: what another one still has mapped, both reach, and the other's domain keeps it
/// allocated.) When `unmap` returned an error, or either unwound, whether it is mapped is not known.
pub unsafe trait DmaMapper: Send + Sync {
    /// Maps a whole region for reading and writing.
    ///
    /// # Errors
    ///
    /// When the address space is full, a limit is reached, or this path cannot map such memory.
    fn map(&self, memory: &Arc<DmaMemory>) -> Result<Translation>;

    /// Removes a mapping made by `map`.
    ///
    /// # Errors
    ///
    /// When the mapping may still be in force.
    fn unmap(&self, memory: &Arc<DmaMemory>, translation: &Translation) -> Result<()>;
}

/// One device's DMA address space. A region mapped here stays allocated until the domain is dropped or unmaps it:
/// mappings leave the IOMMU before memory is unmapped, and a mapping that cannot be removed keeps its memory for
/// ever (and says so in the log).
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
    /// A domain with nothing mapped.
    #[must_use]
    pub fn new(mapper: Box<dyn DmaMapper>) -> Self {
        Self { mapper, mapped: Mutex::default() }
    }

    /// Maps a region, or finds the mapping that it already has. A system call the first time.
    ///
    /// # Errors
    ///
    /// As [`DmaMapper::map`].
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

    /// Removes a mapping, so that the region can be freed before the domain is. One that is not there is no error.
    ///
    /// # Errors
    ///
    /// As [`DmaMapper::unmap`]; the region stays mapped, and allocated.
    pub fn unmap(&self, memory: &Arc<DmaMemory>) -> Result<()> {
        let mut mapped = self.mapped.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(place) = mapped.iter().position(|known| Arc::ptr_eq(&known.memory, memory)) else { return Ok(()) };
        self.mapper.unmap(memory, &mapped[place].translation)?;
        let gone = mapped.swap_remove(place);
        drop(ManuallyDrop::into_inner(gone.memory));
        Ok(())
    }

    /// How many regions are mapped.
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
