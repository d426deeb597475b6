//! `wire=loop`: what is sent comes back. Also the loopback inside the MAC (HLREG0.LPBK).

use super::{FrameFifo, Sent, Wire};

/// Most frames under way: a sender waits when nobody receives.
const DEPTH: usize = 1024;

#[derive(Debug, Default)]
pub(crate) struct LoopWire {
    frames: FrameFifo,
}

impl Wire for LoopWire {
    fn poll(&mut self, receiving: bool, _room: usize) {
        if !receiving {
            self.frames.clear();
        }
    }

    fn front(&mut self) -> Option<&[u8]> {
        self.frames.front()
    }

    fn pop(&mut self) {
        self.frames.pop();
    }

    fn transmit(&mut self, frame: &[u8]) -> Sent {
        if self.frames.len() >= DEPTH {
            return Sent::Full;
        }
        self.frames.push(frame);
        Sent::Yes
    }

    fn finished(&mut self) -> bool {
        self.frames.is_empty()
    }
}
