//! E0061|E0133: argument
//! P7: the same over vfio-user.
fn main() {
    let device = device::VfioUserDevice::open(std::path::Path::new("/tmp/server"));
    println!("{:?}", device.is_ok());
}
