//! E0133: vouched_for
//! P7: safe code gives its word for a peer.
fn main() {
    println!("{:?}", device::TrustedPeer::vouched_for());
}
