//! smoltcp on a port, with smoltcp's own client at the other end of the wire. Time is made up, so nothing waits.
#![expect(clippy::unwrap_used, reason = "tests")]

#[path = "../src/bin/smoltcp_device.rs"]
#[expect(dead_code, reason = "the test has a main function of its own")]
mod smoltcp_device;

use ethdev::in_process::{self, InProcessRx, InProcessTx, Wire};
use ethdev::{Port as _, PortConfig};
use mempool::{Pool, PoolConfig};
use smoltcp::iface::{Config, Interface, SocketSet};
use smoltcp::phy::{self, ChecksumCapabilities, DeviceCapabilities};
use smoltcp::socket::{icmp, tcp};
use smoltcp::time::Instant;
use smoltcp::wire::{EthernetAddress, Icmpv4Packet, Icmpv4Repr, IpAddress};
use smoltcp_device::Echo;

/// The wire's end as a device.
struct Peer(Wire);

struct Frame(Vec<u8>);

impl phy::RxToken for Frame {
    fn consume<R, F: FnOnce(&[u8]) -> R>(self, f: F) -> R {
        f(&self.0)
    }
}

impl phy::TxToken for &mut Peer {
    fn consume<R, F: FnOnce(&mut [u8]) -> R>(self, len: usize, f: F) -> R {
        let mut frame = vec![0; len];
        let result = f(&mut frame);
        self.0.inject(&frame);
        result
    }
}

impl phy::Device for Peer {
    type RxToken<'a> = Frame;
    type TxToken<'a> = &'a mut Self;

    fn receive(&mut self, _: Instant) -> Option<(Frame, &mut Self)> {
        Some((Frame(self.0.collect()?), self))
    }

    fn transmit(&mut self, _: Instant) -> Option<&mut Self> {
        Some(self)
    }

    fn capabilities(&self) -> DeviceCapabilities {
        let mut capabilities = DeviceCapabilities::default();
        capabilities.max_transmission_unit = 1514;
        capabilities
    }
}

struct Rig {
    pool: Pool,
    server: Echo<InProcessRx, InProcessTx>,
    peer: Peer,
    client: Interface,
    sockets: SocketSet<'static>,
    milliseconds: i64,
}

fn rig() -> Rig {
    let pool = Pool::new(&PoolConfig::default()).unwrap();
    let (mut opened, wire) = in_process::open("server", &PortConfig::default(), &pool).unwrap();
    let mac = opened.port.mac().0;
    let server = Echo::new(opened.rx.remove(0), opened.tx.remove(0), &pool, mac, "192.0.2.1/24".parse().unwrap());
    // The port lives as long as the test.
    std::mem::forget(opened.port);
    let mut peer = Peer(wire);
    let config = Config::new(EthernetAddress([2, 0, 0, 0, 0, 2]).into());
    let mut client = Interface::new(config, &mut peer, Instant::from_millis(0));
    client.update_ip_addrs(|addresses| addresses.push("192.0.2.2/24".parse().unwrap()).unwrap());
    Rig { pool, server, peer, client, sockets: SocketSet::new(Vec::new()), milliseconds: 0 }
}

impl Rig {
    /// A round of both, a millisecond later.
    fn round(&mut self) {
        self.milliseconds += 1;
        assert!(self.milliseconds < 100_000, "it comes to no end");
        let now = Instant::from_millis(self.milliseconds);
        self.client.poll(now, &mut self.peer, &mut self.sockets);
        self.server.poll(now);
    }
}

#[test]
fn it_answers_ping() {
    let mut rig = rig();
    let buffer = || icmp::PacketBuffer::new(vec![icmp::PacketMetadata::EMPTY; 8], vec![0; 2048]);
    let mut socket = icmp::Socket::new(buffer(), buffer());
    socket.bind(icmp::Endpoint::Ident(7)).unwrap();
    let handle = rig.sockets.add(socket);
    for seq_no in 0..5 {
        let data = vec![u8::try_from(seq_no).unwrap(); 100 * usize::from(seq_no)];
        let request = Icmpv4Repr::EchoRequest { ident: 7, seq_no, data: &data };
        let socket = rig.sockets.get_mut::<icmp::Socket<'_>>(handle);
        let bytes = socket.send(request.buffer_len(), IpAddress::v4(192, 0, 2, 1)).unwrap();
        request.emit(&mut Icmpv4Packet::new_unchecked(bytes), &ChecksumCapabilities::default());
        while !rig.sockets.get::<icmp::Socket<'_>>(handle).can_recv() {
            rig.round();
        }
        let (bytes, from) = rig.sockets.get_mut::<icmp::Socket<'_>>(handle).recv().unwrap();
        let packet = Icmpv4Packet::new_checked(bytes).unwrap();
        let reply = Icmpv4Repr::parse(&packet, &ChecksumCapabilities::default()).unwrap();
        assert_eq!(reply, Icmpv4Repr::EchoReply { ident: 7, seq_no, data: &data });
        assert_eq!(from, IpAddress::v4(192, 0, 2, 1));
    }
}

#[test]
fn it_sends_back_what_two_connections_in_turn_send() {
    let mut rig = rig();
    let buffer = || tcp::SocketBuffer::new(vec![0; 20_000]);
    let handle = rig.sockets.add(tcp::Socket::new(buffer(), buffer()));
    for connection in 0..2_u16 {
        let sent: Vec<u8> = (0..300_000_u32).map(|n| (n / 7 % 251) as u8).collect();
        let (mut at, mut received) = (0, Vec::new());
        let socket = rig.sockets.get_mut::<tcp::Socket<'_>>(handle);
        socket.connect(rig.client.context(), (IpAddress::v4(192, 0, 2, 1), 7), 49_152 + connection).unwrap();
        while received.len() < sent.len() {
            rig.round();
            let socket = rig.sockets.get_mut::<tcp::Socket<'_>>(handle);
            if socket.can_send() {
                at += socket.send_slice(&sent[at..]).unwrap();
            }
            if socket.can_recv() {
                socket.recv(|data| (data.len(), received.extend_from_slice(data))).unwrap();
            }
        }
        assert!(received == sent);
        rig.sockets.get_mut::<tcp::Socket<'_>>(handle).close();
        while rig.sockets.get::<tcp::Socket<'_>>(handle).is_open() {
            rig.round();
        }
    }
    let Rig { pool, server, peer, .. } = rig;
    drop((server, peer));
    assert!(pool.away() < 64, "frames in the wire's rings at most");
}
