//! E0133: open_without_iommu
//! A device that reaches all memory needs somebody's word.
fn main() {
    let host = device::Host::system();
    let found = device::SysfsDevice::open_without_iommu(&host, "0000:00:00.0".parse().unwrap());
    println!("{}", found.is_ok());
}
