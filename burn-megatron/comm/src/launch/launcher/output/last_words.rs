//! [`LastWords`]: the end of what each rank has written to stderr.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;

/// Bytes of a rank's stderr that are remembered.
const REMEMBERED_BYTES: usize = 64 << 10;

/// The end of what each rank has written to stderr, so that it is said once. Clones share it.
#[derive(Clone, Debug, Default)]
pub(in super::super) struct LastWords {
    by_rank: Arc<Mutex<HashMap<usize, Vec<u8>>>>,
}

impl LastWords {
    pub(super) fn append(&self, rank: usize, bytes: &[u8]) {
        let mut by_rank = self.by_rank.lock();
        let words = by_rank.entry(rank).or_default();
        words.extend(bytes);
        // Cut rarely: what is cut off has to be moved over.
        if words.len() > 2 * REMEMBERED_BYTES {
            words.drain(..words.len() - REMEMBERED_BYTES);
        }
    }

    /// Whether the rank has written the first line of `text`.
    pub(in super::super) fn contain(&self, rank: usize, text: &str) -> bool {
        let text = text.lines().next().unwrap_or_default();
        !text.is_empty() && self.of(rank).contains(text)
    }

    /// `most` of the rank's lines at the most: from the one with the first line of `text` on, or else the last ones.
    pub(in super::super) fn last_lines(&self, rank: usize, text: &str, most: usize) -> Vec<String> {
        let words = self.of(rank);
        let lines: Vec<&str> = words.lines().collect();
        let text = text.lines().next().filter(|text| !text.is_empty());
        let with_text = text.and_then(|text| lines.iter().rposition(|line| line.contains(text)));
        let first = with_text.unwrap_or_else(|| lines.len().saturating_sub(most));
        lines[first..].iter().take(most).map(|&line| line.to_owned()).collect()
    }

    fn of(&self, rank: usize) -> String {
        let by_rank = self.by_rank.lock();
        let words = by_rank.get(&rank).map_or(&[][..], Vec::as_slice);
        String::from_utf8_lossy(words).into_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn last_words_are_those_of_the_rank() {
        let words = LastWords::default();
        words.append(1, b"step 1\n[rank 1 on host a] failed: loss is not ");
        words.append(1, b"finite\n");
        assert!(words.contain(1, "loss is not finite\nin step 3"));
        assert!(!words.contain(0, "loss is not finite"));
        assert_eq!(
            words.last_lines(1, "", 1),
            ["[rank 1 on host a] failed: loss is not finite"]
        );
        assert_eq!(words.last_lines(1, "", 9).len(), 2);
        assert_eq!(words.last_lines(0, "", 9), [""; 0]);
        words.append(1, b"stack backtrace:\n  0: main\n");
        let from_text = words.last_lines(1, "loss is not finite\nin step 3", 2);
        assert_eq!(
            from_text,
            ["[rank 1 on host a] failed: loss is not finite", "stack backtrace:"]
        );
        words.append(1, &vec![b'x'; 3 * REMEMBERED_BYTES]);
        assert!(!words.contain(1, "loss is not finite"));
    }
}
