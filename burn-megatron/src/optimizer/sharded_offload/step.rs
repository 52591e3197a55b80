//! The update of a module whose optimizer is offloaded: bucket by bucket, by the CPU.

use std::collections::HashMap;

use burn::module::Module;
use burn::optim::Optimizer;
use burn::tensor::{Tensor, TensorData};

use crate::data_parallel::{DistributedDataParallel, ElementWise, GradientEntry};
use crate::offload::{OffloadError, part_of};
use crate::optimizer::offload::{Offload, OffloadedState, PieceUpdate};
use crate::optimizer::piece::Update;
use crate::optimizer::sharded::{Fresh, in_forward_order};
use crate::optimizer::{OptimizerError, ShardedOptimizer};

impl<O: Optimizer> ShardedOptimizer<O> {
    /// Each bucket's pieces are updated where their state is, and given to the module.
    ///
    /// # Errors
    /// When a bucket's state cannot be read or written, or parameters not be gathered: the module is lost.
    pub(in crate::optimizer) fn step_offloaded<M>(
        &mut self,
        module: &mut DistributedDataParallel<M>,
        mut update: Update,
    ) -> Result<(), OptimizerError>
    where
        M: Module,
        O: ElementWise,
    {
        let entries = module.trained().to_vec();
        let buckets: Vec<usize> = in_forward_order(&update).collect();
        let is_read = |&bucket: &usize| {
            let mut of_bucket = entries.iter().filter(|entry| entry.bucket() == bucket);
            of_bucket.any(|entry| self.is_updated_on_host(entry, &update))
        };
        let read: Vec<usize> = buckets.iter().copied().filter(is_read).collect();
        self.offload_mut().begin(&read)?;
        for bucket in buckets {
            let of_bucket: Vec<&GradientEntry> = entries.iter().filter(|entry| entry.bucket() == bucket).collect();
            let fresh = self.update_offloaded(&of_bucket, &mut update)?;
            self.give(module, bucket, fresh, &mut update)?;
        }
        self.settle()
    }

    fn offload_mut(&mut self) -> &mut dyn OffloadedState<O> {
        &mut *self.offload.as_mut().expect(IS_OFFLOADED).state
    }

    /// Returns whether a parameter has a gradient, and its piece is offloaded.
    fn is_updated_on_host(&self, entry: &GradientEntry, update: &Update) -> bool {
        let is_held = |offload: &Offload<O>| offload.state.holds(entry.number);
        update.gradients.is_present(entry) && self.offload.as_ref().is_some_and(is_held)
    }

    /// Updates the pieces of a bucket, and returns the new values of those that have a gradient.
    fn update_offloaded<'e>(
        &mut self,
        of_bucket: &[&'e GradientEntry],
        update: &mut Update,
    ) -> Result<Fresh<'e>, OptimizerError>
    where
        O: ElementWise,
    {
        let on_host: Vec<&GradientEntry> = (of_bucket.iter().copied())
            .filter(|entry| self.is_updated_on_host(entry, update))
            .collect();
        let Self {
            pieces,
            optimizers,
            offload,
            ..
        } = self;
        let Offload {
            state, reads_buckets, ..
        } = offload.as_mut().expect(IS_OFFLOADED);
        let has_main = state.has_main();
        let input = if *reads_buckets && !on_host.is_empty() {
            Some(BucketInput::read(&on_host, has_main, update)?)
        } else {
            None
        };
        let (mut fresh, mut updated) = (Vec::new(), Vec::new());
        for &entry in of_bucket {
            let number = entry.number;
            let piece = &mut pieces[number];
            let optimizer = &optimizers[piece.group];
            let steps = piece.steps;
            if update.gradients.is_present(entry) {
                piece.steps += 1;
                if state.holds(number) {
                    let (gradient, value) = match &input {
                        Some(input) => input.of_piece(number, piece.place, piece.range.len()),
                        None => piece_input(entry, has_main, update)?,
                    };
                    let input = PieceUpdate {
                        learning_rate: update.learning_rate,
                        steps,
                        value,
                        gradient,
                        dtype: update.dtype,
                    };
                    updated.push((entry, state.update(number, optimizer, input)?));
                } else if !piece.range.is_empty() {
                    fresh.push((entry, piece.update(optimizer, entry, update)?));
                }
            }
            // Nothing needs the old value any more.
            update.values.forget(number);
        }
        fresh.extend(on_device(updated, *reads_buckets, update));
        Ok(fresh)
    }
}

/// Invariant of these functions: they are called only where something is offloaded.
const IS_OFFLOADED: &str = "something is offloaded";

/// Gradients and values of a bucket's pieces, which have come to the host at once.
struct BucketInput {
    /// Gradients of this rank's part of the bucket.
    gradients: TensorData,
    /// The module's, one piece after the other, where they are needed.
    values: Option<TensorData>,
    /// Start of the values of each piece, by number.
    starts: HashMap<usize, usize>,
}

impl BucketInput {
    /// Reads them from the device, which is waited for once or, where values are needed, twice.
    ///
    /// # Errors
    /// When values cannot be read from their file.
    fn read(pieces: &[&GradientEntry], has_main: bool, update: &mut Update) -> Result<Self, OffloadError> {
        let gradients = update
            .gradients
            .own_part(pieces[0].bucket(), &update.device)
            .into_data();
        let (mut values, mut starts, mut length) = (Vec::new(), HashMap::new(), 0);
        for entry in pieces.iter().filter(|_| !has_main) {
            let value = update.values.take(entry.number)?.expect(IS_TAKEN_ONCE);
            starts.insert(entry.number, length);
            length += value.dims()[0];
            values.push(value);
        }
        Ok(Self {
            gradients,
            values: (!values.is_empty()).then(|| Tensor::cat(values, 0).into_data()),
            starts,
        })
    }

    /// The gradient of a piece from `place` on in this rank's part of the bucket, and its values.
    fn of_piece(&self, number: usize, place: usize, length: usize) -> (TensorData, Option<TensorData>) {
        let values = self.values.as_ref().map(|values| {
            let start = self.starts[&number];
            part_of(values, start..start + length)
        });
        (part_of(&self.gradients, place..place + length), values)
    }
}

const IS_TAKEN_ONCE: &str = "each parameter is updated once";

/// Returns the gradient of one piece, and its values where they are needed.
///
/// # Errors
/// When they cannot be read from their file.
fn piece_input(
    entry: &GradientEntry,
    has_main: bool,
    update: &mut Update,
) -> Result<(TensorData, Option<TensorData>), OffloadError> {
    let gradient = update.gradients.owned_values(entry, &update.device).into_data();
    if has_main {
        return Ok((gradient, None));
    }
    let value = update.values.take(entry.number)?.expect(IS_TAKEN_ONCE);
    Ok((gradient, Some(value.into_data())))
}

/// Returns the pieces' values as tensors of the module's backend: of one copy to the device, or of one for each piece.
fn on_device<'e>(pieces: Vec<(&'e GradientEntry, TensorData)>, at_once: bool, update: &Update) -> Fresh<'e> {
    let tensor = |data| Tensor::from_data(data, (&update.device, update.dtype));
    if !at_once || pieces.is_empty() {
        return pieces.into_iter().map(|(entry, data)| (entry, tensor(data))).collect();
    }
    let bytes = pieces.iter().flat_map(|(_, data)| data.as_bytes()).copied().collect();
    let length = pieces.iter().map(|(_, data)| data.num_elements()).sum::<usize>();
    let all: Tensor<1> = tensor(TensorData::from_bytes_vec(bytes, [length], update.dtype));
    let mut start = 0;
    let own = |(entry, data): (&'e GradientEntry, TensorData)| {
        let end = start + data.num_elements();
        let values = all.clone().slice(start..end);
        start = end;
        (entry, values)
    };
    pieces.into_iter().map(own).collect()
}
