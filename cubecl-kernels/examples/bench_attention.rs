//! What attention costs on the CPU: this crate's form for it against the same in burn's operations.
//!
//! ```sh
//! RAYON_NUM_THREADS=2 cargo run --release -p cubecl-kernels --example bench_attention
//! ```

#[allow(dead_code, reason = "shared with other benches")]
mod passes;
mod timing;

use burn::tensor::{Device, Distribution, Tensor};
use cubecl_kernels::flash_attention::{AttentionMask, AttentionOptions, PackedHeads, flash_attention_packed};
use cubecl_kernels::random::{RowDropout, RowPlace};
use cubecl_kernels::{Kernels, set_kernels};
use passes::Passes;
use timing::{Times, times, times_of_prepared};

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
    let device = Device::flex();
    let random = |heads| Tensor::<4>::random([batch, seq, heads, D_HEAD], Distribution::Default, &device);
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
    let attend = |packed| flash_attention_packed(packed, HEADS, options.clone()).expect("the heads are packed");
    let report = |what: &str, times: Times| {
        println!(
            "[{batch}, {seq:4}] dropout {probability}: {what:20} {:8.3} {:8.3} {:8.3}",
            times.processors.as_secs_f64() * 1e3,
            times.wall.as_secs_f64() * 1e3,
            times.best.as_secs_f64() * 1e3
        );
    };
    let runs = if seq > 512 { 9 } else { 25 };
    for (kernels, whose, runs) in [(Kernels::Fused, "here", runs), (Kernels::Plain, "reference", 3)] {
        set_kernels(kernels);
        report(&format!("forward, {whose}"), times(runs, || attend(packed.clone())));
        let prepare = || {
            let mut passes = Passes::new(&device);
            passes.add([attend(passes.track(packed.clone()))], [gradient.clone()]);
            passes
        };
        let backward = times_of_prepared(runs, prepare, Passes::run);
        report(&format!("backward, {whose}"), backward);
    }
}
