//! The order of register writes, every timeout, and removal at every read.

use super::*;
use crate::fake::{Fake, STATION};
use crate::regs::{LINKS, MRQC, RETA, RSSRK};
use crate::{filter::Filters, link, stats};
use MacType::{Mac82599, X540, X550};
use ethdev::PortConfig;
use std::collections::BTreeMap;

fn names() -> BTreeMap<u32, &'static str> {
    let single = [
        (CTRL.offset(), "CTRL"),
        (EIMC.offset(), "EIMC"),
        (EICR.offset(), "EICR"),
        (RXCTRL.offset(), "RXCTRL"),
        (HLREG0.offset(), "HLREG0"),
        (RDRXCTL.offset(), "RDRXCTL"),
        (FCTRL.offset(), "FCTRL"),
        (MAXFRS.offset(), "MAXFRS"),
        (RXCSUM.offset(), "RXCSUM"),
        (RFCTL.offset(), "RFCTL"),
        (MRQC.offset(), "MRQC"),
        (VLNCTRL.offset(), "VLNCTRL"),
        (RTTDCS.offset(), "RTTDCS"),
        (MTQC.offset(), "MTQC"),
        (DTXMXSZRQ.offset(), "DTXMXSZRQ"),
        (DMATXCTL.offset(), "DMATXCTL"),
        (SECRXCTRL.offset(), "SECRXCTRL"),
        (GCR_EXT.offset(), "GCR_EXT"),
        (CTRL_EXT.offset(), "CTRL_EXT"),
        (RTTDQSEL.offset(), "RTTDQSEL"),
        (RTTBCNRC.offset(), "RTTBCNRC"),
    ];
    let mut names = BTreeMap::from(single);
    names.extend((0..2).map(|i| (EIMC_EX.at(i).offset(), "EIMC_EX")));
    names.extend((0..8).map(|i| (RXPBSIZE.at(i).offset(), "RXPBSIZE")));
    names.extend((0..8).map(|i| (TXPBSIZE.at(i).offset(), "TXPBSIZE")));
    names.extend((0..8).map(|i| (TXPBTHRESH.at(i).offset(), "TXPBTHRESH")));
    names.extend((0..10).map(|i| (RSSRK.at(i).offset(), "RSSRK")));
    names.extend((0..32).map(|i| (RETA.at(i).offset(), "RETA")));
    names
}

/// Names of the registers written, runs of one name taken together; the pair of a rate limiter counts as one.
fn order(fake: &Fake) -> Vec<&'static str> {
    let names = names();
    let mut order: Vec<_> = fake.writes().iter().map(|(offset, _)| names.get(offset).copied().unwrap_or("?")).collect();
    order.retain(|name| *name != "RTTBCNRC" && *name != "TXPBTHRESH");
    order.dedup();
    order
}

#[test]
fn reset_follows_the_datasheet() {
    let fake = Fake::new(0x10FB);
    reset(&fake.regs(), Mac82599).unwrap();
    assert_eq!(order(&fake), ["EIMC", "EIMC_EX", "CTRL", "EIMC", "EIMC_EX"]);
    let ctrl: Vec<_> =
        fake.writes().iter().filter(|(offset, _)| *offset == CTRL.offset()).map(|write| write.1).collect();
    assert_eq!(ctrl, [0x4, 0x0400_000C], "GIO_DIS, then RST and LRST");
    assert_eq!(fake.writes()[0], (0x888, 0x7FFF_FFFF));
    let reads = fake.reads();
    let last = |offset| reads.iter().rposition(|&read| read == offset).unwrap();
    assert!(last(EICR.offset()) < last(EEC.offset()) && last(EEC.offset()) < last(RDRXCTL.offset()));
}

#[test]
fn a_reset_waits_for_each_step() {
    let fake = Fake::new(0x10FB);
    let mut quiet = 0;
    fake.on_read(STATUS, move |_| {
        quiet += 1;
        if quiet < 5 { status::GIO.mask() } else { 0 }
    });
    let mut loading = 0;
    fake.on_read(EEC, move |_| {
        loading += 1;
        if loading < 5 { 0 } else { eec::ARD.mask() }
    });
    reset(&fake.regs(), Mac82599).unwrap();
    let ctrl = |bit: device::Bits| fake.writes().iter().filter(|w| w.0 == CTRL.offset() && bit.is_set(w.1)).count();
    assert_eq!(ctrl(ctrl::RST), 1, "requests ended in time: one reset");
}

#[test]
fn requests_that_do_not_end_take_two_resets() {
    let fake = Fake::new(0x10FB);
    fake.on_read(STATUS, |_| status::GIO.mask());
    fake.set(HLREG0, 0xC03);
    reset(&fake.regs(), Mac82599).unwrap();
    let clear = ["RXCTRL", "HLREG0", "GCR_EXT", "HLREG0"];
    let expected = [&["EIMC", "EIMC_EX", "CTRL"][..], &clear, &["CTRL", "EIMC", "EIMC_EX"]].concat();
    assert_eq!(order(&fake), expected);
    let values = |offset| fake.writes().iter().filter(|w| w.0 == offset).map(|w| w.1).collect::<Vec<_>>();
    assert_eq!(values(GCR_EXT.offset()), [1 << 30, 0], "a pulse of BUFFERS_CLEAR");
    assert_eq!(values(HLREG0.offset()), [0x8C03, 0xC03], "looped back meanwhile");
    assert_eq!(values(CTRL.offset()).iter().filter(|value| ctrl::RST.is_set(**value)).count(), 2);
}

/// Before the first of two resets, once nothing more is sent, requests under way get their answers; one that never gets its own holds up
/// nothing.
#[test]
fn transactions_on_the_bus_are_waited_for() {
    for (looks, left) in [(7, 0), (1000, 900)] {
        let fake = Fake::new(0x10FB);
        fake.on_read(STATUS, |_| status::GIO.mask());
        fake.set_pending(looks);
        let watched = fake.clone();
        let looped = std::sync::Arc::new(std::sync::OnceLock::new());
        let begun = std::sync::Arc::clone(&looped);
        fake.on_write(HLREG0, move |storage, value| {
            begun.get_or_init(|| (std::time::Instant::now(), watched.pending(), value));
            storage.insert(HLREG0.offset(), value);
        });
        let watched = fake.clone();
        fake.on_write(GCR_EXT, move |_, _| {
            assert_eq!(watched.pending(), left, "before buffers are cleared");
            let (since, pending, value) = looped.get().expect("looped back before");
            assert!(hlreg0::LPBK.is_set(*value) && *pending == looks, "before anybody looks");
            assert!(since.elapsed() >= Duration::from_millis(3), "time for a last completion");
        });
        reset(&fake.regs(), Mac82599).unwrap();
        assert_eq!(fake.writes().iter().filter(|w| w.0 == CTRL.offset() && ctrl::RST.is_set(w.1)).count(), 2);
    }
    // Where requests end, nobody looks.
    let fake = Fake::new(0x10FB);
    fake.set_pending(5);
    reset(&fake.regs(), Mac82599).unwrap();
    assert_eq!(fake.pending(), 5);
}

/// A link that is up may carry a session of the firmware.
#[test]
fn a_link_that_is_up_is_not_reset() {
    let resets = |device, mac, links| {
        let fake = Fake::new(device);
        fake.set(LINKS, links);
        assert_eq!(reset(&fake.regs(), mac).unwrap(), links != 0);
        let all = fake.writes().into_iter().filter(|(offset, _)| *offset == CTRL.offset()).map(|write| write.1);
        all.collect::<Vec<_>>()
    };
    assert_eq!(resets(0x10FB, Mac82599, 0x7000_0080), [0x4, 0x0400_0004], "RST alone");
    assert_eq!(resets(0x10FB, Mac82599, 0), [0x4, 0x0400_000C]);
    assert_eq!(resets(0x1528, X540, 0), [0x4, 0x0400_0004], "its link is the PHY's");
}

#[test]
fn a_card_that_does_not_take_gio_dis_is_reset_twice() {
    let fake = Fake::new(0x10FB);
    let mut resets = 0;
    fake.on_write(CTRL, move |storage, value| {
        resets += u32::from(ctrl::RST.is_set(value));
        storage.insert(STATUS.offset(), if resets < 2 { status::GIO.mask() } else { 0 });
    });
    reset(&fake.regs(), Mac82599).unwrap();
    let writes = fake.writes();
    assert_eq!(writes.iter().filter(|w| w.0 == CTRL.offset() && ctrl::RST.is_set(w.1)).count(), 2);
    assert_eq!(writes.iter().filter(|w| w.0 == GCR_EXT.offset()).count(), 2, "a pulse of BUFFERS_CLEAR");
}

#[test]
fn a_reset_is_requested_although_time_is_up() {
    let fake = Fake::new(0x10FB);
    fake.on_read(STATUS, |_| status::GIO.mask());
    let limit = device::TimeLimit { total: Duration::ZERO, cancel: None };
    let outcome = stop(&Timed::new(&fake.regs(), limit.begin()), Mac82599);
    assert!(matches!(outcome, Err(Error::Expired { .. })), "{outcome:?}");
    assert!(fake.writes().iter().any(|write| write.0 == CTRL.offset() && ctrl::RST.is_set(write.1)));
}

#[test]
fn a_reset_has_time_to_settle() {
    for (device, mac, settle_ms) in [(0x10FB, Mac82599, 50), (0x1528, X540, 100), (0x1563, X550, 100)] {
        let fake = Fake::new(device);
        let start = std::time::Instant::now();
        reset(&fake.regs(), mac).unwrap();
        assert!(start.elapsed() >= Duration::from_millis(settle_ms));
    }
}

#[test]
fn pause_frames_are_obeyed_only_if_wanted() {
    for (receive_pause, mflcn) in [(false, 0x2), (true, 0xA)] {
        let fake = Fake::new(0x10FB);
        fake.set(MFLCN, 0x5);
        fake.set(FCCFG, 0x18);
        flow_control(&fake.regs(), &Config { receive_pause, ..Config::default() }, Mac82599).unwrap();
        assert_eq!((fake.get(MFLCN), fake.get(FCCFG)), (mflcn, 0));
    }
}

/// 4.6.3.2: RXPBSIZE less 0x6000 in FCRTH, whether flow control is on or not; everything else is 0, on X540 and X550 alike.
#[test]
fn the_level_of_the_receive_buffer_is_set_without_flow_control() {
    for (device, mac, level) in [(0x10FB, Mac82599, 0x7_A000), (0x1528, X540, 0x5_A000), (0x1563, X550, 0x5_A000)] {
        let fake = Fake::new(device);
        (0..4).for_each(|n| fake.set(FCTTV.at(n), 7));
        (0..8).for_each(|n| fake.set(FCRTL.at(n), 7));
        (0..8).for_each(|n| fake.set(FCRTH.at(n), u32::MAX));
        fake.set(FCRTV, 7);
        flow_control(&fake.regs(), &Config::default(), mac).unwrap();
        assert_eq!(fake.get(FCRTH.at(0)), level, "{mac:?}");
        let rest: u32 = (0..4).map(|n| fake.get(FCTTV.at(n))).chain((0..8).map(|n| fake.get(FCRTL.at(n)))).sum();
        let high: u32 = (1..8).map(|n| fake.get(FCRTH.at(n))).sum();
        assert_eq!((rest, high, fake.get(FCRTV)), (0, 0, 0));
    }
}

#[test]
fn gio_dis_does_not_outlive_a_reset() {
    let fake = Fake::new(0x10FB);
    fake.on_write(CTRL, |storage, value| {
        storage.insert(CTRL.offset(), value & !(ctrl::RST.mask() | ctrl::LRST.mask()));
        storage.insert(STATUS.offset(), 0);
    });
    reset(&fake.regs(), Mac82599).unwrap();
    assert!(!ctrl::GIO_DIS.is_set(fake.get(CTRL)));
}

#[test]
fn each_timeout_names_its_register() {
    let timeout = |outcome: Result<()>| match outcome {
        Err(Error::Timeout { register, .. }) => register,
        other => panic!("{other:?}"),
    };
    let fake = Fake::new(0x10FB);
    fake.on_write(CTRL, |storage, value| {
        storage.insert(CTRL.offset(), value);
    });
    assert_eq!(timeout(reset(&fake.regs(), Mac82599).map(drop)), "CTRL");

    let fake = Fake::new(0x10FB);
    fake.set(EEC, 0x100);
    assert_eq!(timeout(reset(&fake.regs(), Mac82599).map(drop)), "EEC");

    let fake = Fake::new(0x10FB);
    fake.set(RDRXCTL, 0);
    assert_eq!(timeout(reset(&fake.regs(), Mac82599).map(drop)), "RDRXCTL");

    let fake = Fake::new(0x10FB);
    fake.set(SECRXSTAT, 0);
    start_receiving(&fake.regs()).unwrap();
    assert_eq!((fake.get(SECRXCTRL), fake.get(RXCTRL)), (0, 1), "enabled nevertheless, and not left closed");
    let expired = start_receiving(&fake.regs().at_most(Duration::ZERO));
    assert!(matches!(expired, Err(Error::Expired { .. })), "{expired:?}");
}

#[test]
fn station_addresses() {
    let fake = Fake::new(0x10FB);
    assert_eq!(station_address(&fake.regs()).unwrap(), STATION);
    let refusals =
        [(STATION, false, "AV is clear"), ([0; 6], true, "zero"), ([1, 0, 0x5E, 0, 0, 1], true, "multicast")];
    for (address, valid, reason) in refusals {
        fake.set_station(address, valid);
        let error = station_address(&fake.regs()).unwrap_err();
        assert!(matches!(error, Error::Eeprom { .. }) && error.to_string().contains(reason), "{error}");
        assert!(error.to_string().contains(":xx:xx:xx; "), "{error}");
    }
}

#[test]
fn receive_path_in_datasheet_order() {
    let fake = Fake::new(0x10FB);
    receive_path(&fake.regs(), &Config::default(), Mac82599).unwrap();
    let expected = [
        "RXCTRL", "RXPBSIZE", "HLREG0", "RDRXCTL", "FCTRL", "MAXFRS", "RXCSUM", "RFCTL", "RSSRK", "RETA", "MRQC",
        "VLNCTRL",
    ];
    assert_eq!(order(&fake), expected);
}

#[test]
fn receive_path_values() {
    for (device, mac, buffer) in [(0x10FB, Mac82599, 0x8_0000), (0x1528, X540, 0x6_0000), (0x1563, X550, 0x6_0000)] {
        let fake = Fake::new(device);
        fake.set(HLREG0, 0x0800);
        fake.set(RDRXCTL, 0x003E_0008);
        fake.set(VLNCTRL, 0x6000_88A8);
        let config = Config::from(PortConfig { mtu: 9216, ..PortConfig::default() });
        receive_path(&fake.regs(), &config, mac).unwrap();
        assert_eq!([0, 1, 7].map(|i| fake.get(RXPBSIZE.at(i))), [buffer, 0, 0]);
        assert_eq!(fake.get(HLREG0), 0x0806, "RXCRCSTRP, JUMBOEN, the rest kept");
        assert_eq!(fake.get(RDRXCTL), 0x0600_000A, "CRCSTRIP, RSCACKC, FCOE_WRFIX, DMAIDONE kept, RSCFRSTSIZE 0");
        assert_eq!(fake.get(MAXFRS) >> 16, 9242);
        assert_eq!(fake.get(FCTRL), 0x700);
        assert_eq!((fake.get(RXCSUM), fake.get(RFCTL), fake.get(VLNCTRL)), (0x2000, 0xE0, 0x8100));
        assert_eq!(fake.get(MRQC) & 0xF, 1);
    }
}

#[test]
fn filters_of_a_host_that_is_not_promiscuous() {
    let fctrl = |promiscuous, all_multicast| {
        let fake = Fake::new(0x10FB);
        let config = Config::from(PortConfig { promiscuous, all_multicast, ..PortConfig::default() });
        receive_path(&fake.regs(), &config, Mac82599).unwrap();
        fake.get(FCTRL)
    };
    assert_eq!((fctrl(false, false), fctrl(false, true)), (0x400, 0x500));
}

#[test]
fn transmit_path_in_datasheet_order() {
    let fake = Fake::new(0x10FB);
    transmit_path(&fake.regs()).unwrap();
    let expected = ["HLREG0", "TXPBSIZE", "RTTDCS", "MTQC", "DTXMXSZRQ", "RTTDQSEL", "RTTDCS", "DMATXCTL"];
    assert_eq!(order(&fake), expected);
    assert_eq!((fake.get(HLREG0), fake.get(MTQC), fake.get(DTXMXSZRQ)), (0x401, 0, 0xFFF));
    assert_eq!((fake.get(TXPBSIZE.at(0)), fake.get(TXPBTHRESH.at(0)), fake.get(TXPBTHRESH.at(1))), (0x2_8000, 150, 0));
    assert_eq!((fake.get(DMATXCTL), fake.get(RTTDCS), fake.get(RTTDQSEL)), (1, 0, 127));
    let limits = fake.writes().iter().filter(|write| write.0 == RTTBCNRC.offset()).count();
    assert_eq!(limits, 128);
}

#[test]
fn frames_are_let_in_through_a_drained_path() {
    let fake = Fake::new(0x10FB);
    start_receiving(&fake.regs()).unwrap();
    assert_eq!(fake.writes(), [(0x8D00, 2), (0x3000, 1), (0x8D00, 0)]);
}

#[test]
fn a_stop_closes_requests_and_resets() {
    let fake = Fake::new(0x10FB);
    fake.set(RXCTRL, 1);
    let regs = fake.regs();
    announce(&regs).unwrap();
    assert_eq!(fake.get(CTRL_EXT), 0x1001_0000);
    stop_receiving(&regs, Mac82599).unwrap();
    stop(&regs, Mac82599).unwrap();
    assert_eq!(order(&fake), ["CTRL_EXT", "RXCTRL", "EIMC", "EIMC_EX", "CTRL_EXT", "CTRL", "EIMC", "EIMC_EX"]);
    assert_eq!((fake.get(RXCTRL), fake.get(CTRL_EXT)), (0, 0x0001_0000), "firmware is told");
}

/// Everything the control side does to open and close a port.
fn whole_life(fake: &Fake) -> Result<()> {
    let regs = fake.regs();
    let model = crate::Model::identify(device::Device::ids(fake))?;
    let config = Config::default();
    let linked = reset(&regs, model.mac)?;
    let station = station_address(&regs)?;
    crate::eeprom::check(&regs, model.mac)?;
    link::set_up(&regs, model, linked)?;
    link::status(&regs, model.mac)?;
    stats::Counters::new(&regs)?.poll(None)?;
    let mut filters = Filters::new(&regs, station, &config.port)?;
    receive_path(&regs, &config, model.mac)?;
    flow_control(&regs, &config, model.mac)?;
    transmit_path(&regs)?;
    filters.set_promiscuous(false)?;
    filters.set_all_multicast(false)?;
    filters.set_vlan_filter(true)?;
    announce(&regs)?;
    start_receiving(&regs)?;
    stop_receiving(&regs, model.mac)?;
    stop(&regs, model.mac)
}

#[test]
fn removal_at_any_read_is_told() {
    for device in [0x10FB, 0x1528, 0x1563] {
        let healthy = Fake::new(device);
        healthy.set_eeprom(vec![0xFFFF; 64]);
        whole_life(&healthy).unwrap();
        let reads = healthy.reads().len();
        assert!(reads > 200, "{reads}");
        // Resets sleep, so lives are lived side by side.
        std::thread::scope(|scope| {
            for first in 0..SIDE_BY_SIDE {
                scope.spawn(move || (first..reads).step_by(SIDE_BY_SIDE).for_each(|position| die_at(device, position)));
            }
        });
    }
}

#[test]
fn removal_while_requests_do_not_end_is_told() {
    let reset_after = |reads| {
        let fake = Fake::new(0x10FB);
        fake.on_read(STATUS, |_| status::GIO.mask());
        fake.vanish_after_write(HLREG0, reads);
        reset(&fake.regs(), Mac82599).map(drop)
    };
    let survived = (0..).take_while(|&reads| matches!(reset_after(reads), Err(Error::Gone { .. }))).count();
    // RXCTRL, GCR_EXT, STATUS; CTRL twice for each of two resets, and once after; EICR, EEC, RDRXCTL.
    assert_eq!(survived, 3 + 5 + 3);
}

fn die_at(device: u16, position: usize) {
    let fake = Fake::new(device);
    fake.set_eeprom(vec![0xFFFF; 64]);
    fake.vanish_at_read(position);
    let outcome = whole_life(&fake);
    assert!(matches!(outcome, Err(Error::Gone { .. })), "read {position}: {outcome:?}");
}

const SIDE_BY_SIDE: usize = 16;
