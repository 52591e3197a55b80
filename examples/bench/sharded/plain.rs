//! The models that know nothing of ranks, and the update that each is trained with.

use burn::module::Module;
use burn::optim::Optimizer;
use burn::tensor::{Device, Int, Tensor};
use burn_megatron::optimizer as ours;
use plain_models::fused_gpt::FusedGpt;
use plain_models::gpt::{PlainGpt, PlainGptConfig};

const WEIGHT_DECAY: f64 = 0.01;

/// A model that is trained as on one device.
pub trait Model: Module + 'static {
    type Update: Optimizer;

    fn make(config: &PlainGptConfig, device: &Device) -> Self;
    fn update() -> Self::Update;
    /// Returns the loss of `[batch, seq]` tokens and their successors.
    fn mean_loss(&self, tokens: Tensor<2, Int>, targets: Tensor<2, Int>) -> Tensor<1>;
}

impl Model for PlainGpt {
    type Update = burn::optim::AdamW;

    fn make(config: &PlainGptConfig, device: &Device) -> Self {
        config.init(device)
    }

    fn update() -> Self::Update {
        burn::optim::AdamWConfig::new()
            .with_weight_decay(WEIGHT_DECAY as f32)
            .build()
    }

    fn mean_loss(&self, tokens: Tensor<2, Int>, targets: Tensor<2, Int>) -> Tensor<1> {
        self.loss(tokens, targets)
    }
}

/// With AdamW as one operation.
impl Model for FusedGpt {
    type Update = ours::AdamW;

    fn make(config: &PlainGptConfig, device: &Device) -> Self {
        config.init_fused(device)
    }

    fn update() -> Self::Update {
        ours::AdamWConfig::new().with_weight_decay(WEIGHT_DECAY).build()
    }

    fn mean_loss(&self, tokens: Tensor<2, Int>, targets: Tensor<2, Int>) -> Tensor<1> {
        self.loss(tokens, targets).expect("the kernels take these sizes")
    }
}
