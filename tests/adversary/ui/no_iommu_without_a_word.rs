//! E0133: accepted
//! The same through `nic`.
fn main() {
    println!("{:?}", nic::NoIommu::accepted());
}
