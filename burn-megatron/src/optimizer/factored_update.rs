//! Directions of an optimizer whose second moment is one of rows and columns: what the ranks that hold parts of a
//! parameter add up is small, and nothing is gathered.

use std::collections::HashMap;

use burn::optim::Optimizer;
use burn::tensor::{FloatDType, Tensor};
use cubecl_kernels::l2_norm::{self, SquaredPart};

use super::factored::{FactoredDirection, MeanSquare, factored_moment, mean, sums_of_squares};
use super::matrix::slice;
use super::piece::{Direction, Piece, Update};
use super::{ElementWise, OptimizerError, scaled};
use crate::collectives::{self, CollectiveError, ProcessGroup, ReduceOp, TensorCall};
use crate::context::ParallelContext;
use crate::data_parallel::{FactoredStep, GradientEntry, SecondMoment, main_type};
use crate::parameters::{Factoring, read_host};

/// Maker of directions of the pieces of a module.
pub(super) struct FactoredUpdate<'a, O: Optimizer> {
    pub(super) pieces: &'a mut [Piece<O>],
    pub(super) optimizers: &'a [O],
    pub(super) entries: &'a [GradientEntry],
    pub(super) context: &'a ParallelContext,
}

/// A parameter that has a gradient.
struct Parameter<'a> {
    /// Parts of it that this rank holds, each a trained parameter by itself under the same name.
    parts: Vec<Part<'a>>,
    step: FactoredStep,
}

struct Part<'a> {
    entry: &'a GradientEntry,
    /// `None` where the parameter has no matrices.
    factoring: Option<Factoring>,
}

impl Parameter<'_> {
    /// The numbers of its rows and columns; none where it has no matrices.
    fn factored_len(&self) -> usize {
        self.parts[0].factoring.as_ref().map_or(0, Factoring::len)
    }

    /// The root of a mean over all its elements.
    fn root_mean(&self, sum: f64) -> f64 {
        (sum / self.parts[0].entry.placement.logical_len() as f64).sqrt()
    }
}

/// The ranks that hold parts of the parameters, whose sums are added up.
struct Holders<'a> {
    /// The tensor group, where its ranks hold different parts.
    tensor: Option<&'a ProcessGroup>,
    /// The ranks that share out each part.
    data: Option<&'a ProcessGroup>,
}

impl Holders<'_> {
    /// Returns whether this rank counts a part: of the ranks that hold the same elements and add up, one does.
    fn counts(&self, entry: &GradientEntry) -> bool {
        self.tensor
            .is_none_or(|group| entry.distribution.is_first_holder(group.rank()))
    }

    fn groups(&self) -> impl Iterator<Item = &ProcessGroup> {
        self.tensor.into_iter().chain(self.data)
    }
}

impl<'a, O: ElementWise> FactoredUpdate<'a, O> {
    /// Returns the directions of this rank's pieces of the parameters whose optimizer has a second moment in factors,
    /// by number; that moment is updated.
    ///
    /// Each element is counted by one of the ranks that hold it, so that the sums are those of the whole parameters. In
    /// another layout they are added up in another order, and the results are the same but for rounding.
    ///
    /// # Communication
    /// Where tensor ranks hold different parts, over their group, and where gradients are sharded, over the
    /// data-parallel group: one all-reduce of a number for each row and column of all matrices, and one of two numbers
    /// for each parameter.
    pub(super) fn directions(mut self, update: &Update) -> Result<HashMap<usize, Direction>, OptimizerError> {
        let parameters = self.parameters(update);
        let holders = self.holders(&parameters, update);
        let sums = self.sums(&parameters, &holders, update)?;
        let mut made: Vec<Vec<FactoredDirection>> = Vec::with_capacity(parameters.len());
        for (parameter, sums) in parameters.iter().zip(sums) {
            let parts = parameter.parts.iter();
            let held = parts.filter(|part| !self.pieces[part.entry.number].range.is_empty());
            let held: Vec<&Part> = held.collect();
            let of_parts = held
                .into_iter()
                .map(|part| self.direction(part, parameter.step, &sums, update));
            made.push(of_parts.collect());
        }
        let factors = self.factors(&parameters, &made, &holders, update)?;
        let mut directions = HashMap::new();
        for (made, factor) in made.into_iter().zip(factors) {
            for direction in made {
                let (number, direction) = (direction.number, Box::new(direction));
                directions.insert(number, Direction::Factored { direction, factor });
            }
        }
        Ok(directions)
    }

    /// The parameters with a gradient, in the module's order, which is the same on every rank.
    fn parameters(&self, update: &Update) -> Vec<Parameter<'a>> {
        let mut numbers: HashMap<&str, usize> = HashMap::new();
        let mut parameters: Vec<Parameter<'a>> = Vec::new();
        for entry in self.entries.iter().filter(|entry| update.gradients.is_present(entry)) {
            let piece = &self.pieces[entry.number];
            let optimizer = &self.optimizers[piece.group];
            let Some(form) = optimizer.factored_form() else {
                continue;
            };
            let factoring = Factoring::of(&entry.shape, &entry.placement);
            let part = Part { entry, factoring };
            match numbers.get(entry.name.as_str()) {
                Some(&number) => parameters[number].parts.push(part),
                None => {
                    numbers.insert(&entry.name, parameters.len());
                    parameters.push(Parameter {
                        parts: vec![part],
                        step: (form.step)(optimizer, update.learning_rate, piece.steps + 1),
                    });
                }
            }
        }
        parameters
    }

    /// The ranks whose sums are added up: the same answer on all of them.
    fn holders(&self, parameters: &[Parameter<'_>], update: &Update) -> Holders<'a> {
        let (tensor, data) = (self.context.tensor_group(), self.context.shard_group());
        let mut parts = parameters.iter().flat_map(|parameter| &parameter.parts);
        let is_cut = tensor.size() > 1 && parts.any(|part| part.entry.distribution.is_cut());
        let is_sharded = update.gradients.is_sharded() && data.size() > 1;
        let has_any = !parameters.is_empty();
        Holders {
            tensor: (has_any && is_cut).then_some(tensor),
            data: (has_any && is_sharded).then_some(data),
        }
    }

    /// The sums of squared gradients by row and by column of each parameter, `[factored_len]`, over all ranks.
    fn sums(
        &self,
        parameters: &[Parameter<'_>],
        holders: &Holders<'_>,
        update: &Update,
    ) -> Result<Vec<Option<Tensor<1>>>, CollectiveError> {
        let own: Vec<Tensor<1>> = parameters
            .iter()
            .filter(|parameter| parameter.factored_len() > 0)
            .map(|parameter| self.own_sums(parameter, holders, update))
            .collect();
        if own.is_empty() {
            return Ok(vec![None; parameters.len()]);
        }
        let mut all = Tensor::cat(own, 0);
        for group in holders.groups() {
            let call = TensorCall::AllReduce(ReduceOp::Sum);
            all = collectives::run(all, call, group)?;
        }
        let mut start = 0;
        let of_parameter = |parameter: &Parameter<'_>| {
            let end = start + parameter.factored_len();
            let sums = (end > start).then(|| slice(&all, start..end));
            start = end;
            sums
        };
        Ok(parameters.iter().map(of_parameter).collect())
    }

    /// Returns what this rank adds to them.
    fn own_sums(&self, parameter: &Parameter<'_>, holders: &Holders<'_>, update: &Update) -> Tensor<1> {
        let options = (&update.device, main_type(update.dtype));
        let zeros = Tensor::zeros([parameter.factored_len()], options);
        let of_part = |sums: Tensor<1>, part: &Part<'_>| {
            let range = &self.pieces[part.entry.number].range;
            match &part.factoring {
                Some(factoring) if holders.counts(part.entry) && !range.is_empty() => {
                    sums + sums_of_squares(self.gradient(part, parameter.step, update), factoring, range)
                }
                _ => sums,
            }
        };
        parameter.parts.iter().fold(zeros, of_part)
    }

    /// The gradient of this rank's piece, scaled.
    fn gradient(&self, part: &Part<'_>, step: FactoredStep, update: &Update) -> Tensor<1> {
        let gradient = update.gradients.owned_values(part.entry, &update.device);
        scaled(gradient, step.gradient_scale)
    }

    /// Updates the moment of this rank's piece of a parameter, and returns what makes its direction.
    fn direction(
        &mut self,
        part: &Part<'_>,
        step: FactoredStep,
        sums: &Option<Tensor<1>>,
        update: &Update,
    ) -> FactoredDirection {
        let number = part.entry.number;
        let optimizer = &self.optimizers[self.pieces[number].group];
        let form = optimizer.factored_form().expect("those that have one were chosen");
        let state = self.pieces[number].state.take();
        let before = state.map(|state| (form.moment)(O::to_device(state, &update.device)));
        let mean_square = match (&part.factoring, sums) {
            (Some(factoring), Some(sums)) => {
                let before = before.map(SecondMoment::into_factored);
                let moment = factored_moment(sums, factoring, before, step.share);
                MeanSquare::Factored(Box::new(factoring.clone()), moment)
            }
            _ => {
                let squares = self.gradient(part, step, update).powi_scalar(2);
                MeanSquare::Elements(mean(before.map(SecondMoment::into_elements), squares, step.share))
            }
        };
        let piece = &mut self.pieces[number];
        piece.state = Some((form.state)(piece.steps + 1, mean_square.moment()));
        FactoredDirection {
            number,
            step,
            mean_square,
            range: piece.range.clone(),
        }
    }

    /// Returns the factors of the directions of each parameter, of the sizes of the whole parameter and its direction.
    fn factors(
        &self,
        parameters: &[Parameter<'_>],
        made: &[Vec<FactoredDirection>],
        holders: &Holders<'_>,
        update: &Update,
    ) -> Result<Vec<f64>, OptimizerError> {
        let mut places = Vec::new();
        let mut squares = Vec::new();
        for (place, directions) in made.iter().enumerate() {
            for direction in directions {
                let entry = &self.entries[direction.number];
                if holders.counts(entry) {
                    let gradient = update.gradients.owned_values(entry, &update.device);
                    let values = self.values(entry.number, update)?;
                    squares.push(squares_of([values, direction.of(gradient)]));
                    places.push(place);
                }
            }
        }
        let mut sums = vec![0.0; 2 * parameters.len()];
        if !squares.is_empty() {
            let own = read_host(Tensor::cat(squares, 0)).into_iter().enumerate();
            own.for_each(|(index, square)| sums[2 * places[index / 2] + index % 2] += square);
        }
        for group in holders.groups() {
            group.all_reduce(&mut sums, ReduceOp::Sum)?;
        }
        let factor = |(parameter, sums): (&Parameter<'_>, &[f64])| {
            let [value, direction] = [sums[0], sums[1]].map(|sum| parameter.root_mean(sum));
            parameter.step.factor(value, direction)
        };
        Ok(parameters.iter().zip(sums.chunks(2)).map(factor).collect())
    }

    /// The main values of this rank's piece.
    fn values(&self, number: usize, update: &Update) -> Result<Tensor<1>, OptimizerError> {
        let values = match &self.pieces[number].main {
            Some(main) => main.clone(),
            None => {
                let values = update.values.look_at(number)?;
                values.expect("this rank has elements of it")
            }
        };
        let main_dtype = FloatDType::from(main_type(update.dtype));
        Ok(values.to_device(&update.device).cast(main_dtype))
    }
}

/// The sums of the squares of two tensors, `[2]`: the same bits on all ranks that hold the same elements, which a
/// GPU's own sum has not.
fn squares_of(tensors: [Tensor<1>; 2]) -> Tensor<1> {
    let part = |buffer: usize| SquaredPart {
        buffer,
        range: 0..tensors[buffer].dims()[0],
        sum: buffer,
    };
    let parts = [0, 1].map(part);
    let sums = l2_norm::sums_of_squares(tensors.to_vec(), &parts, 2).unwrap_or_else(|error| panic!("{error}"));
    sums.expect("there are two")
}
