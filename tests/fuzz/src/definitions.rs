//! Stream definitions of any content: one clear error with its place, or frames that follow from the seed alone, whatever their buffers
//! held before.

use stream::{Definition, Error, Stream};

/// Streams of an input that are looked at, and frames of each.
const STREAMS: usize = 4;
const FRAMES: usize = 70;
/// Bytes left for a tag.
const TAIL: usize = 8;

/// Runs one input: the text of a file.
pub fn run(input: &[u8]) {
    let Ok(text) = std::str::from_utf8(input) else { return };
    match Definition::parse("input", text) {
        Ok(definitions) => definitions.iter().take(STREAMS).for_each(streamed),
        Err(Error::Definition { line, column, message, expected, .. }) => {
            assert!(line >= 1 && column >= 1 && line <= text.matches('\n').count() + 1);
            assert!(!message.contains('\n') && !expected.contains('\n'), "{message}; {expected}");
        }
        Err(other) => panic!("{other}"),
    }
}

fn streamed(definition: &Definition) {
    let made = || Stream::new(definition, TAIL, 1);
    let (Ok(mut one), Ok(mut other)) = (made(), made()) else {
        assert!(made().is_err_and(|error| error.to_string().lines().count() == 1));
        return;
    };
    let [mut frames, mut again] = [0, 0xFF]
        .map(|byte| -> Vec<Vec<u8>> { one.sizes().take(FRAMES).map(|size| vec![byte; size.into()]).collect() });
    assert_eq!(one.fill(frames.iter_mut().map(|frame| &mut frame[..])), FRAMES);
    for frame in &mut again {
        assert_eq!(other.fill(std::iter::once(&mut frame[..])), 1);
    }
    assert!(frames == again);
    let (smallest, largest) = (definition.sizes().smallest(), definition.sizes().largest());
    for frame in frames {
        assert!((smallest..=largest).contains(&frame.len()));
        assert!(frame.ends_with(&[0; TAIL]));
    }
}
