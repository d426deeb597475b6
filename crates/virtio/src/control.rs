//! The control queue (Virtio 1.2, section 5.1.6.5).

use crate::ring::{Area, Buffer, Ring, Virtqueue as _, each_layout};
use crate::transport::{Notifier as _, Transport};
use crate::{Config, Error, Features, Result};
use std::fmt;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::{Duration, Instant};

/// The control queue of a session: one command at a time, each answered in bounded time.
pub(crate) struct Control<T: Transport> {
    transport: Arc<T>,
    ring: Ring,
    notifier: T::Notifier,
    page: Area,
}

/// Classes and commands.
const RX: u8 = 0;
const RX_PROMISCUOUS: u8 = 0;
const RX_ALL_MULTICAST: u8 = 1;
const MAC: u8 = 1;
const MAC_ADDRESS: u8 = 1;
const VLAN: u8 = 2;
const VLAN_ADD: u8 = 0;
const VLAN_REMOVE: u8 = 1;
const MQ: u8 = 4;
const MQ_PAIRS: u8 = 0;
/// The answer to a command that was carried out.
const OK: u8 = 0;

/// A device answers in microseconds; one that takes so long is stuck.
const PATIENCE: Duration = Duration::from_secs(1);
/// Where the answer lies in the page.
const ANSWER: usize = 256;

impl<T: Transport> Control<T> {
    pub(crate) fn new(transport: Arc<T>, ring: Ring, notifier: T::Notifier, page: Area) -> Self {
        Self { transport, ring, notifier, page }
    }

    /// Tells a device that has just started what the configuration wants of it.
    pub(crate) fn prepare(&mut self, config: &Config, features: Features) -> Result<()> {
        if features.contains(Features::MQ) {
            self.command("use as many queue pairs", MQ, MQ_PAIRS, &config.pairs().to_le_bytes())?;
        }
        if features.contains(Features::CTRL_RX) {
            self.set_promiscuous(config.promiscuous)?;
        }
        Ok(())
    }

    /// Frames for any address, unicast and multicast.
    pub(crate) fn set_promiscuous(&mut self, on: bool) -> Result<()> {
        self.command("change its receive mode", RX, RX_PROMISCUOUS, &[on.into()])?;
        self.command("change its receive mode", RX, RX_ALL_MULTICAST, &[on.into()])
    }

    /// The station address.
    pub(crate) fn set_mac(&mut self, mac: [u8; 6]) -> Result<()> {
        self.command("change its MAC address", MAC, MAC_ADDRESS, &mac)
    }

    /// Whether frames with this VLAN tag are received.
    pub(crate) fn set_vlan(&mut self, vlan: u16, receive: bool) -> Result<()> {
        self.command("change its VLAN filter", VLAN, if receive { VLAN_ADD } else { VLAN_REMOVE }, &vlan.to_le_bytes())
    }

    fn command(&mut self, what: &'static str, class: u8, command: u8, data: &[u8]) -> Result<()> {
        let request = [class, command].into_iter().chain(data.iter().copied());
        for (offset, value) in request.enumerate() {
            self.byte(offset).store(value, Ordering::Relaxed);
        }
        self.byte(ANSWER).store(!OK, Ordering::Relaxed);
        let out = Buffer { address: self.page.iova(), len: 2 + len(data), writable: false };
        let answer = Buffer { address: self.page.iova() + ANSWER as u64, len: 1, writable: true };
        each_layout!(&mut self.ring, ring => {
            if ring.in_flight() > 0 {
                return Err(self.timeout(Duration::ZERO));
            }
            ring.post_chain(&[out, answer], |_, _| ());
            if ring.publish() {
                self.notifier.notify();
            }
        });
        self.wait()?;
        if self.byte(ANSWER).load(Ordering::Relaxed) == OK {
            Ok(())
        } else {
            Err(Error::Refused { device: self.transport.name().to_owned(), command: what })
        }
    }

    fn wait(&mut self) -> Result<()> {
        let begun = Instant::now();
        loop {
            match each_layout!(&mut self.ring, ring => ring.used(|_| false)) {
                Ok(Some(_)) => return Ok(()),
                Ok(None) if begun.elapsed() < PATIENCE => std::thread::sleep(Duration::from_micros(50)),
                Ok(None) => return Err(self.timeout(PATIENCE)),
                Err(fault) => {
                    let problem = format!("on the control queue {fault}; the device is broken");
                    return Err(Error::Negotiation { device: self.transport.name().to_owned(), problem });
                }
            }
        }
    }

    fn timeout(&self, waited: Duration) -> Error {
        let waiting_for = "an answer on the control queue";
        Error::Timeout { device: self.transport.name().to_owned(), waiting_for, waited }
    }

    #[expect(unsafe_code, reason = "a page shared with the device")]
    fn byte(&self, offset: usize) -> &AtomicU8 {
        let place: NonNull<AtomicU8> = self.page.at(offset, 1);
        // SAFETY: within the page, which this value owns and accesses through atomics only.
        unsafe { place.as_ref() }
    }
}

fn len(data: &[u8]) -> u32 {
    debug_assert!(data.len() < ANSWER - 2, "commands are short");
    u32::try_from(data.len()).unwrap_or(0)
}

impl<T: Transport> fmt::Debug for Control<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Control").field("ring", &self.ring).finish_non_exhaustive()
    }
}
