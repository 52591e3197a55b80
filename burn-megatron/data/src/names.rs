//! Names that are not known, and the known ones that they may be meant for.

/// The most edits between two names of which one is taken for the other misspelt.
pub const SLIP: usize = 2;

/// Returns the name that is spelled most like another, the first of several, and the edits between the two.
pub fn nearest<'a>(name: &str, known: impl IntoIterator<Item = &'a str>) -> Option<(&'a str, usize)> {
    let edits = |known| (known, strsim::damerau_levenshtein(known, name));
    known.into_iter().map(edits).min_by_key(|(_, edits)| *edits)
}
