//! Which buckets of a group belong to which member: in proportion to weights, and so that as few as may be change hands.

/// A member's part: what it is owed, in buckets times the sum of weights, and what it gets.
struct Part {
    owed: usize,
    keeps: usize,
    quota: usize,
}

/// Gives each of `buckets`, which belong to the members that they name, to one of `members`, pairs of a next hop and a weight, each once
/// and with a weight above 0. A bucket changes hands only if its member leaves or has more than its weight's part; parts are right to
/// one bucket.
pub(crate) fn assign(buckets: &mut [u32], members: &[(u32, u16)]) {
    let weights: usize = members.iter().map(|(_, weight)| usize::from(*weight)).sum();
    if weights == 0 {
        return buckets.fill(u32::MAX);
    }
    let part = |(hop, weight): &(u32, u16)| {
        let owed = usize::from(*weight) * buckets.len();
        let has = buckets.iter().filter(|bucket| *bucket == hop).count();
        // Between its part rounded down and up, as near to what it has as may be.
        let quota = has.clamp(owed / weights, owed.div_ceil(weights));
        Part { owed, keeps: 0, quota }
    };
    let mut parts: Vec<Part> = members.iter().map(part).collect();
    settle(&mut parts, weights, buckets.len());
    let position = |hop: u32| members.iter().position(|(member, _)| *member == hop);
    let mut free = Vec::new();
    for (at, bucket) in buckets.iter().enumerate() {
        match position(*bucket).map(|member| &mut parts[member]) {
            Some(part) if part.keeps < part.quota => part.keeps += 1,
            _ => free.push(at),
        }
    }
    let wanted = parts.iter().zip(members).flat_map(|(part, (hop, _))| vec![*hop; part.quota - part.keeps]);
    for (at, hop) in free.into_iter().zip(wanted) {
        buckets[at] = hop;
    }
}

/// Changes quotas, each within its part rounded down and up, until they are as many as there are buckets.
fn settle(parts: &mut [Part], weights: usize, buckets: usize) {
    let mut sum: usize = parts.iter().map(|part| part.quota).sum();
    while sum > buckets {
        // Whoever is furthest above its part.
        let above = |part: &&mut Part| (part.quota * weights).saturating_sub(part.owed);
        let Some(part) = parts.iter_mut().max_by_key(above) else { return };
        part.quota -= 1;
        sum -= 1;
    }
    while sum < buckets {
        let below = |part: &&mut Part| part.owed.saturating_sub(part.quota * weights);
        let Some(part) = parts.iter_mut().max_by_key(below) else { return };
        part.quota += 1;
        sum += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn shares(buckets: &[u32], members: &[(u32, u16)]) -> Vec<usize> {
        members.iter().map(|(hop, _)| buckets.iter().filter(|bucket| *bucket == hop).count()).collect()
    }

    proptest! {
        #[test]
        fn parts_are_right_to_a_bucket_and_few_change_hands(
            weights in prop::collection::vec(1..=256_u16, 1..40),
            leaves in any::<prop::sample::Index>(),
        ) {
            let mut members: Vec<(u32, u16)> = (7..).zip(weights).collect();
            let mut buckets = [u32::MAX; 256];
            for turn in 0..2 {
                let before = buckets;
                assign(&mut buckets, &members);
                let sum: usize = members.iter().map(|(_, weight)| usize::from(*weight)).sum();
                let counts = shares(&buckets, &members);
                prop_assert_eq!(counts.iter().sum::<usize>(), 256);
                for (count, (_, weight)) in counts.iter().zip(&members) {
                    let owed = usize::from(*weight) * 256;
                    prop_assert!((owed / sum..=owed.div_ceil(sum)).contains(count), "{} of {}/{}", count, weight, sum);
                }
                if turn == 1 {
                    let moved = before.iter().zip(&buckets).filter(|(before, after)| before != after);
                    let of_others = moved.filter(|(before, _)| members.iter().any(|(hop, _)| hop == *before)).count();
                    // One percent of the buckets; none is what is seen.
                    prop_assert!(of_others <= 2, "{} moved", of_others);
                }
                if members.len() > 1 {
                    members.remove(leaves.index(members.len()));
                }
            }
        }
    }

    #[test]
    fn whoever_leaves_takes_only_its_own() {
        let mut buckets = [u32::MAX; 256];
        let members = [(1, 1), (2, 1), (3, 1), (4, 1)];
        assign(&mut buckets, &members);
        let before = buckets;
        assign(&mut buckets, &members[..3]);
        for (before, after) in before.iter().zip(&buckets) {
            assert!(*before == 4 || before == after);
        }
        let mut shares = shares(&buckets, &members);
        shares.sort_unstable();
        assert_eq!(shares, [0, 85, 85, 86]);
        assign(&mut buckets, &[]);
        assert_eq!(buckets, [u32::MAX; 256]);
    }
}
