//! Order between this CPU's accesses to DMA memory and to registers, as a device sees it. The names are Linux's
//! (`Documentation/memory-barriers.txt`, "Kernel I/O barrier effects").
//!
//! [`crate::MappedBar`] includes these barriers: a driver calls them only to order accesses to DMA memory among
//! themselves.

#[cfg(not(all(target_arch = "aarch64", not(miri))))]
use std::sync::atomic::Ordering;

/// Makes stores before this call visible to the device before stores after it, to memory or to registers.
///
/// A `fence(Release)` is not enough outside x86: on AArch64 it is `dmb ish`, which orders for CPUs, not for devices.
#[inline(always)]
pub fn dma_wmb() {
    #[cfg(all(target_arch = "aarch64", not(miri)))]
    // SAFETY: a barrier changes no memory and no register. It counts as an access to memory, so the compiler moves none
    // across it.
    unsafe {
        std::arch::asm!("dmb oshst", options(nostack, preserves_flags));
    }
    // x86 keeps stores to write-back and to uncached memory in order (Intel SDM volume 3, 10.2.2), so this is for the
    // compiler alone.
    #[cfg(all(any(target_arch = "x86", target_arch = "x86_64"), not(miri)))]
    std::sync::atomic::compiler_fence(Ordering::Release);
    #[cfg(not(all(any(target_arch = "aarch64", target_arch = "x86", target_arch = "x86_64"), not(miri))))]
    std::sync::atomic::fence(Ordering::SeqCst);
}

/// Completes loads before this call, from memory or from registers, before loads after it: these see all that the
/// device had written before it wrote what the first ones loaded.
#[inline(always)]
pub fn dma_rmb() {
    #[cfg(all(target_arch = "aarch64", not(miri)))]
    // SAFETY: as in `dma_wmb`.
    unsafe {
        std::arch::asm!("dmb oshld", options(nostack, preserves_flags));
    }
    // x86 keeps loads in order.
    #[cfg(all(any(target_arch = "x86", target_arch = "x86_64"), not(miri)))]
    std::sync::atomic::compiler_fence(Ordering::Acquire);
    #[cfg(not(all(any(target_arch = "aarch64", target_arch = "x86", target_arch = "x86_64"), not(miri))))]
    std::sync::atomic::fence(Ordering::SeqCst);
}
