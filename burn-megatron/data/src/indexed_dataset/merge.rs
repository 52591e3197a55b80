//! `merge`: several data sets as one.

use std::fs;
use std::path::Path;

use super::{DatasetTotals, IndexedDataset, IndexedDatasetError, IndexedDatasetWriter, bin_path};

/// Writes the documents of several data sets, in this order, as one, and returns its totals. Tokens are copied as they
/// are.
///
/// # Errors
/// If one cannot be read, types differ, the output is one of the inputs, or the disk is full. Nothing is left of the
/// output.
pub fn merge<P: AsRef<Path>>(prefixes: &[P], output: impl AsRef<Path>) -> Result<DatasetTotals, IndexedDatasetError> {
    let output = output.as_ref();
    let first = prefixes.first().ok_or(IndexedDatasetError::NothingToMerge)?.as_ref();
    let element_type = IndexedDataset::open(first)?.element_type();
    let place = fs::canonicalize(bin_path(output)).ok();
    // All are opened before the first is copied: what is wrong with the last is said at once.
    for prefix in prefixes {
        let dataset = IndexedDataset::open(prefix)?;
        if dataset.element_type() != element_type {
            return Err(IndexedDatasetError::TypesDiffer {
                first: first.to_owned(),
                first_type: element_type,
                other: prefix.as_ref().to_owned(),
                other_type: dataset.element_type(),
            });
        }
        if place.is_some() && fs::canonicalize(bin_path(prefix.as_ref())).ok() == place {
            return Err(IndexedDatasetError::OutputIsInput {
                prefix: output.to_owned(),
            });
        }
    }
    let mut writer = IndexedDatasetWriter::create(output, element_type)?;
    for prefix in prefixes {
        writer.append(&IndexedDataset::open(prefix)?)?;
    }
    writer.finish()
}
