//! smoltcp's TCP/IP stack on any port: `smoltcp_device [ADDRESS [IP/PREFIX [SECONDS]]]` answers ping, and sends back what comes to its
//! TCP port 7. On a TAP interface (root): `smoltcp_device soft:a?wire=tap:tap0`, and in another shell
//! `ip addr add 192.0.2.2/24 dev tap0; ip link set tap0 up; ping 192.0.2.1; nc 192.0.2.1 7`.

use ethdev::{Port as _, PortConfig, RxQueue, TxQueue};
use lcore::{Clock, Team};
use mempool::{Batch, Packet, Pool, PoolCache, PoolConfig};
use smoltcp::iface::{Config, Interface, PollResult, SocketHandle, SocketSet};
use smoltcp::phy::{self, DeviceCapabilities};
use smoltcp::socket::tcp;
use smoltcp::time::Instant;
use smoltcp::wire::{EthernetAddress, IpCidr};
use std::time::Duration;

/// A pair of queues as smoltcp's device. Frames are in one buffer each, as the MTU fits in one.
pub(crate) struct Device<R, T> {
    rx: R,
    received: Batch,
    sender: Sender<T>,
}

pub(crate) struct Sender<T> {
    tx: T,
    batch: Batch,
    cache: PoolCache,
}

pub(crate) struct Received(Packet);

impl<R: RxQueue + 'static, T: TxQueue + 'static> phy::Device for Device<R, T> {
    type RxToken<'a> = Received;
    type TxToken<'a> = &'a mut Sender<T>;

    fn receive(&mut self, now: Instant) -> Option<(Received, &mut Sender<T>)> {
        if self.received.is_empty() {
            self.rx.recv(&mut self.sender.cache, &mut self.received);
        }
        let packet = if self.received.is_empty() { None } else { self.received.drain_range(..1).next() };
        packet.map(Received).zip(self.transmit(now))
    }

    fn transmit(&mut self, _: Instant) -> Option<&mut Sender<T>> {
        let Sender { tx, batch, cache } = &mut self.sender;
        tx.send(cache, batch);
        (batch.spare() > 0).then_some(&mut self.sender)
    }

    fn capabilities(&self) -> DeviceCapabilities {
        let mut capabilities = DeviceCapabilities::default();
        capabilities.max_transmission_unit = 1514;
        capabilities
    }
}

impl phy::RxToken for Received {
    fn consume<A, F: FnOnce(&[u8]) -> A>(self, f: F) -> A {
        f(self.0.data())
    }
}

impl<T: TxQueue> phy::TxToken for &mut Sender<T> {
    fn consume<A, F: FnOnce(&mut [u8]) -> A>(self, len: usize, f: F) -> A {
        let mut packet = self.cache.alloc();
        let Some(data) = packet.as_mut().and_then(|packet| packet.append(len)) else { return f(&mut vec![0; len]) };
        let result = f(data);
        // There was room when smoltcp asked.
        let _ = packet.map(|packet| self.batch.push(packet));
        self.tx.send(&mut self.cache, &mut self.batch);
        result
    }
}

/// The stack, and a socket that sends back what it receives.
pub(crate) struct Echo<R, T> {
    device: Device<R, T>,
    interface: Interface,
    sockets: SocketSet<'static>,
    echo: SocketHandle,
}

impl<R: RxQueue + 'static, T: TxQueue + 'static> Echo<R, T> {
    pub(crate) fn new(rx: R, tx: T, pool: &Pool, mac: [u8; 6], address: IpCidr) -> Self {
        let sender = Sender { tx, batch: Batch::with_capacity(32), cache: pool.cache() };
        let mut device = Device { rx, received: Batch::with_capacity(32), sender };
        let mut interface = Interface::new(Config::new(EthernetAddress(mac).into()), &mut device, Instant::now());
        interface.update_ip_addrs(|addresses| addresses.extend([address]));
        let buffer = || tcp::SocketBuffer::new(vec![0; 65_536]);
        let mut sockets = SocketSet::new(Vec::new());
        let echo = sockets.add(tcp::Socket::new(buffer(), buffer()));
        Self { device, interface, sockets, echo }
    }

    /// One round. Returns whether something happened.
    pub(crate) fn poll(&mut self, now: Instant) -> bool {
        let Self { device, interface, sockets, echo } = self;
        let changed = interface.poll(now, device, sockets) == PollResult::SocketStateChanged;
        let socket = sockets.get_mut::<tcp::Socket<'_>>(*echo);
        // Once it is closed; 7 is a port.
        let _ = if socket.is_open() { Ok(()) } else { socket.listen(7) };
        let room = socket.send_capacity() - socket.send_queue();
        if let Ok(data) = socket.recv(|data| (data.len().min(room), data[..data.len().min(room)].to_vec())) {
            let _ = socket.send_slice(&data);
        } else if socket.state() == tcp::State::CloseWait {
            socket.close();
        }
        changed
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let argument = |number, default: &str| std::env::args().nth(number).unwrap_or(default.to_owned());
    let pool = Pool::new(&PoolConfig::default())?;
    let mut port = nic::open(&argument(1, "soft:a?wire=gen").parse()?, &PortConfig::default(), &pool)?;
    let address = argument(2, "192.0.2.1/24").parse().ok().filter(|cidr: &IpCidr| cidr.address().is_unicast());
    let address = address.ok_or("write an address such as 192.0.2.1/24")?;
    let mut echo = Echo::new(port.rx.remove(0), port.tx.remove(0), &pool, port.port.mac().0, address);
    let poll = move |_: &mut Clock| echo.poll(Instant::now());
    Team::run_for([poll], Duration::from_secs(argument(3, "10").parse()?))?;
    Ok(port.close().map(|_| ())?)
}
