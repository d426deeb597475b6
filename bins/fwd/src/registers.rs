//! `fwd registers`: what is in a NIC's registers.

use crate::args::AccessArgs;
use cli::exit::Failure;
use cli::{output, ports};
use nic::TimeLimit;

/// Prints the registers, one a line.
pub(crate) fn print(args: &AccessArgs) -> Result<(), Failure> {
    ports::check(std::slice::from_ref(&args.address))?;
    let config = ports::access(args.access.unsafe_no_iommu, TimeLimit::default());
    let registers = nic::registers(&args.address, &config)?;
    let width = registers.iter().map(|register| register.name.len()).max().unwrap_or_default();
    let lines = registers.iter().map(|register| {
        let value = register.value.map_or("reading changes it".to_owned(), |value| format!("{value:#010x}"));
        format!("{:width$}  {:#07x}  {value}", register.name, register.offset)
    });
    output::print(&lines.collect::<Vec<_>>().join("\n"))
}
