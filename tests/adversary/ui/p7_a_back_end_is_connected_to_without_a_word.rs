//! E0061|E0133: argument
//! P7: a process that shares packet memory, and nobody vouches for it.
fn main() {
    let device = virtio::VhostUser::connect(std::path::Path::new("/tmp/back-end"));
    println!("{:?}", device.is_ok());
}
