//! Captures of any content to replay: one clear error, or frames whose times do not go back. Of classic captures they are those that
//! the software 82599's reader finds too.

use std::io::Cursor;
use stream::{LARGEST, Replay, SMALLEST, Timing};

/// Runs one input: the bytes of a file.
pub fn run(input: &[u8]) {
    let read = Replay::read("input", Cursor::new(input.to_vec()), Timing::Original);
    let frames: Vec<Vec<u8>> = match &read {
        Ok(replay) => {
            assert!(!replay.is_empty() && replay.damage().is_none_or(|damage| damage.lines().count() == 1));
            assert!(replay.frames().map(|frame| frame.due_ns).is_sorted());
            replay.frames().map(|frame| frame.bytes.to_vec()).collect()
        }
        Err(error) => {
            assert_eq!(error.to_string().lines().count(), 1);
            Vec::new()
        }
    };
    assert!(frames.iter().all(|frame| (SMALLEST.into()..=LARGEST.into()).contains(&frame.len())));
    let classic = input.first_chunk().is_some_and(|magic| {
        let magics = [0xA1B2_C3D4_u32, 0xA1B2_3C4D];
        magics.iter().any(|known| known.to_le_bytes() == *magic || known.to_be_bytes() == *magic)
    });
    if classic {
        let (mut theirs, _) = softnic::replay(input);
        theirs.retain(|frame| (14..=LARGEST.into()).contains(&frame.len()));
        theirs.iter_mut().for_each(|frame| frame.resize(frame.len().max(SMALLEST.into()), 0));
        assert!(frames == theirs, "{} frames, not {}", frames.len(), theirs.len());
    }
}
