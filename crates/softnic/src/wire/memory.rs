//! The wire of a strict NIC: the test puts frames in and takes them out.

use super::{FrameFifo, Sent, Wire};
use std::sync::{Arc, Mutex, PoisonError};

/// The test's end.
#[derive(Clone, Debug, Default)]
pub(crate) struct MemoryPort {
    shared: Arc<Mutex<Frames>>,
}

#[derive(Debug, Default)]
struct Frames {
    arriving: FrameFifo,
    transmitted: Vec<Vec<u8>>,
}

impl MemoryPort {
    pub(crate) fn inject(&self, frame: &[u8]) {
        self.shared.lock().unwrap_or_else(PoisonError::into_inner).arriving.push(frame);
    }

    pub(crate) fn transmitted(&self) -> Vec<Vec<u8>> {
        std::mem::take(&mut self.shared.lock().unwrap_or_else(PoisonError::into_inner).transmitted)
    }
}

/// The device's end: a packet buffer that overflows, as a real one does.
#[derive(Debug)]
pub(crate) struct MemoryWire {
    port: MemoryPort,
    buffer: FrameFifo,
    missed: u64,
}

impl MemoryWire {
    pub(crate) fn new(port: MemoryPort) -> Self {
        Self { port, buffer: FrameFifo::default(), missed: 0 }
    }
}

impl Wire for MemoryWire {
    fn poll(&mut self, receiving: bool, room: usize) {
        let mut frames = self.port.shared.lock().unwrap_or_else(PoisonError::into_inner);
        if !receiving {
            frames.arriving.clear();
            self.buffer.clear();
        }
        while let Some(frame) = frames.arriving.front() {
            if self.buffer.bytes() + frame.len() <= room {
                self.buffer.push(frame);
            } else {
                self.missed += 1;
            }
            frames.arriving.pop();
        }
    }

    fn front(&mut self) -> Option<&[u8]> {
        self.buffer.front()
    }

    fn pop(&mut self) {
        self.buffer.pop();
    }

    fn held(&self) -> usize {
        self.buffer.bytes()
    }

    fn missed(&mut self) -> u64 {
        std::mem::take(&mut self.missed)
    }

    fn may_drop(&self) -> bool {
        true
    }

    fn transmit(&mut self, frame: &[u8]) -> Sent {
        self.port.shared.lock().unwrap_or_else(PoisonError::into_inner).transmitted.push(frame.to_vec());
        Sent::Yes
    }
}
