//! Converted composites against burn's own: values and every gradient, masks on.

use burn::module::{Module, ModuleMapper, Param};
use burn::nn::attention::{self, MultiHeadAttentionConfig};
use burn::nn::transformer::{self, PositionWiseFeedForwardConfig, TransformerDecoderConfig, TransformerEncoderConfig};
use burn::tensor::{Bool, Gradients, Tensor, TensorData};
use burn_megatron::initialize;
use burn_megatron::parameters::{Placement, read_host};
use burn_megatron::tensor_parallel::{
    MhaInput, ParallelMultiHeadAttention, ParallelPositionWiseFeedForward, ParallelTransformerDecoder,
    ParallelTransformerEncoder, TransformerDecoderInput, TransformerEncoderInput,
};

use super::{ALL, BOTH_TYPES, Check, checks};
use crate::parity::cases::comparison::{Closeness, Pass, Scene, WholeParameters};
use crate::parity::cases::wrapper::nets::{Named, named};

pub const CHECKS: &[Check] = checks! {
    multi_head_attention_matches_burn: ALL, BOTH_TYPES;
    position_wise_feed_forward_matches_burn: ALL, BOTH_TYPES;
    transformer_encoder_matches_burn: ALL, BOTH_TYPES;
    transformer_encoder_without_masks_matches_burn: ALL, BOTH_TYPES;
    transformer_caches_match_burn: ALL, BOTH_TYPES;
    transformer_decoder_matches_burn: ALL, BOTH_TYPES;
};

/// Four ranks hold one head of three and 5 hidden features each; 20 tokens.
const D_MODEL: usize = 12;
const D_FF: usize = 20;
const HEADS: usize = 4;
const BATCH: usize = 4;
const SEQ: usize = 5;
const MEMORY_SEQ: usize = 3;
/// Hidden scores still count, so that the key's bias has a gradient.
const MIN_FLOAT: f64 = -2.0;

/// The module with numbers by name, norms not ones and zeros.
fn numbered<M: Module>(scene: &Scene, module: M) -> M {
    struct Numberer<'a>(&'a Scene, usize);
    impl ModuleMapper for Numberer<'_> {
        fn map_float<const D: usize>(&mut self, param: Param<Tensor<D>>) -> Param<Tensor<D>> {
            self.1 += 1;
            let shape = param.lazy_shape().dims::<D>();
            let numbers = self.0.random(&format!("parameter {}", self.1), shape.iter().product());
            let offset = self.0.tensor(numbers, shape).inner().mul_scalar(0.25);
            param.map(|tensor| Tensor::from_inner(tensor.inner() + offset).require_grad())
        }
    }
    // What burn draws is the same on every rank.
    tests::device().seed(1);
    initialize(module).map(&mut Numberer(scene, 0))
}

/// A module's parameters and gradients by the names that a conversion declares.
fn whole_parameters<M: Module>(module: &M, gradients: &Gradients) -> WholeParameters {
    let Named { values, mut gradients } = named(module, Some(gradients));
    let with_gradient = values.into_iter().map(|(path, values)| {
        let gradient = gradients.remove(&path).expect("every parameter is used");
        (
            path.replace(".gamma", ".weight").replace(".beta", ".bias"),
            (values, gradient),
        )
    });
    with_gradient.collect()
}

/// The last token of the second sample.
fn padding(seq: usize) -> Tensor<2, Bool> {
    let values: Vec<bool> = (0..BATCH * seq).map(|index| index == 2 * seq - 1).collect();
    Tensor::from_data(TensorData::new(values, [BATCH, seq]), &tests::device())
}

/// Every third pair of a query and a key.
fn pairs(keys: usize) -> Tensor<3, Bool> {
    let values: Vec<bool> = (0..BATCH * SEQ * keys).map(|index| index % 3 == 1).collect();
    Tensor::from_data(TensorData::new(values, [BATCH, SEQ, keys]), &tests::device())
}

/// What comes in, and the gradient of what goes out: the whole of both on every rank.
fn activations(scene: &Scene) -> [Tensor<3>; 2] {
    ["input", "output gradient"].map(|name| {
        let numbers = scene.random(name, BATCH * SEQ * D_MODEL);
        scene.tensor(numbers, [BATCH, SEQ, D_MODEL])
    })
}

/// Two layers deep, the rounding of a pass is that of a model.
fn judge<M: Module>(
    scene: &Scene,
    scope: &str,
    (serial, expected): (&Pass, &WholeParameters),
    (parallel, layer): (&Pass, &M),
) -> anyhow::Result<()> {
    judge_activations(scene, scope, serial, parallel)?;
    scene.parameters_within(Closeness::Training, scope, layer, &parallel.gradients, expected)
}

fn judge_activations(scene: &Scene, scope: &str, serial: &Pass, parallel: &Pass) -> anyhow::Result<()> {
    let whole = Placement::whole([BATCH, SEQ, D_MODEL]);
    let compare = |what: &str, actual: &[f64], expected: &[f64]| {
        scene.compare(
            Closeness::Training,
            &format!("{scope}: {what}"),
            actual,
            expected,
            &whole,
        )
    };
    compare("output", &parallel.output, &serial.output)?;
    compare("input gradient", &parallel.input_gradient, &serial.input_gradient)
}

/// Alone, a composite's parts share the tokens out and gather them by themselves.
fn multi_head_attention_matches_burn(scene: &Scene) -> anyhow::Result<()> {
    let config = MultiHeadAttentionConfig::new(D_MODEL, HEADS)
        .with_dropout(0.0)
        .with_min_float(MIN_FLOAT);
    let burn = numbered(scene, config.init(&tests::device()));
    let layer = ParallelMultiHeadAttention::from_mha(burn.clone(), &scene.context.scope("attention"))?;
    let [input, output_gradient] = activations(scene);
    let serial = Pass::run(input.clone(), output_gradient.clone(), |input| {
        let input = attention::MhaInput::self_attn(input).mask_pad(padding(SEQ));
        burn.forward(input.mask_attn(pairs(SEQ))).context
    });
    let parallel = Pass::run(input, output_gradient, |input| {
        let input = MhaInput::self_attn(input).mask_pad(padding(SEQ));
        layer.forward(input.mask_attn(pairs(SEQ))).context
    });
    let expected = whole_parameters(&burn, &serial.gradients);
    judge(scene, "attention", (&serial, &expected), (&parallel, &layer))
}

fn position_wise_feed_forward_matches_burn(scene: &Scene) -> anyhow::Result<()> {
    let config = PositionWiseFeedForwardConfig::new(D_MODEL, D_FF).with_dropout(0.0);
    let burn = numbered(scene, config.init(&tests::device()));
    let layer = ParallelPositionWiseFeedForward::from_pwff(burn.clone(), &scene.context.scope("pwff"))?;
    let [input, output_gradient] = activations(scene);
    let serial = Pass::run(input.clone(), output_gradient.clone(), |input| burn.forward(input));
    let parallel = Pass::run(input, output_gradient, |input| layer.forward(input));
    let expected = whole_parameters(&burn, &serial.gradients);
    judge(scene, "pwff", (&serial, &expected), (&parallel, &layer))
}

/// Where kernels take the whole of the attention. The key's bias has no gradient but rounding here, so that the input's
/// is compared.
fn transformer_encoder_without_masks_matches_burn(scene: &Scene) -> anyhow::Result<()> {
    let config = TransformerEncoderConfig::new(D_MODEL, D_FF, HEADS, 2).with_dropout(0.0);
    let burn = numbered(scene, config.init(&tests::device()));
    let layer = ParallelTransformerEncoder::from_encoder(burn.clone(), &config, &scene.context.root())?;
    let [input, output_gradient] = activations(scene);
    let serial = Pass::run(input.clone(), output_gradient.clone(), |input| {
        burn.forward(transformer::TransformerEncoderInput::new(input))
    });
    let parallel = Pass::run(input, output_gradient, |input| {
        layer.forward(TransformerEncoderInput::new(input))
    });
    judge_activations(scene, "encoder", &serial, &parallel)
}

/// Token by token, whether or not the ranks could share one token's batch out.
fn transformer_caches_match_burn(scene: &Scene) -> anyhow::Result<()> {
    let config = TransformerEncoderConfig::new(D_MODEL, D_FF, HEADS, 2).with_dropout(0.0);
    let burn = numbered(scene, config.init(&tests::device()));
    let layer = ParallelTransformerEncoder::from_encoder(burn.clone(), &config, &scene.context.root())?;
    let mut caches = (burn.new_autoregressive_cache(), layer.new_autoregressive_cache());
    let [input, _] = activations(scene);
    let input = input.narrow(0, 0, 3);
    for seq in 1..=SEQ {
        let tokens = input.clone().narrow(1, 0, seq);
        let mask = attention::generate_autoregressive_mask(3, seq, &tests::device());
        let expected = transformer::TransformerEncoderInput::new(tokens.clone()).mask_attn(mask.clone());
        let expected = burn.forward_autoregressive_inference(expected, &mut caches.0);
        let actual = TransformerEncoderInput::new(tokens).mask_attn(mask);
        let actual = layer.forward_autoregressive_inference(actual, &mut caches.1);
        let whole = Placement::whole([3, seq, D_MODEL]);
        let what = format!("after {seq} tokens");
        scene.compare(
            Closeness::Training,
            &what,
            &read_host(actual),
            &read_host(expected),
            &whole,
        )?;
    }
    Ok(())
}

fn transformer_encoder_matches_burn(scene: &Scene) -> anyhow::Result<()> {
    for norm_first in [false, true] {
        let config = TransformerEncoderConfig::new(D_MODEL, D_FF, HEADS, 2)
            .with_dropout(0.0)
            .with_norm_first(norm_first)
            .with_quiet_softmax(norm_first);
        let mut burn = numbered(scene, config.init(&tests::device()));
        burn.layers.iter_mut().for_each(|layer| layer.mha.min_float = MIN_FLOAT);
        let scope = format!("encoder norm first {norm_first}");
        let layer = ParallelTransformerEncoder::from_encoder(burn.clone(), &config, &scene.context.scope(&scope))?;

        let [input, output_gradient] = activations(scene);
        let serial = Pass::run(input.clone(), output_gradient.clone(), |input| {
            let input = transformer::TransformerEncoderInput::new(input);
            burn.forward(input.mask_pad(padding(SEQ)).mask_attn(pairs(SEQ)))
        });
        let parallel = Pass::run(input, output_gradient, |input| {
            let input = TransformerEncoderInput::new(input);
            layer.forward(input.mask_pad(padding(SEQ)).mask_attn(pairs(SEQ)))
        });
        let expected = whole_parameters(&burn, &serial.gradients);
        judge(scene, &scope, (&serial, &expected), (&parallel, &layer))?;
    }
    Ok(())
}

fn transformer_decoder_matches_burn(scene: &Scene) -> anyhow::Result<()> {
    for norm_first in [false, true] {
        let config = TransformerDecoderConfig::new(D_MODEL, D_FF, HEADS, 2)
            .with_dropout(0.0)
            .with_norm_first(norm_first);
        let mut burn = numbered(scene, config.init(&tests::device()));
        for layer in &mut burn.layers {
            layer.self_attn.min_float = MIN_FLOAT;
            layer.cross_attn.min_float = MIN_FLOAT;
        }
        let scope = format!("decoder norm first {norm_first}");
        let layer = ParallelTransformerDecoder::from_decoder(burn.clone(), &config, &scene.context.scope(&scope))?;

        let memory = scene.random("memory", BATCH * MEMORY_SEQ * D_MODEL);
        let memory = || {
            scene
                .tensor(memory.clone(), [BATCH, MEMORY_SEQ, D_MODEL])
                .require_grad()
        };
        let memories = [memory(), memory()];
        let [input, output_gradient] = activations(scene);
        let serial = Pass::run(input.clone(), output_gradient.clone(), |target| {
            let input = transformer::TransformerDecoderInput::new(target, memories[0].clone());
            let input = input.target_mask_pad(padding(SEQ)).target_mask_attn(pairs(SEQ));
            burn.forward(
                input
                    .memory_mask_pad(padding(MEMORY_SEQ))
                    .memory_mask_attn(pairs(MEMORY_SEQ)),
            )
        });
        let parallel = Pass::run(input, output_gradient, |target| {
            let input = TransformerDecoderInput::new(target, memories[1].clone());
            let input = input.target_mask_pad(padding(SEQ)).target_mask_attn(pairs(SEQ));
            layer.forward(
                input
                    .memory_mask_pad(padding(MEMORY_SEQ))
                    .memory_mask_attn(pairs(MEMORY_SEQ)),
            )
        });
        let expected = whole_parameters(&burn, &serial.gradients);
        judge(scene, &scope, (&serial, &expected), (&parallel, &layer))?;
        let [expected, actual] = [(&memories[0], &serial), (&memories[1], &parallel)].map(|(memory, pass)| {
            let gradient = memory.grad(&pass.gradients).expect("the output depends on the memory");
            read_host(gradient)
        });
        let whole = Placement::whole([BATCH, MEMORY_SEQ, D_MODEL]);
        scene.compare(Closeness::Training, "memory gradient", &actual, &expected, &whole)?;
    }
    Ok(())
}
