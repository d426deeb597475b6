//! A vfio-user server whose every answer comes just in time. What it is asked is counted, not timed: a command that had a limit
//! for each message would ask on.

#![forbid(unsafe_code)]

use adversary::{Lie, Proxy, pool};
use mempool::Pool;
use nic::{Opened, PortConfig, TimeLimit};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use vouch::prelude::*;

/// Far more than an open takes while the server is honest.
const LIMIT: Duration = Duration::from_secs(3);
/// Below the 5 s that one message may take, and beyond the limit of the whole.
const ANSWER: Duration = Duration::from_millis(3500);
/// Half a command's limit and more: the second answer comes too late.
const HALF: Duration = Duration::from_millis(1800);
/// Below the 2 s that rings are looked at for once the flag is set, and beyond the second that one of them may take.
const LATE: Duration = Duration::from_millis(1200);

/// A port whose server was honest so far. Where this machine stood still for a while, another is tried.
fn honest(name: &str, pool: &Pool, cancel: Option<Arc<AtomicBool>>) -> (Proxy, Opened) {
    let time_limit = TimeLimit { total: LIMIT, cancel };
    let config =
        vouch::vouched(PortConfig { rx_ring: 64, tx_ring: 64, tx_queues: 8, time_limit, ..PortConfig::default() });
    let mut tries = (0..3).map(|number| {
        let proxy = Proxy::start(&format!("{name}-{number}?wire=sink"), Lie::None);
        nic::open(&proxy.address(), &config, pool).map(|opened| (proxy, opened))
    });
    tries.find_map(Result::ok).expect("an honest start")
}

/// How many messages `act` sends to a server that takes `answer` for each, and what `act` returns.
fn asked<R>(name: &str, answer: Duration, act: impl FnOnce(&mut Opened, &AtomicBool) -> R) -> (usize, R) {
    let pool = pool(4096);
    let cancel = Arc::new(AtomicBool::new(false));
    let (proxy, mut opened) = honest(name, &pool, Some(Arc::clone(&cancel)));
    proxy.lie(Lie::Slow(answer));
    let before = proxy.asked();
    let result = act(&mut opened, &cancel);
    let asked = proxy.asked() - before;
    // What is not the test's ends at once.
    proxy.lie(Lie::None);
    (asked, result)
}

#[test]
fn a_link_is_asked_for_within_one_limit() {
    let (asked, link) = asked("slow-link", HALF, |nic, _| nic.port.link());
    assert!(asked <= 2 && link.is_err(), "{asked} messages: {link:?}");
}

#[test]
fn a_filter_is_set_within_one_limit() {
    let (asked, set) = asked("slow-filter", ANSWER, |nic, _| nic.port.set_promiscuous(false));
    assert!(asked == 1 && set.is_err(), "{asked} messages: {set:?}");
}

#[test]
fn rings_are_looked_at_within_one_limit_and_one_answer() {
    let (asked, idle) = asked("slow-rings", ANSWER, |nic, _| nic.port.transmit_idle());
    assert_eq!((asked, idle), (1, false));
}

#[test]
fn rings_are_looked_at_until_the_flag_is_set() {
    let (asked, idle) = asked("slow-flag", LATE, |nic, cancel| {
        std::thread::scope(|scope| {
            let looking = scope.spawn(|| nic.port.transmit_idle());
            cancel.store(true, Ordering::Relaxed);
            looking.join().expect("no panic")
        })
    });
    assert!(asked <= 1 && !idle, "{asked} messages: {idle}");
}

#[test]
fn counters_are_read_within_one_limit_and_one_answer() {
    let (asked, read) = asked("slow-counters", ANSWER, |nic, _| nic.port.statistics());
    assert!(asked == 1 && read.as_ref().is_ok_and(|counters| counters.unread > 100), "{asked} messages: {read:?}");
}

#[test]
fn a_port_is_closed_within_one_limit_and_a_second() {
    let proxy_asked = {
        let pool = pool(4096);
        let (proxy, opened) = honest("slow-close", &pool, None);
        proxy.lie(Lie::Slow(Duration::from_millis(250)));
        let before = proxy.asked();
        // It is not done in that time, or everything was answered.
        let _ = opened.close();
        proxy.asked() - before
    };
    // In 3 s and 1 s, and one whose answer was not waited for.
    assert!(proxy_asked <= 4 * 4 + 1, "{proxy_asked} messages");
}
