//! The SFP+ module: a two-wire master of bits and pieces reads it as drivers do (datasheet 3.5, SFF-8472).

mod common;

use common::{Driver, Plan};
use device::Device;
use softnic::{DeviceId, Fault, ModuleKind, OnViolation, SharedPart, SoftDevice, StrictBuilder, StrictNic};
use std::path::Path;

const I2CCTL: u32 = 0x28;
const ESDP: u32 = 0x20;
const CLK_IN: u32 = 1;
const CLK_OUT: u32 = 2;
const DATA_IN: u32 = 4;
const DATA_OUT: u32 = 8;
const MAC: [u8; 6] = [0x02, 0xAB, 0xCD, 0xEF, 0x01, 0x23];

/// A bus master: each call moves one wire, and checks that the wire is where it should be.
struct Master<'d, D: Device> {
    driver: &'d Driver<D>,
    wires: u32,
}

impl<'d, D: Device> Master<'d, D> {
    fn new(driver: &'d Driver<D>) -> Self {
        Self { driver, wires: CLK_OUT | DATA_OUT }
    }

    fn set(&mut self, wire: u32, high: bool) {
        self.wires = if high { self.wires | wire } else { self.wires & !wire };
        self.driver.write(I2CCTL, self.wires);
    }

    fn clock(&mut self, high: bool) {
        self.set(CLK_OUT, high);
        assert_eq!(self.driver.read(I2CCTL) & CLK_IN != 0, high, "nobody stretches the clock");
    }

    fn data(&self) -> bool {
        self.driver.read(I2CCTL) & DATA_IN != 0
    }

    fn start(&mut self) {
        self.set(DATA_OUT, true);
        self.clock(true);
        self.set(DATA_OUT, false);
        self.clock(false);
    }

    fn stop(&mut self) {
        self.set(DATA_OUT, false);
        self.clock(true);
        self.set(DATA_OUT, true);
        assert!(self.data(), "the module lets go of the bus");
    }

    fn bit(&mut self, high: bool) -> bool {
        self.set(DATA_OUT, high);
        self.clock(true);
        let seen = self.data();
        self.clock(false);
        seen
    }

    /// Sends a byte; whether it was acknowledged.
    fn send(&mut self, byte: u8) -> bool {
        for at in (0..8).rev() {
            let bit = byte >> at & 1 != 0;
            assert_eq!(self.bit(bit), bit, "the module pulls the wire only for its own bits");
        }
        !self.bit(true)
    }

    fn receive(&mut self, acknowledge: bool) -> u8 {
        let byte = (0..8).fold(0, |byte, _| byte << 1 | u8::from(self.bit(true)));
        self.bit(!acknowledge);
        byte
    }

    /// One byte at an offset, as a random read; `None` if nobody has the address.
    fn read(&mut self, address: u8, offset: u8) -> Option<u8> {
        self.start();
        if !self.send(address) {
            self.stop();
            return None;
        }
        assert!(self.send(offset));
        self.start();
        assert!(self.send(address | 1));
        let byte = self.receive(false);
        self.stop();
        Some(byte)
    }
}

fn start(id: DeviceId) -> Driver<StrictNic> {
    let driver = Driver::stopped(StrictNic::builder().id(id).mac(MAC).build(), Plan::default());
    driver.reset();
    driver
}

#[test]
fn the_page_of_a_passive_cable() {
    let driver = start(DeviceId::SfpPlus);
    let mut master = Master::new(&driver);
    let page: Vec<u8> = (0..=255).map(|at| master.read(0xA0, at).expect("there is a module")).collect();
    // SFF-8472: identifier SFP, connector copper pigtail, no optical or 1G codes, passive cable.
    assert_eq!((page[0], page[2], page[3], page[6], page[8] & 0xC), (3, 0x21, 0, 0, 4));
    assert_eq!(page[12], 103, "10.3 Gb/s");
    assert_eq!(page[20..36], *b"RINGWAY         ");
    assert_eq!(page[40..56], *b"SOFT-DAC-1M     ");
    assert_eq!(page[68..84], *b"02ABCDEF0123    ", "the serial number follows the MAC address");
    assert_eq!((page[92], page[94]), (0, 0), "no page of diagnostics");
    let sum = |range: std::ops::Range<usize>| page[range].iter().fold(0u8, |sum, byte| sum.wrapping_add(*byte));
    assert_eq!((page[63], page[95]), (sum(0..63), sum(64..95)), "CC_BASE and CC_EXT");
}

#[test]
fn the_bus_as_the_specification_has_it() {
    let driver = start(DeviceId::SfpPlus);
    assert_ne!(driver.read(ESDP) & 1 << 2, 0, "SDP2: a module is there");
    let mut master = Master::new(&driver);
    assert_eq!(master.read(0xA2, 0), None);
    assert_eq!(master.read(0xAC, 0), None);
    // Several bytes in one transfer, beyond the end of the page and round.
    master.start();
    assert!(master.send(0xA0) && master.send(254));
    master.start();
    assert!(master.send(0xA1));
    let bytes: Vec<u8> = (0..4).map(|n| master.receive(n < 3)).collect();
    assert_eq!(bytes, [0, 0, 3, 4]);
    master.stop();
    // The pointer stays behind the last byte that was read: the next read needs no offset.
    master.start();
    assert!(master.send(0xA1));
    assert_eq!(master.receive(false), 0x21);
    master.stop();
    // Writes are acknowledged and forgotten.
    master.start();
    assert!(master.send(0xA0) && master.send(20) && master.send(b'X'));
    master.stop();
    assert_eq!(master.read(0xA0, 20), Some(b'R'));
    // A transfer that breaks off does not hold the bus.
    master.start();
    assert!(master.send(0xA1));
    master.bit(true);
    master.start();
    assert!(master.send(0xA0));
    master.stop();
    assert_eq!(master.read(0xA0, 0), Some(3));
}

#[test]
fn without_a_cage_nobody_answers() {
    let driver = start(DeviceId::Cx4);
    for value in [0, CLK_OUT, DATA_OUT, CLK_OUT | DATA_OUT] {
        driver.write(I2CCTL, value);
        assert_eq!(driver.read(I2CCTL), CLK_OUT | DATA_OUT);
    }
}

fn with(kind: ModuleKind) -> Driver<StrictNic> {
    let driver = Driver::stopped(StrictNic::builder().id(DeviceId::SfpPlus).module(kind).build(), Plan::default());
    driver.reset();
    driver
}

/// LINKS, when the link has had time: 0 without one, else its speed (2: 1 Gb/s, 3: 10 Gb/s).
fn speed(driver: &Driver<impl Device>) -> u32 {
    (0..50).for_each(|_| _ = driver.read(common::LINKS));
    let links = driver.read(common::LINKS);
    if links & 1 << 30 == 0 { 0 } else { links >> 28 & 3 }
}

/// A mode of AUTOC as Intel's drivers set it: bit 2 of LMS toggled, ANLP1 awaited.
fn set_mode(driver: &Driver<StrictNic>, lms: u32, patient: bool) {
    let autoc = driver.read(common::AUTOC) & !(7 << 13) | lms << 13 | 1 << 12;
    driver.write(common::AUTOC, autoc ^ 4 << 13);
    while patient && driver.read(0x42B0) >> 16 & 0xF == 0 {}
    driver.write(common::AUTOC, autoc);
}

#[test]
fn a_mode_reaches_the_link_through_the_whole_pipeline_only() {
    let driver = with(ModuleKind::ShortRange1G);
    assert_eq!(speed(&driver), 0, "10 Gb/s by default");
    driver.write(common::AUTOC, driver.read(common::AUTOC) & !(7 << 13) | 2 << 13 | 1 << 12);
    assert_eq!(speed(&driver), 0, "restarted only");
    set_mode(&driver, 2, false);
    assert_eq!(speed(&driver), 0, "too fast");
    let driver = with(ModuleKind::ShortRange1G);
    set_mode(&driver, 2, true);
    assert_eq!(speed(&driver), 2);
    driver.write(common::CTRL, 1 << 3);
    assert_eq!(speed(&driver), 0, "LRST sets what the EEPROM says");
}

#[test]
fn a_module_with_two_rates_follows_its_pin() {
    let driver = with(ModuleKind::DualRate);
    assert_eq!(speed(&driver), 0, "SDP5 is not driven");
    driver.write(ESDP, 1 << 13);
    assert_eq!(speed(&driver), 0, "1 Gb/s selected");
    driver.write(ESDP, 1 << 13 | 1 << 5);
    assert_eq!(speed(&driver), 3);
}

/// 8.2.3.1.4, and TX disable of SFF-8431: optics send no light then, and neither end has a link; a passive cable has no such pin.
#[test]
fn a_laser_that_is_off_takes_the_link_of_both_ends() {
    for (module, has_laser) in [("sr", true), ("lr", true), ("dac", false)] {
        let open = |name: &str, rest: &str| {
            let device = SoftDevice::open(&format!("{name}-{module}?id=10fb&module={module}{rest}")).unwrap();
            let driver = Driver::stopped(device, Plan::default());
            driver.reset();
            driver
        };
        let near = open("near", &format!("&wire=peer:far-{module}"));
        let far = open("far", "");
        let both = |up: bool| {
            for driver in [&near, &far] {
                driver.poll("LINKS.UP", common::LINKS, 1 << 30, u32::from(up) << 30);
            }
        };
        both(true);
        let before = near.read(ESDP);
        near.write(ESDP, before | 1 << 3);
        both(!has_laser);
        near.write(ESDP, before & !(1 << 3));
        both(true);
        // A reset of the device brings the pin back to what its EEPROM says.
        near.write(ESDP, before | 1 << 3);
        both(!has_laser);
        near.device.reset().unwrap();
        far.poll("LINKS.UP", common::LINKS, 1 << 30, 1 << 30);
    }
}

#[test]
fn a_long_cable_wants_the_settings_for_cables() {
    const CORECTL: u32 = 0x1_4F00;
    let driver = with(ModuleKind::LongCable);
    assert_eq!(speed(&driver), 0);
    let word = |address: u32| {
        driver.write(0x10014, address << 2 | 1);
        driver.poll("EERD.DONE", 0x10014, 2, 2);
        driver.read(0x10014) >> 16
    };
    let write = |data: u32| {
        (data + 1..).map(word).take_while(|word| *word != 0xFFFF).for_each(|word| driver.write(CORECTL, word));
    };
    let list = word(0x2B);
    write(word(list + 6));
    assert_eq!(speed(&driver), 0, "those for optics");
    write(word(list + 2));
    assert_eq!(speed(&driver), 3);
}

/// All of a page, if anybody has its address.
fn page(driver: &Driver<impl Device>, address: u8) -> Option<Vec<u8>> {
    let mut master = Master::new(driver);
    (0..=255).map(|at| master.read(address, at)).collect()
}

fn from_file(name: &str, file: &Path) -> Result<Driver<SoftDevice>, softnic::Error> {
    let device = SoftDevice::open(&format!("{name}?id=10fb&module={}", file.display()))?;
    let driver = Driver::stopped(device, Plan::default());
    driver.reset();
    Ok(driver)
}

/// What one module has said makes another that says and does the same.
#[test]
fn a_file_is_as_good_as_the_module_it_was_read_from() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("sfp");
    for kind in [
        ModuleKind::Cable,
        ModuleKind::LongCable,
        ModuleKind::ActiveCable,
        ModuleKind::ShortRange,
        ModuleKind::LongRange,
        ModuleKind::DualRate,
        ModuleKind::ShortRange1G,
        ModuleKind::LongRange1G,
        ModuleKind::Copper1G,
        ModuleKind::Liar,
    ] {
        let driver = with(kind);
        let said = page(&driver, 0xA0).expect("a module");
        let expected = speed(&driver);
        for len in [128, 256] {
            std::fs::write(&file, &said[..len]).expect("a file");
            let driver = from_file("of-a-file", &file).expect("a device");
            assert_eq!(page(&driver, 0xA0), Some(said.clone()), "{kind:?}, {len}");
            assert_eq!((page(&driver, 0xA2), speed(&driver)), (None, expected), "{kind:?}, {len}");
        }
    }
}

#[test]
fn a_long_file_has_both_pages() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("long.bin");
    let bytes: Vec<u8> =
        (0..512_u16).map(u16::to_le_bytes).map(|[low, high]| low.wrapping_mul(7) ^ high << 6).collect();
    std::fs::write(&file, &bytes).expect("a file");
    let driver = from_file("of-a-long-file", &file).expect("a device");
    let both = [0xA0, 0xA2].map(|address| page(&driver, address).expect("there"));
    assert!(both.concat() == bytes, "{both:?}");
    // The module is in the cage until another comes.
    driver.reset();
    assert_eq!(Master::new(&driver).read(0xA2, 9), Some(bytes[265]));
    driver.device.set_module(ModuleKind::Empty);
    assert_eq!([0xA0, 0xA2].map(|address| Master::new(&driver).read(address, 0)), [None; 2]);
    driver.device.set_module(ModuleKind::LongRange);
    assert_eq!([0xA0, 0xA2].map(|address| Master::new(&driver).read(address, 0)), [Some(3), None]);
}

#[test]
fn a_file_of_another_length_is_refused_in_one_line() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("odd");
    for (len, hint) in [(0, "has 0"), (127, "has 127"), (129, "has 129"), (511, "has 511"), (513, "has more")] {
        std::fs::write(&file, vec![3; len]).expect("a file");
        let error = from_file("odd", &file).err().expect("refused").to_string();
        assert!(error.contains("128, 256 or 512 bytes") && error.contains(hint), "{error}");
        assert!(!error.contains('\n'), "{error}");
    }
    std::fs::remove_file(&file).expect("it was there");
    let error = from_file("odd", &file).err().expect("refused").to_string();
    assert!(error.starts_with("cannot read the memory of a module") && error.contains("No such file"), "{error}");
    // A pipe that nobody writes to holds nothing up.
    rustix::fs::mknodat(rustix::fs::CWD, &file, rustix::fs::FileType::Fifo, 0o600.into(), 0).expect("a pipe");
    let error = from_file("odd", &file).err().expect("refused").to_string();
    assert!(error.contains("not a regular file"), "{error}");
}

#[test]
fn nobody_is_in_an_empty_cage_and_a_stuck_module_holds_the_clock() {
    let driver = with(ModuleKind::Empty);
    assert_eq!(driver.read(ESDP) & 1 << 2, 0, "SDP2");
    assert_eq!(Master::new(&driver).read(0xA0, 0), None);
    assert_eq!(speed(&driver), 0);
    let driver = with(ModuleKind::Stuck);
    driver.write(I2CCTL, CLK_OUT);
    driver.write(I2CCTL, 0);
    driver.write(I2CCTL, CLK_OUT);
    assert_eq!(driver.read(I2CCTL) & (CLK_IN | CLK_OUT), CLK_OUT);
    let driver = with(ModuleKind::StuckData);
    assert_eq!(driver.read(I2CCTL) & (CLK_IN | DATA_IN), CLK_IN, "from the beginning on");
}

/// The X540's PHY: clause 45, at one address (IEEE 802.3, 45.3; MSCA and MSRWD).
#[test]
fn the_phy_of_an_x540() {
    let driver = start(DeviceId::X540);
    let command = |phy: u32, device: u32, op: u32, register: u32| {
        driver.write(0x425C, register | device << 16 | phy << 21 | op << 26 | 1 << 30);
        driver.poll("MSCA.MDICMD", 0x425C, 1 << 30, 0);
    };
    let read = |phy, device, register| {
        command(phy, device, 0, register);
        command(phy, device, 3, register);
        driver.read(0x4260) >> 16
    };
    assert_eq!((read(0, 1, 2), read(0, 1, 3)), (0x0154, 0x0200));
    assert_eq!((read(1, 1, 2), read(31, 1, 2)), (0xFFFF, 0xFFFF));
    assert_eq!(speed(&driver), 3);
    for (power, expected) in [(1 << 11, 0), (0, 3)] {
        driver.write(0x4260, power);
        command(0, 0x1E, 0, 0);
        command(0, 0x1E, 1, 0);
        assert_eq!((read(0, 0x1E, 0), speed(&driver)), (power, expected));
    }
    // Reading SW_FW_SYNC takes its own semaphore, REGSMP.
    assert_eq!((driver.read(0x1_0160) >> 31, driver.read(0x1_0160) >> 31), (0, 1));
    assert_eq!(driver.read(0x3C00), 384 << 10);
}

/// What identifies an SFP+ board to foreign drivers, by the datasheet's pointers (6.1 to 6.4).
#[test]
fn the_eeprom_leads_to_lists_for_this_module() {
    let driver = start(DeviceId::SfpPlus);
    let word = |address: u32| {
        driver.write(0x10014, address << 2 | 1);
        driver.poll("EERD.DONE", 0x10014, 2, 2);
        driver.read(0x10014) >> 16
    };
    let firmware = word(0x0F);
    assert_eq!(word(firmware + 2), 0xFFFF, "no link establishment state machine");
    assert!(word(word(firmware + 4) + 7) > 5, "a firmware whose modules are initialised by software");
    let list = word(0x2B);
    let pairs: Vec<_> = (1..).step_by(2).map(|at| word(list + at)).take_while(|kind| *kind != 0xFFFF).collect();
    // 3 and 4: direct attach cables on cores 0 and 1; 5 and 6: optics.
    assert_eq!(pairs, [3, 4, 5, 6]);
    for pair in (0..4).map(|pair| list + 1 + 2 * pair) {
        let words: Vec<_> = (word(pair + 1) + 1..).map(word).take_while(|word| *word != 0xFFFF).collect();
        assert!((1..16).contains(&words.len()), "settings, and their end: {words:x?}");
    }
    // MDIO: no PHY answers.
    for phy in 0..32 {
        driver.write(0x425C, 2 | 1 << 16 | phy << 21 | 3 << 26 | 1 << 30);
        driver.poll("MSCA.MDICMD", 0x425C, 1 << 30, 0);
        assert_eq!(driver.read(0x4260) >> 16, 0xFFFF);
    }
    driver.wait_link();
    assert_eq!(driver.read(common::LINKS) >> 28 & 3, 3, "10 Gb/s");
}

/// The X550: its EEPROM is behind its firmware (X550 datasheet, host interface), and its table for hashes has 512 entries of 6 bits.
#[test]
fn the_firmware_of_an_x550_reads_its_eeprom() {
    const FLEX_MNG: u32 = 0x1_5800;
    const HICR: u32 = 0x1_5F00;
    let driver = Driver::stopped(StrictNic::builder().id(DeviceId::X550).build(), Plan::default());
    let command = |words: &[u32]| {
        driver.write(0x1_0160, 1 << 10);
        words.iter().zip((FLEX_MNG..).step_by(4)).for_each(|(word, at)| driver.write(at, *word));
        driver.write(HICR, 3);
        driver.poll("HICR.C", HICR, 2, 0);
        assert_eq!(driver.read(HICR) & 4, 4, "SV");
        driver.write(0x1_0160, 0);
        driver.read(FLEX_MNG)
    };
    let read = |first: u32| {
        // 0x21 words from `first` on, in bytes, the most significant first.
        assert_eq!(command(&[0xFF06_0031, (2 * first).swap_bytes(), 0x4200]), 0xFF01_4231);
        let words = (0..0x21).map(|n| driver.read(FLEX_MNG + 12 + n / 2 * 4) >> (16 * (n % 2)) & 0xFFFF);
        words.collect::<Vec<u32>>()
    };
    let words = [read(0), read(0x21)].concat();
    // The PHY's section (word 4) is left out; those of words 6 and 7 have a fixed length, and none in front.
    let long = [read(words[6]), read(words[6] + 0x21)[..3].to_vec()].concat();
    let [listed, short] = [read(words[3]), read(words[7])];
    let covered = [&words[..0x42], &listed[1..=listed[0] as usize], &long, &short[..8]].concat();
    assert_ne!(words[4], 0);
    assert_eq!(covered.iter().sum::<u32>() & 0xFFFF, 0xBABA, "words 0 to 0x41, and three sections");
    driver.write(0x10014, 1);
    assert_eq!(driver.read(0x10014) & 2, 0, "EERD.DONE");
    driver.write(common::SECRXCTRL, 2);
    driver.poll("RDRXCTL.DMAIDONE", common::RDRXCTL, 8, 8);
    driver.write(common::RDRXCTL, driver.read(common::RDRXCTL) & !(0x1F << 17) | 3 << 25 | 2);
    driver.write(common::RXCTRL, 1);
    assert_eq!((command(&[0xFF00_01DE, 0]), driver.read(common::RXCTRL)), (0xFF01_00DE, 0), "the receiver is off");
    assert_eq!(command(&[0xFF00_0142]) >> 16 & 0x1F, 0, "not a command");
}

/// Nobody else has that interface, and without its semaphore it is not to be used.
#[test]
fn the_firmware_is_asked_under_its_semaphore() {
    let build = |id, fault: Option<Fault>| {
        let builder = StrictNic::builder().id(id).on_violation(OnViolation::Record);
        Driver::stopped(fault.into_iter().fold(builder, StrictBuilder::fault).build(), Plan::default())
    };
    let driver = build(DeviceId::X550, None);
    driver.write(0x1_5F00, 3);
    assert!(driver.device.violations().iter().any(|violation| violation.to_string().contains("SW_MNG")));
    assert_eq!(build(DeviceId::X540, None).read(0x1_5F00), 0, "HICR.EN");
    let driver = build(DeviceId::X550, Some(Fault::FirmwareSilent));
    driver.write(0x1_0160, 1 << 10);
    driver.write(0x1_5F00, 3);
    assert!((0..100).all(|_| driver.read(0x1_5F00) & 2 != 0));
    for (part, bit) in [(SharedPart::Eeprom, 5), (SharedPart::Phy, 6), (SharedPart::Mac, 8)] {
        let driver = build(DeviceId::SfpPlus, Some(Fault::FirmwareHolds { part }));
        driver.write(0x1_0160, 0);
        assert_eq!(driver.read(0x1_0160), 1 << bit);
    }
    assert_eq!(build(DeviceId::SfpPlus, Some(Fault::FirmwareVeto)).read(0x42D0), 1, "MMNGC.MNG_VETO");
}

/// Malicious-driver detection: a queue may not be enabled while its length is still on its way.
#[test]
fn an_x550_wants_to_be_read_behind_rdlen() {
    for (id, reads, wrong) in [(DeviceId::X550, 0, true), (DeviceId::X550, 1, false), (DeviceId::X540, 0, false)] {
        let driver =
            Driver::stopped(StrictNic::builder().id(id).on_violation(OnViolation::Record).build(), Plan::default());
        for (field, value) in [(0x00, 0x1000), (0x08, 256), (0x14, 0x0200_0002), (0x0C, 0)] {
            driver.write(common::rx(5, field), value);
        }
        (0..reads).for_each(|_| _ = driver.read(common::STATUS));
        driver.write(common::rx(5, 0x28), common::ENABLE);
        let seen = driver.device.violations();
        assert_eq!(seen.iter().any(|violation| violation.to_string().contains("RDLEN")), wrong, "{id:?}: {seen:?}");
    }
}
