//! `FactoredForm`: an optimizer's second moment, of which matrices keep their rows' and their columns' alone.

use burn::optim::{LearningRate, Optimizer, RecordState, StateSink, StateSource, join_path};
use burn::tensor::{Device, Tensor};

/// An optimizer's step and state as those of [`Adafactor`](crate::optimizer::Adafactor).
///
/// A [`ShardedOptimizer`](crate::optimizer::ShardedOptimizer) adds up what the ranks that hold parts of a parameter
/// know of its rows, its columns and its size, and updates this rank's piece of it.
pub struct FactoredForm<O: Optimizer> {
    /// Returns the numbers of a parameter's update; 1 is the first.
    pub step: fn(&O, LearningRate, u64) -> FactoredStep,
    /// Returns the second moment of a parameter's state.
    pub moment: fn(O::State<1>) -> SecondMoment<1>,
    /// Returns a parameter's state after some updates, of its second moment.
    pub state: fn(u64, SecondMoment<1>) -> O::State<1>,
}

/// The mean of squared gradients.
#[derive(Clone, Debug)]
pub enum SecondMoment<const D: usize> {
    /// That of matrices, in factors.
    Factored(FactoredMoment),
    /// That of each element.
    Elements(Tensor<D>),
}

impl<const D: usize> SecondMoment<D> {
    /// Returns that of matrices.
    ///
    /// # Panics
    /// When it is one of elements.
    pub(crate) fn into_factored(self) -> FactoredMoment {
        match self {
            Self::Factored(moment) => moment,
            Self::Elements(_) => panic!("a second moment of elements, expected one of rows and columns"),
        }
    }

    /// Returns that of each element.
    ///
    /// # Panics
    /// When it is one of matrices.
    pub(crate) fn into_elements(self) -> Tensor<D> {
        match self {
            Self::Elements(moment) => moment,
            Self::Factored(_) => panic!("a second moment of rows and columns, expected one of elements"),
        }
    }
}

impl<const D: usize> RecordState for SecondMoment<D> {
    fn state_flatten(&self, prefix: &str, out: &mut StateSink) {
        match self {
            Self::Factored(moment) => moment.state_flatten(&join_path(prefix, "factored"), out),
            Self::Elements(moment) => out.push_tensor(prefix, "elements", moment.to_data()),
        }
    }

    fn state_unflatten(prefix: &str, source: &mut StateSource, device: &Device) -> Option<Self> {
        if let Some(data) = source.take_tensor(prefix, "elements") {
            let dtype = data.dtype();
            return Some(Self::Elements(Tensor::from_data(data, (device, dtype))));
        }
        let moment = FactoredMoment::state_unflatten(&join_path(prefix, "factored"), source, device)?;
        Some(Self::Factored(moment))
    }
}

/// The means of the squared gradients of matrices by row and by column: of whole ones, the same on each rank that
/// holds elements of them.
#[derive(RecordState, Clone, Debug)]
pub struct FactoredMoment {
    /// Of each row, `[matrices * rows]`; those of fused matrices are next to each other.
    pub rows: Tensor<1>,
    /// Of each column, in the order of the parameter's columns.
    pub columns: Tensor<1>,
}

/// The numbers of an update.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct FactoredStep {
    /// What gradients are multiplied by first.
    pub gradient_scale: f64,
    /// What the new squares count in the mean of squares: 1 is all.
    pub share: f64,
    /// How far a parameter goes whose elements are of the size 1.
    pub rate: f64,
    /// What is kept of the parameter.
    pub keep: f64,
    /// The smallest root of a mean of squares; that of the elements' type if not given.
    pub eps1: Option<f64>,
    /// The smallest size of a parameter.
    pub eps2: f64,
    /// The largest size of the direction.
    pub clip_threshold: f64,
}

impl FactoredStep {
    /// Returns what the direction is multiplied by, of the sizes of a parameter and of its direction: the roots of the
    /// means of their squares.
    pub fn factor(&self, parameter: f64, direction: f64) -> f64 {
        parameter.max(self.eps2) * self.rate / (direction / self.clip_threshold).max(1.0)
    }
}

impl<O: Optimizer> Clone for FactoredForm<O> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<O: Optimizer> Copy for FactoredForm<O> {}
