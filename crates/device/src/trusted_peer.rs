//! A promise about another process that shares packet memory.

/// The caller's promise that a process which is given packet memory (a vhost-user back end, a vfio-user server) changes
/// only the buffers that are lent to it.
///
/// Such a process has the pool's memory mapped. It cannot reach any other memory of this process, nor make a driver
/// access memory outside a buffer; but it could change the bytes of a packet while a [`&[u8]`](slice) or `&str` rules
/// out any change. Rust's rules do not allow such bytes to be lent without a copy; this promise takes the place of the
/// copy.
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
    /// Makes that promise for the peers that are connected to with it.
    ///
    /// # Safety
    ///
    /// The process writes to packet memory only where a descriptor of a ring tells it to, and only until it has handed
    /// the descriptor back. The same holds for every process that it passes the memory on to, or forks; and none of
    /// these processes writes any more once the process itself has ended and nobody holds its end of the connection.
    #[must_use]
    pub const unsafe fn vouched_for() -> Self {
        Self(())
    }
}
