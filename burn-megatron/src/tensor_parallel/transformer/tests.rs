//! Converted composites on one rank against burn's own: outputs, every gradient, caches, and what is refused.

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};

use burn::module::{Module, ModuleMapper, Param};
use burn::nn;
use burn::nn::activation::ActivationConfig;
use burn::nn::attention::generate_autoregressive_mask;
use burn::nn::transformer::{
    TransformerDecoder, TransformerDecoderConfig, TransformerEncoder, TransformerEncoderConfig,
};
use burn::tensor::{Bool, DType, Device, FloatDType, Gradients, Tensor, TensorData};

use super::super::{ConversionError, MhaInput, ParallelMultiHeadAttention};
use super::*;
use crate::context::{ParallelContext, ParameterScope};
use crate::initialize;
use crate::parameters::{PathVisitor, read_host, visit_paths};
use crate::random::{RandomStream, StepCoordinates, TokenMap};
use crate::topology::ParallelConfig;
use burn_megatron_comm::rank_threads::{TIMEOUT, run_ranks};

fn device() -> Device {
    Device::flex().autodiff()
}

const BATCH: usize = 3;
const SEQ: usize = 5;
const MEMORY_SEQ: usize = 7;
const D_MODEL: usize = 6;

/// Sizes of which none divides another well, heads of three, and an epsilon that is not burn's default.
fn encoder_config() -> TransformerEncoderConfig {
    TransformerEncoderConfig::new(D_MODEL, 10, 2, 2)
        .with_dropout(0.0)
        .with_layer_norm_eps(1e-3)
}

fn decoder_config() -> TransformerDecoderConfig {
    TransformerDecoderConfig::new(D_MODEL, 10, 2, 2)
        .with_dropout(0.0)
        .with_layer_norm_eps(1e-3)
}

fn encoder(config: &TransformerEncoderConfig) -> TransformerEncoder {
    numbered(config.init(&device()))
}

fn decoder(config: &TransformerDecoderConfig) -> TransformerDecoder {
    numbered(config.init(&device()))
}

/// The module in f64, every parameter moved away from ones and zeros.
fn numbered<M: Module>(module: M) -> M {
    struct Numberer(usize);
    impl ModuleMapper for Numberer {
        fn map_float<const D: usize>(&mut self, param: Param<Tensor<D>>) -> Param<Tensor<D>> {
            self.0 += 1;
            let offset = numbers(&format!("parameter {}", self.0), param.lazy_shape().dims::<D>());
            param.map(|tensor| {
                let value = tensor.inner().cast(FloatDType::F64) + offset.inner().mul_scalar(0.2);
                Tensor::from_inner(value).require_grad()
            })
        }
    }
    initialize::<M>(module).map(&mut Numberer(0))
}

fn numbers<const D: usize>(name: &str, shape: [usize; D]) -> Tensor<D> {
    let mut values = vec![0.0; shape.iter().product()];
    RandomStream::new(3, name).fill_normal(0, 1.0, &mut values);
    Tensor::from_data(TensorData::new(values, shape), (&device(), DType::F64))
}

/// The last tokens of the second sample.
fn padding(seq: usize) -> Tensor<2, Bool> {
    let values: Vec<bool> = (0..BATCH * seq).map(|i| i / seq == 1 && i % seq > 2).collect();
    Tensor::from_data(TensorData::new(values, [BATCH, seq]), &device())
}

/// Every third pair of a query and a key.
fn pairs(queries: usize, keys: usize) -> Tensor<3, Bool> {
    every_third([BATCH, queries, keys])
}

fn every_third<const D: usize>(shape: [usize; D]) -> Tensor<D, Bool> {
    let count: usize = shape.iter().product();
    let values: Vec<bool> = (0..count).map(|i| i % 3 == 1).collect();
    Tensor::from_data(TensorData::new(values, shape), &device())
}

fn by_path<M: Module>(module: &M, gradients: &Gradients) -> BTreeMap<String, Vec<f64>> {
    struct Reader<'a> {
        gradients: &'a Gradients,
        found: BTreeMap<String, Vec<f64>>,
    }
    impl PathVisitor for Reader<'_> {
        fn visit<const D: usize>(&mut self, path: String, param: &Param<Tensor<D>>) {
            // Our norm holds burn's.
            let path = path.replace(".norm.", ".");
            let gradient = param.val().grad(self.gradients).expect("every parameter is used");
            self.found.insert(path, read_host(gradient));
        }
    }
    let mut reader = Reader {
        gradients,
        found: BTreeMap::new(),
    };
    visit_paths(module, &mut reader);
    reader.found
}

fn close(what: &str, actual: &[f64], expected: &[f64]) {
    let norm = |values: &mut dyn Iterator<Item = f64>| values.map(|value| value * value).sum::<f64>().sqrt();
    let difference = norm(&mut actual.iter().zip(expected).map(|(a, b)| a - b));
    // The key's bias has no true gradient: what both have of it is rounding.
    let allowed = 1e-10 * norm(&mut expected.iter().copied()).max(1e-3);
    assert_eq!(actual.len(), expected.len(), "{what}");
    assert!(difference <= allowed, "{what}: {difference:.1e} above {allowed:.1e}");
}

/// Compares outputs and all gradients of two modules and of their inputs, each used once by its closure.
fn compare<M: Module, N: Module>(
    what: &str,
    (burn, expected): (&M, impl Fn([Tensor<3>; 2]) -> Tensor<3>),
    (ours, actual): (&N, impl Fn([Tensor<3>; 2]) -> Tensor<3>),
) {
    let inputs = || {
        let input = |name, seq| numbers(name, [BATCH, seq, D_MODEL]).require_grad();
        [input("target", SEQ), input("memory", MEMORY_SEQ)]
    };
    let (expected_inputs, actual_inputs) = (inputs(), inputs());
    let (expected, actual) = (expected(expected_inputs.clone()), actual(actual_inputs.clone()));
    let backward = |output: &Tensor<3>| (output.clone() * numbers("ascent", output.dims())).sum().backward();
    let (expected_gradients, actual_gradients) = (backward(&expected), backward(&actual));
    close(&format!("{what}: output"), &read_host(actual), &read_host(expected));
    for (actual, expected) in actual_inputs.iter().zip(&expected_inputs) {
        let gradients = (actual.grad(&actual_gradients), expected.grad(&expected_gradients));
        if let (Some(actual), Some(expected)) = gradients {
            close(&format!("{what}: input"), &read_host(actual), &read_host(expected));
        }
    }
    let (expected, actual) = (by_path(burn, &expected_gradients), by_path(ours, &actual_gradients));
    let names = |map: &BTreeMap<String, Vec<f64>>| map.keys().cloned().collect::<Vec<_>>();
    assert_eq!(names(&actual), names(&expected));
    for (name, expected) in &expected {
        close(&format!("{what}: {name}"), &actual[name], expected);
    }
}

#[test]
fn an_encoder_is_burns_with_its_masks_and_settings() {
    for (norm_first, quiet_softmax, activation) in [
        (false, false, ActivationConfig::Gelu),
        (true, false, ActivationConfig::Relu),
        (false, true, ActivationConfig::Tanh),
    ] {
        let config = encoder_config()
            .with_norm_first(norm_first)
            .with_quiet_softmax(quiet_softmax)
            .with_activation(activation);
        for masked in [false, true] {
            let burn = encoder(&config);
            let ours =
                ParallelTransformerEncoder::from_encoder(burn.clone(), &config, &ParallelContext::single(1).root());
            let ours = ours.expect("one rank");
            let what = format!("norm first {norm_first}, quiet {quiet_softmax}, masked {masked}");
            let expected = |[input, _]: [Tensor<3>; 2]| {
                let input = nn::transformer::TransformerEncoderInput::new(input);
                burn.forward(if masked {
                    input.mask_pad(padding(SEQ)).mask_attn(pairs(SEQ, SEQ))
                } else {
                    input
                })
            };
            let actual = |[input, _]: [Tensor<3>; 2]| {
                let input = TransformerEncoderInput::new(input);
                ours.forward(if masked {
                    input.mask_pad(padding(SEQ)).mask_attn(pairs(SEQ, SEQ))
                } else {
                    input
                })
            };
            compare(&what, (&burn, expected), (&ours, actual));
        }
    }
}

#[test]
fn a_decoder_is_burns_with_its_masks() {
    for norm_first in [false, true] {
        let config = decoder_config().with_norm_first(norm_first);
        let burn = decoder(&config);
        let ours = ParallelTransformerDecoder::from_decoder(burn.clone(), &config, &ParallelContext::single(1).root());
        let ours = ours.expect("one rank");
        let expected = |[target, memory]: [Tensor<3>; 2]| {
            let input = nn::transformer::TransformerDecoderInput::new(target, memory);
            burn.forward(
                input
                    .target_mask_pad(padding(SEQ))
                    .target_mask_attn(generate_autoregressive_mask(BATCH, SEQ, &device()))
                    .memory_mask_pad(padding(MEMORY_SEQ))
                    .memory_mask_attn(pairs(SEQ, MEMORY_SEQ)),
            )
        };
        let actual = |[target, memory]: [Tensor<3>; 2]| {
            let input = TransformerDecoderInput::new(target, memory);
            ours.forward(
                input
                    .target_mask_pad(padding(SEQ))
                    .target_mask_attn(generate_autoregressive_mask(BATCH, SEQ, &device()))
                    .memory_mask_pad(padding(MEMORY_SEQ))
                    .memory_mask_attn(pairs(SEQ, MEMORY_SEQ)),
            )
        };
        compare(&format!("norm first {norm_first}"), (&burn, expected), (&ours, actual));
    }
}

#[test]
fn attention_gives_burns_weights_too() {
    let config = nn::attention::MultiHeadAttentionConfig::new(D_MODEL, 2)
        .with_dropout(0.0)
        .with_min_float(-2.0);
    let burn = numbered(config.init(&device()));
    let ours =
        ParallelMultiHeadAttention::from_mha(burn.clone(), &ParallelContext::single(1).root()).expect("one rank");
    let [target, memory] =
        [("target", SEQ), ("memory", MEMORY_SEQ)].map(|(name, seq)| numbers(name, [BATCH, seq, D_MODEL]));
    let expected = burn.forward(
        nn::attention::MhaInput::new(target.clone(), memory.clone(), memory.clone()).mask_pad(padding(MEMORY_SEQ)),
    );
    let actual = ours.forward(MhaInput::new(target, memory.clone(), memory).mask_pad(padding(MEMORY_SEQ)));
    close("weights", &read_host(actual.weights), &read_host(expected.weights));
    close("context", &read_host(actual.context), &read_host(expected.context));
}

/// burn's attention and ours.
fn attentions() -> (nn::attention::MultiHeadAttention, ParallelMultiHeadAttention) {
    let config = nn::attention::MultiHeadAttentionConfig::new(D_MODEL, 2).with_dropout(0.0);
    let burn = numbered(config.init(&device()));
    let ours = ParallelMultiHeadAttention::from_mha(burn.clone(), &ParallelContext::single(1).root());
    (burn, ours.expect("one rank"))
}

#[test]
fn dimensions_of_one_in_masks_are_broadcast_as_burn_does() {
    let (burn, ours) = attentions();
    let input = numbers("target", [BATCH, SEQ, D_MODEL]);
    let expected_input = || nn::attention::MhaInput::self_attn(input.clone());
    let actual_input = || MhaInput::self_attn(input.clone());
    for shape in [[1, SEQ, SEQ], [BATCH, 1, SEQ], [BATCH, SEQ, 1], [1, 1, SEQ]] {
        let mask = every_third(shape);
        let expected = read_host(burn.forward(expected_input().mask_attn(mask.clone())).context);
        for mask in [mask.clone(), mask.expand([BATCH, SEQ, SEQ])] {
            let actual = ours.forward(actual_input().mask_attn(mask)).context;
            close(&format!("mask_attn {shape:?}"), &read_host(actual), &expected);
        }
    }
    for shape in [[1, SEQ], [BATCH, 1]] {
        let mask = every_third(shape);
        let expected = read_host(burn.forward(expected_input().mask_pad(mask.clone())).context);
        for mask in [mask.clone(), mask.expand([BATCH, SEQ])] {
            let actual = ours.forward(actual_input().mask_pad(mask)).context;
            close(&format!("mask_pad {shape:?}"), &read_host(actual), &expected);
        }
    }
}

#[test]
#[should_panic(
    expected = "mask_attn of shape [3, 7, 5] does not fit the attention's [batch, queries, keys] = [3, 5, 7]: each \
                size must be the same, or 1"
)]
fn a_transposed_attention_mask_is_refused() {
    let [target, memory] =
        [("target", SEQ), ("memory", MEMORY_SEQ)].map(|(name, seq)| numbers(name, [BATCH, seq, D_MODEL]));
    let input = MhaInput::new(target, memory.clone(), memory);
    attentions().1.forward(input.mask_attn(pairs(MEMORY_SEQ, SEQ)));
}

#[test]
#[should_panic(expected = "mask_pad of shape [5, 3] does not fit the attention's [batch, keys] = [3, 5]")]
fn a_transposed_padding_mask_is_refused() {
    let input = MhaInput::self_attn(numbers("target", [BATCH, SEQ, D_MODEL]));
    attentions().1.forward(input.mask_pad(every_third([SEQ, BATCH])));
}

#[test]
fn tokens_that_sequence_parallelism_cannot_cut_are_refused_with_the_name_of_the_module() {
    let config = encoder_config().with_dropout(0.3);
    let messages = run_ranks(2, TIMEOUT, |world| {
        let parallel = ParallelConfig::new()
            .with_tensor_parallel_size(2)
            .with_sequence_parallel(true);
        let context = parallel.init(&world).unwrap();
        let ours = ParallelTransformerEncoder::from_encoder(encoder(&config), &config, &context.scope("enc")).unwrap();
        context.set_step(1, [4, 5, 6]);
        let input = TransformerEncoderInput::new(numbers("target", [BATCH, SEQ, D_MODEL]));
        let refused = catch_unwind(AssertUnwindSafe(|| drop(ours.forward(input)))).unwrap_err();
        refused.downcast_ref::<String>().unwrap().clone()
    });
    let expected = "transformer encoder enc: sequence parallelism cuts the tokens, batch * seq = 3 * 5 = 15, into 2 \
                    equal parts; the nearest valid numbers of tokens are 14 and 16";
    assert_eq!(messages, [expected; 2]);
}

#[test]
fn caches_give_what_burns_give_token_by_token() {
    let mask = |seq| generate_autoregressive_mask(BATCH, seq, &device());
    for norm_first in [false, true] {
        let config = encoder_config().with_norm_first(norm_first);
        let burn = encoder(&config);
        let context = ParallelContext::single(1);
        let ours = ParallelTransformerEncoder::from_encoder(burn.clone(), &config, &context.root()).expect("one rank");
        let mut caches = (burn.new_autoregressive_cache(), ours.new_autoregressive_cache());
        let input = numbers("target", [BATCH, SEQ, D_MODEL]);
        for seq in 1..=SEQ {
            let tokens = input.clone().narrow(1, 0, seq);
            let expected = nn::transformer::TransformerEncoderInput::new(tokens.clone()).mask_attn(mask(seq));
            let expected = burn.forward_autoregressive_inference(expected, &mut caches.0);
            let actual = TransformerEncoderInput::new(tokens).mask_attn(mask(seq));
            let actual = ours.forward_autoregressive_inference(actual, &mut caches.1);
            close("encoder", &read_host(actual), &read_host(expected));
        }

        let config = decoder_config().with_norm_first(norm_first);
        let burn = decoder(&config);
        let ours = ParallelTransformerDecoder::from_decoder(burn.clone(), &config, &context.root()).expect("one rank");
        let mut caches = (burn.new_autoregressive_cache(), ours.new_autoregressive_cache());
        let memory = numbers("memory", [BATCH, MEMORY_SEQ, D_MODEL]);
        for seq in 1..=SEQ {
            let tokens = input.clone().narrow(1, 0, seq);
            let expected = nn::transformer::TransformerDecoderInput::new(tokens.clone(), memory.clone());
            let expected = expected
                .target_mask_attn(mask(seq))
                .memory_mask_pad(padding(MEMORY_SEQ));
            let expected = burn.forward_autoregressive_inference(expected, &mut caches.0);
            let actual = TransformerDecoderInput::new(tokens, memory.clone());
            let actual = actual.target_mask_attn(mask(seq)).memory_mask_pad(padding(MEMORY_SEQ));
            let actual = ours.forward_autoregressive_inference(actual, &mut caches.1);
            close("decoder", &read_host(actual), &read_host(expected));
        }
    }
}

fn refusal(encoder: TransformerEncoder, config: &TransformerEncoderConfig) -> ConversionError {
    let scope = ParallelContext::single(1).scope("encoder");
    ParallelTransformerEncoder::from_encoder(encoder, config, &scope).expect_err("it must be refused")
}

#[test]
fn what_cannot_be_honoured_is_refused_by_name() {
    let config = encoder_config();
    let says = |error: ConversionError, text: &str| assert!(error.to_string().starts_with(text), "{error}");
    says(
        refusal(config.init(&device()), &config),
        "parameter encoder.layers.0.mha.query.weight has no values yet",
    );
    says(
        refusal(encoder(&config), &config.clone().with_layer_norm_eps(1e-5)),
        "layer norm encoder.layers.0.norm_1: the configuration says layer_norm_eps = 1e-5, the module has 1.000e-3",
    );
    says(
        refusal(encoder(&config), &config.clone().with_norm_first(true)),
        "transformer encoder encoder: the configuration says norm_first = true, the module has false",
    );
    let swiglu = config
        .clone()
        .with_activation(ActivationConfig::SwiGlu(nn::SwiGluConfig::new(10, 10)));
    says(
        refusal(encoder(&swiglu), &swiglu),
        "position-wise feed-forward layer encoder.layers.0.pwff: activation = SwiGlu cannot be shared out",
    );
    let mut cut = encoder(&config);
    cut.layers.pop();
    says(
        refusal(cut, &config),
        "transformer encoder encoder: the configuration says n_layers = 2, the module has 1",
    );
    let mut dropping = encoder(&config);
    dropping.layers[1].dropout.prob = 1.0;
    says(
        refusal(dropping, &config),
        "transformer encoder layer encoder.layers.1: dropout = 1 cannot be shared out",
    );
}

/// An encoder that drops, and its input.
fn dropping(scope: &ParameterScope) -> (ParallelTransformerEncoder, Tensor<3>) {
    let config = encoder_config().with_dropout(0.3);
    let ours = ParallelTransformerEncoder::from_encoder(encoder(&config), &config, scope);
    (ours.expect("one rank"), numbers("target", [BATCH, SEQ, D_MODEL]))
}

#[test]
fn what_is_dropped_depends_on_the_step_and_nothing_is_without_autodiff() {
    let context = ParallelContext::single(1);
    let (encoder, input) = dropping(&context.root());
    let run = |iteration| {
        context.set_step(iteration, [4, 5, 6]);
        read_host(encoder.forward(TransformerEncoderInput::new(input.clone())))
    };
    let first = run(1);
    assert_ne!(first, run(2));
    assert_eq!(first, run(1));
    let step = StepCoordinates {
        seed: 1,
        iteration: 1,
        tokens: TokenMap::of_samples(&[4, 5, 6], SEQ),
    };
    let given = TransformerEncoderInput::new(input.clone()).coordinates(step);
    assert_eq!(first, read_host(encoder.forward(given)));
    let valid = encoder.valid().forward(TransformerEncoderInput::new(input.inner()));
    assert_ne!(first, read_host(valid));
}

#[test]
#[should_panic(
    expected = "transformer encoder enc: an active dropout does not know its step; call \
                           ParallelContext::set_step(iteration, samples)"
)]
fn an_active_dropout_without_a_step_is_refused() {
    let (encoder, input) = dropping(&ParallelContext::single(1).scope("enc"));
    encoder.forward(TransformerEncoderInput::new(input));
}

#[test]
#[should_panic(expected = "a second forward pass at the same coordinates, iteration 1")]
fn a_forgotten_step_is_refused() {
    let context = ParallelContext::single(1);
    let (encoder, input) = dropping(&context.root());
    context.set_step(1, [4, 5, 6]);
    for _ in 0..2 {
        encoder.clone().forward(TransformerEncoderInput::new(input.clone()));
    }
}

#[test]
fn two_modules_of_one_name_and_two_places_of_a_layer_have_masks_of_their_own() {
    let context = ParallelContext::single(1);
    let (first, input) = dropping(&context.root());
    let (second, _) = dropping(&context.root());
    context.set_step(1, [4, 5, 6]);
    let run =
        |encoder: &ParallelTransformerEncoder| read_host(encoder.forward(TransformerEncoderInput::new(input.clone())));
    assert_ne!(run(&first), run(&second));
}
