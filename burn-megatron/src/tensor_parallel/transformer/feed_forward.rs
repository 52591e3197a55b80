//! `ParallelPositionWiseFeedForward`: burn's `PositionWiseFeedForward`, its hidden features shared out.

use burn::module::Module;
use burn::nn::activation::Activation;
use burn::nn::transformer::PositionWiseFeedForward;
use burn::tensor::{Device, Tensor};

use crate::context::ParameterScope;
use crate::precision::{narrow, widen};
use crate::random::{Dropout, ModuleStep};
use crate::tensor_parallel::conversion::{ConversionError, check_drawn, converted_dropout, module_name, named};
use crate::tensor_parallel::region::{Region, TokenPass, rows, samples};
use crate::tensor_parallel::{ColumnParallelLinear, RowParallelLinear};

/// What the layer is called in messages.
const KIND: &str = "position-wise feed-forward layer";

/// `dropout(activation(X W_1 + b_1)) W_2 + b_2`, the hidden features shared out over the tensor-parallel group.
///
/// # Reference
/// Vaswani et al. 2017, arXiv:1706.03762, section 3.3; Shoeybi et al. 2019, arXiv:1909.08053, section 3.
#[derive(Module, Debug)]
pub struct ParallelPositionWiseFeedForward {
    /// `d_model` to `d_ff`: this rank's hidden features.
    pub linear_inner: ColumnParallelLinear,
    /// `d_ff` to `d_model`.
    pub linear_outer: RowParallelLinear,
    dropout: Dropout,
    activation: Activation,
    #[module(skip)]
    region: Region,
    #[module(skip)]
    step: ModuleStep,
}

impl ParallelPositionWiseFeedForward {
    /// Returns this rank's hidden features of burn's feed-forward layer, which every rank holds in full; its parameters
    /// are named `linear_inner` and `linear_outer` in the context's scope.
    ///
    /// # Errors
    /// When the activation has parameters or does not work element by element, when the tensor-parallel size does not
    /// divide `d_ff`, the module has no values yet, or its dropout is outside `[0, 1)`.
    pub fn from_pwff(pwff: PositionWiseFeedForward, scope: &ParameterScope) -> Result<Self, ConversionError> {
        let [_, d_ff] = pwff.linear_inner.weight.lazy_shape().dims();
        let divided = scope.context().config().check_tensor_divides("d_ff", d_ff);
        divided.map_err(named(scope, KIND))?;
        check_activation(&pwff.activation, scope)?;
        check_drawn(&pwff, scope)?;
        Ok(Self {
            dropout: converted_dropout(&pwff.dropout, "dropout", KIND, scope)?,
            linear_inner: ColumnParallelLinear::from_linear(pwff.linear_inner, &scope.scope("linear_inner"))?,
            linear_outer: RowParallelLinear::from_linear(pwff.linear_outer, &scope.scope("linear_outer"))?,
            activation: pwff.activation,
            region: Region::new(scope, KIND),
            step: ModuleStep::new(scope.context().current_step(), module_name(scope, KIND)),
        })
    }

    /// Whether the layer drops hidden features on this device.
    pub(super) fn drops(&self, device: &Device) -> bool {
        self.dropout.is_active(device)
    }
}

impl ParallelPositionWiseFeedForward {
    /// Applies the layer to each token.
    ///
    /// # Shapes
    /// - `input`: `[batch, seq, d_model]`, the same on every tensor-parallel rank
    /// - output: as `input`
    ///
    /// # Communication
    /// Forward: one all-reduce of the output over the tensor group; under sequence parallelism one reduce-scatter and
    /// one all-gather. Backward: one all-reduce of the input.
    ///
    /// # Panics
    /// When a collective fails, an active dropout does not know its step (see
    /// `ParallelContext::set_step`), or the tensor-parallel size does not divide `batch * seq` under sequence
    /// parallelism.
    pub fn forward(&self, input: Tensor<3>) -> Tensor<3> {
        let dims @ [batch, seq, _] = input.dims();
        let step = self.drops(&input.device()).then(|| self.step.take(batch, seq));
        let pass = self.region.pass(dims, step);
        let hidden = self.hidden(self.region.enter_whole(input), &pass);
        self.region.join(self.linear_outer.forward(hidden), batch)
    }

    /// Applies the layer inside a composite: from this rank's tokens to this rank's tokens, and the last bias, to be
    /// added by what comes next.
    pub(super) fn transform(&self, input: Tensor<2>, pass: &TokenPass) -> (Tensor<2>, Option<Tensor<1>>) {
        let hidden = self.hidden(self.region.enter(input), pass);
        self.linear_outer.forward_without_bias(hidden)
    }

    /// Applies the layer to tokens that every rank has, without dropout: for inference.
    pub(super) fn infer(&self, input: Tensor<3>) -> Tensor<3> {
        let [batch, ..] = input.dims();
        let without_dropout = TokenPass { batch, places: None };
        let hidden = self.hidden(rows(input), &without_dropout);
        samples(self.linear_outer.forward_whole(hidden), batch)
    }

    /// `[batch * seq, d_model]` to this rank's `[batch * seq, d_ff / tp]`.
    fn hidden(&self, entered: Tensor<2>, pass: &TokenPass) -> Tensor<2> {
        let dtype = entered.dtype();
        let hidden = widen(self.linear_inner.forward_entered(entered));
        let hidden = narrow(self.activation.forward(hidden), dtype);
        match pass.all() {
            Some(step) => {
                let columns = self.linear_inner.column_shard();
                self.dropout.forward_columns(hidden, step, &columns)
            }
            None => hidden,
        }
    }
}

/// Checks that an activation works on a shard of the features as on all of them.
fn check_activation(activation: &Activation, scope: &ParameterScope) -> Result<(), ConversionError> {
    let is_element_wise = matches!(
        activation,
        Activation::Gelu(_)
            | Activation::Relu(_)
            | Activation::LeakyRelu(_)
            | Activation::Selu(_)
            | Activation::Sigmoid(_)
            | Activation::Tanh(_)
            | Activation::HardSigmoid(_)
            | Activation::HardSwish(_)
            | Activation::Softplus(_)
            | Activation::Softsign(_)
            | Activation::Elu(_)
            | Activation::Celu(_)
            | Activation::ThresholdedRelu(_)
            | Activation::HardShrink(_)
            | Activation::SoftShrink(_)
            | Activation::Shrink(_)
    );
    if is_element_wise {
        return Ok(());
    }
    let printed = format!("{activation:?}");
    let name: String = printed.chars().take_while(|c| c.is_alphanumeric()).collect();
    Err(ConversionError::Unsupported {
        module: module_name(scope, KIND),
        field: "activation",
        value: name,
        valid: "an activation that works element by element and has no parameters, such as Gelu or Relu",
    })
}
