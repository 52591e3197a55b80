//! `Outputs`: the data sets that are written, one for each key.

use std::fs;
use std::path::PathBuf;

use super::encode::{EncodedBatch, EncodedDocuments};
use super::{PreprocessConfig, PreprocessError};
use crate::indexed_dataset::{DatasetTotals, ElementType, IndexedDataset, IndexedDatasetWriter, bin_path, idx_path};

/// Writers for all keys and partitions.
pub(super) struct Outputs {
    keys: Vec<KeyOutput>,
    /// Where the next document goes.
    partition: usize,
}

/// A data set, and the partitions that will follow its first.
struct KeyOutput {
    prefix: PathBuf,
    first: IndexedDatasetWriter,
    others: Vec<(IndexedDatasetWriter, PartitionFiles)>,
}

impl Outputs {
    pub(super) fn create(config: &PreprocessConfig, element_type: ElementType) -> Result<Self, PreprocessError> {
        let create = |key: &String| {
            let prefix = config.dataset_prefix(key);
            let others = (1..config.partitions.get()).map(|partition| {
                let files = PartitionFiles::new(&prefix, partition);
                Ok((IndexedDatasetWriter::create(&files.prefix, element_type)?, files))
            });
            let others = others.collect::<Result<_, PreprocessError>>()?;
            Ok(KeyOutput {
                first: IndexedDatasetWriter::create(&prefix, element_type)?,
                prefix,
                others,
            })
        };
        let keys = config.keys.iter().map(create).collect::<Result<_, PreprocessError>>()?;
        Ok(Self { keys, partition: 0 })
    }

    /// Adds the documents of a batch.
    pub(super) fn push(&mut self, batch: &EncodedBatch) -> Result<(), PreprocessError> {
        let mut next = self.partition;
        for (output, documents) in self.keys.iter_mut().zip(&batch.keys) {
            next = output.push(documents, self.partition)?;
        }
        self.partition = next;
        Ok(())
    }

    /// Completes all data sets.
    pub(super) fn finish(self) -> Result<Vec<(PathBuf, DatasetTotals)>, PreprocessError> {
        self.keys.into_iter().map(KeyOutput::finish).collect()
    }
}

impl KeyOutput {
    /// Adds documents, the first of them to this partition, and returns which partition is next.
    fn push(&mut self, documents: &EncodedDocuments, mut partition: usize) -> Result<usize, PreprocessError> {
        let size = self.first.element_type().size_bytes();
        let (mut bytes, mut lengths) = (documents.bytes.as_slice(), documents.lengths.as_slice());
        for &sequences in &documents.sequences {
            let (of_document, lengths_after) = lengths.split_at(sequences);
            let (tokens, bytes_after) = bytes.split_at(of_document.iter().sum::<usize>() * size);
            let writer = match partition {
                0 => &mut self.first,
                other => &mut self.others[other - 1].0,
            };
            writer.push_encoded(tokens, of_document)?;
            (bytes, lengths) = (bytes_after, lengths_after);
            partition = (partition + 1) % (self.others.len() + 1);
        }
        Ok(partition)
    }

    fn finish(mut self) -> Result<(PathBuf, DatasetTotals), PreprocessError> {
        for (writer, files) in self.others {
            writer.finish()?;
            self.first.append(&IndexedDataset::open(&files.prefix)?)?;
            drop(files);
        }
        Ok((self.prefix, self.first.finish()?))
    }
}

/// The files of a partition, removed when dropped. Their names do not end like those of a data set for training.
struct PartitionFiles {
    prefix: PathBuf,
}

impl PartitionFiles {
    fn new(prefix: &std::path::Path, partition: usize) -> Self {
        let mut name = prefix.as_os_str().to_owned();
        name.push(format!(".partition{partition}"));
        Self { prefix: name.into() }
    }
}

impl Drop for PartitionFiles {
    fn drop(&mut self) {
        // There may be none yet, and nothing is left to do about a failure.
        let _ = fs::remove_file(idx_path(&self.prefix));
        let _ = fs::remove_file(bin_path(&self.prefix));
    }
}
