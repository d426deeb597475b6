//! E0200: Notifier|Transport|Family|Device
//! A device of one's own is a promise too.
struct Mine;
impl device::Device for Mine {
    type Bar = device::MappedBar;
    fn name(&self) -> &str {
        "mine"
    }
    fn ids(&self) -> device::PciIds {
        device::PciIds::default()
    }
    fn bar(&self) -> &device::MappedBar {
        unreachable!()
    }
    fn dma(&self) -> &device::DmaDomain {
        unreachable!()
    }
    fn set_bus_master(&self, _: bool) -> device::Result<()> {
        Ok(())
    }
    fn reset(&self) -> device::Result<()> {
        Ok(())
    }
    fn enable_msix(&self, _: u16) -> device::Result<Vec<std::os::fd::OwnedFd>> {
        Ok(Vec::new())
    }
}

fn main() {
    println!("{}", size_of_val(&Mine));
}
