//! Training on other devices than the processor: layouts on Vulkan against one rank there, and one rank there against
//! one on the processor; the same on `wgpu`, and on CUDA and NCCL, on the emulator; what is said where a device or a
//! library is missing.
//!
//! Without a Vulkan driver, or a compiler for the emulator, their trials count as ignored, and say so.

pub mod lost_work;
pub mod nccl;

use std::ffi::OsStr;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use libtest_mimic::Trial;
use program::{Ended, build, end, losses, pretrain_gpt, start, training_text};
use tempfile::TempDir;
use tests::references::References;
use tests::trials::trial_unless;
use tests::{program, takes_all};

const LIMIT: Duration = Duration::from_secs(300);
const NUM_STEPS: usize = 3;
/// A model that is small on lavapipe, with sizes that no tile divides; two of everything that is sharded.
const MODEL: &str = "--num-layers 2 --hidden-size 36 --num-attention-heads 2 --seq-length 22 --micro-batch-size 1 \
    --global-batch-size 4 --train-iters 3 --lr-decay-style constant --hidden-dropout 0.1 --attention-dropout 0.1 \
    --data-path";

/// Cuts the model's 20 thousand parameters into several buckets, which are sent during the backward pass.
const BUCKET: &str = "3000";

/// Each data-parallel rank updates its own shard.
const SHARDED: &[&str] = &["--use-distributed-optimizer"];
/// Trials that take longest and differ least from others: layouts on WGSL as on SPIR-V, and the calls of a layer whose
/// activations leave the device; and those of calls of a real size, which take minutes.
const FOR_A_RELEASE: [&str; 4] = [
    "calls_are_within_their_budget",
    "calls_in_chunks_are_within_their_budget",
    "layouts_on_wgpu_train_as_one_rank_there",
    "activations_on_the_host_leave_room_on_the_device",
];
const TENSOR_AND_SEQUENCE: &[&str] = &["--tensor-model-parallel-size", "2", "--sequence-parallel"];

pub fn trials() -> Vec<Trial> {
    let mut trials = vec![
        on_vulkan("layouts_on_vulkan_train_as_one_rank_there", || {
            if !takes_all() {
                return layouts_train_as_one_rank("vulkan", "f32", "tp2sp,dp2", SHARDED);
            }
            layouts_train_as_one_rank("vulkan", "f32", "tp2sp,pp2,dp2", SHARDED)?;
            layouts_train_as_one_rank("vulkan", "f32", "dp2", &["--zero-stage", "3"])
        }),
        on_vulkan("one_rank_on_vulkan_trains_as_on_the_processor", || {
            trains_as_on_the_processor("vulkan", "f32", 2e-6)
        }),
        on_vulkan("layouts_on_wgpu_train_as_one_rank_there", || {
            layouts_train_as_one_rank("wgpu", "f32", "tp2sp,dp2", SHARDED)
        }),
        on_vulkan("one_rank_on_wgpu_trains_as_on_the_processor", || {
            trains_as_on_the_processor("wgpu", "f32", 2e-6)
        }),
        on_emulated_cuda("layouts_on_cuda_over_nccl_train_as_on_the_processor", trains_on_cuda),
        on_emulated_cuda(
            "layouts_on_cuda_train_with_burns_products",
            trains_on_cuda_with_burns_products,
        ),
        on_emulated_cuda(
            "sharded_main_values_on_cuda_have_the_bits_of_whole_ones",
            shards_main_values,
        ),
        on_emulated_cuda(
            "an_optimizer_on_the_host_trains_as_on_the_device",
            offloads_the_optimizer,
        ),
        on_emulated_cuda(
            "activations_on_the_host_have_the_bits_of_those_on_the_device",
            offloads_activations,
        ),
        Trial::test("activations_on_the_host_leave_room_on_the_device", || {
            Ok(calls_are_within_budget("call_budget_offloading.json")?)
        }),
        on_emulated_cuda("preflight_measures_nccl", preflight_measures_nccl),
        on_emulated_cuda("out_of_gpu_memory_ends_one_rank", || lost_work::ends_the_run(&[])),
        on_emulated_cuda("out_of_gpu_memory_ends_two_ranks", || {
            lost_work::ends_the_run(&["--world-size", "2"])
        }),
        on_emulated_cuda(
            "out_of_gpu_memory_is_an_error_of_the_next_step",
            lost_work::is_an_error_of_the_next_step,
        ),
        on_emulated_cuda(
            "an_nvrtc_that_is_newer_than_the_driver_is_refused",
            newer_nvrtc_is_refused,
        ),
        Trial::test("calls_are_within_their_budget", || {
            Ok(calls_are_within_budget("call_budget.json")?)
        }),
        Trial::test("calls_in_chunks_are_within_their_budget", || {
            Ok(calls_are_within_budget("call_budget_chunks.json")?)
        }),
        without_cublaslt("a_missing_cublaslt_is_named", missing_cublaslt_is_named),
        on_vulkan("vulkan_refuses_f64", || {
            refused(
                &["--device", "vulkan", "--dtype", "f64"],
                None,
                &["vulkan", "f64", "f32 or f16"],
            )
        }),
        on_emulated_cuda("cuda_refuses_f64", || {
            let libraries = cuda_emulator::library_folder()?;
            refused(
                &["--device", "cuda", "--dtype", "f64"],
                Some(libraries.path()),
                &["cuda", "f64", "f32, f16 or bf16"],
            )
        }),
        Trial::test("sharing_gpus_without_gpus_is_refused", || {
            Ok(refused(&["--share-gpu"], None, &["--share-gpu", "--device cuda"])?)
        }),
        without_driver("a_missing_cuda_driver_is_named", || {
            refused(
                &["--device", "cuda"],
                None,
                &[
                    "no CUDA driver",
                    "libcuda.so",
                    "LD_LIBRARY_PATH",
                    "install NVIDIA's driver",
                ],
            )
        }),
    ];
    trials.retain(|trial| takes_all() || !FOR_A_RELEASE.contains(&trial.name()));
    trials
}

/// A trial that is ignored, aloud, where nothing speaks Vulkan.
fn on_vulkan(name: &str, test: impl Fn() -> anyhow::Result<()> + Send + 'static) -> Trial {
    let has_driver = |folder: &&str| {
        let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
        entries
            .map(|entry| entry.path())
            .any(|path| path.extension().is_some_and(|kind| kind == "json"))
    };
    let folders = ["/usr/share/vulkan/icd.d", "/etc/vulkan/icd.d"];
    let lacks = if !cfg!(feature = "vulkan") {
        Some("built without Vulkan (feature `vulkan` of the package `tests`)".to_owned())
    } else {
        (!folders.iter().any(has_driver)).then(|| "no Vulkan driver (install mesa-vulkan-drivers)".to_owned())
    };
    trial_unless(lacks, name, test)
}

/// A trial that is ignored, aloud, where the emulator cannot compile kernels.
fn on_emulated_cuda(name: &str, test: impl Fn() -> anyhow::Result<()> + Send + 'static) -> Trial {
    trial_unless(
        cuda_emulator::Host::find().err().map(|error| error.to_string()),
        name,
        test,
    )
}

/// A trial on the emulator that is ignored, aloud, where the dynamic linker finds cuBLASLt by itself.
fn without_cublaslt(name: &str, test: impl Fn() -> anyhow::Result<()> + Send + 'static) -> Trial {
    let listed = Command::new("ldconfig").arg("-p").output();
    let is_listed = listed.is_ok_and(|output| String::from_utf8_lossy(&output.stdout).contains("libcublasLt"));
    let is_named = std::env::var("LD_LIBRARY_PATH").is_ok_and(|paths| {
        let folders = std::env::split_paths(&paths).filter_map(|folder| std::fs::read_dir(folder).ok());
        let mut entries = folders.flatten().flatten();
        entries.any(|entry| entry.file_name().to_string_lossy().starts_with("libcublasLt"))
    });
    if is_listed || is_named {
        return trial_unless(Some("there is cuBLASLt".to_owned()), name, test);
    }
    on_emulated_cuda(name, test)
}

/// A trial that is ignored, aloud, where there is what it expects to be missing.
fn without_driver(name: &str, test: impl Fn() -> anyhow::Result<()> + Send + 'static) -> Trial {
    let is_here = std::fs::exists("/dev/nvidiactl").unwrap_or(false);
    trial_unless(is_here.then(|| "there is a CUDA driver".to_owned()), name, test)
}

/// All that `compare_sharding` compares: the start's bits, the loss, every gradient and parameter after every step.
fn layouts_train_as_one_rank(device: &str, dtype: &str, layouts: &str, flags: &[&str]) -> anyhow::Result<()> {
    let folder = TempDir::new()?;
    let mut command = Command::new(build("compare_sharding")?);
    command
        .args(["--device", device, "--dtype", dtype, "--layouts", layouts])
        .args(flags)
        .args(["--ddp-bucket-size", BUCKET, "--output"])
        .arg(folder.path().join("comparison"))
        .args(MODEL.split_whitespace())
        .arg(training_text());
    let ended = end(start(&mut command)?, LIMIT)?;
    ended.expect_code(0)?;
    for layout in layouts.split(',') {
        ensure!(
            ended.stdout.contains(layout),
            "{layout} is not in the table:\n{}",
            ended.stdout
        );
    }
    Ok(())
}

/// `tolerance` is that between layouts in the type: both round at every operation, in other orders.
fn trains_as_on_the_processor(device: &str, dtype: &'static str, tolerance: f64) -> anyhow::Result<()> {
    let here = on_the_processor(dtype)?;
    expect_close(&here, &train_in(device, dtype, &[], None)?, tolerance)
}

/// The backend, the kernels' sources, CubeCL's server and the calls of NCCL and cuBLASLt are those of a GPU; the
/// emulator is beneath them.
fn trains_on_cuda() -> anyhow::Result<()> {
    let libraries = cuda_emulator::library_folder()?;
    let (here, alone) = (on_the_processor("f32")?, on_one_gpu()?);
    // The tolerance between layouts in f32: both round at every operation, in other orders.
    expect_close(&here, &alone, 2e-6)?;
    let chunked = [
        TENSOR_AND_SEQUENCE,
        &["--tp-comm-overlap", "--tp-comm-overlap-chunks", "3"],
    ]
    .concat();
    for layout in [
        TENSOR_AND_SEQUENCE,
        &chunked,
        &["--pipeline-model-parallel-size", "2"],
        &["--world-size", "2", "--ddp-bucket-size", BUCKET],
        &[
            "--world-size",
            "2",
            "--ddp-bucket-size",
            BUCKET,
            "--use-distributed-optimizer",
        ],
        &["--world-size", "2", "--ddp-bucket-size", BUCKET, "--zero-stage", "2"],
        &["--world-size", "2", "--zero-stage", "3"],
    ] {
        expect_close(&alone, &train_in("cuda", "f32", layout, Some(libraries.path()))?, 2e-6)?;
    }
    Ok(())
}

/// In 16 bits, where the optimizer updates whole buckets of main values: each rank its shard, or every rank all.
fn shards_main_values() -> anyhow::Result<()> {
    let libraries = cuda_emulator::library_folder()?;
    let on_two_gpus = |flags: &[&str]| {
        let layout = [&["--world-size", "2", "--ddp-bucket-size", BUCKET], flags].concat();
        train_in("cuda", "bf16", &layout, Some(libraries.path()))
    };
    let (whole, sharded) = (on_two_gpus(&[])?, on_two_gpus(SHARDED)?);
    ensure!(whole == sharded, "{whole:?}, sharded {sharded:?}");
    // Which are summed over the ranks before micro-batches are.
    expect_close(&whole, &on_two_gpus(&["--zero-stage", "3"])?, 2e-3)?;
    // The rounding to 16 bits is that of every activation.
    expect_close(&on_the_processor("bf16")?, &whole, 2e-3)
}

/// The CPU updates what the GPU has the gradients of, with the rounding of its own.
fn offloads_the_optimizer() -> anyhow::Result<()> {
    let libraries = cuda_emulator::library_folder()?;
    let offloaded = train_in("cuda", "f32", &["--optimizer-cpu-offload"], Some(libraries.path()))?;
    expect_close(&on_one_gpu()?, &offloaded, 2e-6)
}

/// Of one layer, which has left before the next one's end, and of all, whose last has not.
fn offloads_activations() -> anyhow::Result<()> {
    let libraries = cuda_emulator::library_folder()?;
    for flags in [
        &["--cpu-offloading"][..],
        &["--cpu-offloading", "--cpu-offloading-num-layers", "1"],
    ] {
        let offloaded = train_in("cuda", "f32", flags, Some(libraries.path()))?;
        let expected = on_one_gpu()?;
        ensure!(
            offloaded == *expected,
            "{flags:?}: {offloaded:?}, on the device {expected:?}"
        );
    }
    Ok(())
}

/// On CUDA burn rounds the factors of products in f32 to TF32, 2^-11 of each, which the sums of a product average out.
fn trains_on_cuda_with_burns_products() -> anyhow::Result<()> {
    let libraries = cuda_emulator::library_folder()?;
    let on_cuda = |layout: &[&str]| {
        let flags = [&["--no-cublaslt"], layout].concat();
        train_in("cuda", "f32", &flags, Some(libraries.path()))
    };
    let (here, alone) = (on_the_processor("f32")?, on_cuda(&[])?);
    expect_close(&here, &alone, 5e-5)?;
    ensure!(
        alone != *on_one_gpu()?,
        "products in TF32 give the bits of those in f32: {alone:?}"
    );
    // A sum that is rounded another way may fall on the other side of a TF32 number in the next product.
    expect_close(&alone, &on_cuda(TENSOR_AND_SEQUENCE)?, 5e-6)
}

/// Burn's own kernels multiply then, as if that had been asked for.
fn missing_cublaslt_is_named() -> anyhow::Result<()> {
    let libraries = cuda_emulator::library_folder()?;
    let flags = ["--device", "cuda", "--dtype", "f32", "--eval-iters", "0"];
    let asked = run_on_cuda(&[&flags[..], &["--no-cublaslt"]].concat(), libraries.path(), &[])?;
    asked.expect_code(0)?;
    for entry in std::fs::read_dir(libraries.path())? {
        let path = entry?.path();
        if path.to_string_lossy().contains("libcublasLt") {
            std::fs::remove_file(path)?;
        }
    }
    let missing = run_on_cuda(&flags, libraries.path(), &[])?;
    missing.expect_code(0)?;
    let losses = |ended: &Ended| -> Vec<String> {
        let fields = ended.stdout.split(" | ");
        fields
            .filter(|field| field.starts_with("loss "))
            .map(str::to_owned)
            .collect()
    };
    ensure!(
        losses(&missing) == losses(&asked) && !losses(&asked).is_empty(),
        "{} and {}",
        missing.stdout,
        asked.stdout
    );
    for word in [
        "no cuBLASLt",
        "libcublasLt.so",
        "LD_LIBRARY_PATH",
        "burn's own kernels multiply",
    ] {
        ensure!(missing.stderr.contains(word), "{word:?} is not in {:?}", missing.stderr);
    }
    Ok(())
}

/// Runs `pretrain_gpt` with the model of all trials on the emulator.
fn run_on_cuda(flags: &[&str], libraries: &Path, variables: &[(&str, &OsStr)]) -> anyhow::Result<Ended> {
    let mut command = Command::new(pretrain_gpt()?);
    command.args(flags).args(MODEL.split_whitespace()).arg(training_text());
    emulate(&mut command, libraries);
    command.envs(variables.iter().copied());
    end(start(&mut command)?, LIMIT)
}

/// Slices in host memory over all ranks, tensors over NCCL in the tensor-parallel group.
fn preflight_measures_nccl() -> anyhow::Result<()> {
    let libraries = cuda_emulator::library_folder()?;
    let mut command = Command::new(pretrain_gpt()?);
    command
        .args([
            "--preflight",
            "--device",
            "cuda",
            "--dtype",
            "f32",
            "--tensor-model-parallel-size",
            "2",
        ])
        .args(MODEL.split_whitespace())
        .arg(training_text());
    emulate(&mut command, libraries.path());
    let ended = end(start(&mut command)?, LIMIT)?;
    ended.expect_code(0)?;
    let measured = |group: &str, engine: &str| {
        let mut lines = ended.stdout.lines();
        lines.any(|line| line.starts_with(group) && line.contains(engine) && line.ends_with("GB/s"))
    };
    ensure!(
        measured("model", "shared-memory") && measured("tensor", "shared-memory") && measured("tensor", "NCCL"),
        "not all of it is in the table:\n{}",
        ended.stdout
    );
    Ok(())
}

/// What one rank of a layout asks of its GPU, per layer, micro-batch and step, and the memory that it takes: within the
/// limits of a file.
fn calls_are_within_budget(file: &str) -> anyhow::Result<()> {
    let path = tests::folder().join("devices").join(file);
    let budget: serde_json::Value = serde_json::from_str(&std::fs::read_to_string(&path)?)?;
    let flags = budget["flags"].as_str().context("a budget has flags")?;
    let mut command = Command::new(build("call_budget")?);
    command.args(flags.split_whitespace()).arg("--budget").arg(&path);
    if budget["memory"].is_null() {
        command.arg("--no-memory");
    }
    end(start(&mut command)?, LIMIT)?.expect_code(0)
}

/// Lets a program find the emulator's libraries and GPUs.
fn emulate(command: &mut Command, libraries: &Path) {
    // A wait between streams that is missing shows as old or poisoned numbers.
    command
        .envs(cuda_emulator::environment(libraries))
        .env("CUDA_EMULATOR_DEVICES", "2")
        .env("CUDA_EMULATOR_JITTER_US", "100");
}

/// The losses of one rank on the processor, of one run for all trials.
fn on_the_processor(dtype: &'static str) -> anyhow::Result<Arc<Vec<f64>>> {
    static RUNS: References<&str, Vec<f64>> = References::new();
    RUNS.of(dtype, || train_in("cpu", dtype, &[], None))
}

/// The losses of one rank on an emulated GPU, with cuBLASLt, of one run for all trials.
fn on_one_gpu() -> anyhow::Result<Arc<Vec<f64>>> {
    static RUN: References<(), Vec<f64>> = References::new();
    RUN.of((), || {
        let libraries = cuda_emulator::library_folder()?;
        train_in("cuda", "f32", &[], Some(libraries.path()))
    })
}

/// Trains on a device in a type, and returns the loss of each step.
fn train_in(device: &str, dtype: &str, layout: &[&str], libraries: Option<&Path>) -> anyhow::Result<Vec<f64>> {
    let folder = TempDir::new()?;
    let log = folder.path().join("log");
    let mut command = Command::new(pretrain_gpt()?);
    command
        .args(["--device", device, "--dtype", dtype, "--eval-iters", "0", "--log-jsonl"])
        .arg(&log)
        .args(layout)
        .args(MODEL.split_whitespace())
        .arg(training_text());
    if let Some(libraries) = libraries {
        emulate(&mut command, libraries);
    }
    end(start(&mut command)?, LIMIT)?.expect_code(0)?;
    losses(&log)
}

fn newer_nvrtc_is_refused() -> anyhow::Result<()> {
    let libraries = cuda_emulator::library_folder()?;
    let flags = ["--device", "cuda", "--dtype", "f32", "--world-size", "2"];
    let version: &[(&str, &OsStr)] = &[("CUDA_EMULATOR_NVRTC_VERSION", "13.1".as_ref())];
    let ended = run_on_cuda(&flags, libraries.path(), version)?;
    ended.expect_refusal(&["NVRTC 13.1", "CUDA 13.0", "update NVIDIA's driver"])?;
    // No rank has been started.
    ensure!(!ended.stderr.contains("rank 1"), "{:?}", ended.stderr);
    Ok(())
}

fn expect_close(expected: &[f64], found: &[f64], tolerance: f64) -> anyhow::Result<()> {
    let is_close = |(expected, found): (&f64, &f64)| (expected - found).abs() <= tolerance * expected.abs();
    ensure!(
        expected.len() == NUM_STEPS && found.len() == NUM_STEPS && expected.iter().zip(found).all(is_close),
        "the losses differ by more than {tolerance}: {expected:?} and {found:?}"
    );
    Ok(())
}

/// Runs `pretrain_gpt` with flags that it must refuse with all of these words, before it starts anything.
fn refused(flags: &[&str], libraries: Option<&Path>, words: &[&str]) -> anyhow::Result<()> {
    let mut command = Command::new(pretrain_gpt()?);
    command.args(["--train-iters", "1"]).args(flags);
    if let Some(libraries) = libraries {
        emulate(&mut command, libraries);
    }
    end(start(&mut command)?, LIMIT)?.expect_refusal(words)
}
