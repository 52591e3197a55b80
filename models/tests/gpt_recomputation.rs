//! `recompute_attention` of a whole GPT: the same bits, without the attention weights between the passes. One test per
//! binary: what others allocate would count.

use std::alloc::System;

use burn::backend::Autodiff;
use burn::module::{Module, ModuleVisitor, Param};
use burn::tensor::backend::AutodiffBackend;
use burn::tensor::{Int, Tensor, TensorData};
use burn_flex::Flex;
use burn_megatron::context::ParallelContext;
use burn_megatron::parameters::list_parameters;
use burn_megatron::random::{StepCoordinates, TokenMap};
use burn_megatron::training::memory::{CountingAllocator, allocated_bytes};
use models::gpt::{Gpt, GptConfig};

#[global_allocator]
static ALLOCATOR: CountingAllocator<System> = CountingAllocator(System);

type B = Autodiff<Flex>;

const BATCH: usize = 2;
const N_LAYERS: usize = 2;
const N_HEADS: usize = 4;
const SEQ: usize = 96;

/// The attention weights of all layers in f32.
const WEIGHTS_BYTES: usize = N_LAYERS * BATCH * N_HEADS * SEQ * SEQ * size_of::<f32>();

/// What is allocated beside tensors may differ by this between two runs: tables that grow, the other threads' own.
const SLACK_BYTES: usize = 32 * 1024;

/// The loss, all gradients, and the bytes held between the passes.
fn run(recompute_attention: bool) -> (TensorData, Vec<TensorData>, usize) {
    let device = Default::default();
    let config = GptConfig::new(N_LAYERS, 16, N_HEADS, SEQ, 11)
        .with_attention_dropout(0.2)
        .with_hidden_dropout(0.1)
        .with_recompute_attention(recompute_attention);
    let model: Gpt<B> = config
        .init(&device, &ParallelContext::single(7))
        .expect("the sizes fit");
    let tokens = |seed: i64| {
        let tokens: Vec<i64> = (0..(BATCH * SEQ) as i64)
            .map(|index| (index * index + seed) % 11)
            .collect();
        Tensor::<B, 2, Int>::from_data(TensorData::new(tokens, [BATCH, SEQ]), &device)
    };
    let step = StepCoordinates {
        seed: 1,
        iteration: 2,
        tokens: TokenMap::of_samples(&[3, 4], SEQ),
    };
    // Lazy parameters are made before anything is counted.
    assert!(!list_parameters::<B, _>(&model).is_empty());
    let (tokens, targets) = (tokens(0), tokens(1));
    let before = allocated_bytes();
    let loss = model.token_losses(tokens, targets, &step).mean();
    let held = allocated_bytes() - before;
    let value = loss.to_data();
    let mut reader = GradientReader {
        gradients: loss.backward(),
        read: Vec::new(),
    };
    model.visit(&mut reader);
    (value, reader.read, held)
}

struct GradientReader {
    gradients: <B as AutodiffBackend>::Gradients,
    read: Vec<TensorData>,
}

impl ModuleVisitor<B> for GradientReader {
    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<B, D>>) {
        let gradient = param.val().grad(&self.gradients).expect("every parameter is used");
        self.read.push(gradient.into_data());
    }
}

#[test]
fn recomputed_attention_changes_no_bit_and_holds_no_weights() {
    // Threads and tables that live on are there afterwards.
    run(false);
    let (loss, gradients, held) = run(false);
    let (recomputed_loss, recomputed_gradients, recomputed_held) = run(true);
    println!("{recomputed_held} bytes held with recomputation, {held} without");
    assert_eq!(loss, recomputed_loss);
    assert!(gradients.len() > 10);
    assert_eq!(gradients, recomputed_gradients);
    let saved = held.checked_sub(recomputed_held).expect("recomputation holds less");
    assert!(
        saved.abs_diff(WEIGHTS_BYTES) < SLACK_BYTES,
        "{saved} bytes saved, weights have {WEIGHTS_BYTES}"
    );
}
