//! `fwd rxonly`: frames are counted and go nowhere.

use crate::worker::Mode;

#[derive(Debug, Default)]
pub(crate) struct Rxonly;

impl Mode for Rxonly {
    const NAME: &'static str = "rxonly";

    fn output(_: usize) -> Option<usize> {
        None
    }
}
