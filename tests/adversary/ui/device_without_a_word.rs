//! E0200: DmaMapper
//! What a device reaches is a promise.
use device::{DmaMapper, DmaMemory, Result, Translation};
use std::sync::Arc;

struct Mine;
impl DmaMapper for Mine {
    fn map(&self, _: &Arc<DmaMemory>) -> Result<Translation> {
        Ok(Translation::Linear { delta: 0 })
    }
    fn unmap(&self, _: &Arc<DmaMemory>, _: &Translation) -> Result<()> {
        Ok(())
    }
}

fn main() {
    println!("{}", device::DmaDomain::new(Box::new(Mine)).mappings());
}
