//! [`ChatBatches`]: micro-batches of conversations, of which the assistant's answers are learnt.

use std::sync::Arc;

use burn_megatron_data::chat_dataset::ChatSample;
use burn_megatron_data::samples::SampleSet;
use cubecl_kernels::flash_attention::Documents;

use super::{BatchSource, DataError, MicroBatch};

/// Micro-batches of conversations that are packed into samples: each attends to itself alone, at positions of its own.
pub struct ChatBatches(Arc<dyn SampleSet<Sample = ChatSample>>);

impl ChatBatches {
    /// Returns the micro-batches of a data set.
    pub fn new(dataset: Arc<dyn SampleSet<Sample = ChatSample>>) -> Self {
        Self(dataset)
    }
}

impl BatchSource for ChatBatches {
    fn num_samples(&self) -> u64 {
        self.0.num_samples()
    }

    fn order(&self) -> Vec<u64> {
        self.0.order()
    }

    fn gather(&self, sample_ids: Vec<u64>) -> Result<MicroBatch, DataError> {
        let seq_length = self.0.seq_length();
        let (mut tokens, mut targets, mut loss_mask) = (Vec::new(), Vec::new(), Vec::new());
        let (mut position_ids, mut starts) = (Vec::new(), Vec::new());
        for &id in &sample_ids {
            let sample = self.0.read(id)?;
            // Numbers of tokens and positions are below 2^31.
            tokens.extend(sample.tokens.into_iter().map(u32::cast_signed));
            targets.extend(sample.targets.into_iter().map(u32::cast_signed));
            position_ids.extend(sample.position_ids.into_iter().map(u32::cast_signed));
            loss_mask.extend(sample.loss_mask);
            starts.extend(sample.document_starts);
        }
        let documents = Documents::from_starts(seq_length, &starts);
        Ok(MicroBatch {
            tokens,
            targets,
            loss_mask: Some(loss_mask),
            position_ids: Some(position_ids),
            documents: Some(documents.expect("conversations follow one another")),
            micro_batch_size: sample_ids.len(),
            sample_ids,
            seq_length,
            ..MicroBatch::default()
        })
    }
}
