//! What a host can lack: every way in which VFIO refuses, and what `fwd doctor` says of it beforehand.

use super::ours;
use crate::checks::Checks;
use crate::machine::{Iommu, Machine, Rig, Setup};
use anyhow::Result;

const NICS: &[&str] = &["a?wire=sink", "b?id=10fb&wire=sink"];
/// Opens the first card and closes it again.
const OPEN: &str = "fwd rxonly 0000:00:05.0 --duration 0.1 --quiet";

/// Breaks one thing after the other on a machine that could run, and mends it again.
pub(super) fn refused(rig: &Rig, checks: &mut Checks) -> Result<()> {
    let mut vm = rig.boot(&Setup { nics: NICS, iommu: Iommu::Full, huge_pages: 32, ..Setup::default() })?;
    let open = &*ours::as_user(OPEN);
    refuses(&mut vm, checks, "nothing is bound", open, "bind it to VFIO: sudo fwd bind 0000:00:05.0")?;
    doctor(&mut vm, checks, "nothing is bound", "fwd bind 0000:00:05.0", false)?;
    vm.sh("modprobe vfio-pci; fwd bind 0000:00:05.0")?;
    refuses(&mut vm, checks, "the group belongs to root", open, "give it to this user: sudo chown user /dev/vfio/")?;
    vm.sh(ours::GIVE)?;
    let fine = vm.try_sh(open)?;
    checks.that(fine.status == 0, format!("as it should be, it opens: {}", ours::last_line(&fine.text)));
    doctor(&mut vm, checks, "all is well", "fine     interrupt remapping", true)?;
    doctor(&mut vm, checks, "no core is isolated", "costs    isolated cores", true)?;

    // A virtual machine's cores have no frequency to choose: made ones stand for them.
    vm.sh("for i in 0 1; do
             mount -t tmpfs made /sys/devices/system/cpu/cpu$i; mkdir /sys/devices/system/cpu/cpu$i/cpufreq
             echo powersave >/sys/devices/system/cpu/cpu$i/cpufreq/scaling_governor
         done")?;
    doctor(&mut vm, checks, "cores save power", "costs    core frequency", true)?;
    vm.sh("fwd doctor 0000:00:05.0 | grep 'echo performance' | sed 's/sudo //' | sh")?;
    doctor(&mut vm, checks, "its command has been run", "fine     core frequency", true)?;
    vm.sh("for i in 0 1; do umount /sys/devices/system/cpu/cpu$i; done")?;

    vm.sh("chmod 600 /dev/vfio/vfio")?;
    refuses(&mut vm, checks, "the container node is closed", open, "sudo chmod 666 /dev/vfio/vfio")?;
    doctor(&mut vm, checks, "the container node is closed", "BREAKS   VFIO container", false)?;
    vm.sh("chmod 666 /dev/vfio/vfio; mv /dev/vfio/vfio /dev/vfio/away")?;
    refuses(&mut vm, checks, "the container node is missing", open, "modprobe")?;
    vm.sh("mv /dev/vfio/away /dev/vfio/vfio")?;
    let group = vm.sh("echo /dev/vfio/$(basename $(readlink /sys/bus/pci/devices/0000:00:05.0/iommu_group))")?;
    let group = group.trim();
    vm.sh(&format!("mv {group} /dev/vfio/away"))?;
    refuses(&mut vm, checks, "the group node is missing", open, &format!("there is no {group}"))?;
    vm.sh(&format!("mv /dev/vfio/away {group}"))?;

    let little = "prlimit --memlock=65536 setpriv --reuid 1000 --regid 1000 --clear-groups";
    refuses(&mut vm, checks, "too little memory may be locked", &format!("{little} {OPEN}"), "raise the limit")?;
    let seen = vm.try_sh(&format!("{little} fwd doctor 0000:00:05.0"))?;
    checks.contains("  which the doctor sees", &seen.text, "BREAKS   locked memory");
    checks.equal("  and tells by its exit code", seen.status, 1);

    vm.sh("echo 0 >/proc/sys/vm/nr_hugepages")?;
    refuses(&mut vm, checks, "there are no huge pages", &format!("{open} --pages 2M"), "vm.nr_hugepages=")?;
    doctor(&mut vm, checks, "there are no huge pages", "costs    huge pages", true)?;
    let fine = vm.try_sh(open)?;
    checks.that(fine.status == 0, "without --pages it takes ordinary ones, and opens");
    vm.sh("echo 32 >/proc/sys/vm/nr_hugepages")?;

    let busy = format!(
        "{} >/dev/null 2>&1 & first=$!
         for try in $(seq 200); do ls -l /proc/$first/fd 2>/dev/null | grep -q {group} && break; sleep 0.1; done
         {open}; status=$?; kill -INT $first; wait $first; exit $status",
        ours::as_user("fwd rxonly 0000:00:05.0 --quiet")
    );
    refuses(&mut vm, checks, "another program has it", &busy, "another program has it open")?;
    vm.sh("fwd unbind 0000:00:05.0 0000:00:06.0; rmmod vfio_pci vfio_iommu_type1 vfio_pci_core 2>/dev/null; mv /sbin/modprobe /sbin/away; true")?;
    let bind = vm.try_sh("fwd bind 0000:00:05.0")?;
    checks.contains("binding without the module", &bind.text, "modprobe vfio-pci");
    checks.that(bind.status != 0, "  fails");
    doctor(&mut vm, checks, "the modules are not loaded", "BREAKS   VFIO modules", false)?;
    vm.sh("mv /sbin/away /sbin/modprobe")?;
    Ok(())
}

/// Two machines that cannot run whatever the user does.
pub(super) fn lacking(rig: &Rig, checks: &mut Checks) -> Result<()> {
    let mut vm = rig.boot(&Setup { nics: NICS, huge_pages: 32, ..Setup::default() })?;
    refuses(&mut vm, checks, "there is no IOMMU", OPEN, "IOMMU")?;
    doctor(&mut vm, checks, "there is no IOMMU", "BREAKS   iommu", false)?;
    drop(vm);
    let mut vm = rig.boot(&Setup { nics: NICS, iommu: Iommu::NoRemapping, huge_pages: 32, ..Setup::default() })?;
    vm.sh(ours::GIVE)?;
    refuses(&mut vm, checks, "interrupts are not remapped", OPEN, "interrupt remapping")?;
    doctor(&mut vm, checks, "interrupts are not remapped", "BREAKS   interrupt remapping", false)?;
    Ok(())
}

/// Two cards that the IOMMU cannot tell apart, one of them with the kernel's driver.
pub(super) fn shared(rig: &Rig, checks: &mut Checks) -> Result<()> {
    let setup = Setup {
        nics: NICS,
        iommu: Iommu::Full,
        one_group: true,
        huge_pages: 32,
        kernel: "isolcpus=1 nohz_full=1",
        ..Setup::default()
    };
    let mut vm = rig.boot(&setup)?;
    vm.sh("modprobe ixgbe; modprobe vfio-pci; fwd bind 0000:01:05.0")?;
    let open = "fwd rxonly 0000:01:05.0 --duration 0.1 --quiet";
    refuses(&mut vm, checks, "the group is not viable", open, "0000:01:06.0 shares IOMMU group")?;
    let said = vm.try_sh("fwd doctor 0000:01:05.0")?;
    checks.contains("the doctor sees it", &said.text, "0000:01:06.0 shares IOMMU group");
    checks.equal("  its exit code", said.status, 1);
    checks.contains("and sees the isolated core", &said.text, "fine     isolated cores");
    vm.sh("fwd bind 0000:01:06.0")?;
    let fine = vm.try_sh(open)?;
    checks.that(fine.status == 0, format!("given up both, it opens: {}", ours::last_line(&fine.text)));
    Ok(())
}

/// `command` fails with one line that says what to do next.
fn refuses(vm: &mut Machine, checks: &mut Checks, when: &str, command: &str, words: &str) -> Result<()> {
    let said = vm.try_sh(command)?;
    let errors: Vec<_> = said.text.lines().filter(|line| line.starts_with("fwd: ")).collect();
    checks.contains(format!("{when}: {}", errors.join(" / ")), &errors.join("\n"), words);
    checks.equal("  one line, and a status", (errors.len(), said.status), (1, 1));
    Ok(())
}

/// The doctor sees it too, and says whether anything breaks.
fn doctor(vm: &mut Machine, checks: &mut Checks, when: &str, words: &str, runs: bool) -> Result<()> {
    let said = vm.try_sh(&ours::as_user("fwd doctor 0000:00:05.0"))?;
    checks.contains(format!("the doctor, when {when}"), &said.text, words);
    checks.equal("  its exit code", said.status, i32::from(!runs));
    Ok(())
}
