//! A reader of classic capture files, written from the format's description and sharing no code with the soft NIC's.

use std::fs;
use std::io::Read as _;
use std::path::{Path, PathBuf};

/// The frames of a capture file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Capture {
    /// Bytes of each, as captured.
    pub frames: Vec<Vec<u8>>,
}

impl Capture {
    /// Reads a classic pcap file of either byte order.
    ///
    /// # Panics
    ///
    /// When it cannot be read or is not such a file.
    #[must_use]
    pub fn read(path: &Path) -> Self {
        let bytes = fs::read(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        Self::parse(&bytes).unwrap_or_else(|| panic!("{}: not a classic capture file", path.display()))
    }

    /// Writes a classic pcap file, little-endian, with link type Ethernet (1).
    ///
    /// # Panics
    ///
    /// When it cannot be written.
    pub fn write(&self, path: &Path) {
        let mut bytes = Vec::new();
        let words = |words: &[u32]| words.iter().flat_map(|word| word.to_le_bytes()).collect::<Vec<u8>>();
        bytes.extend(words(&[0xa1b2_c3d4, 0x0004_0002, 0, 0, 262_144, 1]));
        for frame in &self.frames {
            let len = u32::try_from(frame.len()).expect("a frame is short");
            bytes.extend(words(&[0, 0, len, len]));
            bytes.extend(frame);
        }
        fs::write(path, bytes).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    }

    /// Frames in `bytes`; `None` if they are not a capture file. A record cut off at the end is left out.
    #[must_use]
    pub fn parse(bytes: &[u8]) -> Option<Self> {
        let word: fn([u8; 4]) -> u32 = match *bytes.first_chunk()? {
            [0xd4, 0xc3, 0xb2, 0xa1] | [0x4d, 0x3c, 0xb2, 0xa1] => u32::from_le_bytes,
            [0xa1, 0xb2, 0xc3, 0xd4] | [0xa1, 0xb2, 0x3c, 0x4d] => u32::from_be_bytes,
            _ => return None,
        };
        // 24 bytes of file header; then time (8), captured length (4), original length (4), and the frame.
        let mut rest = bytes.get(24..)?;
        let mut frames = Vec::new();
        while let Some((header, after)) = rest.split_at_checked(16) {
            let len = usize::try_from(word(*header[8..].first_chunk()?)).ok()?;
            let Some((frame, next)) = after.split_at_checked(len) else { break };
            frames.push(frame.to_vec());
            rest = next;
        }
        Some(Self { frames })
    }
}

/// All capture files to replay: those below `$RINGWAY_CAPTURES`, or else below `../shared/data/pcap` beside the workspace; if
/// there are none, those of the repository, which a line says that begins with `skipped:`.
///
/// # Panics
///
/// When there are none at all.
#[must_use]
pub fn capture_files() -> Vec<PathBuf> {
    let tests = Path::new(env!("CARGO_MANIFEST_DIR"));
    let beside = tests.join("../../shared/data/pcap");
    let root = std::env::var_os("RINGWAY_CAPTURES").map_or(beside, PathBuf::from);
    let mut files = Vec::new();
    collect(&root, &mut files);
    if files.is_empty() {
        collect(&tests.join("data/pcap"), &mut files);
        skip::test!(
            "all captures (none in ../shared/data/pcap, nor in a folder that RINGWAY_CAPTURES names; the {} of \
             tests/data/pcap stand in)",
            files.len()
        );
    }
    assert!(!files.is_empty(), "the repository has captures in tests/data/pcap");
    files.sort();
    files
}

/// The routes of a real IPv4 or IPv6 table, a line `PREFIX ORIGIN-AS` each: the full one of `../shared/data/bgp` beside the
/// workspace, or else the sample in the repository, which a line says that begins with `skipped:`. `name` is that of the file.
///
/// # Panics
///
/// When neither can be read.
#[must_use]
pub fn real_table(name: &str) -> String {
    let tests = Path::new(env!("CARGO_MANIFEST_DIR"));
    let file = fs::File::open(tests.join("../../shared/data/bgp").join(name)).or_else(|_| {
        skip::test!("the full table {name} (not in ../shared/data/bgp; the sample in tests/data/bgp stands in)");
        fs::File::open(tests.join("data/bgp").join(name))
    });
    let mut text = String::new();
    let file = std::io::BufReader::new(file.expect("the repository has a sample"));
    lzma_rust2::XzReader::new(file, true).read_to_string(&mut text).expect("the table is text");
    text
}

fn collect(folder: &Path, files: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let path = entry.path();
        if path.is_dir() {
            collect(&path, files);
        } else if path.extension().is_some_and(|extension| extension == "pcap") {
            files.push(path);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_byte_orders_and_a_cut_record_are_read() {
        let mut little = vec![0xd4, 0xc3, 0xb2, 0xa1, 2, 0, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 0, 0, 1, 0, 0, 0];
        let mut big = vec![0xa1, 0xb2, 0xc3, 0xd4, 0, 2, 0, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 0, 0, 0, 1];
        little.extend([1, 0, 0, 0, 0, 0, 0, 0, 3, 0, 0, 0, 9, 0, 0, 0, 7, 8, 9]);
        big.extend([0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 3, 0, 0, 0, 9, 7, 8, 9]);
        let expected = Some(Capture { frames: vec![vec![7, 8, 9]] });
        assert_eq!(Capture::parse(&little), expected);
        assert_eq!(Capture::parse(&big), expected);
        little.extend([1, 0, 0, 0, 0, 0, 0, 0, 3, 0, 0, 0, 9, 0, 0, 0, 7]);
        assert_eq!(Capture::parse(&little), expected);
        assert_eq!(Capture::parse(b"not a capture file, but long enough"), None);
    }
}
