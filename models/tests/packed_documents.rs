//! The losses of documents that are packed into samples, with positions and attention of their own, are those of each
//! document alone; rotary embeddings are of the positions that are given.

use std::sync::Once;

use burn::tensor::{Device, FloatDType, IntDType};
use burn_megatron::context::ParallelContext;
use burn_megatron::data::MicroBatch;
use burn_megatron::pipeline_parallel::{PipelineStage, StageOutput};
use burn_megatron::training::TokenBatch;
use cubecl_kernels::flash_attention::Documents;
use cubecl_kernels::rotary::tables::RotaryScaling;
use models::bloom::BloomConfig;
use models::decoder::Decoder;
use models::gpt::GptConfig;
use models::llama::LlamaConfig;
use models::neox::NeoxConfig;

const VOCAB: usize = 37;
const SEQ: usize = 13;
/// Of two samples.
const LENGTHS: [&[usize]; 2] = [&[5, 1, 7], &[13]];

fn losses(model: &Decoder, micro_batch: &MicroBatch) -> Vec<f64> {
    let batch = TokenBatch::new(micro_batch, 1, 0);
    let StageOutput::Losses(losses) = PipelineStage::<2>::forward(model, None, &batch) else {
        panic!("a whole model has losses");
    };
    losses.into_data().try_to_vec().expect("f64")
}

/// The tokens from `start` of a text that is the same every time.
fn micro_batch(start: usize, micro_batch_size: usize, seq_length: usize) -> MicroBatch {
    let token = |place: usize| ((place * 7 + place * place) % VOCAB) as i32;
    let end = start + micro_batch_size * seq_length;
    MicroBatch {
        tokens: (start..end).map(token).collect(),
        targets: (start..end).map(|place| token(place + 1)).collect(),
        sample_ids: (0..micro_batch_size as u64).collect(),
        micro_batch_size,
        seq_length,
        ..MicroBatch::default()
    }
}

/// Sets the type of parameters.
fn compute_in_f64() {
    static SET: Once = Once::new();
    SET.call_once(|| {
        Device::flex()
            .configure((FloatDType::F64, IntDType::I32))
            .expect("set once");
    });
}

fn difference(left: &[f64], right: &[f64]) -> f64 {
    assert_eq!(left.len(), right.len());
    let pairs = left.iter().zip(right);
    pairs.map(|(left, right)| (left - right).abs()).fold(0.0, f64::max)
}

fn expect_losses_of_each(name: &str, model: &Decoder) {
    let mut packed = micro_batch(0, 2, SEQ);
    let whole = losses(model, &packed);
    let lengths = LENGTHS.map(<[usize]>::to_vec);
    packed.documents = Some(Documents::from_lengths(SEQ, &lengths).expect("whole samples"));
    packed.position_ids = Some(
        lengths
            .concat()
            .into_iter()
            .flat_map(|length| 0..length as i32)
            .collect(),
    );
    let found = losses(model, &packed);
    let mut start = 0;
    let mut expected = vec![];
    for length in lengths.concat() {
        expected.extend(losses(model, &micro_batch(start, 1, length)));
        start += length;
    }
    assert!(
        difference(&found, &expected) < 1e-12,
        "{name}: {found:?}, expected {expected:?}"
    );
    assert!(
        difference(&whole, &expected) > 0.01,
        "{name}: the documents make a difference"
    );
}

#[test]
fn losses_of_packed_documents_are_those_of_each() {
    compute_in_f64();
    let context = || ParallelContext::single(7);
    let gpt = GptConfig::new(2, 20, 2, SEQ, VOCAB).with_init_deviation(0.5);
    let llama = LlamaConfig::new(2, 24, 4, 2, 36, SEQ, VOCAB).with_init_deviation(0.5);
    let neox = NeoxConfig::new(2, 20, 2, SEQ, VOCAB)
        .with_rotary_percent(0.4)
        .with_init_deviation(0.5);
    let bloom = BloomConfig::new(2, 18, 6, SEQ, VOCAB).with_init_deviation(0.5);
    expect_losses_of_each("gpt", &gpt.init(&Device::flex(), &context()).expect("sizes that fit"));
    expect_losses_of_each(
        "llama",
        &llama.init(&Device::flex(), &context()).expect("sizes that fit"),
    );
    let normed = llama.with_qk_norm(true).with_window(Some(4));
    expect_losses_of_each(
        "qwen3",
        &normed.init(&Device::flex(), &context()).expect("sizes that fit"),
    );
    expect_losses_of_each("neox", &neox.init(&Device::flex(), &context()).expect("sizes that fit"));
    expect_losses_of_each(
        "bloom",
        &bloom.init(&Device::flex(), &context()).expect("sizes that fit"),
    );
}

#[test]
fn rotary_embeddings_are_of_the_given_positions() {
    compute_in_f64();
    let config = LlamaConfig::new(2, 24, 4, 2, 36, 2 * SEQ, VOCAB).with_init_deviation(0.5);
    // Frequencies twice as high.
    let fast = config
        .clone()
        .with_rotary_scaling(RotaryScaling::Linear { factor: 0.5 });
    let [model, fast] = [config, fast].map(|config| {
        config
            .init(&Device::flex(), &ParallelContext::single(7))
            .expect("sizes that fit")
    });
    let at = |position: fn(i32) -> i32| {
        let mut given = micro_batch(0, 2, SEQ);
        given.position_ids = Some((0..2).flat_map(|_| 0..SEQ as i32).map(position).collect());
        losses(&model, &given)
    };
    let plain = losses(&model, &micro_batch(0, 2, SEQ));
    assert!(difference(&at(|place| place), &plain) < 1e-12);
    // Distances count alone.
    assert!(difference(&at(|place| place + 9), &plain) < 1e-12);
    let twice = losses(&fast, &micro_batch(0, 2, SEQ));
    assert!(difference(&at(|place| 2 * place), &twice) < 1e-12);
    assert!(difference(&plain, &twice) > 0.01);
    // As `--reset-position-ids` without `--reset-attention-mask`: one that starts again from 0 sees the one before.
    assert!(difference(&at(|place| place % 5), &plain) > 0.01);
}
