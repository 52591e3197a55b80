//! State of a [`Trainer`] that a checkpoint keeps, and that it takes back.

use burn::module::Module;
use serde::{Deserialize, Serialize};

use super::Trainer;
use crate::checkpoint::{ArrayPart, Checkpoint};
use crate::optimizer::{LossScaler, LossScalerState};
use crate::training::{LanguageModel, TrainingError, restore, snapshot};

/// How far training has come.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct TrainerState {
    /// Steps, skipped ones too.
    pub iteration: u64,
    /// Samples of these steps: where the data resume.
    pub consumed_samples: u64,
    /// Samples of the steps that were not skipped: what the learning rate goes by.
    pub schedule_samples: u64,
    /// The loss scale, where there is one.
    pub loss_scaler: Option<LossScalerState>,
}

impl<M: Module + LanguageModel> Trainer<M> {
    /// Returns how far training has come: what a checkpoint keeps in addition to the [`snapshot`](Self::snapshot).
    pub fn state(&self) -> TrainerState {
        TrainerState {
            iteration: self.iteration,
            consumed_samples: self.consumed_samples,
            schedule_samples: self.schedule_samples,
            loss_scaler: self.loss_scaler.as_ref().map(LossScaler::state),
        }
    }

    /// Returns this rank's part of a checkpoint: parameters and the optimizer's state.
    ///
    /// # Errors
    /// When the optimizer is offloaded, and its file cannot be read.
    pub fn snapshot(&self) -> Result<Vec<ArrayPart>, TrainingError> {
        Ok(snapshot(&self.ddp, &self.optimizer, &self.context)?)
    }

    /// Resumes from a checkpoint, made in any layout.
    ///
    /// # Communication
    /// As [`restore`].
    ///
    /// # Errors
    /// As [`restore`]; when the loss scale of `state` cannot be. The trainer is to be given up then.
    pub fn restore(&mut self, checkpoint: &Checkpoint, state: &TrainerState) -> Result<(), TrainingError> {
        restore(checkpoint, &mut self.ddp, &mut self.optimizer, &self.context, true)?;
        self.iteration = state.iteration;
        self.consumed_samples = state.consumed_samples;
        self.schedule_samples = state.schedule_samples;
        if let (Some(scaler), Some(state)) = (&mut self.loss_scaler, state.loss_scaler) {
            scaler.restore(state)?;
        }
        Ok(())
    }

    /// Takes the parameters of a checkpoint and starts training from the beginning with them.
    ///
    /// # Communication
    /// As [`restore`].
    ///
    /// # Errors
    /// As [`restore`]. The trainer is to be given up then.
    pub fn restore_parameters(&mut self, checkpoint: &Checkpoint) -> Result<(), TrainingError> {
        Ok(restore(
            checkpoint,
            &mut self.ddp,
            &mut self.optimizer,
            &self.context,
            false,
        )?)
    }
}
