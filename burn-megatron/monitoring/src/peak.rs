//! What a device can do at most, and the share of it that training reaches: MFU, model FLOPs utilisation.
//!
//! The peaks are of dense matrices, in TFLOP/s at the boost clock, as NVIDIA publishes them; a datasheet that gives
//! them "with sparsity" has twice the number. 16 bits: by tensor cores, sums in f32. f32 and f64: by the plain cores,
//! without TF32 and without tensor cores in f64.
//!
//! | GPU | f16, bf16 | f32 | f64 | source |
//! |---|---|---|---|---|
//! | V100 SXM2, PCIe, V100S | 125, 112, 130 (f16 only) | 15.7, 14, 16.4 | 7.8, 7, 8.2 | V100 datasheet |
//! | T4 | 65 (f16 only) | 8.1 | | T4 datasheet |
//! | A100, A800 | 312 | 19.5 | 9.7 | A100 datasheet |
//! | A30 | 165 | 10.3 | 5.2 | A30 datasheet |
//! | A10 | 125 | 31.2 | | A10 datasheet |
//! | A40 | 149.7 | 37.4 | | A40 datasheet |
//! | RTX A6000 | 154.8 | 38.7 | | Ampere GA102 whitepaper |
//! | RTX 3090 | 71 | 35.6 | | Ampere GA102 whitepaper |
//! | L4 | 121 | 30.3 | | L4 datasheet |
//! | L40 | 181 | 90.5 | | L40 datasheet |
//! | L40S | 362 | 91.6 | | L40S datasheet |
//! | RTX 6000 Ada | 364.2 | 91.1 | | Ada whitepaper |
//! | RTX 4090 | 165.2 | 82.6 | | Ada whitepaper |
//! | RTX 5090 | 209.5 | 104.8 | | RTX Blackwell whitepaper |
//! | H100 SXM, H800, GH200 | 989 | 67 | 34 (H800: 1) | H100, GH200 datasheets |
//! | H100 PCIe | 756 | 51 | 26 | H100 datasheet of 2022 |
//! | H100 NVL | 835 | 60 | 30 | H100 datasheet |
//! | H20 | 148 | 44 | 1 | H20 datasheet |
//! | H200 SXM | 989 | 67 | 34 | H200 datasheet |
//! | H200 NVL | 835 | 60 | 30 | H200 datasheet |
//! | B200 | 2250 | 75 | 37 | DGX B200 datasheet |
//! | GB200 | 2500 | 80 | 40 | GB200 NVL72 datasheet |
//!
//! A part of a GPU (MIG) has no entry: `--peak-tflops` says what it can do.

use std::time::{Duration, Instant};

/// In which numbers matrices are multiplied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NumberType {
    /// 64 bits.
    F64,
    /// 32 bits.
    F32,
    /// 16 bits of IEEE 754.
    F16,
    /// 16 bits with the range of 32.
    Bf16,
}

/// Peaks of a GPU in TFLOP/s.
struct Gpu {
    /// Words that its name has, in lower case.
    words: &'static [&'static str],
    f16: f64,
    bf16: Option<f64>,
    f32: f64,
    f64: Option<f64>,
}

const fn gpu(words: &'static [&'static str], half: f64, f32: f64, f64: Option<f64>) -> Gpu {
    Gpu {
        words,
        f16: half,
        bf16: Some(half),
        f32,
        f64,
    }
}

const fn without_bf16(words: &'static [&'static str], f16: f64, f32: f64, f64: Option<f64>) -> Gpu {
    Gpu {
        bf16: None,
        ..gpu(words, f16, f32, f64)
    }
}

/// The first that fits counts: special forms are before the plain one.
const GPUS: [Gpu; 27] = [
    without_bf16(&["v100s"], 130.0, 16.4, Some(8.2)),
    without_bf16(&["v100", "pcie"], 112.0, 14.0, Some(7.0)),
    without_bf16(&["v100"], 125.0, 15.7, Some(7.8)),
    without_bf16(&["t4"], 65.0, 8.1, None),
    gpu(&["a100"], 312.0, 19.5, Some(9.7)),
    gpu(&["a800"], 312.0, 19.5, Some(9.7)),
    gpu(&["a30"], 165.0, 10.3, Some(5.2)),
    gpu(&["a10"], 125.0, 31.2, None),
    gpu(&["a40"], 149.7, 37.4, None),
    gpu(&["a6000"], 154.8, 38.7, None),
    gpu(&["rtx", "3090"], 71.0, 35.6, None),
    gpu(&["l4"], 121.0, 30.3, None),
    gpu(&["l40"], 181.0, 90.5, None),
    gpu(&["l40s"], 362.0, 91.6, None),
    gpu(&["rtx", "6000", "ada"], 364.2, 91.1, None),
    gpu(&["rtx", "4090"], 165.2, 82.6, None),
    gpu(&["rtx", "5090"], 209.5, 104.8, None),
    gpu(&["h100", "pcie"], 756.0, 51.0, Some(26.0)),
    gpu(&["h100", "nvl"], 835.0, 60.0, Some(30.0)),
    gpu(&["h100"], 989.0, 67.0, Some(34.0)),
    gpu(&["h800"], 989.0, 67.0, Some(1.0)),
    gpu(&["gh200"], 989.0, 67.0, Some(34.0)),
    gpu(&["h20"], 148.0, 44.0, Some(1.0)),
    gpu(&["h200", "nvl"], 835.0, 60.0, Some(30.0)),
    gpu(&["h200"], 989.0, 67.0, Some(34.0)),
    gpu(&["b200"], 2250.0, 75.0, Some(37.0)),
    gpu(&["gb200"], 2500.0, 80.0, Some(40.0)),
];

/// Words of names of parts, or of GPUs that share another's name, which have other peaks.
const OTHERS: [&str; 5] = ["mig", "laptop", "max-q", "ti", "d"];

/// Returns the peak of a GPU in FLOP/s by the name that its driver gives it, if it is known.
pub fn of_gpu(name: &str, number_type: NumberType) -> Option<f64> {
    let name = name.to_lowercase();
    let has = |word: &str| name.split([' ', '-', '_']).any(|found| found == word);
    if OTHERS.iter().any(|word| has(word)) || name.contains("max-q") {
        return None;
    }
    let gpu = GPUS.iter().find(|gpu| gpu.words.iter().all(|word| has(word)))?;
    let tera_flops = match number_type {
        NumberType::F64 => gpu.f64?,
        NumberType::F32 => gpu.f32,
        NumberType::F16 => gpu.f16,
        NumberType::Bf16 => gpu.bf16?,
    };
    Some(tera_flops * 1e12)
}

/// Returns the FLOP/s of the fastest of several matmuls of `flops` FLOPs each, repeated for at least `at_least` and
/// three times after a first one, which is not counted.
///
/// # Errors
/// That of the first matmul that fails.
pub fn measure<E>(flops: f64, at_least: Duration, mut matmul: impl FnMut() -> Result<(), E>) -> Result<f64, E> {
    matmul()?;
    let started = Instant::now();
    let mut fastest = Duration::MAX;
    let mut rounds = 0;
    while rounds < 3 || started.elapsed() < at_least {
        let before = Instant::now();
        matmul()?;
        fastest = fastest.min(before.elapsed());
        rounds += 1;
    }
    // No clock is finer.
    Ok(flops / fastest.max(Duration::from_nanos(1)).as_secs_f64())
}

/// Returns the share of the peak, in per cent, that a rate of the model's FLOPs is; both in FLOP/s over all devices.
/// `None` if the peak is not above zero.
///
/// # Reference
/// Chowdhery et al. 2022, arXiv:2204.02311, appendix B: recomputed activations do not count.
pub fn utilisation_percent(model_flops_per_second: f64, peak: f64) -> Option<f64> {
    (peak > 0.0 && peak.is_finite()).then(|| 100.0 * model_flops_per_second / peak)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_drivers_find_their_peaks() {
        for (name, number_type, tera_flops) in [
            ("Tesla V100-SXM2-16GB", NumberType::F16, Some(125.0)),
            ("Tesla V100-PCIE-32GB", NumberType::F16, Some(112.0)),
            ("Tesla V100S-PCIE-32GB", NumberType::F16, Some(130.0)),
            ("Tesla V100-SXM2-16GB", NumberType::Bf16, None),
            ("Tesla T4", NumberType::F16, Some(65.0)),
            ("Tesla T4", NumberType::F64, None),
            ("NVIDIA A100-SXM4-80GB", NumberType::Bf16, Some(312.0)),
            ("NVIDIA A100 80GB PCIe", NumberType::F32, Some(19.5)),
            ("NVIDIA A10", NumberType::F16, Some(125.0)),
            ("NVIDIA A10G", NumberType::F16, None),
            ("NVIDIA RTX A6000", NumberType::F16, Some(154.8)),
            ("NVIDIA L4", NumberType::F16, Some(121.0)),
            ("NVIDIA L40", NumberType::F16, Some(181.0)),
            ("NVIDIA L40S", NumberType::Bf16, Some(362.0)),
            ("NVIDIA GeForce RTX 4090", NumberType::Bf16, Some(165.2)),
            ("NVIDIA GeForce RTX 4090 D", NumberType::Bf16, None),
            ("NVIDIA GeForce RTX 4090 Laptop GPU", NumberType::Bf16, None),
            ("NVIDIA GeForce RTX 3090 Ti", NumberType::Bf16, None),
            ("NVIDIA RTX 6000 Ada Generation", NumberType::Bf16, Some(364.2)),
            ("NVIDIA H100 80GB HBM3", NumberType::Bf16, Some(989.0)),
            ("NVIDIA H100 80GB HBM3 MIG 1g.10gb", NumberType::Bf16, None),
            ("NVIDIA H100 PCIe", NumberType::Bf16, Some(756.0)),
            ("NVIDIA H100 NVL", NumberType::Bf16, Some(835.0)),
            ("NVIDIA H200", NumberType::Bf16, Some(989.0)),
            ("NVIDIA H200", NumberType::F64, Some(34.0)),
            ("NVIDIA H200 NVL", NumberType::F16, Some(835.0)),
            ("NVIDIA GH200 480GB", NumberType::F16, Some(989.0)),
            ("NVIDIA H20", NumberType::F16, Some(148.0)),
            ("NVIDIA B200", NumberType::Bf16, Some(2250.0)),
            ("NVIDIA GB200", NumberType::Bf16, Some(2500.0)),
            ("llvmpipe (LLVM 15.0.7, 256 bits)", NumberType::F32, None),
            ("", NumberType::F32, None),
        ] {
            assert_eq!(of_gpu(name, number_type), tera_flops.map(|peak| peak * 1e12), "{name}");
        }
    }

    #[test]
    fn every_entry_is_the_first_that_its_own_words_find() {
        for gpu in &GPUS {
            assert_eq!(
                of_gpu(&gpu.words.join(" "), NumberType::F16),
                Some(gpu.f16 * 1e12),
                "{:?}",
                gpu.words
            );
        }
    }

    #[test]
    fn the_fastest_matmul_counts_and_the_first_does_not() {
        let mut calls = 0;
        let peak = measure(1e9, Duration::ZERO, || {
            calls += 1;
            // The first returns at once: it is not counted.
            std::thread::sleep(Duration::from_millis(if calls == 1 { 0 } else { 4 + 4 * calls }));
            Ok::<_, ()>(())
        });
        let peak = peak.unwrap();
        assert_eq!(calls, 4);
        // 12 ms is the shortest of the three.
        assert!(peak <= 1e9 / 0.012 && peak > 1e9 / 10.0, "{peak}");
        let failed = measure(1.0, Duration::ZERO, || Err("no device"));
        assert_eq!(failed, Err("no device"));
    }

    #[test]
    fn utilisation_is_a_share_of_the_peak() {
        assert_eq!(utilisation_percent(4e14, 8e14), Some(50.0));
        assert_eq!(utilisation_percent(4e14, 0.0), None);
        assert_eq!(utilisation_percent(4e14, f64::INFINITY), None);
    }
}
