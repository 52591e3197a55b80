//! What the attention core holds between its passes, counted at the allocator. One test per binary: others would count.

use std::alloc::System;

use burn::backend::Autodiff;
use burn::tensor::Tensor;
use burn_flex::Flex;
use burn_megatron::random::{DropoutConfig, DropoutSite, StepCoordinates, TokenMap};
use burn_megatron::training::memory::{CountingAllocator, allocated_bytes};
use models::common::{Recompute, Sight, WeightRule, attention_core};

#[global_allocator]
static ALLOCATOR: CountingAllocator<System> = CountingAllocator(System);

type B = Autodiff<Flex>;

const BATCH: usize = 2;
const HEADS: usize = 3;
const SEQ: usize = 128;
const D_HEAD: usize = 8;

/// One `[batch, heads, seq, seq]` tensor of f32.
const WEIGHTS_BYTES: usize = BATCH * HEADS * SEQ * SEQ * size_of::<f32>();

/// One `[batch, heads, seq, d_head]` tensor of f32.
const OUTPUT_BYTES: usize = BATCH * HEADS * SEQ * D_HEAD * size_of::<f32>();

/// What the graph's nodes take, and threads that start meanwhile.
const SLACK_BYTES: usize = 32 * 1024;

#[test]
fn recomputation_holds_no_weights_between_the_passes_and_keeping_holds_them_once() {
    let device = Default::default();
    let step = StepCoordinates {
        seed: 1,
        iteration: 2,
        tokens: TokenMap::of_samples(&[3, 4], SEQ),
    };
    let inputs = [0, 1, 2].map(|_| Tensor::<B, 4>::ones([BATCH, HEADS, SEQ, D_HEAD], &device).require_grad());
    let held = |recompute, dropout: f64| {
        let [query, key, value] = inputs.clone();
        let dropout = DropoutConfig::new(dropout).init(DropoutSite { layer: 0, number: 0 });
        let rule = WeightRule {
            sight: Sight::Causal,
            dropout: dropout.of_attention::<B>(&step, 0, &device),
        };
        let before = allocated_bytes();
        let output = attention_core(query, key, value, rule, recompute);
        let bytes = allocated_bytes() - before;
        // The backward pass frees it all.
        let gradients = output.sum().backward();
        assert!(inputs.iter().all(|input| input.grad(&gradients).is_some()));
        drop(gradients);
        bytes
    };
    // Threads and tables that live on are there afterwards.
    held(Recompute::Nothing, 0.1);
    for dropout in [0.0, 0.1] {
        let recomputed = held(Recompute::Weights, dropout);
        let kept = held(Recompute::Nothing, dropout);
        println!("dropout {dropout}: {recomputed} bytes held with recomputation, {kept} without");
        let expected = OUTPUT_BYTES..OUTPUT_BYTES + SLACK_BYTES;
        assert!(
            expected.contains(&recomputed),
            "{recomputed} bytes, not in {expected:?}"
        );
        let expected = OUTPUT_BYTES + WEIGHTS_BYTES..OUTPUT_BYTES + WEIGHTS_BYTES + SLACK_BYTES;
        assert!(expected.contains(&kept), "{kept} bytes, not in {expected:?}");
    }
}
