//! What a user can do about something: words, and shell commands. Causes that several places meet have their words here.

use crate::Host;
use std::fmt;
use std::path::Path;

/// What a user can do about a problem. Empty if there is nothing to do.
///
/// ```no_run
/// use device::Host;
///
/// let host = Host::system();
/// for device in host.network_controllers()? {
///     for command in host.status(&device).next_step.commands {
///         println!("{command}");
///     }
/// }
/// # Ok::<(), device::Error>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Remedy {
    /// What to do, in a few words.
    pub how: String,
    /// Shell commands that do it, in this order, with `sudo` in front of those that need root. Empty if no command can
    /// do it (firmware, a slot).
    pub commands: Vec<String>,
}

impl Remedy {
    /// Nothing but words.
    pub(crate) fn words(how: impl Into<String>) -> Self {
        Self { how: how.into(), commands: Vec::new() }
    }

    /// Words and one command.
    pub(crate) fn command(how: impl Into<String>, command: impl Into<String>) -> Self {
        Self::words(how).then(command)
    }

    /// One more command.
    pub(crate) fn then(mut self, command: impl Into<String>) -> Self {
        self.commands.push(command.into());
        self
    }

    /// Without its commands, which are too long for a line.
    pub(crate) fn in_words(self) -> Self {
        let more = if self.commands.is_empty() { "" } else { " (fwd doctor has the commands)" };
        Self::words(self.how + more)
    }

    /// Returns whether there is nothing to do.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.how.is_empty() && self.commands.is_empty()
    }
}

impl fmt::Display for Remedy {
    /// One line: the words, a colon, the commands.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let between = if self.how.is_empty() || self.commands.is_empty() { "" } else { ": " };
        write!(f, "{}{between}{}", self.how, self.commands.join(" && "))
    }
}

impl From<Remedy> for String {
    fn from(remedy: Remedy) -> Self {
        remedy.to_string()
    }
}

/// Loads the modules that VFIO by group needs (`-a`, as modprobe takes further names for options without it).
pub(crate) fn load_vfio() -> Remedy {
    Remedy::command("load VFIO", "sudo modprobe -a vfio-pci vfio_iommu_type1")
}

/// Binds a device to `vfio-pci`.
pub(crate) fn bind(address: impl fmt::Display) -> Remedy {
    Remedy::command("bind it to VFIO", format!("sudo fwd bind {address}"))
}

/// Lets a process lock any amount of memory: this shell at once, later logins for good.
pub(crate) fn raise_memlock(host: &Host) -> Remedy {
    let user = host.user();
    Remedy::command(
        "raise the limit, for this shell and for later logins (for a service: LimitMEMLOCK=infinity)",
        "sudo prlimit --memlock=unlimited --pid $$",
    )
    .then(format!("echo '{user} - memlock unlimited' | sudo tee /etc/security/limits.d/ringway.conf"))
}

/// Remaps interrupts, without which VFIO gives no group an IOMMU.
pub(crate) fn remap_interrupts(host: &Host) -> Remedy {
    let off = host.boot_words(&["intremap=off", "nointremap", "iommu=noremap"]);
    if !off.is_empty() {
        return host.boot_line(&format!("take {} from", off.join(" and ")), &[], &off);
    }
    if host.is_virtual() {
        return Remedy::words(
            "give the virtual IOMMU interrupt remapping (QEMU: -machine q35,kernel-irqchip=split -device intel-iommu,intremap=on)",
        );
    }
    Remedy::words(
        "enable interrupt remapping and x2APIC in the firmware (allow_unsafe_interrupts=1 would hide the danger, not remove it)",
    )
}

impl Host {
    /// Makes a node in `/dev/vfio` accessible to this user.
    pub(crate) fn open_node(&self, path: &Path) -> Remedy {
        let path = path.display();
        if path.to_string().ends_with("/vfio/vfio") {
            return Remedy::command("let everybody have it, as is usual", format!("sudo chmod 666 {path}"));
        }
        Remedy::command("give it to this user", format!("sudo chown {} {path}", self.user()))
    }

    /// Ends those that hold a node of VFIO open, as far as this user can see them.
    pub(crate) fn end_holders(&self, path: &Path) -> Remedy {
        let path = path.display();
        match self.holders(&path.to_string()).first() {
            Some((pid, name)) => {
                Remedy::command(format!("end {name} (process {pid}), which has it open"), format!("kill {pid}"))
            }
            None => Remedy::command("see which program has it open, and end that", format!("sudo fuser -v {path}")),
        }
    }

    /// Switches the IOMMU on, on this processor.
    pub(crate) fn iommu_on(&self) -> Remedy {
        let cpu = self.cpuinfo();
        if cpu.is_empty() {
            let words =
                "switch it on in the firmware (VT-d or AMD-Vi) and, on Intel, boot with intel_iommu=on iommu=pt";
            return Remedy::words(words);
        }
        let amd = cpu.contains("AuthenticAMD");
        let off = self.boot_words(&["intel_iommu=off", "amd_iommu=off", "iommu=off"]);
        let (name, table, words) = if amd {
            ("AMD-Vi (IOMMU)", "IVRS", &[][..])
        } else {
            ("VT-d", "DMAR", &["intel_iommu=on", "iommu=pt"][..])
        };
        let firmware = !self.sys(format!("firmware/acpi/tables/{table}")).exists();
        let first = match (self.is_virtual(), firmware) {
            (true, true) => "give this virtual machine a virtual IOMMU (QEMU: -machine q35,kernel-irqchip=split \
                             -device intel-iommu,intremap=on)"
                .to_owned(),
            (_, true) => format!("enable {name} in the firmware"),
            (_, false) => String::new(),
        };
        let missing: Vec<&str> = words.iter().copied().filter(|word| self.boot_words(&[word]).is_empty()).collect();
        if !first.is_empty() && off.is_empty() && missing.is_empty() {
            return Remedy::words(first);
        }
        let and = if first.is_empty() { "" } else { ", and " };
        if !off.is_empty() {
            return self.boot_line(&format!("{first}{and}take {} from", off.join(" and ")), &[], &off);
        }
        if missing.is_empty() {
            let cause =
                format!("the firmware has the table {table}, and the kernel does not use it: sudo dmesg | grep -i");
            return Remedy::words(format!("{cause} {}", if amd { "amd-vi" } else { "dmar" }));
        }
        self.boot_line(&format!("{first}{and}add {} to", missing.join(" ")), &missing, &[])
    }

    /// Adds words to the kernel's command line, or takes words from it, with this host's boot loader. `what` goes
    /// before "the kernel command line".
    pub(crate) fn boot_line(&self, what: &str, add: &[&str], remove: &[&str]) -> Remedy {
        let remedy = Remedy::words(format!("{what} the kernel command line, then reboot"));
        if self.file("usr/sbin/grubby").exists() {
            let (option, words) = if add.is_empty() { ("remove-args", remove) } else { ("args", add) };
            return remedy.then(format!("sudo grubby --update-kernel=ALL --{option}='{}'", words.join(" ")));
        }
        if !self.file("etc/default/grub").exists() {
            return remedy;
        }
        // The file is a shell script that is read before the menu is made, so a line at its end adds to those above.
        let edit = if add.is_empty() {
            let script: Vec<String> = remove.iter().map(|word| format!("s/ *{word}//g")).collect();
            format!("sudo sed -i '{}' /etc/default/grub", script.join("; "))
        } else {
            let line = format!("GRUB_CMDLINE_LINUX=\"$GRUB_CMDLINE_LINUX {}\"", add.join(" "));
            format!("echo '{line}' | sudo tee -a /etc/default/grub")
        };
        let update = if self.file("usr/sbin/update-grub").exists() {
            "sudo update-grub"
        } else {
            "sudo grub2-mkconfig -o /boot/grub2/grub.cfg"
        };
        remedy.then(edit).then(update)
    }

    /// Which of `words` the running kernel was started with.
    pub(crate) fn boot_words<'a>(&self, words: &[&'a str]) -> Vec<&'a str> {
        let line = self.read(&self.proc("cmdline")).unwrap_or_default();
        words.iter().copied().filter(|word| line.split_whitespace().any(|given| given == *word)).collect()
    }

    /// Whether this is a virtual machine.
    pub(crate) fn is_virtual(&self) -> bool {
        self.cpuinfo().contains(" hypervisor")
    }

    pub(crate) fn cpuinfo(&self) -> String {
        self.read(&self.proc("cpuinfo")).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    const INTEL: (&str, &str) = ("proc/cpuinfo", "vendor_id : GenuineIntel\nflags : fpu vme\n");
    const AMD: (&str, &str) = ("proc/cpuinfo", "vendor_id : AuthenticAMD\nflags : fpu vme\n");
    const DMAR: (&str, &str) = ("sys/firmware/acpi/tables/DMAR", "");
    const GRUB: (&str, &str) = ("etc/default/grub", "");
    const DEBIAN: (&str, &str) = ("usr/sbin/update-grub", "");
    const FEDORA: (&str, &str) = ("usr/sbin/grubby", "");

    #[test]
    fn the_way_to_an_iommu_fits_processor_firmware_and_boot_loader() {
        let on = "GRUB_CMDLINE_LINUX=\"$GRUB_CMDLINE_LINUX intel_iommu=on iommu=pt\"";
        let append = format!("echo '{on}' | sudo tee -a /etc/default/grub");
        for (files, how, commands) in [
            (
                &[INTEL, GRUB, DEBIAN][..],
                "enable VT-d in the firmware, and add intel_iommu=on iommu=pt to the kernel command line, then reboot",
                &[append.as_str(), "sudo update-grub"][..],
            ),
            (
                &[INTEL, DMAR, GRUB],
                "add intel_iommu=on iommu=pt to the kernel command line, then reboot",
                &[&append, "sudo grub2-mkconfig -o /boot/grub2/grub.cfg"],
            ),
            (
                &[INTEL, DMAR, FEDORA, GRUB, ("proc/cmdline", "quiet iommu=pt")],
                "add intel_iommu=on to the kernel command line, then reboot",
                &["sudo grubby --update-kernel=ALL --args='intel_iommu=on'"],
            ),
            (&[INTEL, ("proc/cmdline", "intel_iommu=on iommu=pt")], "enable VT-d in the firmware", &[]),
            (
                &[INTEL, DMAR, ("proc/cmdline", "intel_iommu=on iommu=pt")],
                "the firmware has the table DMAR, and the kernel does not use it: sudo dmesg | grep -i dmar",
                &[],
            ),
            (&[AMD], "enable AMD-Vi (IOMMU) in the firmware", &[]),
            (
                &[
                    AMD,
                    ("sys/firmware/acpi/tables/IVRS", ""),
                    ("proc/cmdline", "iommu=off amd_iommu=off"),
                    GRUB,
                    DEBIAN,
                ],
                "take amd_iommu=off and iommu=off from the kernel command line, then reboot",
                &["sudo sed -i 's/ *amd_iommu=off//g; s/ *iommu=off//g' /etc/default/grub", "sudo update-grub"],
            ),
            (
                &[AMD, ("sys/firmware/acpi/tables/IVRS", ""), ("proc/cmdline", "iommu=off"), FEDORA],
                "take iommu=off from the kernel command line, then reboot",
                &["sudo grubby --update-kernel=ALL --remove-args='iommu=off'"],
            ),
        ] {
            let (_root, host) = Host::made(files);
            let remedy = host.iommu_on();
            assert_eq!(
                (remedy.how.as_str(), &remedy.commands[..]),
                (how, &commands.iter().map(|c| (*c).to_owned()).collect::<Vec<_>>()[..])
            );
        }
    }

    #[test]
    fn one_line_has_words_and_commands() {
        let remedy = Remedy::command("do it", "a").then("b");
        assert_eq!(remedy.to_string(), "do it: a && b");
        assert_eq!(remedy.in_words().to_string(), "do it (fwd doctor has the commands)");
        assert_eq!(Remedy::words("look").in_words().to_string(), "look");
        assert!(Remedy::default().is_empty() && Remedy::default().to_string().is_empty());
    }

    #[test]
    fn nodes_are_opened_for_the_user_by_name() {
        let files = [
            ("proc/self/status", "Name:\tfwd\nUid:\t1000\t1000\t1000\t1000\n"),
            ("etc/passwd", "root:x:0:0::/root:/bin/sh\nann:x:1000:1000::/:/bin/sh\n"),
        ];
        let (_root, named) = Host::made(&files);
        assert_eq!(named.open_node(Path::new("/dev/vfio/12")).commands, ["sudo chown ann /dev/vfio/12"]);
        assert_eq!(named.open_node(Path::new("/dev/vfio/vfio")).commands, ["sudo chmod 666 /dev/vfio/vfio"]);
        let (_root, numbered) = Host::made(&files[..1]);
        assert_eq!(numbered.open_node(Path::new("/dev/vfio/12")).commands, ["sudo chown 1000 /dev/vfio/12"]);
        let (_root, nameless) = Host::made(&[]);
        assert_eq!(nameless.open_node(Path::new("/dev/vfio/12")).commands, ["sudo chown $USER /dev/vfio/12"]);
    }

    #[test]
    fn holders_of_a_node_are_named_as_far_as_they_are_seen() {
        let (root, host) = Host::made(&[("proc/77/comm", "testpmd\n"), ("proc/self/status", "")]);
        fs::create_dir_all(root.path().join("proc/77/fd")).unwrap();
        let path = Path::new("/dev/vfio/12");
        assert_eq!(host.end_holders(path).commands, ["sudo fuser -v /dev/vfio/12"]);
        std::os::unix::fs::symlink("/dev/vfio/12", root.path().join("proc/77/fd/9")).unwrap();
        let remedy = host.end_holders(path);
        assert_eq!(remedy.to_string(), "end testpmd (process 77), which has it open: kill 77");
    }
}
