//! Checks that a [`Trainer`] makes of its micro-batches and figures.

use std::hash::{DefaultHasher, Hash, Hasher};

use burn::module::Module;

use super::Trainer;
use crate::collectives::compare_hash;
use crate::data::MicroBatch;
use crate::data_parallel::{DataParallelError, ReducedGradients};
use crate::training::{LanguageModel, NonFiniteOrigin, TrainingError};

impl<M: Module + LanguageModel> Trainer<M> {
    /// Compares the micro-batches over the ranks that together hold one model.
    pub(super) fn check_same_batch(&self, micro_batches: &[MicroBatch]) -> Result<(), TrainingError> {
        let mut hasher = DefaultHasher::new();
        for MicroBatch {
            tokens,
            targets,
            loss_mask,
            position_ids,
            documents,
            sample_ids,
            micro_batch_size,
            seq_length,
            sentences,
            encoder,
        } in micro_batches
        {
            (tokens, targets, sample_ids, micro_batch_size, seq_length).hash(&mut hasher);
            (position_ids, documents, sentences, encoder).hash(&mut hasher);
            let mask = loss_mask.as_ref();
            mask.map(|mask| mask.iter().map(|weight| weight.to_bits()).collect::<Vec<_>>())
                .hash(&mut hasher);
        }
        let place = format!("the micro-batches of step {}", self.iteration + 1);
        let compared = compare_hash(&place, hasher.finish(), self.context.model_group());
        Ok(compared.map_err(DataParallelError::from)?)
    }

    /// Refuses tokens that the model does not know: on a sharded vocabulary they would pass for zeros.
    pub(super) fn check_tokens(&self, micro_batch: &MicroBatch) -> Result<(), TrainingError> {
        let Some(vocab_size) = self.ddp.module_in_flight().first().map(|chunk| chunk.vocab_size()) else {
            return Ok(());
        };
        let is_known = |token: &&i32| usize::try_from(**token).is_ok_and(|token| token < vocab_size);
        let of_encoder = micro_batch.encoder.iter().flat_map(|encoder| &encoder.tokens);
        let mut all = micro_batch.tokens.iter().chain(&micro_batch.targets).chain(of_encoder);
        match all.find(|token| !is_known(token)) {
            None => Ok(()),
            Some(&token) => Err(TrainingError::UnknownToken { token, vocab_size }),
        }
    }

    /// Refuses positions that are not those of the tokens: a GPU would read outside the table.
    pub(super) fn check_positions(micro_batch: &MicroBatch) -> Result<(), TrainingError> {
        let Some(positions) = &micro_batch.position_ids else {
            return Ok(());
        };
        let (tokens, seq_length) = (micro_batch.tokens.len(), micro_batch.seq_length);
        let largest = positions.iter().map(|position| position.cast_unsigned()).max();
        let largest = largest.unwrap_or_default();
        if positions.len() == tokens && (largest as usize) < seq_length.max(1) {
            return Ok(());
        }
        Err(TrainingError::Positions {
            count: positions.len(),
            largest,
            tokens,
            seq_length,
        })
    }

    pub(super) fn check_finite(
        &self,
        what: &'static str,
        value: f64,
        gradients: &ReducedGradients,
    ) -> Result<(), TrainingError> {
        if value.is_finite() {
            return Ok(());
        }
        Err(TrainingError::NotFinite {
            what,
            step: self.iteration + 1,
            value,
            origin: NonFiniteOrigin::find(gradients, self.context.world_group())?,
        })
    }
}
