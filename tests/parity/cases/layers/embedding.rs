//! `VocabParallelEmbedding` and `PositionEmbedding` against burn's `Embedding`.

use std::collections::BTreeMap;

use anyhow::ensure;
use burn::module::Param;
use burn::nn::Embedding;
use burn::tensor::activation::log_softmax;
use burn::tensor::{Gradients, Tensor};
use burn_megatron::mappings::scatter_to_tensor_region;
use burn_megatron::parameters::{Placement, read_host};
use burn_megatron::tensor_parallel::{
    PositionEmbedding, VocabParallelEmbedding, VocabParallelEmbeddingConfig, vocab_parallel_cross_entropy,
};
use cubecl_kernels::{Kernels, set_kernels};

use super::linear::local_shape;
use super::{ALL, BOTH_TYPES, Check, checks};
use crate::parity::cases::comparison::{Pass, Scene, WholeParameters, backward, whole};

pub const CHECKS: &[Check] = checks! {
    vocabulary_embedding_looks_up_the_same_bits: ALL, BOTH_TYPES;
    losses_in_chunks_are_those_of_all_logits: ALL, BOTH_TYPES;
    a_tied_embedding_gets_both_gradients: ALL, BOTH_TYPES;
    position_embedding_gets_its_whole_gradient_on_every_rank: ALL, BOTH_TYPES;
};

const D_MODEL: usize = 5;
const TOKENS: usize = 16;

/// Sizes of the vocabulary, plain and padded. Over two ranks and over four, some rank holds padding only, some hold
/// both, and some hold tokens only.
const VOCABULARIES: [(usize, Option<usize>); 4] = [(8, None), (5, Some(8)), (4, Some(8)), (13, Some(16))];

fn variants(scene: &Scene, check: impl Fn(&str, Embedding, &Layer) -> anyhow::Result<()>) -> anyhow::Result<()> {
    for (size, padded) in VOCABULARIES {
        let scope = format!("vocabulary {size}");
        let numbers = scene.random(&scope, size * D_MODEL);
        let embedding = Embedding {
            weight: Param::from_tensor(scene.tensor(numbers, [size, D_MODEL])),
        };
        let layer = VocabParallelEmbeddingConfig::new(size, D_MODEL)
            .with_padded_size(padded)
            .from_embedding(embedding.clone(), &scene.context.scope(&scope))?;
        check(&scope, embedding, &Layer { layer, size })?;
    }
    Ok(())
}

struct Layer {
    layer: VocabParallelEmbedding,
    size: usize,
}

impl Layer {
    /// Every token that stands first or last in some rank's range, and some in between; the last but one of the
    /// vocabulary never appears, so that its gradient must be exactly zero.
    fn ids(&self) -> Vec<i32> {
        let ids = (0..TOKENS).map(|index| (index * 7 % self.size) as i32);
        let absent = self.size as i32 - 2;
        ids.map(|id| if id == absent { 0 } else { id }).collect()
    }

    /// Where this rank's logits are in `[tokens, size]`.
    fn logits_placement(&self) -> Placement {
        let shard = self.layer.vocab_shard();
        Placement::new([TOKENS, self.size], [0, shard.start()], [TOKENS, shard.rows()])
    }
}

fn weight_of(embedding: &Embedding, gradients: &Gradients) -> WholeParameters {
    BTreeMap::from([("weight".to_owned(), whole(&embedding.weight, gradients))])
}

fn plain_look_up(embedding: &Embedding, scene: &Scene, ids: &[i32]) -> Tensor<2> {
    embedding.forward(scene.ids(ids).unsqueeze::<2>()).squeeze_dim::<2>(0)
}

/// Only data moves, and the gradients of a row are added in the order of the tokens on any rank: equal to the bit.
fn vocabulary_embedding_looks_up_the_same_bits(scene: &Scene) -> anyhow::Result<()> {
    variants(scene, |scope, embedding, layer| {
        let (ids, Layer { layer, size }) = (layer.ids(), layer);
        let output_gradient = scene.random("output gradient", TOKENS * D_MODEL);
        let output_gradient = || scene.tensor(output_gradient.clone(), [TOKENS, D_MODEL]);
        let expected = plain_look_up(&embedding, scene, &ids);
        let expected_gradients = backward(expected.clone(), output_gradient());
        let output = layer.forward(scene.ids(&ids));
        let gradients = backward(output.clone(), output_gradient());

        let everything = Placement::whole([TOKENS, D_MODEL]);
        scene.exact(scope, &read_host(output), &read_host(expected), &everything)?;
        let (_, whole_gradient) = whole(&embedding.weight, &expected_gradients);
        let absent = (size - 2) * D_MODEL;
        ensure!(
            whole_gradient[absent..absent + D_MODEL]
                .iter()
                .all(|&value| value == 0.0),
            "{scope}: the token that never appears has a gradient"
        );
        let declaration = scene.context.registry().declaration(layer.weight.id).expect("declared");
        let gradient = read_host(layer.weight.val().grad(&gradients).expect("a gradient"));
        scene.exact(
            &format!("{scope}: gradient"),
            &gradient,
            &whole_gradient,
            &declaration.placement,
        )?;
        scene.parameters(scope, layer, &gradients, &weight_of(&embedding, &expected_gradients))
    })
}

/// In chunks of one token, of numbers that do not divide all, of all, and of more.
fn losses_in_chunks_are_those_of_all_logits(scene: &Scene) -> anyhow::Result<()> {
    variants(scene, |scope, embedding, layer| {
        let shape = [TOKENS, D_MODEL];
        let targets = || scene.ids(&layer.ids());
        let hidden = scene.random("hidden", TOKENS * D_MODEL);
        let output_gradient = || scene.tensor(scene.random("loss gradient", TOKENS), [TOKENS]);
        let serial = Pass::run(scene.tensor(hidden.clone(), shape), output_gradient(), |hidden| {
            let logits = hidden.matmul(embedding.weight.val().transpose());
            let scores = log_softmax(logits, 1).gather(1, targets().unsqueeze_dim::<2>(1));
            -scores.squeeze_dim::<1>(1)
        });
        let (input, everything) = (scene.placement(&shape, scene.token_cut()), Placement::whole([TOKENS]));
        let expected = weight_of(&embedding, &serial.gradients);
        let shard = layer.layer.vocab_shard();
        for chunk_tokens in [1, 5, 7, TOKENS, TOKENS + 1] {
            for kernels in [Kernels::Plain, Kernels::Fused] {
                let what = format!("{scope} in chunks of {chunk_tokens}, {kernels:?}");
                set_kernels(kernels);
                let own_hidden = scene.part(&hidden, &input, local_shape(scene, shape));
                let parallel = Pass::run(own_hidden, output_gradient(), |hidden| {
                    let loss = |logits, targets| vocab_parallel_cross_entropy(logits, targets, shard, scene.group());
                    layer.layer.losses_in_chunks(hidden, targets(), chunk_tokens, loss)
                });
                parallel.compare(scene, &what, &serial, &input, &everything)?;
                scene.parameters(scope, &layer.layer, &parallel.gradients, &expected)?;
            }
        }
        Ok(())
    })
}

/// One table at both ends of a model: looked up, and scored against.
fn a_tied_embedding_gets_both_gradients(scene: &Scene) -> anyhow::Result<()> {
    variants(scene, |scope, embedding, layer| {
        let ids = layer.ids();
        let output_gradient = scene.random("output gradient", TOKENS * layer.size);
        let hidden = plain_look_up(&embedding, scene, &ids).tanh();
        let expected = hidden.matmul(embedding.weight.val().transpose());
        let expected_gradients = backward(
            expected.clone(),
            scene.tensor(output_gradient.clone(), [TOKENS, layer.size]),
        );

        let hidden = layer.layer.forward(scene.ids(&ids)).tanh();
        let hidden = match scene.token_cut() {
            Some(dimension) => scatter_to_tensor_region(hidden, dimension, scene.group()),
            None => hidden,
        };
        let output = layer.layer.logits(hidden);
        let placement = layer.logits_placement();
        let output_gradient = scene.part(&output_gradient, &placement, output.dims());
        let gradients = backward(output.clone(), output_gradient);
        scene.close(scope, &read_host(output), &read_host(expected), &placement)?;
        scene.parameters(
            scope,
            &layer.layer,
            &gradients,
            &weight_of(&embedding, &expected_gradients),
        )
    })
}

/// Added to all tokens before they are scattered, so that no sum over ranks is missing.
fn position_embedding_gets_its_whole_gradient_on_every_rank(scene: &Scene) -> anyhow::Result<()> {
    let (max_seq_length, seq_length) = (7, 4);
    let shape = [TOKENS, D_MODEL];
    let numbers = scene.random("positions", max_seq_length * D_MODEL);
    let plain = Embedding {
        weight: Param::from_tensor(scene.tensor(numbers, [max_seq_length, D_MODEL])),
    };
    let layer = PositionEmbedding::from_embedding(plain.clone(), &scene.context.scope("wpe"))?;
    let input = scene.random("input", TOKENS * D_MODEL);
    let output_gradient = scene.random("output gradient", TOKENS * D_MODEL);

    let ids: Vec<i32> = (0..TOKENS).map(|token| (token % seq_length) as i32).collect();
    let serial = Pass::run(
        scene.tensor(input.clone(), shape),
        scene.tensor(output_gradient.clone(), shape),
        |input| input + plain_look_up(&plain, scene, &ids),
    );
    let output = scene.placement(&shape, scene.token_cut());
    let parallel = Pass::run(
        scene.tensor(input, shape),
        scene.part(&output_gradient, &output, local_shape(scene, shape)),
        |input| {
            let output = layer.forward(input, seq_length);
            match scene.token_cut() {
                Some(dimension) => scatter_to_tensor_region(output, dimension, scene.group()),
                None => output,
            }
        },
    );
    scene.exact("output", &parallel.output, &serial.output, &output)?;
    parallel.compare(scene, "positions", &serial, &Placement::whole(shape), &output)?;
    let (_, gradient) = whole(&layer.weight, &parallel.gradients);
    ensure!(
        gradient[seq_length * D_MODEL..].iter().all(|&value| value == 0.0),
        "positions beyond the sequence have a gradient"
    );
    scene.parameters(
        "wpe",
        &layer,
        &parallel.gradients,
        &weight_of(&plain, &serial.gradients),
    )
}
