//! `fwd l2`: frames pass unchanged between the two ports of a pair.

use crate::worker::Mode;

#[derive(Debug, Default)]
pub(crate) struct L2;

impl Mode for L2 {
    const NAME: &'static str = "l2";
    const PAIRS: bool = true;

    /// 0 and 1 are a pair, 2 and 3, and so on.
    fn output(port: usize) -> Option<usize> {
        Some(port ^ 1)
    }
}
