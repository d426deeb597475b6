//! E0200: RegisterMap
//! Which writes are harmless is a promise.
enum Mine {}
impl device::RegisterMap for Mine {
    fn covers(_: device::PciIds) -> bool {
        true
    }
}

fn main() {
    println!("{}", size_of::<Mine>());
}
