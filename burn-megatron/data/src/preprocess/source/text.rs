//! Plain text: a file, a paragraph or a line is a document.

use std::io::{BufRead, Read};

use super::{BatchSink, LINE_END_BYTES};
use crate::bounded_lines::{Line, is_blank, read_line};
use crate::preprocess::{PreprocessError, SplitOn};

/// Sends the documents of a file of text.
pub(super) fn read(
    reader: &mut dyn BufRead,
    split_on: SplitOn,
    sink: &mut BatchSink<'_>,
) -> Result<(), PreprocessError> {
    match split_on {
        SplitOn::File => read_file(reader, sink),
        SplitOn::BlankLine => read_paragraphs(reader, sink),
        SplitOn::Line => read_lines(reader, sink),
    }
}

fn read_file(reader: &mut dyn BufRead, sink: &mut BatchSink<'_>) -> Result<(), PreprocessError> {
    let limit = sink.max_document_bytes();
    let path = sink.path();
    // One more than the limit tells that there is more.
    let most = (limit as u64).saturating_add(1);
    reader
        .take(most)
        .read_to_end(sink.buffer())
        .map_err(PreprocessError::read(&path))?;
    if sink.pending() > limit {
        sink.clear_pending();
        return sink.push_bad(
            1,
            format!(
                "the file is longer than the limit of {limit} bytes for a document: split it on blank lines or lines"
            ),
        );
    }
    sink.end_field();
    sink.end_document(1)
}

/// Documents with blank lines between them, without the end of their last line.
fn read_paragraphs(reader: &mut dyn BufRead, sink: &mut BatchSink<'_>) -> Result<(), PreprocessError> {
    let limit = sink.max_document_bytes().saturating_add(LINE_END_BYTES);
    let (mut first, mut is_too_long) = (None, false);
    for number in 1.. {
        let path = sink.path();
        let before = sink.buffer().len();
        let line = read_line(reader, limit, sink.buffer()).map_err(PreprocessError::read(&path))?;
        let ends = match line {
            Line::None => true,
            Line::TooLong => false,
            Line::Whole => is_blank(&sink.buffer()[before..]),
        };
        if !ends {
            first.get_or_insert(number);
            is_too_long |= line == Line::TooLong || sink.pending() > limit;
            if is_too_long {
                sink.clear_pending();
            }
            continue;
        }
        sink.buffer().truncate(before);
        if let Some(first) = first.take() {
            if std::mem::take(&mut is_too_long) {
                sink.push_too_long(first)?;
            } else {
                sink.end_lines(first)?;
            }
        }
        if line == Line::None {
            break;
        }
    }
    Ok(())
}

/// Lines without their ends.
fn read_lines(reader: &mut dyn BufRead, sink: &mut BatchSink<'_>) -> Result<(), PreprocessError> {
    let limit = sink.max_document_bytes().saturating_add(LINE_END_BYTES);
    for number in 1.. {
        let path = sink.path();
        let before = sink.buffer().len();
        match read_line(reader, limit, sink.buffer()).map_err(PreprocessError::read(&path))? {
            Line::None => break,
            Line::TooLong => sink.push_too_long(number)?,
            Line::Whole if is_blank(&sink.buffer()[before..]) => sink.clear_pending(),
            Line::Whole => sink.end_lines(number)?,
        }
    }
    Ok(())
}
