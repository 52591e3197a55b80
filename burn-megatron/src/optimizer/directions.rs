//! Directions of whole matrices, made where the work is shared out over the data-parallel ranks, those of each
//! instance of a sharded optimizer by themselves.

use std::collections::HashMap;

use burn::optim::Optimizer;
use burn::tensor::Tensor;

use super::ElementWise;
use super::matrix::{MatrixParameter, slice};
use super::piece::{Direction, Piece, Update};
use crate::collectives::{self, CollectiveError, ReduceOp, TensorCall};
use crate::context::ParallelContext;
use crate::data_parallel::{GradientEntry, MatrixFactors, MatrixForm, laid_out, main_type};

/// Maker of directions of the pieces of a module.
pub(super) struct DirectionMaker<'a, O: Optimizer> {
    pub(super) pieces: &'a mut [Piece<O>],
    pub(super) optimizers: &'a [O],
    pub(super) entries: &'a [GradientEntry],
    pub(super) context: &'a ParallelContext,
}

impl<O: ElementWise> DirectionMaker<'_, O> {
    /// Returns the directions of this rank's pieces of the parameters whose optimizer needs whole matrices, by number;
    /// their momentum is updated.
    ///
    /// The parameters are taken in rounds of one for each data-parallel rank, those of the same cost together. In a
    /// round each rank gets its parameter's momentum, from all data-parallel ranks where each has a piece, and over the
    /// tensor group the parts that these ranks hold; it makes the direction, as the other tensor ranks of its group do
    /// of the same numbers, and sends its part of it to the data-parallel ranks. Matrices of a round are all that is
    /// held at a time in addition to the directions.
    ///
    /// # Communication
    /// In each round a reduce-scatter over the data-parallel group where gradients are sharded, an all-reduce over the
    /// tensor group where the parameter is cut, and an all-gather over the data-parallel group: each of as much as
    /// the round's largest parameter, for each rank.
    pub(super) fn directions(mut self, update: &Update) -> Result<HashMap<usize, Direction>, CollectiveError> {
        let form_of = |entry: &&GradientEntry| {
            let optimizer = &self.optimizers[self.pieces[entry.number].group];
            optimizer.matrix_form().is_some() && update.gradients.is_present(entry)
        };
        let mut parameters = MatrixParameter::of_entries(self.entries.iter().filter(form_of));
        // Stable: equal costs stay in the module's order, which is the same on every rank.
        parameters.sort_by_key(|parameter| std::cmp::Reverse(parameter.cost()));
        let mut directions = HashMap::new();
        for round in parameters.chunks(self.context.shard_group().size()) {
            let found = self.round(round, update)?;
            directions.extend(found);
        }
        Ok(directions)
    }

    /// The directions of a round's parameters, of which each data-parallel rank makes one.
    fn round(
        &mut self,
        round: &[MatrixParameter],
        update: &Update,
    ) -> Result<Vec<(usize, Direction)>, CollectiveError> {
        let (data, tensor) = (self.context.shard_group(), self.context.tensor_group());
        let main_type = main_type(update.dtype);
        let longest = round.iter().map(MatrixParameter::local_len).max().unwrap_or_default();
        // This rank's pieces, by their place among the parameters of the round.
        let mut pieces: Vec<(usize, Tensor<1>)> = Vec::new();
        for (index, parameter) in round.iter().enumerate() {
            for part in parameter.parts() {
                let start = index * longest + part.range.start + self.pieces[part.number].range.start;
                let momentum = self.momentum(part.number, update);
                pieces.extend(momentum.map(|values| (start, values)));
            }
        }
        let own = if update.gradients.is_sharded() && data.size() > 1 {
            let all = laid_out(pieces, data.size() * longest, main_type, &update.device);
            let call = TensorCall::ReduceScatter(ReduceOp::Sum);
            Some(collectives::run(all, call, data)?)
        } else {
            let place = data.rank() * longest..(data.rank() + 1) * longest;
            let own = pieces.into_iter().filter(|(start, _)| place.contains(start));
            let own: Vec<Tensor<1>> = own.map(|(_, values)| values).collect();
            (!own.is_empty()).then(|| Tensor::cat(own, 0))
        };
        let made = match round.get(data.rank()) {
            None => Vec::new(),
            Some(parameter) => {
                let own = slice(&own.expect("each parameter has a part"), 0..parameter.local_len());
                let (form, optimizer) = self.form(parameter.parts()[0].number);
                let matrices = parameter.gather(own, tensor)?;
                vec![(0, parameter.take((form.direction)(optimizer, matrices)))]
            }
        };
        let made = laid_out(made, longest, main_type, &update.device);
        let all = if data.size() > 1 {
            collectives::run(made, TensorCall::AllGather, data)?
        } else {
            made
        };
        let mut directions = Vec::new();
        for (index, parameter) in round.iter().enumerate() {
            for part in parameter.parts() {
                let range = &self.pieces[part.number].range;
                if range.is_empty() {
                    continue;
                }
                let start = index * longest + part.range.start;
                let (form, optimizer) = self.form(part.number);
                let MatrixFactors { keep, rate } = (form.factors)(optimizer, update.learning_rate);
                // The product has memory of its own, where a slice would keep that of the round.
                let step = slice(&all, start + range.start..start + range.end).mul_scalar(rate);
                directions.push((part.number, Direction::Made { step, keep }));
            }
        }
        Ok(directions)
    }

    /// Updates the momentum of this rank's piece of a parameter, and returns what its direction is made of; none where
    /// this rank has no piece.
    fn momentum(&mut self, number: usize, update: &Update) -> Option<Tensor<1>> {
        let state = self.pieces[number].state.take();
        let state = state.map(|state| O::to_device(state, &update.device));
        if self.pieces[number].range.is_empty() {
            return None;
        }
        let gradient = update.gradients.owned_values(&self.entries[number], &update.device);
        let (form, optimizer) = self.form(number);
        let (values, state) = (form.momentum)(optimizer, gradient, state);
        self.pieces[number].state = Some(state);
        Some(values)
    }

    fn form(&self, number: usize) -> (MatrixForm<O>, &O) {
        let optimizer = &self.optimizers[self.pieces[number].group];
        (
            optimizer.matrix_form().expect("those that have one were chosen"),
            optimizer,
        )
    }
}
