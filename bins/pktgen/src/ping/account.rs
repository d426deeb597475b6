//! What was sent by a path, and what came back.

use measure::Latency;

/// Pings of which it is known when they were sent: as many as there are sequence numbers.
const MOST: u64 = 1 << 16;

/// The account of a path: `sent` is always `received` and what was lost.
#[derive(Debug)]
pub(crate) struct Account {
    slots: Vec<Slot>,
    identifier: u16,
    timeout: u64,
    pub(crate) latency: Latency,
    pub(crate) sent: u64,
    pub(crate) received: u64,
    pub(crate) duplicate: u64,
    pub(crate) late: u64,
    /// Replies with other bytes than their pings, or to none that was sent.
    pub(crate) damaged: u64,
    /// Somebody on the way has said that a ping did not arrive.
    pub(crate) refused: u64,
    pub(crate) first_refusal: Option<String>,
    pub(crate) last_sent: u64,
    payload: Vec<u8>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Slot {
    /// Of the ping, from 1 on; 0 for none.
    number: u64,
    sent: u64,
    answered: bool,
}

impl Account {
    /// Creates one for so many pings of `size` bytes, with times in ticks.
    pub(crate) fn new(count: u64, size: usize, identifier: u16, timeout: u64) -> Self {
        let slots = usize::try_from(count.clamp(1, MOST)).unwrap_or(1).next_power_of_two();
        Self {
            slots: vec![Slot::default(); slots],
            identifier,
            timeout,
            latency: Latency::new(),
            sent: 0,
            received: 0,
            duplicate: 0,
            late: 0,
            damaged: 0,
            refused: 0,
            first_refusal: None,
            last_sent: 0,
            payload: vec![0; size],
        }
    }

    /// Identifier, sequence number and data of the next ping.
    pub(crate) fn next(&mut self) -> (u16, u16, &[u8]) {
        write(&mut self.payload, self.sent + 1);
        (self.identifier, sequence(self.sent + 1), &self.payload)
    }

    /// The next ping has been sent.
    pub(crate) fn sent(&mut self, at: u64) {
        self.sent += 1;
        self.last_sent = at;
        let slot = Slot { number: self.sent, sent: at, answered: false };
        if let Some(place) = self.slot(sequence(self.sent)) {
            *place = slot;
        }
    }

    /// A reply has come; `identifier` is that of this program.
    pub(crate) fn replied(&mut self, replied: u16, payload: &[u8], at: u64) {
        let timeout = self.timeout;
        let slot = self.slot(replied).copied().filter(|slot| slot.number > 0 && sequence(slot.number) == replied);
        let is_right = slot.is_some_and(|slot| {
            write(&mut self.payload, slot.number);
            self.payload == payload
        });
        let (Some(known), true) = (slot, is_right) else {
            self.damaged += 1;
            return;
        };
        let time = at.saturating_sub(known.sent);
        if known.answered {
            self.duplicate += 1;
            return;
        }
        if let Some(slot) = self.slot(replied) {
            slot.answered = true;
        }
        if time > timeout {
            self.late += 1;
        } else {
            self.received += 1;
            self.latency.record(time);
        }
    }

    /// Somebody says why a ping gets no reply.
    pub(crate) fn refused(&mut self, why: &dyn std::fmt::Display) {
        self.refused += 1;
        self.first_refusal.get_or_insert_with(|| why.to_string());
    }

    pub(crate) fn identifier(&self) -> u16 {
        self.identifier
    }

    pub(crate) fn lost(&self) -> u64 {
        self.sent - self.received
    }

    /// Whether every ping has come back, or will not any more.
    pub(crate) fn is_settled(&self, now: u64, settle: u64) -> bool {
        let waited = now.saturating_sub(self.last_sent);
        (self.lost() == 0 && waited >= settle.min(self.timeout)) || waited > self.timeout
    }

    fn slot(&mut self, sequence: u16) -> Option<&mut Slot> {
        let place = usize::from(sequence) & (self.slots.len() - 1);
        self.slots.get_mut(place)
    }
}

#[expect(clippy::cast_possible_truncation, reason = "numbers wrap")]
fn sequence(number: u64) -> u16 {
    number as u16
}

/// The data of a ping: its number, as far as there is room for it, and bytes that count up.
fn write(payload: &mut [u8], number: u64) {
    let bytes = number.to_be_bytes();
    // The last digits first, for data of a few bytes.
    let all = bytes.iter().rev().copied().chain((8..=u8::MAX).cycle());
    payload.iter_mut().zip(all).for_each(|(place, byte)| *place = byte);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reply(account: &mut Account, number: u64, at: u64) {
        let mut payload = vec![0; 20];
        write(&mut payload, number);
        account.replied(sequence(number), &payload, at);
    }

    #[test]
    fn every_ping_is_received_or_lost() {
        let mut account = Account::new(8, 20, 1, 100);
        for at in 1..=8 {
            let (_, sequence, payload) = account.next();
            assert_eq!((u64::from(sequence), payload.len()), (at, 20));
            account.sent(at * 10);
        }
        reply(&mut account, 1, 15);
        reply(&mut account, 1, 16);
        reply(&mut account, 2, 20 + 101);
        reply(&mut account, 2, 20 + 102);
        account.replied(3, b"other", 35);
        account.replied(999, b"never sent", 35);
        reply(&mut account, 4, 41);
        let Account { sent, received, duplicate, late, damaged, .. } = account;
        assert_eq!((sent, received, duplicate, late, damaged, account.lost()), (8, 2, 2, 1, 2, 6));
        assert_eq!(account.latency.summary().map(|summary| (summary.min, summary.max)), Some((1.0, 5.0)));
        assert!(!account.is_settled(180, 5) && account.is_settled(181, 5));
    }

    #[test]
    fn numbers_wrap() {
        let mut account = Account::new(1 << 40, 20, 1, 100);
        for number in 1..=70_000 {
            account.sent(number);
            reply(&mut account, number, number + 1);
        }
        assert_eq!((account.received, account.damaged), (70_000, 0));
        // The reply to one that had the same sequence number.
        reply(&mut account, 70_000 - 65_536, 70_050);
        assert_eq!((account.received, account.damaged, account.duplicate), (70_000, 1, 0));
        assert_eq!(account.slots.len(), 65_536);
    }
}
