//! Memory of attention, forward and backward each: nothing that grows with the square of the sequence.
//!
//! On Flex it is what is allocated; on CUDA, on matrix units, what the stream of a thread reserves.

use anyhow::ensure;
use burn::tensor::{DType, Device, Distribution, Tensor};
use cubecl_kernels::flash_attention::{AttentionMask, AttentionOptions, PackedHeads, flash_attention_packed};
use libtest_mimic::Trial;

use crate::support::allocation::{most_bytes, restart};
use crate::support::compare::backward;

const HEADS: PackedHeads = PackedHeads { queries: 1, keys: 1 };

pub fn trials() -> Vec<Trial> {
    let mut trials = Vec::new();
    for pass in [Pass::Forward, Pass::Backward] {
        let name = |place| format!("{place}::attention_{pass:?}_memory_grows_with_the_sequence").to_lowercase();
        trials.push(Trial::test(name("flex_f32"), move || {
            Ok(is_linear(pass, DType::F32, on_flex)?)
        }));
        #[cfg(feature = "cuda")]
        trials.push(Trial::test(name("cuda_bf16"), move || {
            Ok(is_linear(pass, DType::BF16, on_cuda)?)
        }));
    }
    trials
}

#[derive(Clone, Copy, Debug)]
enum Pass {
    Forward,
    Backward,
}

#[derive(Clone, Copy, Debug)]
struct Case {
    seq: usize,
    pass: Pass,
    dtype: DType,
    /// A tensor of the size of the weights is there meanwhile.
    has_weights: bool,
}

/// Checks that a pass over four times the tokens takes at most four times the memory, less than half of what the
/// weights would, and that the measure sees these where there are any.
fn is_linear(pass: Pass, dtype: DType, bytes: fn(Case) -> anyhow::Result<u64>) -> anyhow::Result<()> {
    let weights = |seq: usize| (seq * seq * dtype.size()) as u64;
    let bytes = |seq, has_weights| {
        bytes(Case {
            seq,
            pass,
            dtype,
            has_weights,
        })
    };
    let (short, long) = (bytes(1024, false)?, bytes(4096, false)?);
    let facts = format!("{short} bytes for 1024 tokens, {long} for 4096");
    ensure!(long <= 4 * short && long < weights(4096) / 2, "{facts}");
    let with_weights = bytes(1024, true)?;
    ensure!(
        with_weights >= short + weights(1024),
        "{facts}; {with_weights} with weights"
    );
    Ok(())
}

/// Runs a pass between `start` and `bytes`.
fn measure(
    case: Case,
    device: Device,
    start: impl Fn(),
    bytes: impl Fn() -> anyhow::Result<u64>,
) -> anyhow::Result<u64> {
    let Case { seq, dtype, .. } = case;
    let drawn = |heads| {
        let options = (&device, dtype);
        Tensor::<4>::random([1, seq, heads, 16], Distribution::Normal(0.0, 1.0), options)
    };
    let (packed, gradient) = (drawn(HEADS.total()), drawn(1));
    let options = AttentionOptions {
        mask: AttentionMask::Causal,
        scale: 0.25,
        dropout: None,
        documents: None,
        key_lengths: None,
        is_deterministic: false,
    };
    let weights = || {
        case.has_weights
            .then(|| Tensor::<4>::zeros([1, 1, seq, seq], (&device, dtype)))
    };
    match case.pass {
        Pass::Forward => {
            start();
            let _weights = weights();
            let _output = flash_attention_packed(packed, HEADS, options)?;
            bytes()
        }
        Pass::Backward => {
            let output = flash_attention_packed(packed.require_grad(), HEADS, options)?;
            start();
            let _weights = weights();
            let _gradients = backward(vec![[output, gradient]]);
            bytes()
        }
    }
}

/// The most that is allocated at once in a pass, on one thread.
fn on_flex(case: Case) -> anyhow::Result<u64> {
    let pool = rayon::ThreadPoolBuilder::new().num_threads(1).build()?;
    pool.install(|| {
        restart();
        let before = most_bytes();
        let device = Device::flex().autodiff();
        measure(case, device, restart, || Ok(u64::try_from(most_bytes() - before)?))
    })
}

/// What is reserved after a pass, on a thread of its own: it has a stream, and a stream its memory.
#[cfg(feature = "cuda")]
fn on_cuda(case: Case) -> anyhow::Result<u64> {
    let run = move || {
        let device = Device::cuda(0).autodiff();
        let inner = device.clone().inner();
        let start = || {
            inner.sync().expect("the device works");
            inner.memory_cleanup();
        };
        measure(case, device, start, || {
            inner.sync()?;
            let usage = inner.memory_pool_usage();
            Ok(usage.expect("CubeCL reports it").bytes_reserved)
        })
    };
    let usage = std::thread::spawn(run).join();
    usage.map_err(|_| anyhow::anyhow!("{case:?} panicked"))?
}
