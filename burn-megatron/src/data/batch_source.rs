//! [`BatchSource`]: where micro-batches come from; [`TokenBatches`], those of texts whose next token is predicted.

use std::sync::Arc;

use burn_megatron_data::marks::{DocumentMarking, DocumentMarks, DocumentRules};
use burn_megatron_data::samples::Samples;
use cubecl_kernels::flash_attention::Documents;

use super::{DataError, MicroBatch};

/// Samples that are gathered into micro-batches, in any order.
pub trait BatchSource: Send + Sync {
    /// The number of samples.
    fn num_samples(&self) -> u64;

    /// Numbers that decide, next to the documents and the seed, where each sample is: sources that have the same agree
    /// on all samples that both have.
    fn order(&self) -> Vec<u64> {
        vec![self.num_samples()]
    }

    /// Reads these samples.
    ///
    /// # Errors
    /// When there is no such sample, or it cannot be read.
    fn gather(&self, sample_ids: Vec<u64>) -> Result<MicroBatch, DataError>;
}

/// Samples of texts; each token's target is the one after it.
pub struct TokenBatches {
    samples: Arc<dyn Samples>,
    marking: Option<DocumentMarking>,
}

impl TokenBatches {
    /// Returns the micro-batches of `samples`.
    pub fn new(samples: Arc<dyn Samples>) -> Self {
        Self { samples, marking: None }
    }

    /// Returns the same, where `marking` says what starts again where documents end within samples.
    pub fn with_marking(self, marking: Option<DocumentMarking>) -> Self {
        Self { marking, ..self }
    }
}

impl BatchSource for TokenBatches {
    fn num_samples(&self) -> u64 {
        self.samples.num_samples()
    }

    fn order(&self) -> Vec<u64> {
        self.samples.order()
    }

    /// A target that a sample does not have, as it ends before, does not count in the loss.
    fn gather(&self, sample_ids: Vec<u64>) -> Result<MicroBatch, DataError> {
        let (micro_batch_size, seq_length) = (sample_ids.len(), self.samples.seq_length());
        let num_tokens = micro_batch_size * seq_length;
        let mut micro_batch = MicroBatch {
            tokens: Vec::with_capacity(num_tokens),
            targets: Vec::with_capacity(num_tokens),
            sample_ids,
            micro_batch_size,
            seq_length,
            ..MicroBatch::default()
        };
        let mut marks = DocumentMarks::default();
        let mut sample = Vec::with_capacity(seq_length + 1);
        for (i, &id) in micro_batch.sample_ids.iter().enumerate() {
            sample.clear();
            let read = self.samples.read_sample(id, &mut sample)?;
            if read <= seq_length {
                sample.resize(seq_length + 1, 0);
                let mask = micro_batch.loss_mask.get_or_insert_with(|| vec![1.0; num_tokens]);
                mask[i * seq_length + read.saturating_sub(1)..(i + 1) * seq_length].fill(0.0);
            }
            if let Some(marking) = self.marking {
                marks.push(&sample[..seq_length], marking.end_of_document, marking.rules);
            }
            // Numbers of tokens are below 2^31, as the model's vocabulary is.
            let signed = sample.iter().map(|&token| token.cast_signed());
            micro_batch.tokens.extend(signed.clone().take(seq_length));
            micro_batch.targets.extend(signed.skip(1));
        }
        if let Some(marking) = self.marking {
            mark(&mut micro_batch, marks, marking.rules);
        }
        Ok(micro_batch)
    }
}

fn mark(micro_batch: &mut MicroBatch, marks: DocumentMarks, rules: DocumentRules) {
    let DocumentMarks {
        position_ids,
        document_starts,
        loss_mask,
    } = marks;
    if rules.reset_position_ids {
        // They are below the length of a sample.
        micro_batch.position_ids = Some(position_ids.into_iter().map(u32::cast_signed).collect());
    }
    if rules.reset_attention_mask {
        let documents = Documents::from_starts(micro_batch.seq_length, &document_starts);
        micro_batch.documents = Some(documents.expect("marks are starts of documents"));
    }
    if rules.eod_mask_loss {
        let of_samples = micro_batch.loss_mask.get_or_insert_with(|| vec![1.0; loss_mask.len()]);
        for (weight, of_mark) in of_samples.iter_mut().zip(loss_mask) {
            *weight *= of_mark;
        }
    }
}
