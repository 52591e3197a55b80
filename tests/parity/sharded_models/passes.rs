//! Passes of tensors without a mesh, and of a batch that is cut over one.

use anyhow::Context as _;
use burn::module::Module;
use burn::optim::GradientsParams;
use burn::tensor::{Device, FloatDType, IntDType, Tensor};
use burn_flex::{Flex, FlexDevice};
use burn_megatron::sharded::{self, Mesh, SlotKind, backward, backward_unplaced, distribute, place_gradients};

use super::layouts::DATA;

/// Returns the serial program's device, with floats of a type.
pub fn plain_device(float: FloatDType) -> anyhow::Result<Device> {
    with_types(Device::flex(), float)
}

/// Returns a device whose tensors are placed, with floats of a type.
pub fn placed_device(float: FloatDType) -> anyhow::Result<Device> {
    with_types(sharded::device::<Flex>(FlexDevice), float)
}

fn with_types(mut device: Device, float: FloatDType) -> anyhow::Result<Device> {
    device.configure((float, IntDType::I64))?;
    Ok(device.autodiff())
}

/// How a run's batches are placed, and its gradients made.
pub enum Passes {
    /// burn's own passes, of tensors that have no mesh.
    Serial,
    /// Batches are cut over the data-parallel ranks.
    OnMesh(Mesh),
    /// The same with burn's own passes, whose gradients are placed by the rules alone.
    Unplaced(Mesh),
}

impl Passes {
    /// A batch before a model sees it.
    pub fn place<const D: usize, K: SlotKind>(&self, batch: Tensor<D, K>) -> Tensor<D, K> {
        match self {
            Self::Serial => batch,
            Self::OnMesh(mesh) | Self::Unplaced(mesh) => distribute(batch, mesh, DATA, 0),
        }
    }

    /// The loss and the gradients of one micro-batch.
    pub fn backward<M: Module>(&self, loss: Tensor<1>, model: &M) -> anyhow::Result<(f64, GradientsParams)> {
        match self {
            Self::Serial | Self::Unplaced(_) => self.backward_part(loss, model),
            Self::OnMesh(_) => {
                let (loss, gradients) = backward(loss, model)?;
                // Every rank has it.
                Ok((value(loss)?, gradients))
            }
        }
    }

    /// The loss and the gradients of one of several.
    pub fn backward_part<M: Module>(&self, loss: Tensor<1>, model: &M) -> anyhow::Result<(f64, GradientsParams)> {
        let value = value(loss.clone().inner())?;
        let gradients = match self {
            Self::Serial | Self::Unplaced(_) => GradientsParams::from_grads(loss.backward(), model),
            Self::OnMesh(_) => backward_unplaced(loss, model)?,
        };
        Ok((value, gradients))
    }

    pub fn finish<M: Module>(&self, gradients: GradientsParams, model: &M) -> anyhow::Result<GradientsParams> {
        match self {
            Self::Serial | Self::Unplaced(_) => Ok(gradients),
            Self::OnMesh(_) => Ok(place_gradients(gradients, model)?),
        }
    }
}

pub fn value(loss: Tensor<1>) -> anyhow::Result<f64> {
    loss.into_data().iter::<f64>().next().context("a loss")
}
