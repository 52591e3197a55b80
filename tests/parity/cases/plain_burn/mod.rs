//! A GPT of plain burn layers, which knows nothing of burn-megatron, against the bundled GPT with the same weights.
//!
//! Each parallel layer is made from burn's own by `from_linear` or `from_embedding`, on every layout: the way in which
//! an existing model is made parallel. Queries, keys and values are three layers here and one fused layer there.

mod model;

use anyhow::{Context as _, ensure};
use burn::module::Param;
use burn::nn::{Embedding, LayerNorm, Linear};
use burn::tensor::{DType, Int, Tensor, TensorData};
use burn_flex::FlexDevice;
use burn_megatron::context::{ParallelContext, ParameterScope};
use burn_megatron::data_parallel::{DataParallelConfig, DistributedDataParallel, StepPart};
use burn_megatron::launch::World;
use burn_megatron::parameters::{Placement, read_host};
use burn_megatron::parity::{Judge, Tolerance, compare_shard};
use burn_megatron::random::{StepCoordinates, TokenMap};
use burn_megatron::tensor_parallel::{
    ColumnParallelLinear, ColumnParallelLinearConfig, ConversionError, LayerNorm as ParallelLayerNorm,
    PositionEmbedding, RowParallelLinear, VocabParallelEmbedding, VocabParallelEmbeddingConfig,
};
use libtest_mimic::Trial;
use models::gpt::{Gpt, GptConfig};
use models::layers::Norm;

use self::model::{PlainAttention, PlainGpt, Sizes};
use super::B;
use super::comparison::{Gradients, ONE, Scene, TP2, TP2SP, WholeParameters, backward, whole};
use crate::harness::{Case, Job};

const SIZES: Sizes = Sizes {
    n_layers: 2,
    d_model: 12,
    n_heads: 4,
    d_hidden: 20,
    max_seq_length: 9,
    vocab_size: 23,
};
const BATCH: usize = 4;
const SEQ_LENGTH: usize = 7;

pub fn trials() -> Vec<Trial> {
    let mut trials = Vec::new();
    for layout in [ONE, TP2, TP2SP] {
        for dtype in ["f64", "f32"] {
            for head in ["tied", "untied"] {
                let case = layout.describe(Case::new("plain_burn").with("head", head), dtype);
                let name = format!("{}_matches_plain_burn_layers_{dtype}_{head}", layout.name);
                trials.push(Job::new(case, layout.world_size()).succeeds(name));
            }
        }
    }
    trials
}

pub fn run(case: &Case, world: &World) -> anyhow::Result<()> {
    let scene = Scene::new(case, world)?;
    let tied = case.setting::<String>("head")? == "tied";
    let plain = PlainGpt::new(&SIZES, tied, |name, shape| {
        let len = shape.iter().product();
        scene.random(name, len)
    });
    let (tokens, targets) = (ids(&scene, "tokens"), ids(&scene, "targets"));
    // Tokens count differently, so that no mean hides an exchange.
    let weights = scene.tensor(scene.random("weights", BATCH * SEQ_LENGTH), [BATCH * SEQ_LENGTH]);

    let losses = plain.token_losses(tokens.clone(), targets.clone());
    let expected_losses = read_host(losses.clone());
    let expected = parameters(&plain, &backward(losses, weights.clone()));
    let expected_norm = norm(expected.values().flat_map(|(_, gradient)| gradient));

    let gpt = parallel(plain, tied, &scene.context)?;
    let mut wrapped = DistributedDataParallel::<B, _>::new(gpt, &scene.context, DataParallelConfig::new())?;
    let step = StepCoordinates {
        seed: 1,
        iteration: 0,
        tokens: TokenMap::of_samples(&[0, 1, 2, 3], SEQ_LENGTH),
    };
    let mut losses = Vec::new();
    wrapped.backward(StepPart::Last, |gpt| {
        let token_losses = gpt.token_losses(tokens, targets, &step);
        losses = read_host(token_losses.clone());
        (token_losses * weights).sum()
    })?;
    let gradients = wrapped.gradients()?;

    let everything = Placement::whole([BATCH * SEQ_LENGTH]);
    scene.close("token losses", &losses, &expected_losses, &everything)?;
    let num_parameters = expected.values().map(|(values, _)| values.len()).sum();
    let mut judge = Judge::new(Tolerance::of(scene.dtype), num_parameters, false);
    let sums = [losses.iter().sum(), expected_losses.iter().sum()];
    judge.scalars(1, sums, [gradients.global_norm(&scene.context)?, expected_norm]);
    ensure!(gradients.entries().len() == expected.len());
    for entry in gradients.entries() {
        let (_, gradient) = expected
            .get(&entry.name)
            .with_context(|| format!("the plain model has no {}", entry.name))?;
        for part in compare_shard(&entry.name, gradient, &gradients.values(entry), &entry.placement) {
            judge.gradient(1, &part, expected_norm);
        }
    }
    ensure!(
        judge.failures().is_empty(),
        "rank {} is not the plain model: {}",
        world.rank(),
        judge.failures().join("; ")
    );
    println!(
        "worst differences: token losses {:.1e}, loss {:.1e}, gradient {:.1e}",
        scene.worst(),
        judge.worst_loss(),
        judge.worst_gradient()
    );
    Ok(())
}

fn ids(scene: &Scene, name: &str) -> Tensor<B, 2, Int> {
    let numbers = scene.random(name, BATCH * SEQ_LENGTH);
    let ids: Vec<i32> = numbers
        .iter()
        .map(|number| (number.abs() * 1e3) as i32 % SIZES.vocab_size as i32)
        .collect();
    Tensor::from_data(TensorData::new(ids, [BATCH, SEQ_LENGTH]), (&FlexDevice, DType::I32))
}

fn norm<'a>(values: impl Iterator<Item = &'a f64>) -> f64 {
    values.map(|value| value * value).sum::<f64>().sqrt()
}

/// The plain model's parameters and their gradients, by the names and in the shapes of the parallel one.
fn parameters(plain: &PlainGpt<B>, gradients: &Gradients) -> WholeParameters {
    let mut found = WholeParameters::new();
    let mut add = |name: String, parameter| {
        assert!(found.insert(name, parameter).is_none(), "names are unique");
    };
    let mut linear = |name: String, layer: &Linear<B>| {
        add(format!("{name}.weight"), whole(&layer.weight, gradients));
        let bias = layer.bias.as_ref().expect("every layer has one");
        add(format!("{name}.bias"), whole(bias, gradients));
    };
    for (number, block) in plain.h.iter().enumerate() {
        linear(format!("h.{number}.attn.c_proj"), &block.attn.output);
        linear(format!("h.{number}.mlp.c_fc"), &block.mlp_input);
        linear(format!("h.{number}.mlp.c_proj"), &block.mlp_output);
    }
    for (number, block) in plain.h.iter().enumerate() {
        let PlainAttention { query, key, value, .. } = &block.attn;
        let parts = [query, key, value];
        let weights = parts.map(|layer| whole(&layer.weight, gradients));
        let biases = parts.map(|layer| whole(layer.bias.as_ref().expect("every layer has one"), gradients));
        let name = format!("h.{number}.attn.c_attn");
        add(format!("{name}.weight"), side_by_side(&weights, SIZES.d_model));
        add(format!("{name}.bias"), side_by_side(&biases, 1));
    }
    let mut layer_norm = |name: String, layer: &LayerNorm<B>| {
        add(format!("{name}.weight"), whole(&layer.gamma, gradients));
        let beta = layer.beta.as_ref().expect("every norm has one");
        add(format!("{name}.bias"), whole(beta, gradients));
    };
    for (number, block) in plain.h.iter().enumerate() {
        layer_norm(format!("h.{number}.ln_1"), &block.ln_1);
        layer_norm(format!("h.{number}.ln_2"), &block.ln_2);
    }
    layer_norm("ln_f".to_owned(), &plain.ln_f);
    add("wte.weight".to_owned(), whole(&plain.wte.weight, gradients));
    add("wpe.weight".to_owned(), whole(&plain.wpe.weight, gradients));
    if let Some(head) = &plain.lm_head {
        // burn's head is [d_model, vocabulary], ours has a row per token.
        let (values, gradient) = whole(&head.weight, gradients);
        let transposed = |values: Vec<f64>| -> Vec<f64> {
            let (rows, columns) = (SIZES.vocab_size, SIZES.d_model);
            (0..rows * columns)
                .map(|index| values[index % columns * rows + index / columns])
                .collect()
        };
        add("lm_head.weight".to_owned(), (transposed(values), transposed(gradient)));
    }
    found
}

/// Matrices of `rows` rows as one, row by row.
fn side_by_side(parts: &[(Vec<f64>, Vec<f64>); 3], rows: usize) -> (Vec<f64>, Vec<f64>) {
    let join = |parts: [&Vec<f64>; 3]| {
        let width = parts[0].len() / rows;
        (0..rows)
            .flat_map(|row| {
                parts
                    .into_iter()
                    .flat_map(move |part| &part[row * width..(row + 1) * width])
            })
            .copied()
            .collect()
    };
    let [values, gradients] = [
        parts.each_ref().map(|(values, _)| values),
        parts.each_ref().map(|(_, gradient)| gradient),
    ];
    (join(values), join(gradients))
}

/// The bundled GPT with every layer made from the plain model's.
fn parallel(plain: PlainGpt<B>, tied: bool, context: &ParallelContext) -> anyhow::Result<Gpt<B>> {
    let config = GptConfig::new(
        SIZES.n_layers,
        SIZES.d_model,
        SIZES.n_heads,
        SIZES.max_seq_length,
        SIZES.vocab_size,
    )
    .with_d_hidden(Some(SIZES.d_hidden))
    .with_padded_vocab_size(Some(SIZES.vocab_size + 3))
    .with_tied_embeddings(tied);
    // Its own parameters are all replaced; their names must not take those of the new ones.
    let mut gpt = config.init_in(&FlexDevice, &context.scope("replaced"))?;
    gpt.token_embedding = Some(vocabulary(plain.wte, &context.scope("wte"))?);
    gpt.position_embedding = Some(PositionEmbedding::from_embedding(plain.wpe, &context.scope("wpe"))?);
    for (number, (block, plain)) in gpt.blocks.iter_mut().zip(plain.h).enumerate() {
        let scope = |name: &str| context.scope(format!("h.{number}.{name}"));
        block.attention_norm = Norm::Layer(ParallelLayerNorm::from_layer_norm(plain.ln_1, &scope("ln_1"))?);
        let qkv = joined_qkv(&plain.attn);
        block.attention.qkv = ColumnParallelLinearConfig::of(&qkv)
            .with_fused(3)
            .from_linear(qkv, &scope("attn.c_attn"))?;
        block.attention.output = RowParallelLinear::from_linear(plain.attn.output, &scope("attn.c_proj"))?;
        block.mlp_norm = Norm::Layer(ParallelLayerNorm::from_layer_norm(plain.ln_2, &scope("ln_2"))?);
        block.mlp.input = ColumnParallelLinear::from_linear(plain.mlp_input, &scope("mlp.c_fc"))?;
        block.mlp.output = RowParallelLinear::from_linear(plain.mlp_output, &scope("mlp.c_proj"))?;
    }
    if let Some(norm) = &mut gpt.norm {
        *norm = Norm::Layer(ParallelLayerNorm::from_layer_norm(plain.ln_f, &context.scope("ln_f"))?);
    }
    if let Some(head) = plain.lm_head {
        let weight = Param::from_tensor(Tensor::from_inner(head.weight.val().inner().transpose()));
        gpt.head = Some(vocabulary(Embedding { weight }, &context.scope("lm_head"))?);
    }
    Ok(gpt)
}

/// Queries, keys and values as one layer, side by side.
fn joined_qkv(attention: &PlainAttention<B>) -> Linear<B> {
    let parts = [&attention.query, &attention.key, &attention.value];
    let weights = parts.map(|layer| layer.weight.val().inner());
    let biases = parts.map(|layer| layer.bias.as_ref().expect("every layer has one").val().inner());
    Linear {
        weight: Param::from_tensor(Tensor::from_inner(Tensor::cat(weights.to_vec(), 1))),
        bias: Some(Param::from_tensor(Tensor::from_inner(Tensor::cat(biases.to_vec(), 0)))),
    }
}

fn vocabulary(embedding: Embedding<B>, scope: &ParameterScope) -> Result<VocabParallelEmbedding<B>, ConversionError> {
    VocabParallelEmbeddingConfig::of(&embedding)
        .with_padded_size(Some(SIZES.vocab_size + 3))
        .from_embedding(embedding, scope)
}
