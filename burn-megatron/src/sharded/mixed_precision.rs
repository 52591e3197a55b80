//! [`cast_parameters`]: a model that computes in 16 bits, whose parameters are updated in f32.

use burn::module::{Module, ModuleMapper, Param};
use burn::optim::GradientsParams;
use burn::tensor::{FloatDType, Tensor};

use super::clipping::Scale;

/// Returns the model with its trained parameters cast to another element type, valid for one forward pass.
///
/// The parameters of `model` stay as they are, f32 for an optimizer; their gradients are those of the casts, in their
/// own type. What is moved between ranks for the operations is in the new type: of fully sharded parameters, each rank
/// casts its part before it is gathered. Sums of gradients over ranks are in the parameters' type.
///
/// What is not trained keeps its type: a batch norm's running statistics do not go with activations of 16 bits.
///
/// # Example
/// ```
/// use burn::nn::LinearConfig;
/// use burn::tensor::{DType, FloatDType, Tensor};
/// use burn_flex::{Flex, FlexDevice};
/// use burn_megatron::sharded::{Mesh, Plan, backward, cast_parameters, device, parallelize};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let mesh = Mesh::new([])?; // of one rank
/// let device = device::<Flex>(FlexDevice).autodiff();
/// let layer = parallelize(LinearConfig::new(3, 2).init(&device), &Plan::new(), &mesh)?;
///
/// let input = Tensor::<2>::ones([4, 3], &device).cast(FloatDType::BF16);
/// let output = cast_parameters(&layer, FloatDType::BF16).forward(input);
/// let (_loss, gradients) = backward(output.cast(FloatDType::F32).mean(), &layer)?;
/// let gradient = gradients.get::<2>(layer.weight.id).expect("it is trained");
/// assert_eq!(gradient.dtype(), DType::F32);
/// # Ok(())
/// # }
/// ```
///
/// # Reference
/// Micikevicius et al. 2018, arXiv:1710.03740, section 3.1.
pub fn cast_parameters<M: Module>(model: &M, dtype: FloatDType) -> M {
    struct Cast(FloatDType);
    impl ModuleMapper for Cast {
        fn map_float<const D: usize>(&mut self, param: Param<Tensor<D>>) -> Param<Tensor<D>> {
            if param.val().is_require_grad() {
                param.map(|tensor| tensor.cast(self.0))
            } else {
                param
            }
        }
    }
    model.clone().map(&mut Cast(dtype))
}

/// Multiplies all gradients of a model's parameters: by the reciprocal of what the loss was scaled by, before they are
/// [clipped](super::clip_gradients), whose norm tells whether all are finite.
///
/// # Communication
/// None.
///
/// # Reference
/// Micikevicius et al. 2018, arXiv:1710.03740, section 3.2.
pub fn scale_gradients<M: Module>(gradients: &mut GradientsParams, model: &M, coefficient: f64) {
    model.visit(&mut Scale { gradients, coefficient });
}
