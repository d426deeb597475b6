//! The self-test of a device: its parts, by the driver's own tests, then frames that go round inside it, twice.

mod frames;
mod round;

use crate::drivers::{Driven, DriverError, Job, Start};
use crate::port::find;
use crate::{Address, Error, Opened, Result};
use device::{Deadline, Device, PciIds, RegisterValue};
use ethdev::{Check, Interrupts, PortConfig, TimeLimit, Verdict};
use mempool::{Pool, PoolConfig};
use round::{Extras, Round};
use std::time::Duration;

/// What a self-test has found.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct SelfTest {
    /// Vendor and device; `None` for a virtio device of another process.
    pub ids: Option<PciIds>,
    /// The parts of the device that its driver can tell something about, as [`ethdev::Port::parts`].
    pub parts: Vec<(&'static str, String)>,
    /// The station address; all zeros if the device could not be opened or has none.
    pub mac: ethdev::MacAddress,
    /// The checks, in the order in which they were made.
    pub checks: Vec<Check>,
}

impl SelfTest {
    /// Returns the checks that failed.
    pub fn failed(&self) -> impl Iterator<Item = &Check> {
        self.checks.iter().filter(|check| check.verdict == Verdict::Failed)
    }

    fn has_failed(&self) -> bool {
        self.failed().next().is_some()
    }
}

/// Tests the device at `address`, which must be free: its parts, then a port of it, opened twice, through which frames of all sizes
/// go round inside the device. No frame leaves by the wire, and frames that arrive are ignored. The device is reset several times, and
/// a link that it has goes down meanwhile. It takes [`PortConfig::time_limit`] at most (10 s is enough where the device works), and
/// two seconds more to put things in order. Of `config`, only the time limit and how to get at the device are used.
///
/// ```
/// use nic::{PortConfig, Verdict};
///
/// let config = PortConfig::default();
/// let found = nic::selftest(&"soft:tested?fault=no-dd".parse()?, &config)?;
/// let failed: Vec<_> = found.failed().map(|check| check.name).collect();
/// assert_eq!(failed, ["write-back"]);
/// # Ok::<(), nic::Error>(())
/// ```
///
/// # Errors
///
/// If the device cannot be reached at all, as [`crate::open`]. What is wrong with a device that can be reached is in the checks.
pub fn selftest(address: &Address, config: &PortConfig) -> Result<SelfTest> {
    let deadline = config.time_limit.begin();
    let (parts_limit, round_limit) = shares(config.time_limit.total);
    let limited =
        |config: &PortConfig, most| PortConfig { time_limit: left(&deadline, config, most), ..config.clone() };
    let (found, ids) = if let Address::VhostUser { .. } = address {
        // The other side would see a connection that ends at once.
        (PartsFound::none(), None)
    } else {
        let found = find(address, &limited(config, parts_limit), Parts(left(&deadline, config, parts_limit)))?;
        (found.output, found.ids)
    };
    let mut test = SelfTest { ids, parts: Vec::new(), mac: ethdev::MacAddress::ZERO, checks: found.checks };
    if found.is_over {
        return Ok(test);
    }
    let plain = first_round(&limited(config, round_limit), found.mtu);
    let extras = Extras { high: false, is_last: false };
    let Some(first) = round(address, &plain, &deadline, extras, &mut test)? else { return Ok(test) };
    let queues = first.rss.map_or(1, |rss| rss.queues.min(first.rx_queues).min(MOST_QUEUES));
    let second = PortConfig {
        rx_queues: queues,
        tx_queues: queues.min(first.tx_queues).min(MOST_TX_QUEUES),
        rx_ring: RX_RING,
        interrupts: Interrupts::IfAvailable,
        time_limit: left(&deadline, config, round_limit),
        ..plain
    };
    let mut again = SelfTest { checks: Vec::new(), ..test.clone() };
    round(address, &second, &deadline, Extras { high: true, is_last: true }, &mut again)?;
    merge(&mut test, again, queues);
    Ok(test)
}

/// Reads all registers of the device at `address`, which must be free, that its driver knows. Writes none of them; getting at a device
/// through VFIO resets it, so there is then to see what a reset leaves.
///
/// ```
/// let values = nic::registers(&"soft:read".parse()?, &nic::PortConfig::default())?;
/// assert!(values.iter().any(|register| register.name == "STATUS" && register.value == Some(1 << 19)));
/// assert!(values.iter().any(|register| register.name == "GPRC" && register.value.is_none()), "reading clears it");
/// # Ok::<(), nic::Error>(())
/// ```
///
/// # Errors
///
/// As [`crate::open`]; if the device has no registers of its own, as a virtio device; and [`Error::Lost`] if a software NIC could not
/// write its trace.
pub fn registers(address: &Address, config: &PortConfig) -> Result<Vec<RegisterValue>> {
    let found = find(address, config, Registers)?;
    #[cfg(feature = "soft")]
    if let Some(source) = found.wire_error() {
        return Err(Error::Lost { device: address.name(), source });
    }
    found.output.ok_or_else(|| {
        let what = match address {
            Address::Null(_) => "there is no device, so there are no registers",
            _ => "a virtio device has no registers but those of its transport",
        };
        Error::NoDriver { address: address.to_string(), what: what.to_owned() }
    })
}

/// What the parts, and each round's opening, may take of the whole: of ten seconds four and three, of five as much.
fn shares(total: Duration) -> (Duration, Duration) {
    let tenth = (total / 10).max(Duration::from_secs(1)).min(total / 5);
    (4 * tenth, 3 * tenth)
}

/// The time limit of a step: `most`, or what is left.
fn left(deadline: &Deadline, config: &PortConfig, most: Duration) -> TimeLimit {
    let left = deadline.remaining().unwrap_or(Duration::ZERO);
    TimeLimit { total: left.min(most), cancel: config.time_limit.cancel.clone() }
}

/// One queue each way, with a receive ring that has room for a whole transmit ring.
fn first_round(config: &PortConfig, mtu: u16) -> PortConfig {
    PortConfig {
        rx_ring: 2 * RX_RING,
        tx_ring: TX_RING,
        mtu,
        no_iommu: config.no_iommu,
        trusted_peer: config.trusted_peer,
        time_limit: config.time_limit.clone(),
        ..PortConfig::default()
    }
}

/// Opens the device, makes the checks of a round, and closes it. Returns what it can do, if all is well so far that another round
/// makes sense.
fn round(
    address: &Address,
    config: &PortConfig,
    deadline: &Deadline,
    extras: Extras,
    test: &mut SelfTest,
) -> Result<Option<ethdev::Capabilities>> {
    let slots = usize::from(config.rx_queues * config.rx_ring + config.tx_queues * config.tx_ring) + SPARE_SLOTS;
    let pool = Pool::new(&PoolConfig { slots, ..PoolConfig::default() }).map_err(pool_error)?;
    let job = StartAt { start: Start { config, pool: &pool }, high: extras.high };
    let (opened, iova) = match find(address, config, job) {
        Ok(found) => found.started(),
        Err(error) => {
            test.checks.push(Check::ended_by("open", &error));
            return Ok(None);
        }
    };
    test.mac = ethdev::Port::mac(&opened.port);
    test.parts = ethdev::Port::parts(&opened.port);
    let capabilities = ethdev::Port::capabilities(&opened.port);
    let goes_on = Round::new(opened, &pool, config, deadline.clone()).run(extras, iova, &mut test.checks);
    if pool.away() != 0 {
        test.checks.push(Check::failed("buffers", format!("{} of {} did not come home", pool.away(), pool.slots())));
    }
    Ok(Some(capabilities).filter(|_| goes_on))
}

/// Adds the checks of the second round: those that failed, those of parts that the first did not look at, and one for all the
/// others.
fn merge(test: &mut SelfTest, again: SelfTest, queues: u16) {
    let mut repeated = 0;
    for mut check in again.checks {
        let before = test.checks.iter_mut().find(|before| before.name == check.name);
        match (before, check.verdict) {
            // What could not be looked at then, and can be now.
            (Some(before), _) if before.verdict == Verdict::NotApplicable => *before = check,
            (Some(before), Verdict::Failed) if before.verdict == Verdict::Failed => {}
            (Some(_), Verdict::Failed) => {
                check.seen.insert_str(0, "after another reset: ");
                test.checks.push(check);
            }
            (Some(_), _) => repeated += 1,
            (None, _) => test.checks.push(check),
        }
    }
    if !test.has_failed() && repeated > 0 {
        test.checks
            .push(Check::ok("all again", format!("{repeated} checks after another reset, on {queues} receive queues")));
    }
}

fn pool_error(error: mempool::Error) -> Error {
    match error {
        mempool::Error::Memory(error) => Error::Device(error),
        other => Error::Device(device::Error::unusable("packet pool", other.to_string(), "")),
    }
}

/// The tests of a device's parts.
struct Parts(TimeLimit);

/// What they say.
struct PartsFound {
    checks: Vec<Check>,
    /// Whether the device is not to be opened any more.
    is_over: bool,
    /// The MTU that a port of it can be opened with.
    mtu: u16,
}

impl PartsFound {
    fn new(checks: Vec<Check>) -> Self {
        // A device that stopped in the middle has no second reset.
        let is_over = checks.last().is_some_and(|check| check.verdict == Verdict::Failed);
        Self { checks, is_over, mtu: JUMBO_MTU }
    }

    /// Of a device without tests of its parts, which may not grant a long frame.
    fn none() -> Self {
        Self { checks: Vec::new(), is_over: false, mtu: PortConfig::default().mtu }
    }
}

impl Job for Parts {
    type Output = PartsFound;

    fn run(self, device: impl Driven) -> Result<PartsFound, DriverError> {
        Ok(device.parts(&self.0)?.map_or_else(PartsFound::none, PartsFound::new))
    }
}

/// The registers; `None` if there are none.
struct Registers;

impl Job for Registers {
    type Output = Option<Vec<RegisterValue>>;

    fn run(self, device: impl Driven) -> Result<Self::Output, DriverError> {
        device.registers()
    }
}

/// Starts a device with its packet memory, and all else, above 4 GiB if there is a choice. The output has the address at which the
/// device sees its packets, if that is one number.
struct StartAt<'a> {
    start: Start<'a>,
    high: bool,
}

impl Job for StartAt<'_> {
    type Output = (Opened, Option<u64>);

    fn run(self, device: impl Driven) -> Result<Self::Output, DriverError> {
        let iova = device.place(self.start.pool, self.high)?;
        Ok((self.start.run(device)?.0, iova))
    }
}

/// Places the packet memory. The device is made quiet, so that nothing that an earlier driver left running reaches it.
pub(crate) fn place<D: Device>(device: &D, pool: &Pool, high: bool) -> device::Result<u64> {
    if high {
        device.dma().set_floor(HIGH);
    }
    device.set_bus_master(false)?;
    let memory = pool.memory();
    Ok(device.dma().map(memory)?.iova(memory.base().as_ptr()))
}

/// Addresses from here on have a high half.
pub(crate) const HIGH: u64 = 1 << 32;
/// Room for one jumbo frame.
const JUMBO_MTU: u16 = 9000;
/// Descriptors of each ring, but for the receive ring of the first round.
const RX_RING: u16 = 128;
const TX_RING: u16 = 128;
/// Slots beside those of the rings: a cache, and a burst with jumbo frames.
const SPARE_SLOTS: usize = 700;
/// Queues of the second round: few enough for the memory that a user may lock by default.
const MOST_QUEUES: u16 = 8;
const MOST_TX_QUEUES: u16 = 4;
