//! The models that know nothing of ranks, and the update that each is trained with.

use burn::module::AutodiffModule;
use burn::optim::SimpleOptimizer;
use burn::tensor::backend::AutodiffBackend;
use burn::tensor::{Int, Tensor};
use burn_flex::FlexDevice;
use burn_megatron::optimizer as ours;
use cubecl_kernels::KernelBackend;
use plain_models::fused_gpt::FusedGpt;
use plain_models::gpt::{PlainGpt, PlainGptConfig};

const WEIGHT_DECAY: f64 = 0.01;

/// A model that is trained as on one device.
pub trait Model<B: AutodiffBackend>: AutodiffModule<B> + 'static {
    type Update: SimpleOptimizer<B::InnerBackend>;

    fn make(config: &PlainGptConfig) -> Self;
    fn update() -> Self::Update;
    /// Returns the loss of `[batch, seq]` tokens and their successors.
    fn mean_loss(&self, tokens: Tensor<B, 2, Int>, targets: Tensor<B, 2, Int>) -> Tensor<B, 1>;
}

impl<B: AutodiffBackend<Device = FlexDevice>> Model<B> for PlainGpt<B> {
    type Update = burn::optim::AdamW;

    fn make(config: &PlainGptConfig) -> Self {
        config.init(&FlexDevice)
    }

    fn update() -> Self::Update {
        burn::optim::AdamWConfig::new()
            .with_weight_decay(WEIGHT_DECAY as f32)
            .build()
    }

    fn mean_loss(&self, tokens: Tensor<B, 2, Int>, targets: Tensor<B, 2, Int>) -> Tensor<B, 1> {
        self.loss(tokens, targets)
    }
}

/// With AdamW as one operation.
impl<B> Model<B> for FusedGpt<B>
where
    B: AutodiffBackend<Device = FlexDevice, InnerBackend: KernelBackend> + KernelBackend,
{
    type Update = ours::AdamW;

    fn make(config: &PlainGptConfig) -> Self {
        config.init_fused(&FlexDevice)
    }

    fn update() -> Self::Update {
        ours::AdamWConfig::new().with_weight_decay(WEIGHT_DECAY).build()
    }

    fn mean_loss(&self, tokens: Tensor<B, 2, Int>, targets: Tensor<B, 2, Int>) -> Tensor<B, 1> {
        self.loss(tokens, targets).expect("the kernels take these sizes")
    }
}
