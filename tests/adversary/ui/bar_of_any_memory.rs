//! E0133: new
//! Registers at any address.
use std::ptr::NonNull;
use std::sync::Arc;

fn main() {
    let bar = device::MappedBar::new(NonNull::dangling(), 4096, Arc::new(()));
    println!("{bar:?}");
}
