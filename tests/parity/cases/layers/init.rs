//! What layers start with and what they refuse: the same bits in every layout, sizes that do not divide, parameters
//! of unknown layout.

use std::collections::HashMap;
use std::fmt::Display;

use anyhow::{Context as _, ensure};
use burn::module::{Module, ModuleVisitor, Param};
use burn::nn::{EmbeddingConfig, LayerNorm, LinearConfig};
use burn::tensor::Tensor;
use burn_megatron::context::ParallelContext;
use burn_megatron::data_parallel::{DataParallelConfig, DistributedDataParallel};
use burn_megatron::parameters::{Declaration, Distribution, ParameterInit, read_host};
use burn_megatron::tensor_parallel::{
    ColumnParallelLinear, ColumnParallelLinearConfig, LayerNorm as ParallelLayerNorm, LayerNormConfig,
    PositionEmbedding, PositionEmbeddingConfig, RowParallelLinear, RowParallelLinearConfig, VocabParallelEmbedding,
    VocabParallelEmbeddingConfig,
};
use burn_megatron::topology::TopologyError;

use super::{ALL, BOTH_TYPES, Check, F32, SHARED, TP2, TP4, checks, expect_refused};
use crate::parity::cases::comparison::{SEED, Scene};

pub const CHECKS: &[Check] = checks! {
    layers_start_with_the_bits_of_one_rank: ALL, BOTH_TYPES;
    declarations_say_which_gradients_are_partial: ALL, F32;
    sizes_that_do_not_divide_are_refused_with_neighbours: &[TP4], F32;
    an_undeclared_parameter_is_refused_where_layers_are_shared_out: SHARED, F32;
    a_bias_that_tensor_ranks_do_not_agree_on_is_refused_by_name: SHARED, F32;
    a_parameter_that_changed_its_size_is_refused: &[TP2], F32;
};

/// One of every layer, made from its configuration.
#[derive(Module, Debug)]
struct Layers {
    column: ColumnParallelLinear,
    fused: ColumnParallelLinear,
    row: RowParallelLinear,
    vocabulary: VocabParallelEmbedding,
    padded: VocabParallelEmbedding,
    positions: PositionEmbedding,
    norm: LayerNorm,
}

impl Layers {
    fn new(context: &ParallelContext) -> Result<Self, TopologyError> {
        let normal = Some(ParameterInit::Normal { deviation: 0.5 });
        Ok(Self {
            column: ColumnParallelLinearConfig::new(7, 12).init(&tests::device(), &context.scope("column"))?,
            fused: ColumnParallelLinearConfig::new(5, 36)
                .with_fused(3)
                .with_weight_init(normal)
                .with_bias_init(normal)
                .init(&tests::device(), &context.scope("fused"))?,
            row: RowParallelLinearConfig::new(12, 7).init(&tests::device(), &context.scope("row"))?,
            vocabulary: VocabParallelEmbeddingConfig::new(12, 3)
                .init(&tests::device(), &context.scope("vocabulary"))?,
            padded: VocabParallelEmbeddingConfig::new(9, 3)
                .with_padded_size(Some(16))
                .with_init(normal)
                .init(&tests::device(), &context.scope("padded"))?,
            positions: PositionEmbeddingConfig::new(6, 3).init(&tests::device(), &context.scope("positions")),
            norm: LayerNormConfig::new(7)
                .init(&tests::device(), &context.scope("norm"))
                .norm,
        })
    }
}

/// Every declaration of a module with its values.
fn declared<M: Module>(module: &M, context: &ParallelContext) -> HashMap<String, (Declaration, Vec<f64>)> {
    struct Reader<'a>(&'a ParallelContext, HashMap<String, (Declaration, Vec<f64>)>);
    impl ModuleVisitor for Reader<'_> {
        fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
            let declaration = self.0.registry().declaration(param.id).expect("layers declare");
            let values = read_host(param.val());
            self.1.insert(declaration.name.clone(), (declaration, values));
        }
    }
    let mut reader = Reader(context, HashMap::new());
    module.visit(&mut reader);
    reader.1
}

fn layers_start_with_the_bits_of_one_rank(scene: &Scene) -> anyhow::Result<()> {
    let single = ParallelContext::single(SEED);
    let whole = declared(&Layers::new(&single)?, &single);
    let here = declared(&Layers::new(&scene.context)?, &scene.context);
    ensure!(
        here.len() == whole.len(),
        "{} parameters against {}",
        here.len(),
        whole.len()
    );
    for (name, (declaration, values)) in &here {
        let (declared, expected) = &whole[name];
        // One rank pads as well: the whole is what is left without it.
        let expected = expected[..declared.placement.logical_len()].to_vec();
        scene.exact(name, values, &expected, &declaration.placement)?;
        let varies = expected.iter().any(|&value| value != expected[0]);
        ensure!(varies != name.starts_with("norm."), "{name} is {expected:?}");
    }
    Ok(())
}

fn declarations_say_which_gradients_are_partial(scene: &Scene) -> anyhow::Result<()> {
    let between_regions = if scene.context.is_sequence_parallel() {
        Distribution::PartialOverTensor
    } else {
        Distribution::Replicated
    };
    for (name, (declaration, _)) in declared(&Layers::new(&scene.context)?, &scene.context) {
        let expected = match name.as_str() {
            "row.bias" | "norm.weight" | "norm.bias" => between_regions,
            "positions.weight" => Distribution::Replicated,
            _ => Distribution::Sharded,
        };
        ensure!(
            declaration.distribution == expected,
            "{name} is {:?}",
            declaration.distribution
        );
    }
    Ok(())
}

fn refused<E: Display>(result: Result<(), E>, parts: [&str; 2]) -> anyhow::Result<()> {
    let message = result
        .err()
        .context("a size that does not divide was accepted")?
        .to_string();
    let complete = parts.iter().all(|part| message.contains(part));
    ensure!(complete, "{message:?} does not say {parts:?}");
    Ok(())
}

/// Made from a configuration or from an existing layer, the rule is the same.
fn sizes_that_do_not_divide_are_refused_with_neighbours(scene: &Scene) -> anyhow::Result<()> {
    let (device, context) = (&tests::device(), &scene.context);
    let linear = |d_input, d_output| LinearConfig::new(d_input, d_output).init(device);
    let neighbours = "tensor_parallel_size = 4, got 10; the nearest valid values are 8 and 12";

    let column = ColumnParallelLinearConfig::new(6, 10);
    let what = "the width of a column-parallel matrix";
    refused(column.init(device, &context.root()).map(drop), [what, neighbours])?;
    refused(
        column.from_linear(linear(6, 10), &context.root()).map(drop),
        [what, neighbours],
    )?;
    let each = ColumnParallelLinearConfig::new(6, 30).with_fused(3);
    refused(each.init(device, &context.root()).map(drop), [what, neighbours])?;
    let fused = ColumnParallelLinearConfig::new(6, 40).with_fused(3);
    let fused_neighbours = "fused = 3, got 40; the nearest valid values are 39 and 42";
    refused(
        fused.init(device, &context.root()).map(drop),
        ["d_output", fused_neighbours],
    )?;
    refused(
        fused.from_linear(linear(6, 40), &context.root()).map(drop),
        ["d_output", fused_neighbours],
    )?;

    let row = RowParallelLinearConfig::new(10, 6);
    let what = "the input width of a row-parallel matrix";
    refused(row.init(device, &context.root()).map(drop), [what, neighbours])?;
    refused(
        row.from_linear(linear(10, 6), &context.root()).map(drop),
        [what, neighbours],
    )?;

    let vocabulary = VocabParallelEmbeddingConfig::new(9, 6).with_padded_size(Some(10));
    let embedding = EmbeddingConfig::new(9, 6).init(device);
    let what = "the padded vocabulary";
    refused(vocabulary.init(device, &context.root()).map(drop), [what, neighbours])?;
    refused(
        vocabulary.from_embedding(embedding, &context.root()).map(drop),
        [what, neighbours],
    )?;

    let small = RowParallelLinearConfig::new(3, 6).init(device, &context.root());
    refused(small.map(drop), ["got 3", "the nearest valid values are 4"])
}

/// A parallel layer with a norm that is not declared.
#[derive(Module, Debug)]
struct HalfDeclared {
    row: RowParallelLinear,
    norms: Vec<LayerNorm>,
}

impl HalfDeclared {
    fn new(context: &ParallelContext) -> anyhow::Result<Self> {
        Ok(Self {
            row: RowParallelLinearConfig::new(12, 7).init(&tests::device(), &context.scope("row"))?,
            norms: vec![
                LayerNormConfig::new(7)
                    .init(&tests::device(), &context.scope("norms.0"))
                    .norm,
                burn::nn::LayerNormConfig::new(7).init(&tests::device()),
            ],
        })
    }
}

fn wrap(module: HalfDeclared, scene: &Scene) -> anyhow::Result<DistributedDataParallel<HalfDeclared>> {
    Ok(DistributedDataParallel::new(
        module,
        &scene.context,
        DataParallelConfig::new(),
    )?)
}

fn an_undeclared_parameter_is_refused_where_layers_are_shared_out(scene: &Scene) -> anyhow::Result<()> {
    let wrapped = wrap(HalfDeclared::new(&scene.context)?, scene);
    expect_refused(wrapped, "norms.1.gamma has not declared its layout")
}

/// As when every rank draws burn's layer from its own generator and cuts that.
fn a_bias_that_tensor_ranks_do_not_agree_on_is_refused_by_name(scene: &Scene) -> anyhow::Result<()> {
    let context = &scene.context;
    let mut module = HalfDeclared::new(context)?;
    module.norms[1] = ParallelLayerNorm::from_layer_norm(module.norms[1].clone(), &context.scope("norms.1"))?.norm;
    let rank = context.rank() as f64;
    module.row.bias = module
        .row
        .bias
        .map(|bias| bias.map(|_| scene.tensor(vec![rank; 7], [7]).require_grad()));
    expect_refused(
        wrap(module, scene),
        "parameter row.bias differs between rank 0 and rank 1",
    )
}

fn a_parameter_that_changed_its_size_is_refused(scene: &Scene) -> anyhow::Result<()> {
    let mut module = HalfDeclared::new(&scene.context)?;
    module.norms[0].gamma = module.norms[0]
        .gamma
        .clone()
        .map(|_| scene.tensor(vec![1.0; 5], [5]).require_grad());
    let expected = "parameter norms.0.weight was declared with 7 elements on this rank but has 5";
    expect_refused(wrap(module, scene), expected)
}
