//! `fwd selftest` on cards that a kernel's VFIO and an IOMMU are between: software 82599s, an X540, an X550 and a virtual
//! function, QEMU's 82576, and a virtio NIC.

use super::ours::as_user;
use crate::checks::Checks;
use crate::machine::{Iommu, Rig, Setup};
use anyhow::Result;

/// A check, and what it is to say.
type Says = (&'static str, &'static str);

/// The cards, by their addresses, each with checks; all in order, but for one.
const CARDS: &[(&str, &[Says])] = &[
    ("0000:00:05.0", &[("module", "10GBASE-SR")]),
    ("0000:00:06.0", &[("PHY", "at MDIO address 0")]),
    ("0000:00:07.0", &[("write-back", "never reported")]),
    ("0000:00:08.0", &[("PHY", "at MDIO address 0"), ("EEPROM", "its checksum is right")]),
    (FUNCTION, &[("loop inside", "cannot loop frames back"), ("all again", "another reset")]),
    (
        "0000:00:0a.0",
        &[("PHY", "under its semaphore"), ("EEPROM", "its checksum is right"), ("semaphores", "the EEPROM, the PHY")],
    ),
];
/// A virtual function, which cannot loop frames back.
const FUNCTION: &str = "0000:00:09.0";
/// The one that is not.
const BROKEN: &str = "0000:00:07.0";
/// And a NIC that cannot loop frames back either.
const VIRTIO: &str = "0000:00:0c.0";

pub(super) fn cards(rig: &Rig, checks: &mut Checks) -> Result<()> {
    let nics = &["a?id=10fb&module=sr", "b?id=x540", "c?fault=no-dd", "d?id=x550", "e?id=1565"];
    let igb = &["mac=02:00:00:00:00:01"];
    let virtio = &["disable-legacy=on,iommu_platform=on,mac=02:00:00:00:00:02"];
    let mut vm = rig.boot(&Setup { nics, igb, virtio, iommu: Iommu::Full, huge_pages: 32, ..Setup::default() })?;
    let places = CARDS.iter().map(|card| card.0).chain([VIRTIO]).collect::<Vec<_>>().join(" ");
    vm.sh(&format!(
        "modprobe vfio-pci; fwd bind {places}
         for nic in {places}; do chown user /dev/vfio/$(basename $(readlink /sys/bus/pci/devices/$nic/iommu_group)); done"
    ))?;
    for (card, says) in CARDS {
        let said = vm.try_sh(&as_user(&format!("fwd selftest {card} --report /tmp/report-{}", &card[8..10])))?;
        let broken = *card == BROKEN;
        if (said.status == 0) == broken {
            println!("{}", said.text);
        }
        checks.equal(format!("{card}: exit code"), said.status, i32::from(broken));
        for (check, seen) in *says {
            let line = said.text.lines().find(|line| line.contains(check) && line.contains(seen));
            checks.that(line.is_some(), format!("  {check}: {seen}"));
        }
        if !broken && *card != FUNCTION {
            let high = said.text.lines().any(|line| line.starts_with("ok ") && line.contains("DMA above 4 GiB"));
            checks.that(high, "  its memory was above 4 GiB");
        }
        let report = vm.sh(&format!("cat /tmp/report-{}", &card[8..10]))?;
        checks.that(!report.contains(card) && report.contains(":xx:xx:xx"), "  its report has no address of the host");
    }
    let said = vm.try_sh(&as_user(&format!("fwd selftest {VIRTIO}")))?;
    checks.equal("virtio: exit code", said.status, 0);
    checks.contains("  says what it cannot do", &said.text, "cannot loop frames back");
    let said = vm.sh(&as_user("fwd devices --verbose"))?;
    checks.contains("fwd devices -v shows the module", &said, "10GBASE-SR");
    for nic in 0..nics.len() {
        let counters = vm.nic(nic).wire_counters();
        checks.equal(format!("frames of soft NIC {nic} on its wire"), counters.sent + counters.lost, 0);
        let (count, first) = vm.nic(nic).violations();
        checks.that(count == 0, format!("nothing that the datasheet forbids was done to it: {first:?}"));
    }
    let faults = vm.sh("dmesg | grep -c 'DMAR:.*fault'; true")?;
    checks.equal("faults of the IOMMU", faults.trim(), "0");
    Ok(())
}
