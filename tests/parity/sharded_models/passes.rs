//! Passes of tensors without a mesh, and of a batch that is cut over one.

use anyhow::Context as _;
use burn::backend::Autodiff;
use burn::module::AutodiffModule;
use burn::optim::GradientsParams;
use burn::tensor::backend::{AutodiffBackend, Backend};
use burn::tensor::{Int, Tensor};
use burn_flex::Flex;
use burn_megatron::sharded::{Mesh, Sharded, ShardedBackend, backward, backward_unplaced, distribute, place_gradients};

use super::layouts::DATA;
use super::subjects::PlaceBatch;
use super::training::Passes;

/// The serial program's backend, and the one whose tensors are placed.
pub type Plain = Autodiff<Flex>;
pub type Placed = Autodiff<Sharded<Flex>>;

/// burn's own passes, of tensors that have no mesh.
pub struct Serial;

impl<B: Backend> PlaceBatch<B> for Serial {
    fn floats<const D: usize>(&self, tensor: Tensor<B, D>) -> Tensor<B, D> {
        tensor
    }

    fn ints<const D: usize>(&self, tensor: Tensor<B, D, Int>) -> Tensor<B, D, Int> {
        tensor
    }
}

impl<B: AutodiffBackend, M: AutodiffModule<B>> Passes<B, M> for Serial {
    fn backward(&self, loss: Tensor<B, 1>, model: &M) -> anyhow::Result<(f64, GradientsParams)> {
        let value = loss.clone().into_data().iter::<f64>().next().context("a loss")?;
        Ok((value, GradientsParams::from_grads(loss.backward(), model)))
    }

    fn backward_part(&self, loss: Tensor<B, 1>, model: &M) -> anyhow::Result<(f64, GradientsParams)> {
        self.backward(loss, model)
    }

    fn finish(&self, gradients: GradientsParams, _model: &M) -> anyhow::Result<GradientsParams> {
        Ok(gradients)
    }
}

/// A batch cut over the data-parallel ranks.
pub struct OnMesh(pub Mesh);

impl<B: ShardedBackend> PlaceBatch<B> for OnMesh {
    fn floats<const D: usize>(&self, tensor: Tensor<B, D>) -> Tensor<B, D> {
        distribute(tensor, &self.0, DATA, 0)
    }

    fn ints<const D: usize>(&self, tensor: Tensor<B, D, Int>) -> Tensor<B, D, Int> {
        distribute(tensor, &self.0, DATA, 0)
    }
}

impl<M: AutodiffModule<Placed>> Passes<Placed, M> for OnMesh {
    fn backward(&self, loss: Tensor<Placed, 1>, model: &M) -> anyhow::Result<(f64, GradientsParams)> {
        let (loss, gradients) = backward(loss, model)?;
        // Every rank has it.
        let value = loss.into_data().iter::<f64>().next().context("a loss")?;
        Ok((value, gradients))
    }

    fn backward_part(&self, loss: Tensor<Placed, 1>, model: &M) -> anyhow::Result<(f64, GradientsParams)> {
        let value = loss.clone().into_data().iter::<f64>().next().context("a loss")?;
        Ok((value, backward_unplaced(loss, model)?))
    }

    fn finish(&self, gradients: GradientsParams, model: &M) -> anyhow::Result<GradientsParams> {
        Ok(place_gradients(gradients, model)?)
    }
}
