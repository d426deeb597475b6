//! P8: a reader that sleeps through thousands of moves of the tables. Its next lookup must need no deep stack, and memory
//! must not have grown meanwhile.

#![forbid(unsafe_code)]

use lpm::{Ipv6Table, NextHop};

#[test]
fn p8_a_reader_that_slept_looks_up_on_a_small_stack() {
    let mut table = Ipv6Table::new().unwrap();
    table.insert("2001:db8::/32".parse().unwrap(), NextHop::new(7).unwrap()).unwrap();
    let mut idle = table.reader();
    let mut memory = Vec::new();
    for _ in 0..2_000 {
        // More next hops than fit into a byte, and none of them again: the tables move at least once.
        for hop in 0..300_u16 {
            let prefix = format!("2001:db8:{hop:x}::/48").parse().unwrap();
            table.insert(prefix, NextHop::new(u32::from(hop) + 100).unwrap()).unwrap();
        }
        for hop in 0..300_u16 {
            table.remove(format!("2001:db8:{hop:x}::/48").parse().unwrap()).unwrap();
        }
        memory.push(table.memory_use().held);
    }
    println!("held by the table: {:?} … {:?} bytes", memory.first(), memory.last());
    let lookup = move || idle.lookup("2001:db8::1".parse().unwrap());
    let reader = std::thread::Builder::new().stack_size(64 << 10).spawn(lookup).unwrap();
    assert_eq!(reader.join().unwrap(), NextHop::new(7).ok());
}
