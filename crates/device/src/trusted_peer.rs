//! Somebody's word for another process that shares packet memory.

/// Somebody's word that a process which is given packet memory (a vhost-user back end, a vfio-user server) changes only
/// the buffers that are lent to it.
///
/// Such a process has the pool's memory mapped. It cannot reach any other memory of this one, nor make a driver go beyond
/// a buffer; but it could change the bytes of a packet while [`&[u8]`](slice) or `&str` says that nobody does. Rust's rules
/// leave no way to lend such bytes without a copy, so the copy is replaced by this word.
///
/// ```
/// use device::TrustedPeer;
///
/// // SAFETY: the example connects to nobody.
/// let peer = unsafe { TrustedPeer::vouched_for() };
/// # let _ = peer;
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TrustedPeer(());

impl TrustedPeer {
    /// Gives that word for the peers that are connected to with it.
    ///
    /// # Safety
    ///
    /// The process writes to packet memory only where a descriptor of a ring tells it to, and only until it has handed
    /// the descriptor back. So does every process that it hands the memory on to, or forks; and none of these writes any
    /// more when the process itself has ended and nobody holds its end of the connection.
    #[must_use]
    pub const unsafe fn vouched_for() -> Self {
        Self(())
    }
}
