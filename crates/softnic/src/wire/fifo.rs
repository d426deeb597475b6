//! A queue of frames that allocates nothing once it has seen its longest frames.

use std::collections::VecDeque;

/// Frames in order.
#[derive(Debug, Default)]
pub(crate) struct FrameFifo {
    frames: VecDeque<Vec<u8>>,
    spare: Vec<Vec<u8>>,
    bytes: usize,
}

impl FrameFifo {
    pub(crate) fn push(&mut self, frame: &[u8]) {
        let mut copy = self.spare.pop().unwrap_or_default();
        copy.clear();
        copy.extend_from_slice(frame);
        self.bytes += copy.len();
        self.frames.push_back(copy);
    }

    pub(crate) fn front(&self) -> Option<&[u8]> {
        self.frames.front().map(Vec::as_slice)
    }

    pub(crate) fn pop(&mut self) {
        if let Some(frame) = self.frames.pop_front() {
            self.bytes -= frame.len();
            self.spare.push(frame);
        }
    }

    pub(crate) fn clear(&mut self) {
        while !self.frames.is_empty() {
            self.pop();
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.frames.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.frames.is_empty()
    }

    /// Bytes of all frames.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }
}
