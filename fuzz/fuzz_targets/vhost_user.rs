//! A vhost-user back end that says whatever the input says. Opening the device succeeds or is an error.
#![no_main]

use libfuzzer_sys::fuzz_target;
use mempool::{Pool, PoolConfig};
use std::io::Write as _;
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use virtio::{Config, VhostUser};

fuzz_target!(|input: &[u8]| {
    thread_local! {
        static POOL: Pool = Pool::new(&PoolConfig { slots: 512, ..PoolConfig::default() }).expect("memory");
    }
    POOL.with(|pool| {
        let (ours, mut theirs) = UnixStream::pair().expect("sockets");
        let Some((first, answers)) = input.split_first() else { return };
        // Half of the inputs are bodies of good replies, or the first message would be the only one to be looked at.
        if first & 1 == 0 {
            let _ = theirs.write_all(answers);
        } else {
            let requests: [u32; 24] = [1, 15, 16, 17, 2, 5, 8, 10, 9, 13, 12, 8, 10, 9, 13, 12, 18, 18, 1, 18, 11, 18, 11, 0];
            for (request, body) in requests.iter().zip(answers.chunks_exact(8)) {
                let header: Vec<u8> = [*request, 5, 8].iter().flat_map(|word| word.to_ne_bytes()).collect();
                let _ = theirs.write_all(&header).and_then(|()| theirs.write_all(body));
            }
        }
        let _ = theirs.shutdown(Shutdown::Write);
        let mut config = Config::default();
        (config.rx_ring, config.tx_ring) = (64, 64);
        config.rx_queues = 1 + u16::from(first >> 1 & 3);
        if let Ok(opened) = VhostUser::over(ours).and_then(|device| virtio::open(device, &config, pool)) {
            drop(theirs);
            drop(opened);
        }
        assert_eq!(pool.away(), 0, "every slot is home");
    });
});
