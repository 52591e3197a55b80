//! JSON lines: an object on each line.

use std::io::BufRead;

use super::{BatchSink, LINE_END_BYTES};
use crate::bounded_lines::{Line, is_blank, read_line};
use crate::preprocess::PreprocessError;

/// Sends each line that is not blank. Workers parse them.
pub(super) fn read(reader: &mut dyn BufRead, sink: &mut BatchSink<'_>) -> Result<(), PreprocessError> {
    let limit = sink.max_document_bytes().saturating_add(LINE_END_BYTES);
    for number in 1.. {
        let path = sink.path();
        let line = read_line(reader, limit, sink.buffer()).map_err(PreprocessError::read(&path))?;
        match line {
            Line::None => break,
            Line::TooLong => sink.push_too_long(number)?,
            Line::Whole => {
                let pending = sink.pending();
                let buffer = sink.buffer();
                if is_blank(&buffer[buffer.len() - pending..]) {
                    sink.clear_pending();
                } else {
                    sink.end_lines(number)?;
                }
            }
        }
    }
    Ok(())
}
