//! [`load_parameters`]: the parameters of a checkpoint for a module that is not trained, in any layout.

use std::collections::HashSet;

use burn::module::{Module, ModuleMapper, Param};
use burn::tensor::{Tensor, TensorData};

use super::snapshot::{MODEL, RestoreError, check_number};
use crate::checkpoint::{Checkpoint, CheckpointError};
use crate::collectives::ReduceOp;
use crate::context::ParallelContext;
use crate::parameters::{Declaration, Placement};

/// Returns a module with the parameters of a checkpoint, which any layout saved, in the module's own element type.
///
/// Every parameter must have declared its layout, as those of this crate's layers do. No optimizer is needed, and none
/// is read.
///
/// # Communication
/// One all-reduce of one number over the model group.
///
/// # Errors
/// When an array is missing or of another shape, the checkpoint has more parameters than the model, it has been
/// altered, or cannot be read.
///
/// # Panics
/// When a parameter has not declared its layout.
pub fn load_parameters<M: Module>(
    module: M,
    checkpoint: &Checkpoint,
    context: &ParallelContext,
) -> Result<M, RestoreError> {
    let mut loader = Loader {
        checkpoint,
        context,
        names: HashSet::new(),
        num_counted: 0,
        error: None,
    };
    let module = module.map(&mut loader);
    // Every rank counts, also one that has failed: the others wait for it otherwise.
    let (names, error) = (loader.names, loader.error);
    let mut expected = [loader.num_counted];
    context.model_group().all_reduce(&mut expected, ReduceOp::Sum)?;
    if let Some(error) = error {
        return Err(error.into());
    }
    check_number(checkpoint, expected[0] as usize, |name| names.contains(name))?;
    Ok(module)
}

/// Reads each parameter in its turn.
struct Loader<'a> {
    checkpoint: &'a Checkpoint,
    context: &'a ParallelContext,
    names: HashSet<String>,
    /// Parameters that this rank counts: each is counted by one rank.
    num_counted: i64,
    error: Option<CheckpointError>,
}

impl Loader<'_> {
    /// Returns whether this rank counts a parameter that others hold, too.
    fn counts(&self, declaration: &Declaration) -> bool {
        let is_copy = declaration.is_tied && self.context.coordinates().pipeline > 0;
        self.context.tensor_group().rank() == 0 && !is_copy
    }

    fn read(&self, name: &str, placement: &Placement, shape: &[usize]) -> Result<TensorData, CheckpointError> {
        let stored = self.checkpoint.read(name, placement, 0..placement.local_len())?;
        Ok(TensorData::from_bytes(stored.bytes, shape.to_vec(), stored.dtype))
    }
}

impl ModuleMapper for Loader<'_> {
    fn map_float<const D: usize>(&mut self, param: Param<Tensor<D>>) -> Param<Tensor<D>> {
        let (id, tensor, mapper) = param.consume();
        let (shape, dtype, device) = (tensor.dims(), tensor.dtype(), tensor.device());
        let declaration = self.context.registry().declaration(id);
        let declaration = declaration.expect("every parameter has declared its layout");
        let name = format!("{MODEL}{}", declaration.name);
        let read = self.read(&name, &declaration.placement, &shape);
        // A rank may hold several parts of one.
        let is_new = self.names.insert(name);
        self.num_counted += i64::from(is_new && self.counts(&declaration));
        match read {
            Ok(data) => {
                let data = data.convert_dtype(dtype);
                Param::from_mapped_value(id, Tensor::from_data(data, (&device, dtype)), mapper)
            }
            Err(error) => {
                self.error.get_or_insert(error);
                Param::from_mapped_value(id, tensor, mapper)
            }
        }
    }
}
