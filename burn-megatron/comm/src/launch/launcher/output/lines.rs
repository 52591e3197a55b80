//! A stream of bytes in lines: [`LineSplitter`] takes them apart, [`WholeLines`] passes them as they are.

use std::mem;

/// A longer line is cut into pieces of this size.
pub(super) const MAX_LINE_BYTES: usize = 1 << 20;

/// Cuts a stream of bytes into lines. A carriage return ends a line as a newline does; both together end one.
#[derive(Default)]
pub(super) struct LineSplitter {
    /// The beginning of a line whose end has not come yet.
    partial: Vec<u8>,
    /// Whether the last byte was a carriage return, whose newline may follow.
    after_return: bool,
}

impl LineSplitter {
    /// Takes bytes, and returns the lines that are whole now, without their ends.
    pub(super) fn push(&mut self, mut bytes: &[u8]) -> Vec<Vec<u8>> {
        let mut lines = Vec::new();
        while let Some(end) = bytes.iter().position(|byte| matches!(byte, b'\n' | b'\r')) {
            let (line, rest) = bytes.split_at(end);
            self.partial.extend(line);
            lines.extend(self.end_line(rest[0]));
            bytes = &rest[1..];
        }
        self.after_return &= bytes.is_empty();
        self.partial.extend(bytes);
        while self.partial.len() > MAX_LINE_BYTES {
            let rest = self.partial.split_off(MAX_LINE_BYTES);
            lines.push(mem::replace(&mut self.partial, rest));
        }
        lines
    }

    /// Returns the last line, if it has no end.
    pub(super) fn finish(&mut self) -> Option<Vec<u8>> {
        (!self.partial.is_empty()).then(|| mem::take(&mut self.partial))
    }

    fn end_line(&mut self, end: u8) -> Option<Vec<u8>> {
        let completes_return = self.after_return && self.partial.is_empty() && end == b'\n';
        self.after_return = end == b'\r';
        // A progress line that begins with `\r` is not preceded by an empty one.
        let empty_progress = end == b'\r' && self.partial.is_empty();
        (!completes_return && !empty_progress).then(|| mem::take(&mut self.partial))
    }
}

/// Passes bytes unchanged, up to the last end of a line: lines that others write between do not fall into one.
#[derive(Default)]
pub(super) struct WholeLines {
    /// The beginning of a line whose end has not come yet.
    partial: Vec<u8>,
}

impl WholeLines {
    /// Takes bytes, and returns those that are to be written now.
    pub(super) fn push(&mut self, bytes: &[u8]) -> Vec<u8> {
        self.partial.extend(bytes);
        let end = self.partial.iter().rposition(|byte| matches!(byte, b'\n' | b'\r'));
        let end = match end {
            None if self.partial.len() > MAX_LINE_BYTES => self.partial.len(),
            end => end.map_or(0, |end| end + 1),
        };
        let rest = self.partial.split_off(end);
        mem::replace(&mut self.partial, rest)
    }

    /// Returns the last line, if it has no end.
    pub(super) fn finish(&mut self) -> Vec<u8> {
        mem::take(&mut self.partial)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The lines of a text that arrives in pieces of `piece` bytes.
    fn split(text: &str, piece: usize) -> Vec<String> {
        let mut splitter = LineSplitter::default();
        let mut lines: Vec<Vec<u8>> = text
            .as_bytes()
            .chunks(piece)
            .flat_map(|bytes| splitter.push(bytes))
            .collect();
        lines.extend(splitter.finish());
        lines.into_iter().map(|line| String::from_utf8(line).unwrap()).collect()
    }

    #[test]
    fn lines_are_the_same_however_they_arrive() {
        let cases: [(&str, &[&str]); 8] = [
            ("one\ntwo\n", &["one", "two"]),
            ("no end", &["no end"]),
            ("\n\nempty lines stay\n", &["", "", "empty lines stay"]),
            ("dos\r\nlines\r\n", &["dos", "lines"]),
            ("1%\r2%\r3%\ndone\n", &["1%", "2%", "3%", "done"]),
            ("\r1%\r2%", &["1%", "2%"]),
            ("a\r\n\nb\n", &["a", "", "b"]),
            ("", &[]),
        ];
        for (text, expected) in cases {
            for piece in 1..=text.len().max(1) {
                assert_eq!(split(text, piece), expected, "{text:?} by {piece}");
            }
        }
    }

    #[test]
    fn endless_line_is_cut_and_nothing_lost() {
        let text = "x".repeat(2 * MAX_LINE_BYTES + 5);
        let lines = split(&text, 64 << 10);
        assert_eq!(lines.len(), 3);
        assert_eq!(lines.concat(), text);
    }

    #[test]
    fn whole_lines_pass_unchanged() {
        let text = "1%\r2%\r\n\ndone\r\nno end";
        for piece in 1..=text.len() {
            let mut lines = WholeLines::default();
            let mut written = Vec::new();
            for bytes in text.as_bytes().chunks(piece) {
                let now = lines.push(bytes);
                assert!(
                    now.is_empty() || now.ends_with(b"\n") || now.ends_with(b"\r"),
                    "{now:?} by {piece}"
                );
                written.extend(now);
            }
            written.extend(lines.finish());
            assert_eq!(written, text.as_bytes());
        }
        let endless = vec![b'x'; MAX_LINE_BYTES + 1];
        assert_eq!(WholeLines::default().push(&endless), endless);
    }
}
