//! Columns of Parquet files, read without Arrow.

use std::fs::File;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parquet::basic::Type;
use parquet::column::reader::{ColumnReaderImpl, get_typed_column_reader};
use parquet::data_type::{ByteArray, ByteArrayType};
use parquet::errors::ParquetError;
use parquet::file::metadata::FileMetaData;
use parquet::file::reader::{FileReader, SerializedFileReader};

use super::{BatchSink, InputFile};
use crate::preprocess::PreprocessError;

/// Rows of a column that are held at a time.
const ROWS: usize = 64;

/// Sends each row: the texts of the columns that are named like the keys.
pub(super) fn read(
    input: &InputFile,
    keys: &[String],
    bytes_read: &Arc<AtomicU64>,
    sink: &mut BatchSink<'_>,
) -> Result<(), PreprocessError> {
    let failed = |source: ParquetError| PreprocessError::Parquet {
        path: input.path.clone(),
        source,
    };
    let file = File::open(&input.path).map_err(PreprocessError::read(&input.path))?;
    let reader = SerializedFileReader::new(file).map_err(failed)?;
    let columns = columns(input, reader.metadata().file_metadata(), keys)?;
    let before = bytes_read.load(Ordering::Relaxed);
    let groups = reader.num_row_groups();
    let mut row = 0;
    for group in 0..groups {
        let group_reader = reader.get_row_group(group).map_err(failed)?;
        let rows = usize::try_from(group_reader.metadata().num_rows()).map_err(|_| {
            failed(ParquetError::General(format!(
                "row group {group} has a negative number of rows"
            )))
        })?;
        let mut readers = Vec::with_capacity(columns.len());
        for &column in &columns {
            let max_level = reader
                .metadata()
                .file_metadata()
                .schema_descr()
                .column(column)
                .max_def_level();
            let reader = get_typed_column_reader(group_reader.get_column_reader(column).map_err(failed)?);
            readers.push(Column {
                reader,
                max_level,
                levels: vec![],
                values: vec![],
                next: 0,
            });
        }
        let mut done = 0;
        while done < rows {
            let wanted = ROWS.min(rows - done);
            for (column, key) in readers.iter_mut().zip(keys) {
                let read = column.read(wanted).map_err(failed)?;
                if read != wanted {
                    let reason = format!(
                        "column {key:?} of row group {group} ends at row {} of {rows}",
                        done + read
                    );
                    return Err(failed(ParquetError::EOF(reason)));
                }
            }
            for place in 0..wanted {
                row += 1;
                push_row(&mut readers, keys, place, row, sink)?;
            }
            done += wanted;
        }
        // Which part of the file has been read is known by the row group.
        bytes_read.store(
            before + input.bytes * (group as u64 + 1) / groups as u64,
            Ordering::Relaxed,
        );
    }
    Ok(())
}

fn push_row(
    readers: &mut [Column],
    keys: &[String],
    place: usize,
    row: u64,
    sink: &mut BatchSink<'_>,
) -> Result<(), PreprocessError> {
    let limit = sink.max_document_bytes();
    let values: Vec<Option<ByteArray>> = readers.iter_mut().map(|column| column.take(place)).collect();
    if let Some(missing) = values.iter().position(Option::is_none) {
        return sink.push_bad(row, format!("column {:?} is null", keys[missing]));
    }
    if values.iter().flatten().any(|value| value.len() > limit) {
        return sink.push_too_long(row);
    }
    for value in values.iter().flatten() {
        sink.buffer().extend_from_slice(value.data());
        sink.end_field();
    }
    sink.end_document(row)
}

/// Finds the columns of the keys.
fn columns(input: &InputFile, metadata: &FileMetaData, keys: &[String]) -> Result<Vec<usize>, PreprocessError> {
    let schema = metadata.schema_descr();
    let refused = |reason: String| PreprocessError::Config {
        reason: format!("{}: {reason}", input.path.display()),
    };
    keys.iter()
        .map(|key| {
            let found = schema
                .columns()
                .iter()
                .position(|column| column.path().string() == *key)
                .ok_or_else(|| {
                    let there: Vec<String> = schema.columns().iter().map(|column| column.path().string()).collect();
                    refused(format!("no column {key:?}, there are {}", there.join(", ")))
                })?;
            let column = schema.column(found);
            if column.physical_type() != Type::BYTE_ARRAY || column.max_rep_level() != 0 {
                let kind = column.physical_type();
                return Err(refused(format!(
                    "column {key:?} holds no text (BYTE_ARRAY, not repeated) but {kind}"
                )));
            }
            Ok(found)
        })
        .collect()
}

/// A column of a row group, and its next values.
struct Column {
    reader: ColumnReaderImpl<ByteArrayType>,
    max_level: i16,
    levels: Vec<i16>,
    values: Vec<ByteArray>,
    next: usize,
}

impl Column {
    /// Reads up to `rows` rows, and returns how many there were.
    fn read(&mut self, rows: usize) -> Result<usize, ParquetError> {
        self.levels.clear();
        self.values.clear();
        self.next = 0;
        Ok(self
            .reader
            .read_records(rows, Some(&mut self.levels), None, &mut self.values)?
            .0)
    }

    /// Takes the value of a row of those that have been read, `None` if it is null. Rows are taken in order.
    fn take(&mut self, place: usize) -> Option<ByteArray> {
        if self.levels.get(place).is_some_and(|&level| level < self.max_level) {
            return None;
        }
        self.next += 1;
        self.values.get_mut(self.next - 1).map(std::mem::take)
    }
}
