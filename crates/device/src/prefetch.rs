//! What a program says beforehand of memory that another processor has.

/// Asks for the cache line at an address, for it to be written soon: if another processor has it, it comes while other work is done, and
/// several come at a time. Only a hint: nothing is read or written, and any address may be given.
#[inline(always)]
pub fn to_write<T>(place: *const T) {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    // SAFETY: PREFETCHW touches nothing that a program can see, and faults at no address (AMD64 Architecture Programmer's Manual, volume 3;
    // Intel SDM, volume 2B); for a processor without it, it is a NOP.
    unsafe {
        std::arch::asm!("prefetchw [{}]", in(reg) place, options(nostack, preserves_flags));
    }
    #[cfg(not(all(target_arch = "x86_64", not(miri))))]
    let _ = place;
}
