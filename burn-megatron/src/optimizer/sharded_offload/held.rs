//! State of a piece of a [`ShardedOptimizer`], offloaded or not: read for a checkpoint, and replaced from one.

use std::ops::Range;

use burn::tensor::{Tensor, TensorData};

use crate::optimizer::offload::{NamedData, OffloadedState};
use crate::optimizer::{OptimizerError, ShardedOptimizer, StoredOptimizer};

/// State of a piece, or of some of its elements.
pub(crate) struct PieceData {
    /// Updates of the parameter so far, here or on other data-parallel ranks.
    pub(crate) steps: u64,
    /// Main values, where the module's are of 16 bits.
    pub(crate) main: Option<TensorData>,
    /// The tensors of the optimizer's state with an element for each of these.
    pub(crate) tensors: Vec<NamedData>,
    /// Tensors of the whole parameter.
    pub(crate) whole_tensors: Vec<NamedData>,
}

impl<O: StoredOptimizer> ShardedOptimizer<O> {
    /// The elements of a trained parameter, of this rank's part of it, that are updated here.
    pub(crate) fn owned_range(&self, number: usize) -> Range<usize> {
        self.pieces[number].range.clone()
    }

    /// Returns what is held of some of these elements.
    ///
    /// # Errors
    /// When it cannot be read from its file.
    pub(crate) fn piece_data(&self, number: usize, elements: Range<usize>) -> Result<PieceData, OptimizerError> {
        let (steps, first) = (self.pieces[number].steps, self.pieces[number].range.start);
        let mut held = PieceData {
            steps,
            main: None,
            tensors: Vec::new(),
            whole_tensors: Vec::new(),
        };
        if elements.is_empty() {
            return Ok(held);
        }
        let within = elements.start - first..elements.end - first;
        if let Some(state) = self.offloaded(number) {
            held.main = state.main(number, within.clone())?;
            held.tensors = state.tensors(number, within)?;
            return Ok(held);
        }
        let piece = self.piece(number);
        let data = |tensor: Tensor<1>| tensor.slice(within.clone()).into_data();
        held.main = piece.main.map(data);
        let tensors = piece.state.iter().flat_map(|state| O::tensors(state));
        held.tensors = tensors.map(|(name, tensor)| (name, data(tensor))).collect();
        let whole = piece.state.iter().flat_map(|state| O::whole_tensors(state));
        held.whole_tensors = whole.map(|(name, tensor)| (name, tensor.into_data())).collect();
        Ok(held)
    }

    /// Returns the state that has a piece, if it is offloaded.
    fn offloaded(&self, number: usize) -> Option<&dyn OffloadedState<O>> {
        let state = self.offload.as_ref().map(|offload| &*offload.state);
        state.filter(|state| state.holds(number))
    }

    /// Returns whether main values are held of a trained parameter.
    pub(crate) fn has_main(&self, number: usize) -> bool {
        match self.offloaded(number) {
            Some(state) => state.has_main(),
            None => self.piece(number).main.is_some(),
        }
    }

    /// Replaces the main values of a trained parameter's piece, `[range]`, if such are held.
    ///
    /// # Errors
    /// When another piece cannot be written to its file, or this one's not be read.
    pub(crate) fn replace_main(&mut self, number: usize, main: Tensor<1>) -> Result<(), OptimizerError> {
        if !self.has_main(number) {
            return Ok(());
        }
        self.spread();
        match &mut self.offload {
            Some(offload) if offload.state.holds(number) => offload.state.set_main(number, main.into_data())?,
            _ => self.pieces[number].main = Some(main),
        }
        Ok(())
    }

    /// Replaces the optimizer's state of a trained parameter's piece, and its number of updates. The state is `None`
    /// before the first, and where the piece is empty.
    ///
    /// # Errors
    /// As [`replace_main`](Self::replace_main).
    pub(crate) fn replace_state(
        &mut self,
        number: usize,
        steps: u64,
        state: Option<O::State<1>>,
    ) -> Result<(), OptimizerError> {
        self.spread();
        self.pieces[number].steps = steps;
        match &mut self.offload {
            Some(offload) if offload.state.holds(number) => {
                let data = |(name, tensor): (&'static str, Tensor<1>)| (name, tensor.into_data());
                let tensors = state.map(|state| O::tensors(&state).into_iter().map(data).collect());
                offload.state.set_tensors(number, tensors)?;
            }
            _ => self.pieces[number].state = state,
        }
        Ok(())
    }
}
