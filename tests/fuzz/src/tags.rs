//! Frames with tags of any content, in bursts, at one receiver and at two that share what has arrived: nothing panics, what is sent is received or
//! lost, and each frame is counted once.

use measure::{End, HandOvers, Kind, Share, Shared, Stream, Tag, TagWriter, is_intact};

const STREAM: u16 = 7;
const SIZE: usize = 60;
const BEGUN: u64 = 1 << 40;

/// Runs one input: 2 bytes of how many frames were sent, then for each frame a byte of its shape, and 1 to 14 bytes.
pub fn run(input: &[u8]) {
    let Some(([high, low], mut rest)) = input.split_first_chunk::<2>() else { return };
    let sent = u64::from(u16::from_be_bytes([*high, *low]));
    let (mut stream, mut hand_overs) = (Stream::new(STREAM, BEGUN), HandOvers::new());
    hand_overs.note(0, usize::from(u16::from_be_bytes([*high, *low])), BEGUN + 100);
    let (shared, mut receivers) = (Shared::new(2), [0, 1].map(|me| Share::new(me, 1)));
    shared.begin(BEGUN);
    shared.note(0, usize::from(u16::from_be_bytes([*high, *low])), BEGUN + 100);
    let (mut now, mut frames, mut total, mut foreign) = (BEGUN + 1000, Vec::new(), 0_u64, 0_u64);
    while let Some((shape, after)) = rest.split_first() {
        let (bytes, after) = after.split_at(after.len().min(usize::from(shape >> 4).clamp(1, 14)));
        rest = after;
        frames.push(frame(*shape, bytes, now));
        if let Some(frame) = frames.last() {
            assert!(Tag::parse(frame).is_none() || End::parse(frame).is_none());
            let _ = is_intact(frame, [bytes]);
        }
        if shape & 4 != 0 || rest.is_empty() {
            now += 1000;
            let known = (shape & 8 == 0).then_some(&hand_overs);
            let of_others =
                frames.iter().filter(|frame| Tag::parse(frame).is_none_or(|tag| tag.stream != STREAM)).count();
            assert_eq!(stream.saw(frames.iter().map(Vec::as_slice), now, sent, known), of_others);
            (total, foreign) = (total + frames.len() as u64, foreign + of_others as u64);
            for tag in frames.iter().filter_map(|frame| Tag::parse(frame)).filter(|tag| tag.stream == STREAM) {
                receivers[usize::from(shape & 8 == 0)].saw(0, &shared, tag, now);
            }
            frames.clear();
        }
    }
    let verdict = stream.verdict(sent);
    assert_eq!((verdict.sent, verdict.received + verdict.lost), (sent, sent));
    let counted = verdict.received + verdict.duplicate + verdict.late + stream.impossible();
    assert_eq!(counted + foreign, total, "{verdict:?}");
    let mut both = shared.verdict(sent);
    receivers.iter().for_each(|receiver| both += receiver.unusual());
    assert_eq!((both.sent, both.received + both.lost), (sent, sent));
    let impossible = receivers.iter().map(Share::impossible).sum::<u64>();
    assert_eq!(both.received + both.duplicate + both.late + impossible + foreign, total, "{both:?}");
    // No number is late to them: all that is sent is in one window. What has come is new once, wherever that was.
    assert_eq!((both.late, both.received), (0, verdict.received));
    for latency in [stream.from_due(), stream.from_hand_over()].into_iter().flatten() {
        let rising = [latency.min, latency.p50, latency.p90, latency.p99, latency.p999, latency.max];
        assert!(rising.is_sorted() && latency.count <= verdict.received, "{latency:?}");
    }
}

/// A frame that has the bytes at its end, or a tag made of them.
fn frame(shape: u8, bytes: &[u8], now: u64) -> Vec<u8> {
    let mut frame = vec![0; SIZE];
    let kind = match shape & 3 {
        0 => {
            frame.extend(bytes);
            return frame;
        }
        1 => Kind::Short,
        _ => Kind::Full,
    };
    let byte = |at: usize| bytes.get(at).copied().unwrap_or(0);
    let number = u32::from_be_bytes([byte(4), byte(5), byte(1), byte(0)]);
    let due = now.wrapping_sub(u64::from_be_bytes([0, 0, byte(10), byte(9), byte(8), byte(7), byte(3), byte(2)]));
    // What stands in front of a tag is no part of it.
    frame[SIZE - 32..].iter_mut().rev().zip(bytes.iter().rev().cycle()).for_each(|(place, byte)| *place = *byte);
    if let Ok(writer) = TagWriter::new(kind, STREAM, SIZE, 42, None) {
        writer.write(&mut frame, number, due);
        let due = (kind == Kind::Full).then_some(due & ((1 << 48) - 1));
        assert_eq!(Tag::parse(&frame), Some(Tag { stream: STREAM, number, due }));
    }
    frame
}
