//! What tells series apart besides their colours.

/// Colours there are, as classes of the style; told apart by people who see no red or green, too (Okabe and Ito).
pub(super) const COLOURS: usize = 7;

/// Marks around 0, 0.
pub(super) const MARKS: [&str; 4] =
    ["M-4 0a4 4 0 1 0 8 0a4 4 0 1 0-8 0z", "M-3.5-3.5h7v7h-7z", "M0-5l5 5-5 5-5-5z", "M0-4.5l4.5 8h-9z"];

/// Dashes of lines.
pub(super) const DASHES: [&str; 4] = ["none", "7 3", "2 3", "8 3 2 3"];
