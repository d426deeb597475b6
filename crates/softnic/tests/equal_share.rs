//! What devices of a process share. A program of its own: every other server in it would have a share too.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod wire_client;

use softnic::VfioUserServer;
use wire_client::{WireClient, dwords, qwords};

const MAP: u8 = 2;
const ENOSPC: u8 = 28;

/// `max_dma_maps` of the server's capabilities.
fn told(server: &VfioUserServer) -> usize {
    let reply = WireClient::silent(server.socket()).exchange(wire_client::VERSION, &[]);
    let text = String::from_utf8(reply[20..].to_vec()).unwrap();
    let (_, number) = text.split_once("\"max_dma_maps\":").unwrap();
    number.split_once(|letter: char| !letter.is_ascii_digit()).unwrap().0.parse().unwrap()
}

#[test]
fn s2_many_devices_have_an_equal_share_of_all_mappings() {
    let folder = tempfile::tempdir().unwrap();
    let mut servers: Vec<_> = (0..48)
        .map(|n| VfioUserServer::start(&format!("share{n}?wire=sink"), &folder.path().join(n.to_string())).unwrap())
        .collect();
    let client = WireClient::connect(servers[0].socket());
    // Without a file, which counts as well.
    let map = |page: u64| {
        let body = [dwords(&[32, 3]), qwords(&[0, page * 0x1000, 0x1000])].concat();
        client.errno(MAP, &body, &[])
    };
    for page in 0..1024 {
        assert_eq!(map(page), 0, "mapping {page}");
    }
    assert_eq!(map(1024), ENOSPC, "49,152 for 48");
    for (devices, share) in [(48, 1024), (47, 1045), (12, 4096), (4, 12_288), (3, 16_384), (2, 16_384)] {
        servers.truncate(devices);
        assert_eq!(told(&servers[1]), share, "{devices} devices");
    }
    assert_eq!(map(1024), 0, "those who go leave their share");
}
