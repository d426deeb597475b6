//! `wire=sink`: nothing arrives, everything sent is counted and gone.

use super::{Sent, Wire};

#[derive(Debug, Default)]
pub(crate) struct SinkWire;

impl Wire for SinkWire {
    fn poll(&mut self, _receiving: bool, _room: usize) {}

    fn front(&mut self) -> Option<&[u8]> {
        None
    }

    fn pop(&mut self) {}

    fn transmit(&mut self, _frame: &[u8]) -> Sent {
        Sent::Yes
    }

    fn needs_bytes(&self) -> bool {
        false
    }
}
