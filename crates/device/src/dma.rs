//! DMA address spaces: what a device can reach, and at which address it sees it.

use crate::{DmaMemory, Result};
use std::fmt;
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
                let page = usize::try_from(offset >> shift).unwrap_or(usize::MAX);
                pages.get(page).map_or(u64::MAX, |bus| bus + (offset & ((1 << shift) - 1)))
            }
        }
    }
}

/// Puts memory into, and takes it out of, one device's address space: the IOMMU behind a [`DmaDomain`].
///
/// # Safety
///
/// After `map` returned a translation, the device reaches exactly the region at the translated addresses; when
/// `unmap` has returned `Ok` it reaches it no longer.
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
    mapped: Mutex<Vec<(Arc<DmaMemory>, Arc<Translation>)>>,
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
        if let Some((_, translation)) = mapped.iter().find(|(known, _)| Arc::ptr_eq(known, memory)) {
            return Ok(Arc::clone(translation));
        }
        let translation = Arc::new(self.mapper.map(memory)?);
        mapped.push((Arc::clone(memory), Arc::clone(&translation)));
        Ok(translation)
    }

    /// Removes a mapping, so that the region can be freed before the domain is. One that is not there is no error.
    ///
    /// # Errors
    ///
    /// As [`DmaMapper::unmap`]; the region stays mapped, and allocated.
    pub fn unmap(&self, memory: &Arc<DmaMemory>) -> Result<()> {
        let mut mapped = self.mapped.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(place) = mapped.iter().position(|(known, _)| Arc::ptr_eq(known, memory)) else { return Ok(()) };
        self.mapper.unmap(&mapped[place].0, &mapped[place].1)?;
        mapped.swap_remove(place);
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
        let mapped = self.mapped.get_mut().unwrap_or_else(PoisonError::into_inner);
        for (memory, translation) in mapped.drain(..) {
            if let Err(error) = self.mapper.unmap(&memory, &translation) {
                tracing::error!("{} bytes of DMA memory are kept for ever: {error}", memory.len());
                std::mem::forget(memory);
            }
        }
    }
}

impl fmt::Debug for DmaDomain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DmaDomain").field("mappings", &self.mappings()).finish_non_exhaustive()
    }
}
