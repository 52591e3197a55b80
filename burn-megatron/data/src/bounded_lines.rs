//! [`read_line`]: lines of a file, of which none is held that is longer than it may be.

use std::io::{self, BufRead};

/// Whether a line came whole.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Line {
    /// With its end, or the last one of a file.
    Whole,
    /// Its bytes are not there: they were more than the limit.
    TooLong,
    /// The file has no more.
    None,
}

/// Appends a line with its end, if there is one and it has at most `limit` bytes. A longer one is read over, never
/// held.
pub(crate) fn read_line(reader: &mut dyn BufRead, limit: usize, line: &mut Vec<u8>) -> io::Result<Line> {
    let before = line.len();
    loop {
        let buffered = match reader.fill_buf() {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            other => other?,
        };
        if buffered.is_empty() {
            return Ok(if line.len() == before { Line::None } else { Line::Whole });
        }
        let (used, is_end) = match memchr::memchr(b'\n', buffered) {
            Some(newline) => (newline + 1, true),
            None => (buffered.len(), false),
        };
        if line.len() - before + used > limit {
            line.truncate(before);
            reader.consume(used);
            if !is_end {
                skip_line(reader)?;
            }
            return Ok(Line::TooLong);
        }
        line.extend_from_slice(&buffered[..used]);
        reader.consume(used);
        if is_end {
            return Ok(Line::Whole);
        }
    }
}

fn skip_line(reader: &mut dyn BufRead) -> io::Result<()> {
    reader.skip_until(b'\n').map(drop)
}

/// Whether a line has no text.
pub(crate) fn is_blank(line: &[u8]) -> bool {
    line.iter().all(u8::is_ascii_whitespace)
}
