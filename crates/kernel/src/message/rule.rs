//! Rules (`linux/fib_rules.h`).

use super::Family;
use super::attribute::{DIGEST, digest, fixed, u32_of};
use crate::Fault;

/// RTM_NEWRULE, RTM_DELRULE.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Rule {
    /// The family.
    pub family: Family,
    /// Its preference: the lowest is asked first.
    pub priority: u32,
    /// The table that it leads to.
    pub table: u32,
    /// Whether it leads to its table whatever the packet is.
    pub plain: bool,
    /// Whether it is the rule that leads packets of a VRF to their table, and none else.
    pub l3mdev: bool,
    /// Tells it from other rules.
    pub identity: u64,
}

impl Rule {
    pub(super) fn decode(payload: &[u8]) -> Result<Option<Self>, Fault> {
        let (head, attributes) = fixed::<12>(payload)?;
        let Some(family) = Family::from_number(head[0]) else { return Ok(None) };
        let mut rule = Self {
            family,
            priority: 0,
            table: head[4].into(),
            // No destination, source, TOS; to a table; not inverted.
            plain: head[1..4] == [0; 3]
                && head[7] == FR_ACT_TO_TBL
                && u32::from_ne_bytes([head[8], head[9], head[10], head[11]]) & FIB_RULE_INVERT == 0,
            l3mdev: false,
            identity: digest(DIGEST, payload),
        };
        let mut others = false;
        for attribute in attributes {
            let (kind, value) = attribute?;
            match kind {
                FRA_PRIORITY => rule.priority = u32_of(value)?,
                FRA_TABLE => rule.table = u32_of(value)?,
                FRA_SUPPRESS_PREFIXLEN | FRA_SUPPRESS_IFGROUP => others |= u32_of(value)? != u32::MAX,
                FRA_L3MDEV => rule.l3mdev = *value.first().ok_or(Fault::Value)? != 0,
                FRA_UNSPEC | FRA_PROTOCOL | FRA_PAD => {}
                _ => others = true,
            }
        }
        rule.l3mdev &= rule.plain && !others;
        rule.plain &= !others && !rule.l3mdev;
        Ok(Some(rule))
    }
}

const FR_ACT_TO_TBL: u8 = 1;
const FIB_RULE_INVERT: u32 = 2;
const FRA_UNSPEC: u16 = 0;
const FRA_PRIORITY: u16 = 6;
const FRA_SUPPRESS_IFGROUP: u16 = 13;
const FRA_SUPPRESS_PREFIXLEN: u16 = 14;
const FRA_TABLE: u16 = 15;
const FRA_PAD: u16 = 18;
const FRA_L3MDEV: u16 = 19;
const FRA_PROTOCOL: u16 = 21;
