//! The hot path asks for no memory: not to receive, to transmit, to forward, to route, or to take and give buffers.
#![expect(unsafe_code, reason = "an allocator that counts")]

use benches::{Rig, RouteRig, Table, Work};
use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicU64, Ordering};

/// The system's allocator, counting.
struct Counting;

static ALLOCATIONS: AtomicU64 = AtomicU64::new(0);

// SAFETY: passes everything on to the system's allocator.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
        // SAFETY: the caller's promise.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: the caller's promise.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

#[test]
fn a_burst_allocates_nothing() {
    for work in Work::ALL {
        for burst in [1, 3, 32, 256] {
            let mut rig = Rig::new(burst, 512);
            // The rings fill, and the cache finds its size.
            (0..2000).for_each(|_| assert_eq!(rig.burst(work), burst));
            let before = ALLOCATIONS.load(Ordering::Relaxed);
            let moved: usize = (0..2000).map(|_| rig.burst(work)).sum();
            let after = ALLOCATIONS.load(Ordering::Relaxed);
            assert_eq!(moved, 2000 * burst, "{work} in bursts of {burst}");
            assert_eq!(after - before, 0, "{work} in bursts of {burst}");
        }
    }
    for burst in [1, 32, 256] {
        let mut rig = RouteRig::new(burst, 512, Table::Small);
        (0..2000).for_each(|_| assert_eq!(rig.burst(), burst));
        let before = (ALLOCATIONS.load(Ordering::Relaxed), rig.sent());
        let routed: usize = (0..2000).map(|_| rig.burst()).sum();
        let after = (ALLOCATIONS.load(Ordering::Relaxed), rig.sent());
        assert_eq!(routed, 2000 * burst, "routing in bursts of {burst}");
        assert!(after.1 - before.1 > 1990 * burst as u64, "routing in bursts of {burst}");
        assert_eq!(after.0 - before.0, 0, "routing in bursts of {burst}");
    }
}
