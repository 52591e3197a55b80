//! What attention costs on the CPU: this crate's form for it against the same in burn's operations.
//!
//! ```sh
//! RAYON_NUM_THREADS=2 cargo run --release -p cubecl-kernels --example bench_attention
//! ```

#[allow(dead_code)]
mod timing;

use burn::tensor::{Distribution, Tensor};
use burn_flex::Flex;
use cubecl_kernels::KernelBackend;
use cubecl_kernels::flash_attention::{
    AttentionBackward, AttentionMask, AttentionOptions, PackedHeads, reference, unpack,
};
use cubecl_kernels::random::{RowDropout, RowPlace};
use timing::times;

const HEADS: PackedHeads = PackedHeads { queries: 6, keys: 6 };
const D_HEAD: usize = 64;

fn main() {
    println!(
        "{} heads of {D_HEAD}, causal, f32, packed; milliseconds: processors' time, median and best wall",
        HEADS.queries
    );
    for (batch, seq) in [(4, 256), (1, 1024), (4, 1024)] {
        for probability in [0.0, 0.1] {
            bench([batch, seq], probability);
        }
    }
}

fn bench([batch, seq]: [usize; 2], probability: f64) {
    let device = Default::default();
    let random = |heads| Tensor::<Flex, 4>::random([batch, seq, heads, D_HEAD], Distribution::Default, &device);
    let (packed, gradient) = (random(HEADS.total()), random(HEADS.queries));
    let places = (0..batch * seq).map(|row| RowPlace {
        position: (row % seq) as u32,
        sample: (row / seq) as u32,
    });
    let dropout = RowDropout {
        key: [1, 2],
        iteration: 3,
        first_head: 0,
        probability,
        places: places.collect::<Vec<_>>().into(),
    };
    let options = AttentionOptions {
        mask: AttentionMask::Causal,
        scale: (D_HEAD as f64).powf(-0.5),
        dropout: (probability > 0.0).then_some(dropout),
        documents: None,
        key_lengths: None,
        is_deterministic: false,
    };
    let forward = || Flex::flash_attention_forward(unpack(packed.clone(), HEADS), None, &options);
    let kept = forward();
    let runs = if seq > 512 { 9 } else { 25 };
    let report = |what: &str, times: timing::Times| {
        println!(
            "[{batch}, {seq:4}] dropout {probability}: {what:20} {:8.3} {:8.3} {:8.3}",
            times.processors.as_secs_f64() * 1e3,
            times.wall.as_secs_f64() * 1e3,
            times.best.as_secs_f64() * 1e3
        );
    };
    report("forward, here", times(runs, forward));
    let pass = || AttentionBackward {
        forward: kept.clone(),
        gradient: gradient.clone(),
        bias: None,
    };
    let backward = || Flex::flash_attention_packed_backward(packed.clone(), HEADS, pass(), &options);
    report("backward, here", times(runs, backward));
    let forward = || reference::forward(unpack(packed.clone(), HEADS), None, &options);
    report("forward, reference", times(3, forward));
    let backward = || reference::backward(unpack(packed.clone(), HEADS), pass(), &options);
    report("backward, reference", times(3, backward));
}
