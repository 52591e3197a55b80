//! `Piece`: what a `ShardedOptimizer` holds of one parameter, and its update.

use std::ops::Range;

use burn::optim::{LearningRate, SimpleOptimizer};
use burn::tensor::backend::Backend;
use burn::tensor::{DType, FloatDType, Tensor};

use crate::collectives::CollectiveBackend;
use crate::data_parallel::{GradientEntry, ReducedGradients};

/// What the optimizer holds of one trained parameter.
pub(crate) struct Piece<B: Backend, O: SimpleOptimizer<B>> {
    pub(super) name: String,
    /// Which of the optimizers updates it.
    pub(super) group: usize,
    /// The elements of this rank's part of the parameter that are updated here.
    pub(crate) range: Range<usize>,
    /// The number of their bucket, and where they begin in this rank's part of it.
    pub(super) bucket: usize,
    pub(super) place: usize,
    /// Their main values, `[range]`, where the module's are of 16 bits and the range is not empty; unless the state of
    /// their bucket has them.
    pub(crate) main: Option<Tensor<B, 1>>,
    /// None before the first update, where the range is empty, and where their bucket's state has it.
    pub(crate) state: Option<O::State<1>>,
    /// Updates of the parameter so far, here or on other data-parallel ranks.
    pub(crate) steps: u64,
}

/// An update under way.
pub(super) struct Update<B: CollectiveBackend> {
    pub(super) learning_rate: LearningRate,
    /// The module's element type.
    pub(super) dtype: DType,
    pub(super) device: B::Device,
    /// The module's old values, by number, `[len]`.
    pub(super) values: Vec<Option<Tensor<B, 1>>>,
    pub(super) gradients: ReducedGradients<B>,
}

impl<B: Backend, O: SimpleOptimizer<B>> Piece<B, O> {
    /// Returns the piece of a parameter of this value, `[len]`: the elements of `range`, from `place` on in this rank's
    /// part of their bucket.
    pub(super) fn new(
        entry: &GradientEntry,
        group: usize,
        value: Tensor<B, 1>,
        range: Range<usize>,
        place: usize,
    ) -> Self {
        Self {
            name: entry.name.clone(),
            group,
            main: main_of(value, &range),
            range,
            bucket: entry.bucket(),
            place,
            state: None,
            steps: 0,
        }
    }

    /// Updates the piece and returns its new values, `[range]`, in the module's type.
    pub(super) fn update(&mut self, optimizer: &O, entry: &GradientEntry, update: &mut Update<B>) -> Tensor<B, 1>
    where
        B: CollectiveBackend,
    {
        let gradient = update.gradients.owned_values(entry, &update.device);
        let main_dtype = gradient.dtype();
        // Nothing needs the old value after this.
        let value = update.values[entry.number]
            .take()
            .expect("each parameter is updated once");
        let main = self.main.take();
        let main = main.unwrap_or_else(|| piece_of(value, &self.range).cast(FloatDType::from(main_dtype)));
        // Where the module is by now.
        let main = main.to_device(&update.device);
        let state = self.state.take().map(|state| O::to_device(state, &update.device));
        let (main, state) = optimizer.step(update.learning_rate, main, gradient, state);
        self.state = state;
        if main_dtype == update.dtype {
            return main;
        }
        let value = main.clone().cast(FloatDType::from(update.dtype));
        self.main = Some(main);
        value
    }
}

impl<B: Backend, O: SimpleOptimizer<B>> Clone for Piece<B, O> {
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

impl<B: Backend, O: SimpleOptimizer<B>> std::fmt::Debug for Piece<B, O> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Piece")
            .field("name", &self.name)
            .field("group", &self.group)
            .field("range", &self.range)
            .field("steps", &self.steps)
            .finish_non_exhaustive()
    }
}

/// The main values of a range that is not empty, in f32, where the module's have 16 bits. A GPU has no memory of no
/// bytes.
pub(super) fn main_of<B: Backend>(value: Tensor<B, 1>, range: &Range<usize>) -> Option<Tensor<B, 1>> {
    let has_main = matches!(value.dtype(), DType::BF16 | DType::F16) && !range.is_empty();
    has_main.then(|| piece_of(value, range).cast(FloatDType::F32))
}

/// The elements of a range.
fn piece_of<B: Backend>(value: Tensor<B, 1>, range: &Range<usize>) -> Tensor<B, 1> {
    if range.len() == value.dims()[0] {
        value
    } else {
        value.slice([range.clone()])
    }
}
