//! A small model of tokens in plain burn, the same with its layers cut over tensor-parallel ranks, and its samples.

use burn::module::Module;
use burn::nn::{Embedding, EmbeddingConfig, LayerNorm, LayerNormConfig, Linear, LinearConfig};
use burn::tensor::activation::tanh;
use burn::tensor::{Int, Tensor};
use burn_megatron::collectives::ProcessGroup;
use burn_megatron::context::ParameterScope;
use burn_megatron::mappings::scatter_to_tensor_region;
use burn_megatron::tensor_parallel::{
    self, ColumnParallelLinear, ColumnParallelLinearConfig, ConversionError, RowParallelLinear,
    RowParallelLinearConfig, VocabParallelEmbedding, VocabParallelEmbeddingConfig,
};

use crate::parity::cases::comparison::Scene;
use crate::parity::cases::wrapper::nets::numbered;

const VOCABULARY: usize = 11;
/// Odd, and more than a shard's alignment where it meets the others: some parameters are in two shards of a bucket.
const D_MODEL: usize = 15;
const D_HIDDEN: usize = 6;
const FUSED: usize = 3;
const D_OUTPUT: usize = 10;
/// Of a micro-batch.
const TOKENS: usize = 6;

/// Embedding, three matrices side by side, a matrix back, norm, head.
#[derive(Module, Debug)]
pub struct PlainNet {
    embedding: Embedding,
    expand: Linear,
    contract: Linear,
    norm: LayerNorm,
    head: Linear,
}

/// The same over tensor-parallel ranks.
#[derive(Module, Debug)]
pub struct CutNet {
    embedding: VocabParallelEmbedding,
    expand: ColumnParallelLinear,
    contract: RowParallelLinear,
    norm: tensor_parallel::LayerNorm,
    head: ColumnParallelLinear,
    /// Under sequence parallelism.
    #[module(skip)]
    sequence_group: Option<ProcessGroup>,
}

/// The samples of a micro-batch.
pub struct Tokens {
    ids: Vec<i32>,
    targets: Tensor<2>,
}

impl Tokens {
    /// Micro-batch `number`, counted over the whole run.
    pub fn new(scene: &Scene, number: usize) -> Self {
        let numbers = scene.random(&format!("tokens {number}"), TOKENS);
        let id = |number: &f64| (number.abs() * 1e3) as i32 % VOCABULARY as i32;
        let targets = scene.random(&format!("targets {number}"), TOKENS * D_OUTPUT);
        Self {
            ids: numbers.iter().map(id).collect(),
            targets: scene.tensor(targets, [TOKENS, D_OUTPUT]),
        }
    }

    fn ids(&self) -> Tensor<1, Int> {
        Tensor::from_ints(self.ids.as_slice(), &tests::device())
    }

    fn loss(&self, output: Tensor<2>) -> Tensor<1> {
        let difference = output - self.targets.clone();
        // Not a division by a number: burn's backward pass of it divides in f32, also in a model of f64.
        (difference.clone() * difference).sum().mul_scalar(1.0 / TOKENS as f64)
    }
}

/// What is done with the three matrices' outputs, side by side.
fn combine(fused: Tensor<2>) -> Tensor<2> {
    let [a, b, c]: [Tensor<2>; FUSED] = fused.chunk(FUSED, 1).try_into().expect("three of a width");
    tanh(a) * b + c
}

impl PlainNet {
    /// The same numbers on every rank.
    pub fn new(scene: &Scene) -> Self {
        let device = &tests::device();
        let net = PlainNet {
            embedding: EmbeddingConfig::new(VOCABULARY, D_MODEL).init(device),
            expand: LinearConfig::new(D_MODEL, FUSED * D_HIDDEN).init(device),
            contract: LinearConfig::new(D_HIDDEN, D_MODEL).init(device),
            norm: LayerNormConfig::new(D_MODEL).init(device),
            head: LinearConfig::new(D_MODEL, D_OUTPUT).init(device),
        };
        numbered(net, scene, "net")
    }

    pub fn loss(&self, tokens: &Tokens) -> Tensor<1> {
        let embedded = self.embedding.forward(tokens.ids().unsqueeze::<2>()).flatten::<2>(0, 1);
        let hidden = self.contract.forward(combine(self.expand.forward(embedded.clone())));
        tokens.loss(self.head.forward(self.norm.forward(embedded + hidden)))
    }
}

impl CutNet {
    /// Takes this rank's part of each layer.
    pub fn new(plain: PlainNet, module: &ParameterScope) -> Result<Self, ConversionError> {
        let scope = |name: &str| module.scope(name);
        Ok(Self {
            embedding: VocabParallelEmbeddingConfig::new(VOCABULARY, D_MODEL)
                .with_padded_size(Some(VOCABULARY + 3))
                .from_embedding(plain.embedding, &scope("embedding"))?,
            expand: ColumnParallelLinearConfig::new(D_MODEL, FUSED * D_HIDDEN)
                .with_fused(FUSED)
                .from_linear(plain.expand, &scope("expand"))?,
            contract: RowParallelLinearConfig::new(D_HIDDEN, D_MODEL)
                .from_linear(plain.contract, &scope("contract"))?,
            norm: tensor_parallel::LayerNorm::from_layer_norm(plain.norm, &scope("norm"))?,
            head: ColumnParallelLinearConfig::new(D_MODEL, D_OUTPUT)
                .with_gather_output(true)
                .from_linear(plain.head, &scope("head"))?,
            sequence_group: module
                .context()
                .is_sequence_parallel()
                .then(|| module.context().tensor_group().clone()),
        })
    }

    pub fn loss(&self, tokens: &Tokens) -> Tensor<1> {
        let embedded = self.embedding.forward(tokens.ids());
        let embedded = match &self.sequence_group {
            Some(group) => scatter_to_tensor_region(embedded, 0, group),
            None => embedded,
        };
        let hidden = self.contract.forward(combine(self.expand.forward(embedded.clone())));
        tokens.loss(self.head.forward(self.norm.forward(embedded + hidden)))
    }
}
