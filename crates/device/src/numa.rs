//! NUMA nodes of processors (Linux `Documentation/ABI/stable/sysfs-devices-node`).

use crate::Host;

impl Host {
    /// Returns the NUMA node of logical processor `cpu`; `None` if the host does not report one.
    #[must_use]
    pub fn cpu_node(&self, cpu: usize) -> Option<u32> {
        let names = self.names(&self.sys(format!("devices/system/cpu/cpu{cpu}")));
        names.iter().find_map(|name| name.strip_prefix("node")?.parse().ok())
    }
}
