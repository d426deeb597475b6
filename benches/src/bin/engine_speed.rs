//! What a packet costs the engine: two soft NICs, `gen` received and `sink` transmitted, driven by the least a driver
//! can do (descriptors re-armed and doorbells rung in bursts, no byte of a packet touched).
//!
//! `cargo run --release -p benches --bin engine_speed [SECONDS]`; whether the frames are right is what the tests of `softnic` look at.

#![expect(unsafe_code, reason = "plays the driver")]
#![allow(clippy::unwrap_used, clippy::cast_possible_truncation, reason = "a program that measures")]

use device::{Bar as _, Device as _, DmaMemory, MemoryRequest, PageSize};
use softnic::SoftDevice;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

const DESCRIPTORS: u32 = 512;
const BURST: u32 = 64;
const BUFFER: usize = 2048;
const ENABLE: u32 = 1 << 25;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let seconds = std::env::args().nth(1).map_or(Ok(2), |arg| arg.parse())?;
    for (name, gen_on, sink_on) in [("gen", true, false), ("sink", false, true), ("gen + sink", true, true)] {
        let source = Port::open("source?wire=gen&size=60&flows=256")?;
        let sink = Port::open("sink?wire=sink")?;
        let (mut received, mut sent) = (0u64, 0u64);
        let (mut rx_next, mut tx_next, mut tx_clean) = (0, 0, 0);
        let start = Instant::now();
        while start.elapsed() < Duration::from_secs(seconds) {
            if gen_on {
                received += u64::from(source.drain(&mut rx_next));
            }
            if sink_on {
                sent += u64::from(sink.fill(&mut tx_next, &mut tx_clean));
            }
        }
        let elapsed = start.elapsed().as_nanos() as f64;
        let packets = received.max(sent) as f64;
        println!(
            "{name}: {:.1} ns a packet, {:.2} Mpps (received {received}, sent {sent})",
            elapsed / packets,
            packets * 1e3 / elapsed
        );
    }
    Ok(())
}

struct Port {
    device: SoftDevice,
    memory: Arc<DmaMemory>,
    iova: u64,
}

impl Port {
    fn open(spec: &str) -> Result<Self, Box<dyn std::error::Error>> {
        let device = SoftDevice::open(spec)?;
        let bytes = 65536 + DESCRIPTORS as usize * BUFFER;
        let memory = DmaMemory::allocate(&MemoryRequest { bytes, pages: PageSize::Auto, numa_node: None })?;
        let iova = device.dma().map(&memory)?.iova(memory.base().as_ptr());
        device.set_bus_master(true)?;
        let port = Self { device, memory, iova };
        port.write(0x5080, 1 << 9);
        for ring in [0x1000, 0x6000] {
            let base = port.iova + u64::from(ring == 0x6000) * 32768;
            port.write(ring, base as u32);
            port.write(ring + 4, (base >> 32) as u32);
            port.write(ring + 8, DESCRIPTORS * 16);
        }
        for index in 0..DESCRIPTORS {
            port.arm(index);
        }
        port.write(0x1014, 2 | 1 << 25);
        port.write(0x100C, 0);
        port.write(0x4A80, 1);
        for control in [0x1028, 0x6028] {
            port.write(control, ENABLE);
            while port.device.bar().read32(control) & ENABLE == 0 {}
        }
        while port.device.bar().read32(0x42A4) & 1 << 30 == 0 {}
        port.write(0x1018, DESCRIPTORS - 1);
        port.write(0x3000, 1);
        Ok(port)
    }

    fn write(&self, register: u32, value: u32) {
        // SAFETY: all addresses are those of this port's own memory, which has no Rust references into it.
        unsafe { self.device.bar().write32(register, value) }
    }

    fn word(&self, offset: usize) -> &AtomicU64 {
        assert!(offset + 8 <= self.memory.len());
        // SAFETY: inside the memory, as just checked.
        let at = unsafe { self.memory.base().as_ptr().add(offset) };
        // SAFETY: 8-aligned (all offsets are), and only accessed by atomics.
        unsafe { AtomicU64::from_ptr(at.cast()) }
    }

    fn buffer(&self, index: u32) -> u64 {
        self.iova + 65536 + u64::from(index) * BUFFER as u64
    }

    fn arm(&self, index: u32) {
        self.word(index as usize * 16).store(self.buffer(index), Ordering::Relaxed);
        self.word(index as usize * 16 + 8).store(0, Ordering::Relaxed);
    }

    /// Takes up to a burst of received frames and gives their descriptors back.
    fn drain(&self, next: &mut u32) -> u32 {
        let mut taken = 0;
        while taken < BURST && self.word(*next as usize * 16 + 8).load(Ordering::Acquire) & 1 != 0 {
            self.arm(*next);
            *next = (*next + 1) % DESCRIPTORS;
            taken += 1;
        }
        if taken != 0 {
            self.write(0x1018, (*next + DESCRIPTORS - 1) % DESCRIPTORS);
        }
        taken
    }

    /// Hands over a burst of frames if the ring has room; RS on the last of each burst.
    fn fill(&self, next: &mut u32, clean: &mut u32) -> u32 {
        while *clean != *next {
            let last = (*clean + BURST - 1) % DESCRIPTORS;
            if self.word(32768 + last as usize * 16 + 8).load(Ordering::Acquire) >> 32 & 1 == 0 {
                break;
            }
            *clean = (*clean + BURST) % DESCRIPTORS;
        }
        if (*clean + DESCRIPTORS - *next - 1) % DESCRIPTORS < BURST {
            return 0;
        }
        for n in 0..BURST {
            let at = 32768 + *next as usize * 16;
            let report = u64::from(n + 1 == BURST) << 27;
            self.word(at).store(self.buffer(*next), Ordering::Relaxed);
            self.word(at + 8).store(60 << 46 | 1 << 29 | 3 << 20 | 1 << 25 | 1 << 24 | report | 60, Ordering::Relaxed);
            *next = (*next + 1) % DESCRIPTORS;
        }
        self.write(0x6018, *next);
        BURST
    }
}
