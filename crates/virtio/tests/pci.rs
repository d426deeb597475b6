//! The transport over PCI on registers written from the specification: both interfaces, and functions that lie.
#![expect(clippy::unwrap_used, reason = "tests")]

mod common;

use common::{BASE, PATIENCE, Rig, config, frame, layouts};
use device::{Interrupts, PciIds};
use ethdev::{Port as _, RxQueue as _};
use mempool::{Pool, PoolConfig};
use proptest::prelude::*;
use std::fs::File;
use std::os::unix::fs::FileExt as _;
use virtio::fake::{FakeBar, FakeConfig, FakeDevice, FakeFunction, Oddities, Offers};
use virtio::transport::{Interface, Transport as _};
use virtio::{Config, Features, Pci};

fn function(fake: FakeConfig, offers: Offers, iommu: bool) -> (FakeFunction, FakeDevice, File) {
    let (device, file) = (FakeDevice::new(fake), tempfile::tempfile().unwrap());
    let function = FakeFunction::new(&device, offers, iommu, file.try_clone().unwrap());
    (function, device, file)
}

fn modern(features: Features) -> FakeConfig {
    FakeConfig { features, ..FakeConfig::default() }
}

fn legacy(features: Features) -> FakeConfig {
    FakeConfig { features, interface: Interface::Legacy, ..FakeConfig::default() }
}

fn with_interrupts() -> Config {
    let mut config = config();
    config.port.interrupts = Interrupts::Required;
    config
}

/// Frames both ways; then the port is closed, and everything is quiet.
fn pass_frames(fake: FakeConfig, offers: Offers, config: &Config) {
    let what = format!("{offers:?}, {}, {:?}", fake.features, config.port.interrupts);
    let (function, device, _file) = function(fake, offers, false);
    let handle: FakeBar = function.handle();
    let mut rig = Rig::over(Pci::new(function).unwrap(), device, config);
    assert!(handle.is_bus_master(), "{what}");
    assert_eq!(rig.port.mac().0, [2, 0, 0, 0, 0, 1], "{what}");
    for n in 0..300 {
        let bytes = frame(n, 14 + n * 5 % 1500);
        assert!(rig.device.deliver(0, &bytes), "{what}");
        if config.port.interrupts == Interrupts::Required {
            assert!(rig.rx.wait(PATIENCE).unwrap(), "{what}");
        }
        assert_eq!(rig.recv(), 1, "{what}: frame {n}");
        assert_eq!(rig.send(), 1, "{what}");
        assert_eq!(rig.device.collect(0), Some(bytes), "{what}");
    }
    assert!(!rig.port.features().contains(Features::CTRL_VQ) || !rig.device.commands().is_empty(), "{what}");
    rig.device.set_link(false);
    assert!(!rig.port.link().unwrap().up, "{what}");
    rig.close();
    assert!(!handle.is_bus_master(), "{what}");
}

#[test]
fn frames_pass_by_the_modern_interface() {
    let control = Features::CTRL_VQ | Features::CTRL_RX;
    for features in layouts() {
        pass_frames(modern(features | control), Offers::Modern, &config());
        pass_frames(modern(features), Offers::Modern, &with_interrupts());
    }
}

#[test]
fn frames_pass_by_the_legacy_interface() {
    let base = Features::MAC | Features::STATUS;
    let control = Features::CTRL_VQ | Features::CTRL_RX;
    let extras = [Features::default(), Features::MRG_RXBUF, Features::ANY_LAYOUT, Features::EVENT_IDX, control];
    for extra in extras {
        pass_frames(legacy(base | extra), Offers::Legacy, &config());
        // The device's configuration is elsewhere with MSI-X.
        pass_frames(legacy(base | extra), Offers::Legacy, &with_interrupts());
    }
}

#[test]
fn a_transitional_device_is_driven_as_a_modern_one() {
    let (function, ..) = function(modern(BASE), Offers::Both, false);
    assert_eq!(Pci::new(function).unwrap().interface(), Interface::Modern);
    pass_frames(modern(BASE), Offers::Both, &config());
}

#[test]
fn a_device_that_asks_for_a_reset_comes_back() {
    let (function, device, _file) = function(modern(BASE), Offers::Modern, false);
    let mut rig = Rig::over(Pci::new(function).unwrap(), device, &config());
    let resets = rig.device.resets();
    rig.device.ask_for_reset();
    common::wait("buffers of the session after the reset", || {
        rig.settle();
        rig.device.resets() > resets && rig.device.deliver(0, &[7; 60])
    });
    assert_eq!(rig.recv(), 1);
    rig.close();
}

/// The one line that opening such a function ends in.
fn refusal(function: FakeFunction, config: &Config) -> String {
    let handle = function.handle();
    let pool = Pool::new(&PoolConfig { slots: 1024, ..PoolConfig::default() }).unwrap();
    let message = Pci::new(function).and_then(|pci| virtio::open(pci, config, &pool)).unwrap_err().to_string();
    assert!(!message.contains('\n') && message.starts_with("fake: "), "{message}");
    assert!(!handle.is_bus_master(), "{message}");
    message
}

#[test]
fn behind_an_iommu_a_device_must_go_through_it() {
    let (bypasses, ..) = function(modern(BASE), Offers::Modern, true);
    let message = refusal(bypasses, &config());
    assert!(message.contains("VIRTIO_F_ACCESS_PLATFORM") && message.contains("iommu_platform=on"), "{message}");
    let (bypasses, ..) = function(legacy(Features::MAC), Offers::Legacy, true);
    assert!(refusal(bypasses, &config()).contains("bypasses the IOMMU"), "a legacy device cannot say so");
    let (goes_through, device, _file) = function(modern(BASE | Features::ACCESS_PLATFORM), Offers::Modern, true);
    let rig = Rig::over(Pci::new(goes_through).unwrap(), device, &config());
    assert!(rig.port.features().contains(Features::ACCESS_PLATFORM));
    rig.close();
}

#[test]
fn functions_that_cannot_be_driven() {
    let odd = |change: fn(&mut Oddities)| {
        let (function, _, file) = function(modern(BASE), Offers::Modern, false);
        function.handle().change(change);
        (function, file)
    };
    let (function_gone, _file) = odd(|odd| odd.gone = true);
    assert!(refusal(function_gone, &config()).contains("its registers read all ones"));
    let (no_vectors, _file) = odd(|odd| odd.no_vectors = true);
    let message = refusal(no_vectors, &with_interrupts());
    assert!(message.contains("virtqueue 0: the device does not take interrupt vector 0"), "{message}");
    // 0x1000 bytes, 4 for each queue: 0x3FF is the last place.
    let (astray, _file) = odd(|odd| odd.notify_off = Some(0x400));
    assert!(refusal(astray, &config()).contains("its notifications go to 0x1000"), "beyond the last");
    let mut many = with_interrupts();
    many.port.rx_queues = 9;
    let (few, ..) = function(modern(BASE), Offers::Modern, false);
    assert!(refusal(few, &many).contains("9 interrupts are wanted, and it has 8"));
    let (other, ..) = function(modern(BASE), Offers::Modern, false);
    let ids = PciIds { vendor: 0x1af4, device: 0x1042, ..PciIds::default() };
    assert!(refusal(other.with_ids(ids), &config()).contains("1af4:1042 is not a virtio-net device"));
}

#[test]
fn the_last_place_for_notifications_is_one() {
    let (function, device, _file) = function(modern(BASE), Offers::Modern, false);
    function.handle().change(|odd| odd.notify_off = Some(0x3FF));
    Rig::over(Pci::new(function).unwrap(), device, &config()).close();
}

#[test]
fn a_device_that_does_not_confirm_its_reset_is_not_started() {
    let (function, device, _file) = function(modern(BASE), Offers::Modern, false);
    let handle = function.handle();
    let rig = Rig::over(Pci::new(function).unwrap(), device, &config());
    handle.change(|odd| odd.stuck = true);
    let message = rig.port.close().unwrap_err().to_string();
    assert!(message.contains("gave up waiting for the reset"), "{message}");
    assert!(!handle.is_bus_master(), "it can do no harm");
}

/// Offsets of the capabilities in a modern function's configuration space.
const COMMON: u64 = 0x50;
const DEVICE: u64 = 0x78;
const NOTIFY: u64 = 0x8C;

#[test]
fn capabilities_that_do_not_hold_together() {
    let cases: &[(u64, &[u8], &str)] = &[
        (COMMON + 4, &[6], "common registers: base address region 6 is reserved"),
        (COMMON + 4, &[1], "common registers: fake: it has no base address region 1"),
        (COMMON + 8, &[2], "too few, or not aligned to 4"),
        (COMMON + 12, &[55, 0], "common registers: 55 bytes at 0x0 are too few"),
        (COMMON + 8, &[0, 0x40], "it ends at 0x5000 of region 4, which has 0x4000 bytes"),
        (COMMON + 8, &[0xFC, 0xFF, 0xFF, 0xFF], "it ends at 0x100000ffc of region 4"),
        (COMMON + 12, &[0xFF; 4], "it ends at 0xffffffff of region 4"),
        (NOTIFY + 8, &[1], "notification registers: 4096 bytes at 0x3001 are too few, or not aligned to 2"),
        (NOTIFY + 2, &[19], "notification registers: there is none"),
        (DEVICE + 12, &[0, 0], "device registers: 0 bytes"),
        (DEVICE + 3, &[9], "device registers: there is none"),
        (DEVICE + 12, &[4, 0], "its configuration ends before byte 0"),
        (COMMON + 3, &[9], "a modern device without virtio capabilities"),
        (0x34, &[0], "a modern device without virtio capabilities"),
        (COMMON + 1, &[0xFC], "notification registers: there is none"),
        (0x41, &[0xF8], "a modern device without virtio capabilities"),
        (NOTIFY + 16, &[0xFF; 4], "its notifications go to 0xffffffff"),
    ];
    for (at, bytes, words) in cases {
        let (function, _, file) = function(modern(BASE), Offers::Modern, false);
        file.write_all_at(bytes, *at).unwrap();
        let message = refusal(function, &config());
        assert!(message.contains(words), "{at:#x}: {message}, and not: {words}");
    }
}

#[test]
fn the_first_capability_that_can_be_used_counts() {
    let (function, device, file) = function(modern(BASE), Offers::Modern, false);
    // Another structure of the same kind in front, in a region that there is not.
    let mut first = [0x09, 0x50, 16, 1, 5, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    first[13] = 0x10;
    file.write_all_at(&first, 0xC0).unwrap();
    file.write_all_at(&[0xC0], 0x41).unwrap();
    Rig::over(Pci::new(function).unwrap(), device, &config()).close();
}

#[test]
fn a_longer_capability_is_as_good() {
    let (function, device, file) = function(modern(BASE), Offers::Modern, false);
    // 16 bytes are all that is known of this one.
    file.write_all_at(&[20], COMMON + 2).unwrap();
    Rig::over(Pci::new(function).unwrap(), device, &config()).close();
    let (function, _, file) = self::function(modern(BASE), Offers::Modern, false);
    file.write_all_at(&[15], COMMON + 2).unwrap();
    assert!(refusal(function, &config()).contains("a modern device without virtio capabilities"));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 256, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn no_configuration_space_leads_outside_of_the_regions(
        at in prop::collection::vec((0x40..0xA0_u64, any::<u8>()), 1..12),
    ) {
        let (function, _, file) = function(modern(BASE), Offers::Modern, false);
        for (place, byte) in at {
            file.write_all_at(&[byte], place).unwrap();
        }
        // Whatever is found lies inside: an access elsewhere would be complained about, and none may panic.
        if let Ok(pci) = Pci::new(function) {
            let _ = pci.device_features();
            let _ = pci.read_config(0, &mut [0; 6]);
            let _ = pci.queue_size(0);
        }
    }
}
