//! Captures replayed through `fwd l2`: what comes out is what went in, byte for byte and in order, and what cannot pass
//! is counted.

use std::iter::Sum;
use std::path::{Path, PathBuf};
use std::thread;
use tests::{Capture, Fwd, capture_files};

/// Shortest frame with a header. Soft NICs receive captured frames below the Ethernet minimum as they are.
const SHORTEST: usize = 14;
/// Shortest frame that an 82599 sends (datasheet 7.2.3.2.4).
const SHORTEST_SENT: usize = 17;
/// Largest frame at an MTU of 1,500 bytes: with Ethernet header and one VLAN tag, without check sequence.
const LARGEST: usize = 1518;
/// The same at the largest MTU of 9,216 bytes.
const LARGEST_JUMBO: usize = 9234;

#[derive(Debug, Default)]
struct Totals {
    files: u64,
    frames: u64,
    forwarded: u64,
    dropped: u64,
}

/// Replays `file` with frames up to `largest` bytes allowed through, and holds the output against the input.
fn replay(file: &Path, extra: &[&str], largest: usize) -> Totals {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let out = folder.path().join("out.pcap");
    let from = format!("soft:a?wire=pcap:{},", file.display());
    let to = format!("soft:b?wire=pcap:,{}", out.display());
    let arguments = ["l2", &from, &to, "--exit-when-idle", "--duration", "60", "--json", "--quiet"];
    let run = Fwd::run(arguments.iter().chain(extra));
    let name = file.display();
    assert_eq!(run.code, Some(0), "{name}: {}", run.stderr);

    let frames = Capture::read(file).frames;
    let received = |frame: &&Vec<u8>| (SHORTEST..=largest).contains(&frame.len());
    let expected: Vec<_> = frames.iter().filter(received).filter(|frame| frame.len() >= SHORTEST_SENT).collect();
    let arrived = frames.iter().filter(received).count() as u64;
    let (all, forwarded) = (frames.len() as u64, expected.len() as u64);

    let came_out = Capture::read(&out).frames;
    for (number, (came_out, expected)) in came_out.iter().zip(&expected).enumerate() {
        assert!(came_out == *expected, "{name}: frame {number} of those that pass was changed");
    }
    assert_eq!(came_out.len(), expected.len(), "{name}: frames that came out");
    assert_eq!(run.count("/received"), all, "{name}: {}", run.json);
    assert_eq!(run.count("/forwarded"), forwarded, "{name}: {}", run.json);
    assert_eq!(run.drops(), all - forwarded, "{name}: {}", run.json);
    assert_eq!(run.count("/ports/0/rx_packets"), arrived, "{name}: {}", run.json);
    assert_eq!(run.count("/ports/1/tx_packets"), forwarded, "{name}: {}", run.json);
    Totals { files: 1, frames: all, forwarded, dropped: run.drops() }
}

/// Does so with all files, several at a time, as each run waits for its ports and its end.
fn replay_all(files: &[PathBuf], extra: &[&str], largest: usize) -> Totals {
    let share = files.len().div_ceil(AT_A_TIME).max(1);
    thread::scope(|scope| {
        let shares = files.chunks(share);
        let begin = |files: &'_ [PathBuf]| {
            let files = files.to_vec();
            scope.spawn(move || files.iter().map(|file| replay(file, extra, largest)).sum::<Totals>())
        };
        let begun: Vec<_> = shares.map(begin).collect();
        begun.into_iter().map(|thread| thread.join().expect("the files of one share passed")).sum()
    })
}

const AT_A_TIME: usize = 4;

impl Sum for Totals {
    fn sum<I: Iterator<Item = Self>>(all: I) -> Self {
        all.fold(Self::default(), |sum, one| Self {
            files: sum.files + one.files,
            frames: sum.frames + one.frames,
            forwarded: sum.forwarded + one.forwarded,
            dropped: sum.dropped + one.dropped,
        })
    }
}

#[test]
fn every_capture_passes_unchanged() {
    let totals = replay_all(&capture_files(), &[], LARGEST);
    println!("{totals:?}");
    assert!(totals.forwarded > 0);
}

#[test]
fn long_frames_of_every_capture_pass_unchanged_in_several_buffers() {
    let mut files = capture_files();
    files.retain(|file| Capture::read(file).frames.iter().any(|frame| frame.len() > LARGEST));
    let totals = replay_all(&files, &["--mtu", "9216"], LARGEST_JUMBO);
    println!("{totals:?}");
}

#[test]
fn small_rings_and_batches_change_nothing() {
    let mut files = capture_files();
    files.sort_by_key(|file| std::cmp::Reverse(Capture::read(file).frames.len()));
    files.truncate(5);
    let batches = ["1", "7", "256"];
    let totals: Totals =
        batches.iter().map(|batch| replay_all(&files, &["--batch", batch, "--ring-size", "64"], LARGEST)).sum();
    println!("{totals:?}");
}
