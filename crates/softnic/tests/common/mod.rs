//! A driver of a page or two, written from the datasheet's order of steps, to drive the model by hand.
#![allow(dead_code, unreachable_pub, reason = "each test program uses a part")]
#![allow(clippy::unwrap_used, clippy::cast_possible_truncation, reason = "a failure here is a failed test")]
#![expect(unsafe_code, reason = "plays the driver")]

use device::{Bar as _, Device, DmaMemory, MemoryRequest, PageSize, Translation};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

pub const CTRL: u32 = 0x0;
pub const STATUS: u32 = 0x8;
pub const EICR: u32 = 0x800;
pub const EIMC: u32 = 0x888;
pub const RDRXCTL: u32 = 0x2F00;
pub const RXCTRL: u32 = 0x3000;
pub const HLREG0: u32 = 0x4240;
pub const MAXFRS: u32 = 0x4268;
pub const AUTOC: u32 = 0x42A0;
pub const LINKS: u32 = 0x42A4;
pub const DMATXCTL: u32 = 0x4A80;
pub const FCTRL: u32 = 0x5080;
pub const SECRXCTRL: u32 = 0x8D00;
pub const SECRXSTAT: u32 = 0x8D04;
pub const EEC: u32 = 0x10010;

pub const ENABLE: u32 = 1 << 25;
pub const DD: u64 = 1;
pub const EOP: u64 = 2;

pub const fn rx(queue: u32, field: u32) -> u32 {
    if queue < 64 { 0x1000 + 0x40 * queue + field } else { 0xD000 + 0x40 * (queue - 64) + field }
}

pub const fn tx(queue: u32, field: u32) -> u32 {
    0x6000 + 0x40 * queue + field
}

/// A little memory the device can reach.
pub struct Arena {
    memory: Arc<DmaMemory>,
    translation: Arc<Translation>,
}

impl Arena {
    pub fn new(device: &impl Device, bytes: usize) -> Self {
        let request = MemoryRequest { bytes, pages: PageSize::Ordinary, numa_node: None };
        let memory = DmaMemory::allocate(&request).unwrap();
        let translation = device.dma().map(&memory).unwrap();
        Self { memory, translation }
    }

    pub fn iova(&self, offset: usize) -> u64 {
        assert!(offset < self.memory.len());
        self.translation.iova(self.memory.base().as_ptr().wrapping_add(offset))
    }

    pub fn word(&self, offset: usize) -> &AtomicU64 {
        assert!(offset + 8 <= self.memory.len() && offset.is_multiple_of(8));
        // SAFETY: inside the memory, as just checked.
        let at = unsafe { self.memory.base().as_ptr().add(offset) };
        // SAFETY: aligned, and only accessed by atomics here; the model does the same.
        unsafe { AtomicU64::from_ptr(at.cast()) }
    }

    pub fn read(&self, offset: usize, len: usize) -> Vec<u8> {
        let mut bytes = vec![0; len];
        assert!(offset + len <= self.memory.len());
        // SAFETY: inside the memory, as just checked.
        let from = unsafe { self.memory.base().as_ptr().add(offset) };
        // SAFETY: `len` bytes on both sides, and the device has given them back.
        unsafe { std::ptr::copy_nonoverlapping(from, bytes.as_mut_ptr(), len) };
        bytes
    }

    pub fn write(&self, offset: usize, bytes: &[u8]) {
        assert!(offset + bytes.len() <= self.memory.len());
        // SAFETY: inside the memory, as just checked.
        let to = unsafe { self.memory.base().as_ptr().add(offset) };
        // SAFETY: `bytes` fit, and the device has not been given them yet.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), to, bytes.len()) };
    }
}

/// What the driver is to set up.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    pub queues: u32,
    pub descriptors: u32,
    /// KiB of a receive buffer.
    pub buffer_kib: u32,
    pub legacy: bool,
    pub strip_crc: bool,
    pub jumbo: Option<u32>,
    pub drop_en: bool,
    pub fctrl: u32,
    pub wthresh: u32,
}

impl Default for Plan {
    fn default() -> Self {
        Self {
            queues: 1,
            descriptors: 16,
            buffer_kib: 2,
            legacy: false,
            strip_crc: true,
            jumbo: None,
            drop_en: false,
            fctrl: 1 << 8 | 1 << 9 | 1 << 10,
            wthresh: 0,
        }
    }
}

/// A received frame.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Received {
    pub bytes: Vec<u8>,
    pub low: u64,
    pub high: u64,
    pub descriptors: u32,
}

pub struct Driver<D: Device> {
    pub device: D,
    pub arena: Arena,
    pub plan: Plan,
    pub rx_next: Vec<u32>,
    pub tx_next: Vec<u32>,
}

impl<D: Device> Driver<D> {
    pub fn read(&self, register: u32) -> u32 {
        self.device.bar().read32(register)
    }

    pub fn write(&self, register: u32, value: u32) {
        // SAFETY: tests give the model addresses of their own arena, or wrong ones that it must refuse.
        unsafe { self.device.bar().write32(register, value) }
    }

    pub fn poll(&self, what: &str, register: u32, mask: u32, want: u32) {
        let start = Instant::now();
        let mut polls = 0u32;
        while self.read(register) & mask != want {
            polls += 1;
            assert!(polls < 1000 || start.elapsed() < Duration::from_secs(5), "{what} never came");
            std::thread::yield_now();
        }
    }

    /// Memory of a queue: rings, then transmit buffers, then receive buffers, all in slots of the receive buffer size.
    fn queue_bytes(&self) -> usize {
        let rings = (self.plan.descriptors as usize * 16).next_multiple_of(128) * 2;
        (rings + 64 + 128).next_multiple_of(4096) + 2 * self.plan.descriptors as usize * self.slot()
    }

    pub fn slot(&self) -> usize {
        self.plan.buffer_kib as usize * 1024
    }

    pub fn rx_ring(&self, queue: u32) -> usize {
        queue as usize * self.queue_bytes()
    }

    pub fn tx_ring(&self, queue: u32) -> usize {
        self.rx_ring(queue) + (self.plan.descriptors as usize * 16).next_multiple_of(128)
    }

    pub fn head_word(&self, queue: u32) -> usize {
        self.tx_ring(queue) + (self.plan.descriptors as usize * 16).next_multiple_of(128)
    }

    pub fn tx_buffer(&self, queue: u32, index: u32) -> usize {
        self.rx_ring(queue) + (self.head_word(0) + 64).next_multiple_of(4096) + index as usize * self.slot()
    }

    pub fn rx_buffer(&self, queue: u32, index: u32) -> usize {
        self.tx_buffer(queue, self.plan.descriptors + index)
    }

    /// Section 13: reset and wait for what resets.
    pub fn reset(&self) {
        assert_ne!(self.read(STATUS), u32::MAX);
        self.write(EIMC, 0x7FFF_FFFF);
        self.write(CTRL, 1 << 2);
        self.poll("STATUS.GIO = 0", STATUS, 1 << 19, 0);
        self.write(CTRL, 1 << 26 | 1 << 3);
        self.poll("CTRL.RST = 0", CTRL, 1 << 26 | 1 << 3, 0);
        self.write(EIMC, 0x7FFF_FFFF);
        self.read(EICR);
        self.poll("EEC.ARD", EEC, 1 << 9, 1 << 9);
        self.poll("RDRXCTL.DMAIDONE", RDRXCTL, 1 << 3, 1 << 3);
    }

    /// Section 5.2 up to, but without, RXEN.
    pub fn configure_rx(&self) {
        let strip = u32::from(self.plan.strip_crc);
        let jumbo = u32::from(self.plan.jumbo.is_some()) << 2;
        self.write(RXCTRL, 0);
        self.write(HLREG0, self.read(HLREG0) & !(1 << 1 | 1 << 2) | strip << 1 | jumbo);
        self.write(RDRXCTL, self.read(RDRXCTL) & !(0x1F << 17 | 1 << 3 | 2) | 3 << 25 | strip << 1);
        if let Some(bytes) = self.plan.jumbo {
            self.write(MAXFRS, bytes << 16);
        }
        self.write(FCTRL, self.plan.fctrl);
    }

    pub fn start_rx_queue(&self, queue: u32) {
        let ring = self.arena.iova(self.rx_ring(queue));
        self.write(rx(queue, 0x00), ring as u32);
        self.write(rx(queue, 0x04), (ring >> 32) as u32);
        self.write(rx(queue, 0x08), self.plan.descriptors * 16);
        self.write(rx(queue, 0x10), 0);
        self.write(rx(queue, 0x18), 0);
        let kind = u32::from(!self.plan.legacy) << 25;
        self.write(rx(queue, 0x14), self.plan.buffer_kib | kind | u32::from(self.plan.drop_en) << 28);
        self.write(rx(queue, 0x0C), self.read(rx(queue, 0x0C)) & !(1 << 12));
        for index in 0..self.plan.descriptors {
            self.arm(queue, index);
        }
        self.write(rx(queue, 0x28), ENABLE);
        self.poll("RXDCTL.EN", rx(queue, 0x28), ENABLE, ENABLE);
        self.write(rx(queue, 0x18), self.plan.descriptors - 1);
    }

    pub fn enable_receiver(&self) {
        self.write(SECRXCTRL, 2);
        self.poll("SECRX_RDY", SECRXSTAT, 1, 1);
        self.write(RXCTRL, 1);
        self.write(SECRXCTRL, 0);
    }

    /// Section 6.1.
    pub fn start_tx_queue(&self, queue: u32) {
        let ring = self.arena.iova(self.tx_ring(queue));
        self.write(tx(queue, 0x00), ring as u32);
        self.write(tx(queue, 0x04), (ring >> 32) as u32);
        self.write(tx(queue, 0x08), self.plan.descriptors * 16);
        self.write(tx(queue, 0x10), 0);
        self.write(tx(queue, 0x18), 0);
        self.write(tx(queue, 0x38), 0);
        let control = 32 | self.plan.wthresh << 16;
        self.write(tx(queue, 0x28), control);
        self.write(tx(queue, 0x28), control | ENABLE);
        self.poll("TXDCTL.EN", tx(queue, 0x28), ENABLE, ENABLE);
    }

    pub fn wait_link(&self) {
        self.poll("LINKS.UP", LINKS, 1 << 30, 1 << 30);
    }

    /// A device brought up with one call.
    pub fn start(device: D, plan: Plan) -> Self {
        let driver = Self::stopped(device, plan);
        driver.reset();
        driver.configure_rx();
        for queue in 0..plan.queues {
            driver.start_rx_queue(queue);
        }
        driver.enable_receiver();
        driver.write(DMATXCTL, 1);
        for queue in 0..plan.queues {
            driver.start_tx_queue(queue);
        }
        driver.wait_link();
        driver
    }

    /// A driver that has not touched the device yet, apart from bus mastering.
    pub fn stopped(device: D, plan: Plan) -> Self {
        device.set_bus_master(true).unwrap();
        let slots = 2 * plan.descriptors as usize * plan.buffer_kib as usize * 1024;
        let bytes = plan.queues as usize * (slots + plan.descriptors as usize * 32 + 16384);
        let arena = Arena::new(&device, bytes);
        let queues = plan.queues as usize;
        Self { device, arena, plan, rx_next: vec![0; queues], tx_next: vec![0; queues] }
    }

    /// Puts a buffer's address into a receive descriptor.
    pub fn arm(&self, queue: u32, index: u32) {
        let at = self.rx_ring(queue) + index as usize * 16;
        self.arena.word(at).store(self.arena.iova(self.rx_buffer(queue, index)), Ordering::Relaxed);
        self.arena.word(at + 8).store(0, Ordering::Relaxed);
    }

    pub fn rx_descriptor(&self, queue: u32, index: u32) -> (u64, u64) {
        let at = self.rx_ring(queue) + index as usize * 16;
        let high = self.arena.word(at + 8).load(Ordering::Acquire);
        (self.arena.word(at).load(Ordering::Relaxed), high)
    }

    /// Takes one frame off a receive ring, re-arms its descriptors and rings the doorbell.
    pub fn receive(&mut self, queue: u32) -> Option<Received> {
        let mut bytes = Vec::new();
        let mut descriptors = 0;
        let first = self.rx_next[queue as usize];
        let mut index = first;
        loop {
            let (low, high) = self.rx_descriptor(queue, index);
            let (done, end, len) = if self.plan.legacy {
                (high >> 32 & 1 != 0, high >> 33 & 1 != 0, high & 0xFFFF)
            } else {
                (high & DD != 0, high & EOP != 0, high >> 32 & 0xFFFF)
            };
            if !done {
                return None;
            }
            let len = (len as usize).min(self.slot());
            bytes.extend(self.arena.read(self.rx_buffer(queue, index), len));
            descriptors += 1;
            index = (index + 1) % self.plan.descriptors;
            if end {
                for n in 0..descriptors {
                    self.arm(queue, (first + n) % self.plan.descriptors);
                }
                self.rx_next[queue as usize] = index;
                let tail = (index + self.plan.descriptors - 1) % self.plan.descriptors;
                self.write(rx(queue, 0x18), tail);
                return Some(Received { bytes, low, high, descriptors });
            }
        }
    }

    /// Writes an advanced data descriptor for each part of a frame, RS on the last; does not ring the doorbell.
    pub fn put(&mut self, queue: u32, parts: &[&[u8]]) -> u32 {
        let total: usize = parts.iter().map(|part| part.len()).sum();
        let mut index = self.tx_next[queue as usize];
        let mut last = index;
        for (n, part) in parts.iter().enumerate() {
            let buffer = self.tx_buffer(queue, index);
            self.arena.write(buffer, part);
            let end = if n + 1 == parts.len() { 1 << 24 | 1 << 27 } else { 0 };
            let high = (total as u64) << 46 | 1 << 29 | 3 << 20 | 1 << 25 | end | part.len() as u64;
            self.set_tx(queue, index, self.arena.iova(buffer), high);
            last = index;
            index = (index + 1) % self.plan.descriptors;
        }
        self.tx_next[queue as usize] = index;
        last
    }

    pub fn set_tx(&self, queue: u32, index: u32, low: u64, high: u64) {
        let at = self.tx_ring(queue) + index as usize * 16;
        self.arena.word(at).store(low, Ordering::Relaxed);
        self.arena.word(at + 8).store(high, Ordering::Relaxed);
    }

    pub fn ring_tx(&self, queue: u32) {
        self.write(tx(queue, 0x18), self.tx_next[queue as usize]);
    }

    pub fn send(&mut self, queue: u32, frame: &[u8]) -> u32 {
        let last = self.put(queue, &[frame]);
        self.ring_tx(queue);
        last
    }

    pub fn tx_done(&self, queue: u32, index: u32) -> bool {
        let at = self.tx_ring(queue) + index as usize * 16 + 8;
        self.arena.word(at).load(Ordering::Acquire) >> 32 & 1 != 0
    }
}

/// A frame of `len` bytes to the station, broadcast or group address `to`, filled with a pattern.
pub fn frame(to: [u8; 6], len: usize, seed: u8) -> Vec<u8> {
    let mut frame = vec![0; len];
    for (at, byte) in frame.iter_mut().enumerate() {
        *byte = (at as u8).wrapping_mul(7).wrapping_add(seed);
    }
    frame[..6].copy_from_slice(&to);
    frame[12..14].copy_from_slice(&0x88B5u16.to_be_bytes());
    frame
}

pub const BROADCAST: [u8; 6] = [0xFF; 6];

/// Waits until `ask` has an answer.
pub fn wait<T>(what: &str, mut ask: impl FnMut() -> Option<T>) -> T {
    let start = Instant::now();
    loop {
        if let Some(answer) = ask() {
            return answer;
        }
        assert!(start.elapsed() < Duration::from_secs(30), "{what} never came");
        std::thread::yield_now();
    }
}
