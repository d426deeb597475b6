//! Every finding on made trees: as it should be, slow, broken, and unseen.

use crate::tree::{Tree, address};
use device::{Finding, Needs, Verdict, Verdict::*};

const A: &str = "0000:03:00.0";
const B: &str = "0000:03:00.1";
const GROUP: &str = "/sys/fs/cgroup/work/cpu.max";

/// A tree on which every finding is fine: Intel, two NUMA nodes of four cores, card A on node 1 ready in group 12.
fn ready() -> Tree {
    let tree = Tree::new();
    let folder = tree.nic(A);
    tree.driver(A, "vfio-pci");
    tree.group(A, 12);
    for (path, text) in [
        ("numa_node", "1\n"),
        ("current_link_speed", "5.0 GT/s PCIe\n"),
        ("current_link_width", "8\n"),
        ("max_link_speed", "5.0 GT/s PCIe\n"),
        ("max_link_width", "8\n"),
    ] {
        tree.file(&format!("{folder}/{path}"), text);
    }
    for (path, text) in [
        ("dev/vfio/vfio", ""),
        ("dev/vfio/12", ""),
        ("etc/passwd", "ann:x:1000:1000::/:/bin/sh\n"),
        ("etc/default/grub", ""),
        ("usr/sbin/update-grub", ""),
        ("proc/cmdline", "quiet\n"),
        ("proc/cpuinfo", "vendor_id\t: GenuineIntel\nflags\t\t: fpu constant_tsc nonstop_tsc\n"),
        ("proc/interrupts", " 24: 1 0 IR-PCI-MSI 1-edge eth0\n"),
        ("proc/self/cgroup", "0::/work\n"),
        ("proc/self/limits", "Max locked memory 67108864 67108864 bytes\n"),
        ("proc/self/status", "Uid:\t1000\t1000\t1000\t1000\nCapEff:\t0000000000000000\nCpus_allowed_list:\t0-5\n"),
        ("proc/stat", "cpu 100 0 0 900 0 0 0 0 0 0\n"),
        ("proc/sys/kernel/osrelease", "6.1.0\n"),
        ("sys/class/iommu/dmar0/x", ""),
        ("sys/devices/system/clocksource/clocksource0/available_clocksource", "tsc hpet\n"),
        ("sys/devices/system/clocksource/clocksource0/current_clocksource", "tsc\n"),
        ("sys/devices/system/cpu/online", "0-7\n"),
        ("sys/devices/system/cpu/isolated", "6-7\n"),
        ("sys/devices/system/cpu/nohz_full", "6-7\n"),
        ("sys/devices/system/cpu/smt/active", "0\n"),
        ("sys/devices/system/cpu/cpu0/cpufreq/scaling_governor", "performance\n"),
        ("sys/devices/system/node/online", "0-1\n"),
        ("sys/devices/system/node/node0/cpulist", "0-3\n"),
        ("sys/devices/system/node/node1/cpulist", "4-7\n"),
        ("sys/fs/cgroup/work/cpu.max", "max 100000\n"),
        ("sys/kernel/security/lockdown", "[none] integrity confidentiality\n"),
        ("sys/module/vfio_iommu_type1/parameters/allow_unsafe_interrupts", "N\n"),
        ("sys/module/vfio_pci/x", ""),
    ] {
        tree.file(path, text);
    }
    huge_pages(&tree, 0, "0", "0");
    huge_pages(&tree, 1, "64", "60");
    tree
}

fn huge_pages(tree: &Tree, node: u32, total: &str, free: &str) {
    let folder = format!("sys/devices/system/node/node{node}/hugepages/hugepages-2048kB");
    tree.file(&format!("{folder}/nr_hugepages"), total);
    tree.file(&format!("{folder}/free_hugepages"), free);
}

/// What a run on `devices` takes: 10 MiB for each card, 5 huge pages for one.
fn needs(tree: &Tree, devices: &[&str]) -> Needs {
    let devices = devices.iter().map(|device| tree.host().pci_device(address(device)).unwrap()).collect();
    Needs { devices, pool: 6 << 20, rings: 4 << 20, tried_page: Some(2 << 20) }
}

#[test]
fn packet_memory_is_wanted_on_each_node_with_a_card() {
    let tree = ready();
    let folder = tree.nic(B);
    tree.file(&format!("{folder}/numa_node"), "0\n");
    let findings = tree.host().examine(&needs(&tree, &[A, B]));
    let what: Vec<_> = findings.iter().filter(|found| found.check == "huge pages").map(|found| &*found.what).collect();
    let expected =
        ["NUMA node 0: no pages of 2 MiB; 4 are needed", "NUMA node 1: 60 of 64 pages of 2 MiB free; 4 are needed"];
    assert_eq!(what, expected);
}

fn examine(tree: &Tree) -> Vec<Finding> {
    tree.host().examine(&needs(tree, &[A]))
}

/// One change to the ready tree.
enum Change {
    File(&'static str, &'static str),
    Remove(&'static str),
}
use Change::{File, Remove};

impl Change {
    fn make(&self, tree: &Tree) {
        match self {
            File(path, text) => tree.file(path, text),
            Remove(path) if tree.path(path).is_dir() => std::fs::remove_dir_all(tree.path(path)).unwrap(),
            Remove(path) => std::fs::remove_file(tree.path(path)).unwrap(),
        }
    }
}

#[test]
fn a_ready_host_is_fine_throughout() {
    let findings = examine(&ready());
    let checks: Vec<_> = findings.iter().map(|finding| finding.check).collect();
    let expected = [
        "iommu",
        "interrupt remapping",
        "VFIO modules",
        "VFIO container",
        "kernel lockdown",
        "locked memory",
        "huge pages",
        "huge pages",
        "huge pages by memfd",
        "isolated cores",
        "hyper-threads",
        "processor quota",
        "core frequency",
        "clock",
        "virtual machine",
        "driver",
        "PCIe link",
        "NUMA node",
    ];
    assert_eq!(checks, expected);
    for finding in &findings {
        assert!(finding.verdict == Fine && finding.effect.is_empty() && finding.remedy.is_empty(), "{finding:?}");
        assert!(!finding.what.is_empty(), "{finding:?}");
        assert_eq!(finding.device.is_some(), ["driver", "PCIe link", "NUMA node"].contains(&finding.check));
    }
}

/// Each change, the check that sees it, how bad it is, and words of the finding: what, effect, way to remedy or commands.
#[test]
fn each_fault_is_found_with_its_price_and_its_remedy() {
    type Case<'a> = (&'a [Change], &'a str, Verdict, &'a [&'a str]);
    let cases: &[Case] = &[
        (
            &[File("sys/kernel/iommu_groups/12/name", "vfio-noiommu\n")],
            "iommu",
            Breaks,
            &[
                "told to run without an IOMMU",
                "enable VT-d in the firmware, and add intel_iommu=on iommu=pt to",
                "echo 'GRUB_CMDLINE_LINUX=\"$GRUB_CMDLINE_LINUX intel_iommu=on iommu=pt\"' | sudo tee -a /etc/default/grub",
                "sudo update-grub",
            ],
        ),
        (&[Remove("sys/kernel/iommu_groups")], "iommu", Breaks, &["no IOMMU is on", "no card can be opened"]),
        (&[Remove("sys/kernel/iommu_groups")], "interrupt remapping", Unknown, &["no IOMMU"]),
        (
            &[Remove("sys/kernel/iommu_groups"), Remove("sys/bus/pci/devices/0000:03:00.0/iommu_group")],
            "driver",
            Breaks,
            &["no IOMMU is on", "fwd doctor has the commands"],
        ),
        (
            &[File("proc/interrupts", " 24: 1 0 PCI-MSI 1-edge eth0\n")],
            "interrupt remapping",
            Breaks,
            &["VFIO_SET_IOMMU: EPERM", "x2APIC in the firmware"],
        ),
        (
            &[File("proc/interrupts", " 24: 1 0 PCI-MSI 1-edge eth0\n"), File("proc/cmdline", "intremap=off quiet\n")],
            "interrupt remapping",
            Breaks,
            &["take intremap=off from the kernel", "sudo sed -i 's/ *intremap=off//g' /etc/default/grub"],
        ),
        (
            &[
                File("proc/interrupts", " 24: 1 0 PCI-MSI 1-edge eth0\n"),
                File("sys/module/vfio_iommu_type1/parameters/allow_unsafe_interrupts", "Y\n"),
            ],
            "interrupt remapping",
            Costs,
            &["allow_unsafe_interrupts", "can forge interrupts"],
        ),
        (&[Remove("proc/interrupts")], "interrupt remapping", Unknown, &["/proc/interrupts"]),
        (
            &[Remove("sys/module/vfio_pci"), Remove("sys/bus/pci/drivers/vfio-pci")],
            "VFIO modules",
            Breaks,
            &[
                "vfio-pci is not loaded, and no modules of this kernel are installed",
                "install the modules of kernel 6.1.0",
            ],
        ),
        (
            &[
                Remove("sys/module/vfio_iommu_type1"),
                File("lib/modules/6.1.0/modules.dep", "a/vfio_iommu_type1.ko.xz: \n"),
            ],
            "VFIO modules",
            Breaks,
            &["vfio_iommu_type1 is not loaded", "sudo modprobe -a vfio-pci vfio_iommu_type1"],
        ),
        (
            &[Remove("sys/module/vfio_iommu_type1"), File("lib/modules/6.1.0/modules.dep", "a/ext4.ko: \n")],
            "VFIO modules",
            Breaks,
            &["nor part of this kernel", "CONFIG_VFIO_IOMMU_TYPE1"],
        ),
        (&[Remove("dev/vfio/vfio")], "VFIO container", Breaks, &["there is no ", "/vfio/vfio", "pass /dev/vfio in"]),
        (
            &[
                File("sys/kernel/security/lockdown", "none [integrity] confidentiality\n"),
                Remove("sys/kernel/iommu_groups"),
            ],
            "kernel lockdown",
            Costs,
            &["integrity", "--unsafe-no-iommu does not work", "Secure Boot"],
        ),
        (
            &[File("sys/kernel/security/lockdown", "none [integrity] confidentiality\n")],
            "kernel lockdown",
            Fine,
            &["VFIO works all the same"],
        ),
        (
            &[File("proc/self/limits", "Max locked memory 8388608 8388608 bytes\n")],
            "locked memory",
            Breaks,
            &[
                "this user may lock 8192 KiB, and one card takes 10 MiB",
                "VFIO_IOMMU_MAP_DMA: ENOMEM",
                "sudo prlimit --memlock=unlimited --pid $$",
                "echo 'ann - memlock unlimited' | sudo tee /etc/security/limits.d/ringway.conf",
            ],
        ),
        (
            &[File("proc/self/limits", "Max locked memory 8388608 unlimited bytes\n")],
            "locked memory",
            Breaks,
            &["ulimit -S -l unlimited"],
        ),
        (
            &[File("proc/self/limits", "Max locked memory 8388608 16777216 bytes\n")],
            "locked memory",
            Breaks,
            &["ulimit -S -l 16384"],
        ),
        (
            &[File("proc/self/limits", "Max locked memory unlimited unlimited bytes\n")],
            "locked memory",
            Fine,
            &["any amount"],
        ),
        (
            &[
                File("proc/self/limits", "Max locked memory 65536 65536 bytes\n"),
                File("proc/self/status", "Uid:\t0\t0\t0\t0\nCapEff:\t000001ffffffffff\nCpus_allowed_list:\t0-5\n"),
            ],
            "locked memory",
            Fine,
            &["CAP_IPC_LOCK"],
        ),
        (&[Remove("proc/self/limits")], "locked memory", Unknown, &["/proc/self/limits"]),
        (
            &[File("sys/devices/system/node/node1/hugepages/hugepages-2048kB/free_hugepages", "3\n")],
            "huge pages",
            Costs,
            &[
                "NUMA node 1: 3 of 64 pages of 2 MiB free; 5 are needed",
                "TLB misses",
                "echo 66 | sudo tee /sys/devices/system/node/node1/hugepages/hugepages-2048kB/nr_hugepages",
            ],
        ),
        (&[Remove("sys/devices/system/node/node1/hugepages")], "huge pages", Costs, &["CONFIG_HUGETLBFS"]),
        (&[Remove("sys/devices/system/node")], "huge pages", Costs, &["this kernel has none of 2 MiB"]),
        (&[File("sys/devices/system/cpu/online", "0\n")], "isolated cores", Costs, &["has one core", "two or more"]),
        (
            &[File("sys/devices/system/cpu/isolated", "\n")],
            "isolated cores",
            Costs,
            &["none of 8 cores", "isolcpus=7 nohz_full=7 rcu_nocbs=7\"' | sudo tee -a /etc/default/grub"],
        ),
        (
            &[
                File("sys/devices/system/cpu/isolated", "\n"),
                File("sys/devices/system/cpu/cpu7/topology/thread_siblings_list", "3,7\n"),
            ],
            "isolated cores",
            Costs,
            &["isolcpus=3,7 nohz_full=3,7"],
        ),
        (
            &[File("sys/devices/system/cpu/nohz_full", "(null)\n")],
            "isolated cores",
            Costs,
            &["6-7; the timer tick runs on 6-7", "nohz_full=6-7 rcu_nocbs=6-7"],
        ),
        (&[Remove("sys/devices/system/cpu/online")], "isolated cores", Unknown, &["does not list"]),
        (
            &[
                File("sys/devices/system/cpu/smt/active", "1\n"),
                File("sys/devices/system/cpu/cpu2/topology/thread_siblings_list", "2,6\n"),
            ],
            "hyper-threads",
            Costs,
            &["of lcores 2,6, which are one core, only one is isolated", "isolate both"],
        ),
        (
            &[
                File("sys/devices/system/cpu/smt/active", "1\n"),
                File("sys/devices/system/cpu/cpu7/topology/thread_siblings_list", "6-7\n"),
            ],
            "hyper-threads",
            Fine,
            &["one of each: 6"],
        ),
        (
            &[File("sys/fs/cgroup/work/cpu.max", "50000 100000\n")],
            "processor quota",
            Costs,
            &["may use 50 % of a core", "the kernel stops them", "echo max | sudo tee ", GROUP],
        ),
        (
            &[
                File("proc/self/cgroup", "3:cpuset:/\n1:cpu,cpuacct:/work\n0::/\n"),
                File("sys/fs/cgroup/cpu/work/cpu.cfs_quota_us", "-1\n"),
                File("sys/fs/cgroup/cpu/work/cpu.cfs_period_us", "100000\n"),
                File("sys/fs/cgroup/cpu/cpu.cfs_quota_us", "150000\n"),
                File("sys/fs/cgroup/cpu/cpu.cfs_period_us", "100000\n"),
            ],
            "processor quota",
            Costs,
            &["150 %", "echo -1 | sudo tee ", "/sys/fs/cgroup/cpu/cpu.cfs_quota_us"],
        ),
        (&[Remove("proc/self/cgroup")], "processor quota", Unknown, &["/proc/self/cgroup"]),
        (
            &[File("sys/devices/system/cpu/cpu5/cpufreq/scaling_governor", "powersave\n")],
            "core frequency",
            Costs,
            &[
                "governor powersave",
                "echo performance | sudo tee /sys/devices/system/cpu/cpu*/cpufreq/scaling_governor",
            ],
        ),
        (
            &[File("sys/devices/system/cpu/intel_pstate/no_turbo", "1\n")],
            "core frequency",
            Costs,
            &["turbo off", "echo 0 | sudo tee /sys/devices/system/cpu/intel_pstate/no_turbo"],
        ),
        (
            &[File("sys/devices/system/cpu/cpufreq/boost", "0\n")],
            "core frequency",
            Costs,
            &["echo 1 | sudo tee /sys/devices/system/cpu/cpufreq/boost"],
        ),
        (&[Remove("sys/devices/system/cpu/cpu0/cpufreq")], "core frequency", Fine, &["not chosen by this kernel"]),
        (&[File("proc/cpuinfo", "flags\t\t: fpu constant_tsc\n")], "clock", Costs, &["does not run evenly"]),
        (&[Remove("proc/cpuinfo")], "clock", Unknown, &["/proc/cpuinfo"]),
        (
            &[File("sys/devices/system/clocksource/clocksource0/current_clocksource", "hpet\n")],
            "clock",
            Costs,
            &["hpet", "echo tsc | sudo tee /sys/devices/system/clocksource/clocksource0/current_clocksource"],
        ),
        (
            &[
                File("sys/devices/system/clocksource/clocksource0/current_clocksource", "hpet\n"),
                File("sys/devices/system/clocksource/clocksource0/available_clocksource", "hpet\n"),
            ],
            "clock",
            Costs,
            &["dmesg | grep -i tsc"],
        ),
        (
            &[
                File("proc/cpuinfo", "flags\t\t: fpu hypervisor constant_tsc nonstop_tsc\n"),
                File("proc/stat", "cpu 100 0 0 875 0 0 0 25 0 0\n"),
            ],
            "virtual machine",
            Costs,
            &["others took 2.5 % of its time", "pin its cores"],
        ),
        (
            &[File("proc/cpuinfo", "flags\t\t: fpu hypervisor constant_tsc nonstop_tsc\n")],
            "virtual machine",
            Fine,
            &["nobody takes its time"],
        ),
        (
            &[File("proc/cpuinfo", "flags\t\t: fpu hypervisor\n"), Remove("proc/stat")],
            "virtual machine",
            Unknown,
            &["/proc/stat"],
        ),
        (
            &[Remove("dev/vfio/12")],
            "driver",
            Breaks,
            &[
                "there is no ",
                "/vfio/12",
                "CONFIG_VFIO_GROUP",
                "sudo fwd unbind 0000:03:00.0",
                "sudo fwd bind 0000:03:00.0",
            ],
        ),
        (
            &[Remove("sys/bus/pci/devices/0000:03:00.0/driver")],
            "driver",
            Breaks,
            &["no driver has it", "sudo fwd bind 0000:03:00.0"],
        ),
        (
            &[
                File("sys/bus/pci/devices/0000:03:00.0/current_link_width", "4\n"),
                File("sys/bus/pci/devices/0000:03:00.0/current_link_speed", "2.5 GT/s PCIe\n"),
            ],
            "PCIe link",
            Costs,
            &["x4 at 2.5 GT/s (8 Gbit/s), and it can do x8 at 5.0 GT/s (32 Gbit/s)", "sudo lspci -vv -s 0000:03:00.0"],
        ),
        (&[File("sys/bus/pci/devices/0000:03:00.0/current_link_speed", "Unknown\n")], "PCIe link", Unknown, &["sysfs"]),
        (&[Remove("sys/bus/pci/devices/0000:03:00.0/max_link_width")], "PCIe link", Unknown, &["virtual device"]),
        (
            &[
                File("proc/self/status", "Uid:\t1000\nCpus_allowed_list:\t0-3\n"),
                File("sys/devices/system/cpu/isolated", "\n"),
            ],
            "NUMA node",
            Costs,
            &["none of its cores (4-7)", "taskset -cp 4-7 $$"],
        ),
        (
            &[File("sys/devices/system/cpu/isolated", "2-3\n")],
            "NUMA node",
            Costs,
            &["none of the isolated cores (2-3) is there", "isolate cores of node 1 (4-5)"],
        ),
        (&[File("sys/bus/pci/devices/0000:03:00.0/numa_node", "-1\n")], "NUMA node", Unknown, &["firmware"]),
        (&[File("sys/devices/system/node/online", "0\n")], "NUMA node", Fine, &["has one"]),
    ];
    for (changes, check, verdict, words) in cases {
        let tree = ready();
        changes.iter().for_each(|change| change.make(&tree));
        let findings = examine(&tree);
        let worst = findings.iter().filter(|finding| finding.check == *check).max_by_key(|finding| finding.verdict);
        let finding = worst.unwrap_or_else(|| panic!("no finding of {check}"));
        assert_eq!(finding.verdict, *verdict, "{finding:?}");
        let text = format!(
            "{}\n{}\n{}\n{}",
            finding.what,
            finding.effect,
            finding.remedy.how,
            finding.remedy.commands.join("\n")
        );
        for word in *words {
            assert!(text.contains(word), "{check}: no \"{word}\" in: {text}");
        }
        match finding.verdict {
            Costs | Breaks => assert!(!finding.effect.is_empty() && !finding.remedy.is_empty(), "{finding:?}"),
            Fine | Unknown => assert!(finding.effect.is_empty() && finding.remedy.is_empty(), "{finding:?}"),
        }
    }
}

#[test]
fn a_kernel_driver_with_an_interface_in_use_is_a_finding_with_both_commands() {
    let tree = ready();
    tree.driver(A, "ixgbe");
    tree.interface(A, "eth7", "0x1003\n");
    tree.file("proc/net/route", "Iface\neth7\t00000000\t010200C0\t0003\t0\t0\t0\t00000000\t0\t0\t0\n");
    let finding = examine(&tree).into_iter().find(|finding| finding.check == "driver").unwrap();
    assert_eq!(finding.verdict, Breaks);
    assert!(finding.what.contains("kernel driver ixgbe has it, and its interface eth7 carries the default route"));
    assert_eq!(finding.remedy.commands, ["sudo ip link set eth7 down", "sudo fwd bind 0000:03:00.0"]);
}

#[test]
fn a_neighbour_in_the_group_is_named_with_its_driver() {
    let tree = ready();
    tree.nic(B);
    tree.driver(B, "ixgbe");
    tree.group(B, 12);
    let finding = examine(&tree).into_iter().find(|finding| finding.check == "driver").unwrap();
    assert_eq!(finding.what, format!("{B} shares IOMMU group 12 and is with kernel driver ixgbe"));
    assert_eq!(finding.remedy.commands, [format!("sudo fwd bind {B}")]);
}

#[test]
fn a_group_that_another_program_has_open_is_found_before_it_is_opened() {
    let tree = ready();
    tree.file("proc/4711/comm", "testpmd\n");
    tree.folder("proc/4711/fd");
    std::os::unix::fs::symlink(tree.path("dev/vfio/12"), tree.path("proc/4711/fd/8")).unwrap();
    let finding = examine(&tree).into_iter().find(|finding| finding.check == "driver").unwrap();
    assert_eq!(finding.verdict, Breaks);
    assert!(finding.what.starts_with("testpmd (process 4711) has ") && finding.what.ends_with("dev/vfio/12 open"));
    assert_eq!(finding.remedy.commands, ["kill 4711"]);
}

#[test]
fn what_a_node_lacks_is_asked_of_the_node_of_the_card() {
    let tree = ready();
    huge_pages(&tree, 0, "64", "64");
    huge_pages(&tree, 1, "0", "0");
    let pages = |needs: &Needs| -> Vec<Verdict> {
        let findings = tree.host().examine(needs);
        findings.iter().filter(|finding| finding.check == "huge pages").map(|finding| finding.verdict).collect()
    };
    assert_eq!(pages(&needs(&tree, &[A])), [Fine, Costs]);
    assert_eq!(pages(&needs(&tree, &[])), [Fine, Fine], "without a card any node will do");
}

#[test]
fn memory_of_the_try_is_judged() {
    let tree = ready();
    let verdict = |tried_page, free| {
        huge_pages(&tree, 1, "64", free);
        let needs = Needs { tried_page, ..needs(&tree, &[A]) };
        tree.host().examine(&needs).into_iter().find(|finding| finding.check == "huge pages by memfd").unwrap().verdict
    };
    assert_eq!(verdict(Some(2 << 20), "60"), Fine);
    assert_eq!(verdict(Some(4096), "60"), Costs, "the kernel refused what is free");
    assert_eq!(verdict(Some(4096), "0"), Unknown);
    assert_eq!(verdict(None, "60"), Unknown);
}

#[test]
fn two_cards_take_twice_the_locked_memory() {
    let tree = ready();
    tree.nic(B);
    tree.file("proc/self/limits", "Max locked memory 16777216 16777216 bytes\n");
    let finding = |devices: &[&str]| {
        let findings = tree.host().examine(&needs(&tree, devices));
        findings.into_iter().find(|finding| finding.check == "locked memory").unwrap()
    };
    assert_eq!(finding(&[A]).verdict, Fine);
    let both = finding(&[A, B]);
    assert_eq!(both.verdict, Breaks);
    assert_eq!(both.what, "this user may lock 16384 KiB, and 2 cards take 20 MiB");
}

#[test]
fn a_host_without_cards_says_what_was_not_looked_at() {
    let tree = ready();
    let findings = tree.host().examine(&needs(&tree, &[]));
    assert!(findings.iter().all(|finding| finding.device.is_none()));
    let cards = findings.iter().find(|finding| finding.check == "cards").unwrap();
    assert!(cards.verdict == Unknown && cards.what.contains("PCIe link"), "{cards:?}");
}

/// File systems that are not mounted: their folders are empty, or not there. A finding is made of the others or not at all.
#[test]
fn what_lies_in_a_missing_file_system_is_neither_fine_nor_a_fault() {
    // What is read in /proc or /dev alone, and what is known from the try.
    let without_sys = ["VFIO container", "locked memory", "huge pages by memfd", "virtual machine"];
    let without_proc = [
        "iommu",
        "VFIO modules",
        "VFIO container",
        "kernel lockdown",
        "huge pages",
        "huge pages by memfd",
        "isolated cores",
        "hyper-threads",
        "core frequency",
        "PCIe link",
    ];
    let without_both = ["VFIO container", "huge pages by memfd"];
    for (gone, seen) in
        [(&["sys"][..], &without_sys[..]), (&["proc"], &without_proc), (&["sys", "proc"], &without_both)]
    {
        for emptied in [false, true] {
            let tree = ready();
            let needs = needs(&tree, &[A]);
            for folder in gone {
                Remove(folder).make(&tree);
                if emptied {
                    tree.folder(folder);
                }
            }
            let findings = tree.host().examine(&needs);
            assert!(findings.len() >= 17, "{findings:?}");
            for finding in &findings {
                let expected = if seen.contains(&finding.check) { Fine } else { Unknown };
                assert_eq!(finding.verdict, expected, "without {gone:?}: {finding:?}");
                let names_it = gone.iter().any(|folder| finding.what.contains(&format!("/{folder}")));
                assert!(expected == Fine || names_it, "without {gone:?}: {finding:?}");
            }
            let without_cards = tree.host().examine(&Needs { devices: Vec::new(), tried_page: Some(4096), ..needs });
            for finding in &without_cards {
                let seen = seen.contains(&finding.check) && finding.check != "huge pages by memfd";
                assert!(seen || finding.verdict != Fine || !gone.contains(&"sys"), "without {gone:?}: {finding:?}");
                assert!(finding.verdict <= Unknown || !gone.contains(&"sys"), "without {gone:?}: {finding:?}");
            }
            let cards = without_cards.last().unwrap();
            let claims = cards.what.contains("no supported network card is here");
            assert!(cards.check == "cards" && claims != gone.contains(&"sys"), "{cards:?}");
        }
    }
}

/// Parts that may be missing while the rest is there.
#[test]
fn what_lies_in_a_missing_file_is_neither_fine_nor_a_fault() {
    for (changes, check, word) in [
        (&[Remove("sys/kernel/security")][..], "kernel lockdown", "/sys/kernel/security is not mounted"),
        (&[Remove("sys/fs/cgroup")], "processor quota", "/sys/fs/cgroup is not mounted"),
        (&[Remove("sys/devices/system/cpu")], "hyper-threads", "does not list the cores"),
        (&[Remove("sys/devices/system/cpu")], "core frequency", "does not list the cores"),
        (&[Remove("sys/devices/system/clocksource")], "clock", "where the system's time is from"),
        (&[Remove("proc/cpuinfo")], "virtual machine", "/proc/cpuinfo"),
        (&[Remove("proc/self/status")], "NUMA node", "/proc/self/status"),
    ] {
        let tree = ready();
        changes.iter().for_each(|change| change.make(&tree));
        let finding = examine(&tree).into_iter().find(|finding| finding.check == check).unwrap();
        assert!(finding.verdict == Unknown && finding.what.contains(word), "{finding:?}");
    }
    let tree = ready();
    Remove("sys/kernel/security").make(&tree);
    tree.file("proc/filesystems", "nodev\tsysfs\n\text4\n");
    let finding = examine(&tree).into_iter().find(|finding| finding.check == "kernel lockdown").unwrap();
    assert_eq!((finding.verdict, finding.what.as_str()), (Fine, "off"), "a kernel without securityfs has no lockdown");
}

/// The remedies name no version and no maker that was not read.
#[test]
fn remedies_without_proc_claim_nothing_about_kernel_and_processor() {
    let tree = ready();
    let needs = needs(&tree, &[A]);
    for folder in ["proc", "sys/module/vfio_pci", "sys/bus/pci/drivers/vfio-pci", "sys/kernel/iommu_groups"] {
        Remove(folder).make(&tree);
    }
    let findings = tree.host().examine(&needs);
    let of = |check| findings.iter().find(|finding| finding.check == check).unwrap();
    assert_eq!(of("VFIO modules").what, "vfio-pci is not loaded");
    assert_eq!(of("VFIO modules").remedy.to_string(), "load VFIO: sudo modprobe -a vfio-pci vfio_iommu_type1");
    assert!(of("iommu").remedy.how.contains("VT-d or AMD-Vi"), "{:?}", of("iommu"));
}

#[test]
fn an_empty_tree_is_examined_without_a_panic() {
    let tree = Tree::new();
    tree.nic(A);
    let findings = examine(&tree);
    let broken: Vec<_> = findings.iter().filter(|f| f.verdict == Breaks).map(|f| f.check).collect();
    assert_eq!(broken, ["iommu", "VFIO modules", "driver"]);
}
