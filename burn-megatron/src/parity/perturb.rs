//! Gives parameters that start as constants random values: a bias of zero hides a bias added twice.

use burn::module::{Module, ModuleMapper, Param};
use burn::tensor::Tensor;

use crate::context::ParallelContext;
use crate::parameters::{Declaration, read_host, tensor_from_host};
use crate::random::RandomStream;

/// Returns the module with N(0, `deviation`²) added to every declared parameter of one dimension, the same in every
/// layout.
pub fn perturb_constants<M: Module>(module: M, deviation: f64, seed: u64, context: &ParallelContext) -> M {
    module.map(&mut Perturber {
        deviation,
        seed,
        context,
    })
}

struct Perturber<'a> {
    deviation: f64,
    seed: u64,
    context: &'a ParallelContext,
}

impl ModuleMapper for Perturber<'_> {
    fn map_float<const D: usize>(&mut self, param: Param<Tensor<D>>) -> Param<Tensor<D>> {
        let declaration = self.context.registry().declaration(param.id);
        let (id, tensor, mapper) = param.consume();
        let (1, Some(Declaration { name, placement, .. })) = (D, declaration) else {
            return Param::from_mapped_value(id, tensor, mapper);
        };
        let (device, dtype, shape) = (tensor.device(), tensor.dtype(), tensor.dims());
        let trained = tensor.is_require_grad();
        let mut values = read_host(tensor);
        let stream = RandomStream::new(self.seed, &format!("{name} perturbed"));
        for run in placement.runs() {
            let mut noise = vec![0.0; run.length];
            stream.fill_normal(run.logical as u64, self.deviation, &mut noise);
            for (value, noise) in values[run.local..].iter_mut().zip(noise) {
                *value += noise;
            }
        }
        let tensor = tensor_from_host(values, shape, dtype, &device).set_require_grad(trained);
        Param::from_mapped_value(id, tensor, mapper)
    }
}
