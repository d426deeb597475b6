//! Bringing a device up, in the order of the specification (Virtio 1.2, section 3.1.1).

use crate::config::{ETHERNET_HEADER, VLAN_TAG};
use crate::control::Control;
use crate::net::{self, NetConfig};
use crate::ring::{Area, Layout, Packed, Ring, RingMemory, Split};
use crate::rx::pool_error;
use crate::rx_header::{LARGEST_HEADER, WITH_HASH};
use crate::session::{Header, QueueSession, Shared};
use crate::transport::{Interface, QueueSetup, Transport, status};
use crate::{Config, Error, Features, Result, features};
use ethdev::{ConfigError, Rss};
use mempool::Pool;
use std::sync::Arc;

/// What was agreed on, and the control queue if there is one.
pub(crate) struct Agreed<T: Transport> {
    pub(crate) features: Features,
    pub(crate) net: NetConfig,
    pub(crate) control: Option<Control<T>>,
}

/// Brings up a device that has been reset, and lets the queues in. If the device is there and cannot be brought up, calls
/// `give_up`, which has to tell and reset it, as it may have been started.
pub(crate) fn start<T: Transport>(
    shared: &Shared<T>,
    config: &Config,
    pool: &Pool,
    give_up: impl FnOnce(),
) -> Result<Agreed<T>> {
    shared.transport.attach()?;
    try_start(shared, config, pool).inspect_err(|_| give_up())
}

fn try_start<T: Transport>(shared: &Shared<T>, config: &Config, pool: &Pool) -> Result<Agreed<T>> {
    let transport = &*shared.transport;
    let mut reached = status::ACKNOWLEDGE;
    transport.set_status(reached)?;
    reached |= status::DRIVER;
    transport.set_status(reached)?;

    let features = agree(transport, config, pool)?;
    if transport.interface() == Interface::Modern {
        reached |= status::FEATURES_OK;
        transport.set_status(reached)?;
        if transport.status()? & status::FEATURES_OK == 0 {
            return Err(Error::negotiation(
                transport.name(),
                format!("the device does not accept these features together: {features}"),
            ));
        }
    }
    let net = net::read(transport, features)?;
    if let Some(hashable) = net.hashable {
        hashable.check(&config.port.rss, config.pairs())?;
    }
    let header = header(transport, features, &net);
    check_sizes(transport, config, pool, &net, header)?;

    let queues = Queues::plan(transport, config, features, &net)?;
    let (sessions, control) = queues.set_up(shared, features, header)?;
    transport.set_status(reached | status::DRIVER_OK)?;
    let mut agreed = Agreed { features, net, control };
    if let Some(control) = &mut agreed.control {
        let deadline = transport.deadline().unwrap_or_else(|| config.port.time_limit.begin());
        control.prepare(config, features, &net, &deadline)?;
    }
    shared.begin(sessions);
    Ok(agreed)
}

/// Chooses features and tells the device.
fn agree<T: Transport>(transport: &T, config: &Config, pool: &Pool) -> Result<Features> {
    let offered = Features(transport.device_features()?);
    let mut refuse = config.refuse;
    if needs_no_merging(transport, config, pool, offered)? {
        refuse = refuse | Features::MRG_RXBUF;
    }
    if config.pairs() == 1 {
        refuse = refuse | Features::MQ | Features::RSS;
    }
    if !config.port.report_hash {
        refuse = refuse | Features::HASH_REPORT;
    }
    if !config.port.checksum_offload {
        refuse = refuse | features::OFFLOADS;
    }
    let chosen = features::choose(offered, refuse, transport.interface(), transport.starts_all_pairs());
    if transport.interface() == Interface::Modern && !chosen.contains(Features::VERSION_1) {
        return Err(Error::negotiation(
            transport.name(),
            "the device does not offer VIRTIO_F_VERSION_1; use one that follows Virtio 1.0 or later",
        ));
    }
    if transport.wants_access_platform() && !chosen.contains(Features::ACCESS_PLATFORM) {
        let problem = "the device does not offer VIRTIO_F_ACCESS_PLATFORM, so it bypasses the IOMMU; \
                       turn it on (QEMU: disable-legacy=on,iommu_platform=on)";
        return Err(Error::negotiation(transport.name(), problem));
    }
    if config.pairs() > 1 && !chosen.contains(Features::MQ) {
        let problem = format!("{} queue pairs are asked for, and the device has 1; ask for 1", config.pairs());
        return Err(Error::negotiation(transport.name(), problem));
    }
    if config.pairs() > 1 && config.port.rss != Rss::default() && !chosen.contains(Features::RSS) {
        let problem = "the device spreads flows over queues by rules of its own, as it does not offer VIRTIO_NET_F_RSS; leave \
                       the default";
        return Err(ConfigError::new("rss", problem).into());
    }
    transport.set_driver_features(chosen.0)?;
    Ok(chosen)
}

fn header<T: Transport>(transport: &T, features: Features, net: &NetConfig) -> Header {
    let modern = transport.interface() == Interface::Modern;
    let mergeable = features.contains(Features::MRG_RXBUF);
    let hash = features.contains(Features::HASH_REPORT);
    Header {
        len: match (hash, modern || mergeable) {
            (true, _) => WITH_HASH,
            (false, true) => 12,
            (false, false) => 10,
        },
        mergeable,
        // What transmit queues write in front of a frame is no longer than 12 bytes.
        any_layout: !hash && (modern || features.contains(Features::ANY_LAYOUT)),
        hash,
        longest: net.mtu.map_or(u32::MAX, |mtu| u32::from(mtu) + u32::from(ETHERNET_HEADER)),
        device_checksum: features.contains(Features::CSUM),
        guest_checksum: features.contains(Features::GUEST_CSUM),
        zeros: 0,
    }
}

/// Returns whether any frame fits into one buffer, so that a header need not say in how many it lies. Where it does, the
/// device writes to the header of each frame and transmission clears that again: for a frame that is forwarded a cache line
/// goes to and fro once more. Legacy devices are left alone, as their header has another length and layout without it.
fn needs_no_merging<T: Transport>(transport: &T, config: &Config, pool: &Pool, offered: Features) -> Result<bool> {
    if transport.interface() == Interface::Legacy || config.port.report_hash && offered.contains(Features::HASH_REPORT)
    {
        return Ok(false);
    }
    // Fields may be read before features are agreed on (section 3.1.1, step 4).
    let mtu = if config.refuse.contains(Features::MTU) { None } else { net::mtu(transport, offered)? };
    Ok(usize::from(pool.data_room()) >= largest_buffer(config, mtu, 0))
}

/// Returns the size of a buffer that holds any frame, with the header: also those that a device with a larger MTU may receive
/// (section 5.1.4.2).
fn largest_buffer(config: &Config, mtu: Option<u16>, header: usize) -> usize {
    let frame = mtu.map_or(0, |mtu| usize::from(mtu) + usize::from(ETHERNET_HEADER) + 2 * VLAN_TAG);
    (frame.max(config.port.max_frame()) + LARGEST_HEADER.max(header)).max(SMALLEST_WHOLE)
}

/// Returns an error if buffers are too small for what the device may receive (section 5.1.6.3.1).
fn check_sizes<T: Transport>(
    transport: &T,
    config: &Config,
    pool: &Pool,
    net: &NetConfig,
    header: Header,
) -> Result<()> {
    if let Some(mtu) = net.mtu.filter(|mtu| *mtu < config.port.mtu) {
        let problem = format!("an MTU of {} is asked for, and the device allows {mtu}; ask for that", config.port.mtu);
        return Err(Error::negotiation(transport.name(), problem));
    }
    let wanted = largest_buffer(config, net.mtu, header.len.into());
    if !header.mergeable && usize::from(pool.data_room()) < wanted {
        let problem = format!(
            "without VIRTIO_NET_F_MRG_RXBUF a frame must fit into one buffer of {wanted} bytes; \
             lower the MTU (here, and of the device if it has one), or turn mrg_rxbuf on in the device"
        );
        return Err(pool_error(transport.name(), pool, problem));
    }
    Ok(())
}

/// The virtqueues of a session: two for each pair, and one for control behind those of all pairs that the device has.
struct Queues {
    /// Index and layout.
    data: Vec<(u16, Layout)>,
    control: Option<(u16, Layout)>,
}

impl Queues {
    fn plan<T: Transport>(transport: &T, config: &Config, features: Features, net: &NetConfig) -> Result<Self> {
        if config.pairs() > net.pairs {
            let problem = format!(
                "{} queue pairs are asked for, and the device has {}; ask for as many",
                config.pairs(),
                net.pairs
            );
            return Err(Error::negotiation(transport.name(), problem));
        }
        let packed = features.contains(Features::RING_PACKED);
        let layout =
            |index: u16, wish: u16| Ok((index, Layout { size: size(transport, index, wish, packed)?, packed }));
        let data = (0..config.pairs())
            .flat_map(|pair| [layout(2 * pair, config.port.rx_ring), layout(2 * pair + 1, config.port.tx_ring)])
            .collect::<Result<_>>()?;
        let with_control = features.contains(Features::CTRL_VQ);
        let control = with_control.then(|| layout(2 * net.pairs, CONTROL_RING)).transpose()?;
        Ok(Self { data, control })
    }

    /// Allocates the rings and tells the device where they are.
    fn set_up<T: Transport>(self, shared: &Shared<T>, features: Features, header: Header) -> Result<Started<T>> {
        let transport = &*shared.transport;
        let layouts: Vec<Layout> = self.data.iter().chain(&self.control).map(|(_, layout)| *layout).collect();
        let memory = RingMemory::allocate(transport.dma(), &layouts, transport.numa_node())?;
        shared.begin_dma(&memory.memory);
        let header = Header { zeros: memory.zeros.iova(), ..header };
        let mut areas = memory.rings.into_iter();
        let mut sessions = Vec::with_capacity(self.data.len());
        for ((index, layout), area) in self.data.into_iter().zip(areas.by_ref()) {
            // Even ones are for receiving.
            let vector = (index % 2 == 0 && shared.vector(index / 2).is_some()).then_some(index / 2);
            let (ring, notifier) = start_queue(transport, index, layout, features, vector, area)?;
            sessions.push(Some(Box::new(QueueSession { ring, notifier, header })));
        }
        let control = match self.control.zip(areas.next()) {
            None => None,
            Some(((index, layout), area)) => {
                let (ring, notifier) = start_queue(transport, index, layout, features, None, area)?;
                Some(Control::new(Arc::clone(&shared.transport), ring, notifier, memory.commands))
            }
        };
        Ok((sessions, control))
    }
}

type Started<T> = (Vec<Option<Box<QueueSession<<T as Transport>::Notifier>>>>, Option<Control<T>>);

/// Returns the size to use for a queue: what is wished for, unless the device allows less, or has its own (legacy).
fn size<T: Transport>(transport: &T, queue: u16, wish: u16, packed: bool) -> Result<u16> {
    let largest = transport.queue_size(queue)?;
    let fault = |problem: String| Error::Queue { device: transport.name().to_owned(), queue, problem };
    if largest == 0 {
        return Err(fault("the device does not have it; ask for fewer queues".to_owned()));
    }
    if !packed && !largest.is_power_of_two() {
        return Err(fault(format!("its size is {largest}, which is no power of two; such a device cannot be used")));
    }
    if largest > LARGEST {
        return Err(fault(format!("its size is {largest}; it may be 32768 at most; such a device cannot be used")));
    }
    // The largest power of two that the device allows.
    let allowed = 1 << largest.ilog2();
    let size = if transport.interface() == Interface::Legacy { allowed } else { allowed.min(wish) };
    if size < SMALLEST {
        return Err(fault(format!(
            "its size is {largest}; this driver wants {SMALLEST} at least; configure a larger one"
        )));
    }
    Ok(size)
}

fn start_queue<T: Transport>(
    transport: &T,
    index: u16,
    layout: Layout,
    features: Features,
    vector: Option<u16>,
    area: Area,
) -> Result<(Ring, T::Notifier)> {
    let setup = QueueSetup { vector, ..area.setup(layout) };
    let (event_idx, in_order) = (features.contains(Features::EVENT_IDX), features.contains(Features::IN_ORDER));
    let ring = if layout.packed {
        Ring::Packed(Packed::new(area, layout, event_idx, in_order))
    } else {
        Ring::Split(Split::new(area, layout, event_idx, in_order))
    };
    let notifier = set_up(transport, index, &setup)?;
    Ok((ring, notifier))
}

#[expect(unsafe_code, reason = "the transport takes the driver's word for the memory")]
fn set_up<T: Transport>(transport: &T, index: u16, setup: &QueueSetup) -> Result<T::Notifier> {
    // SAFETY: the areas were cut from mapped memory for this queue alone, are sized for the layout, and are kept until the
    // device has been reset; buffers in the ring are owned by the queue until then.
    unsafe { transport.set_up_queue(index, setup) }
}

/// Descriptors of the control queue: one command at a time.
const CONTROL_RING: u16 = 64;
/// Largest size of a queue (section 2.6), and the smallest that this driver works with.
const LARGEST: u16 = 32_768;
const SMALLEST: u16 = 8;
/// The smallest buffer for a whole frame.
const SMALLEST_WHOLE: usize = 1526;
