//! The time-stamp counter: cycles at a constant rate, the clock of every figure per packet.

use std::sync::OnceLock;
use std::time::{Duration, Instant};

/// Returns the present value of the time-stamp counter.
#[inline(always)]
#[must_use]
pub fn now() -> u64 {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    {
        // SAFETY: RDTSC is present on every x86-64 processor and only reads a counter.
        unsafe { core::arch::x86_64::_rdtsc() }
    }
    #[cfg(any(not(target_arch = "x86_64"), miri))]
    {
        static START: OnceLock<Instant> = OnceLock::new();
        u64::try_from(START.get_or_init(Instant::now).elapsed().as_nanos()).unwrap_or(u64::MAX)
    }
}

/// Returns whether the CPU promises that the counter has a constant rate in all of its states (invariant TSC: CPUID 8000_0007, EDX bit
/// 8; AMD64 manual 3, E.4.6; Intel SDM 2A). False where it cannot be asked.
#[must_use]
pub fn is_invariant() -> bool {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    {
        use core::arch::x86_64::__cpuid;
        const EXTENDED: u32 = 0x8000_0000;
        #[allow(unused_unsafe, reason = "newer compilers know that it is safe")]
        let leaf = |number| {
            // SAFETY: every processor of this architecture has the instruction.
            unsafe { __cpuid(number) }
        };
        leaf(EXTENDED).eax >= EXTENDED + 7 && leaf(EXTENDED + 7).edx & 1 << 8 != 0
    }
    #[cfg(any(not(target_arch = "x86_64"), miri))]
    {
        false
    }
}

/// Returns the ticks of the time-stamp counter per second. The first call measures it against the monotonic clock,
/// which takes 20 ms.
#[must_use]
pub fn frequency_hz() -> u64 {
    static HZ: OnceLock<u64> = OnceLock::new();
    *HZ.get_or_init(|| {
        let (t0, c0) = reading();
        while t0.elapsed() < Duration::from_millis(20) {
            std::hint::spin_loop();
        }
        let (t1, c1) = reading();
        let hz = u128::from(c1.saturating_sub(c0)) * 1_000_000_000 / (t1 - t0).as_nanos().max(1);
        u64::try_from(hz).unwrap_or(u64::MAX)
    })
}

/// Reads clock and counter, of some times the one in which the least lay between them: the core may be taken away there.
fn reading() -> (Instant, u64) {
    let read = || {
        let before = now();
        let time = Instant::now();
        let width = now().saturating_sub(before);
        (width, time, before + width / 2)
    };
    let (_, time, ticks) =
        (1..READINGS).map(|_| read()).fold(read(), |best, new| if new.0 < best.0 { new } else { best });
    (time, ticks)
}

const READINGS: u32 = 8;
