//! E0133|E0599|E0603|E0616|E0624: fd
//! P4: bytes under a live `&[u8]` change through the descriptor behind the memory.
use device::{DmaMemory, MemoryRequest};
use std::fs::File;
use std::os::unix::fs::FileExt as _;

fn main() {
    let memory = DmaMemory::allocate(&MemoryRequest::default()).unwrap();
    let file = File::from(memory.fd().unwrap().try_clone_to_owned().unwrap());
    file.write_at(b"changed", 0).unwrap();
}
