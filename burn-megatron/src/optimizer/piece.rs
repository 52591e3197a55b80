//! `Piece`: what a `ShardedOptimizer` holds of one parameter, and its update.

use std::collections::HashMap;
use std::ops::Range;

use burn::optim::{LearningRate, Optimizer};
use burn::tensor::{DType, Device, FloatDType, Tensor};

use super::factored::FactoredDirection;
use super::scaled;
use crate::data_parallel::{GradientEntry, OwnedValues, ReducedGradients};
use crate::offload::OffloadError;
use crate::precision::is_half;

/// State that the optimizer holds of one trained parameter.
pub(crate) struct Piece<O: Optimizer> {
    pub(super) name: String,
    /// Number of the optimizer that updates it.
    pub(super) group: usize,
    /// The elements of this rank's part of the parameter that are updated here.
    pub(crate) range: Range<usize>,
    /// The number of their bucket, and where they begin in this rank's part of it.
    pub(super) bucket: usize,
    pub(super) place: usize,
    /// Their main values, `[range]`, where the module's are of 16 bits and the range is not empty; unless the state of
    /// their bucket has them, or they are offloaded.
    pub(crate) main: Option<Tensor<1>>,
    /// None before the first update, where the range is empty, and where their bucket's state has it, or it is
    /// offloaded.
    pub(crate) state: Option<O::State<1>>,
    /// Updates of the parameter so far, here or on other data-parallel ranks.
    pub(crate) steps: u64,
}

/// The direction of a piece of a parameter, where that is not made of the piece alone.
pub(super) enum Direction {
    /// Made of whole matrices.
    Made {
        /// Step that is taken off the piece, `[range]`.
        step: Tensor<1>,
        /// Factor of what is kept of it.
        keep: f64,
    },
    /// Made of the gradient when the piece is updated, so that those of all pieces are never there at once.
    Factored {
        /// Maker of it.
        direction: Box<FactoredDirection>,
        /// Number that it is multiplied by.
        factor: f64,
    },
}

/// An update under way.
pub(super) struct Update {
    pub(super) learning_rate: LearningRate,
    /// The module's element type.
    pub(super) dtype: DType,
    pub(super) device: Device,
    /// The module's old values.
    pub(super) values: OwnedValues,
    pub(super) gradients: ReducedGradients,
    /// Directions by number, where an optimizer needs more than the pieces of this rank.
    pub(super) directions: HashMap<usize, Direction>,
}

impl<O: Optimizer> Piece<O> {
    /// Returns the piece of a parameter: the elements of `range`, from `place` on in this rank's part of their bucket.
    /// The main values are yet to be made.
    pub(super) fn new(entry: &GradientEntry, group: usize, range: Range<usize>, place: usize) -> Self {
        Self {
            name: entry.name.clone(),
            group,
            main: None,
            range,
            bucket: entry.bucket(),
            place,
            state: None,
            steps: 0,
        }
    }

    /// Updates the piece and returns its new values, `[range]`, in the module's type.
    ///
    /// # Errors
    /// When the old ones cannot be read from their file.
    pub(super) fn update(
        &mut self,
        optimizer: &O,
        entry: &GradientEntry,
        update: &mut Update,
    ) -> Result<Tensor<1>, OffloadError> {
        let gradient = || update.gradients.owned_values(entry, &update.device);
        let (gradient, keep) = match update.directions.remove(&entry.number) {
            None => (gradient(), None),
            Some(Direction::Made { step, keep }) => (step, Some(keep)),
            Some(Direction::Factored { direction, factor }) => {
                let keep = direction.step.keep;
                (direction.of(gradient()).mul_scalar(factor), Some(keep))
            }
        };
        let main_dtype = gradient.dtype();
        let main = match self.main.take() {
            Some(main) => main,
            None => {
                let value = update.values.take(entry.number)?;
                let value = value.expect("each parameter with elements here is updated once");
                value.cast(FloatDType::from(main_dtype))
            }
        };
        // Nothing needs the old value after this.
        update.values.forget(entry.number);
        // Where the module is by now.
        let main = main.to_device(&update.device);
        let main = match keep {
            Some(keep) => scaled(main, keep) - gradient,
            None => {
                let state = self.state.take().map(|state| O::to_device(state, &update.device));
                let (main, state) = optimizer.step(update.learning_rate, main, gradient, state);
                self.state = state;
                main
            }
        };
        if main_dtype == update.dtype {
            return Ok(main);
        }
        let value = main.clone().cast(FloatDType::from(update.dtype));
        self.main = Some(main);
        Ok(value)
    }
}

impl<O: Optimizer> Clone for Piece<O> {
    fn clone(&self) -> Self {
        Self {
            name: self.name.clone(),
            group: self.group,
            range: self.range.clone(),
            bucket: self.bucket,
            place: self.place,
            main: self.main.clone(),
            state: self.state.clone(),
            steps: self.steps,
        }
    }
}

impl<O: Optimizer> std::fmt::Debug for Piece<O> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Piece")
            .field("name", &self.name)
            .field("group", &self.group)
            .field("range", &self.range)
            .field("steps", &self.steps)
            .finish_non_exhaustive()
    }
}

/// The main values of a range, in f32, where the module's have 16 bits.
pub(super) fn main_of(value: Tensor<1>) -> Option<Tensor<1>> {
    is_half(value.dtype()).then(|| value.cast(FloatDType::F32))
}
