//! Kernels in CUDA C++: their results on the CPU, what is found out of wrong ones, and the machine code that the real
//! compilers make of them.

use std::ffi::{CString, c_void};

use anyhow::{Context, Error, Result, ensure};
use cuda_emulator::{Architecture, Resources, Toolkit, journal};
use cudarc::driver::{DriverError, result, sys};
use half::{bf16, f16};
use journal::{Journal, Launch};

use crate::gpu::{allocate, argument, code, download, kernel, open, synchronize, upload};
use crate::scene::{Role, Scene};

pub fn scenes() -> Vec<Scene> {
    vec![
        Scene::new("kernels::sums_of_rows_are_right", sums_of_rows),
        Scene::new("kernels::products_of_f16_are_right", |_| right::<f16>(F16)),
        Scene::new("kernels::products_of_bf16_are_right", |_| right::<bf16>(BF16)),
        Scene::new("kernels::a_wrong_fragment_index_gives_a_wrong_product", wrong_index),
        Scene::new("kernels::asynchronous_copies_and_ldmatrix_give_the_product", loaded),
        Scene::new("kernels::groups_of_copies_are_made_when_waited_for", grouped),
        Scene::new("kernels::cooperative_matrices_give_the_product", cooperative),
        Scene::new("kernels::a_forgotten_barrier_gives_wrong_results", forgotten_barrier),
        Scene::new(
            "kernels::a_barrier_that_not_all_threads_reach_is_an_error",
            unreached_barrier,
        ),
        Scene::new("kernels::the_journal_has_sources_and_launches_in_order", in_journal).keeps_journal(),
        Scene::new("kernels::reports_tell_what_kernels_take", reports).needs_toolkit(),
    ]
}

/// Each row's sum: one block per row, by warps and shared memory.
const ROW_SUMS: &str = "
#include <cuda_bf16.h>
extern \"C\" __global__ void row_sums(const __nv_bfloat16* input, float* output, int columns) {
    float sum = 0;
    for (int column = threadIdx.x; column < columns; column += blockDim.x)
        sum += float(input[blockIdx.x * columns + column]);
    for (int lanes = 16; lanes > 0; lanes /= 2) sum += __shfl_xor_sync(0xFFFFFFFF, sum, lanes);
    __shared__ float parts[32];
    if (threadIdx.x % 32 == 0) parts[threadIdx.x / 32] = sum;
    __syncthreads();
    if (threadIdx.x > 0) return;
    float total = 0;
    for (int part = 0; part < blockDim.x / 32; part++) total += parts[part];
    output[blockIdx.x] = total;
}
";

/// Dynamic shared memory of a block in bytes, as much as any of these takes.
const SHARED: u32 = 1024;

fn of(source: &str, name: &str) -> Result<sys::CUfunction> {
    kernel(&CString::new(source)?, name)
}

fn launch(
    function: sys::CUfunction,
    [blocks, threads]: [u32; 2],
    stream: sys::CUstream,
    arguments: &mut [*mut c_void],
) -> Result<(), DriverError> {
    // SAFETY: the scenes pass what their kernels take.
    unsafe { result::launch_kernel(function, (blocks, 1, 1), (threads, 1, 1), SHARED, stream, arguments) }
}

fn sums_of_rows(_: &Role) -> Result<()> {
    let (stream, rows, columns) = (open(0)?, 3, 1001);
    // Small whole numbers: sums are exact.
    let values: Vec<bf16> = (0..rows * columns)
        .map(|i| bf16::from_f32((i % 13) as f32 - 4.0))
        .collect();
    let (input, output) = (upload(&values, stream)?, allocate(rows * 4, stream)?);
    let count = columns as i32;
    let mut arguments = [argument(&input), argument(&output), argument(&count)];
    launch(of(ROW_SUMS, "row_sums")?, [rows as u32, 128], stream, &mut arguments)?;
    let expected: Vec<f32> = values
        .chunks(columns)
        .map(|row| row.iter().map(|value| value.to_f32()).sum())
        .collect();
    let found: Vec<f32> = download(output, rows, stream)?;
    ensure!(found == expected, "{found:?}, expected {expected:?}");
    Ok(())
}

/// The product of a 16 × 16 and a 16 × 8 matrix by one warp: `FRAGMENTS` loads those of `a` into `x`, of `b` into `y`.
const PRODUCT: &str = "
#include <cuda_fp16.h>
#include <cuda_bf16.h>
#include <cooperative_groups.h>
#include <cuda/barrier>
extern \"C\" __global__ void product(const NUMBER* a, const NUMBER* b, float* output, int fault) {
    const int group = threadIdx.x / 4, pair = threadIdx.x % 4 * 2;
    unsigned x[4], y[2];
    FRAGMENTS
    float c[4];
    asm volatile(\"mma.sync.aligned.m16n8k16.row.col.f32.KIND.KIND.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, \"
                 \"{%10, %11, %12, %13};\"
                 : \"=f\"(c[0]), \"=f\"(c[1]), \"=f\"(c[2]), \"=f\"(c[3])
                 : \"r\"(x[0]), \"r\"(x[1]), \"r\"(x[2]), \"r\"(x[3]), \"r\"(y[0]), \"r\"(y[1]),
                   \"f\"(0.0f), \"f\"(0.0f), \"f\"(0.0f), \"f\"(0.0f));
    for (int i = 0; i < 4; i++) output[(group + i / 2 * 8) * 8 + pair + i % 2] = c[i];
}
";

/// Element by element; `fault` moves one index of `b`'s.
const BY_ELEMENTS: &str = "
    for (int i = 0; i < 4; i++) {
        const NUMBER* from = a + (group + i % 2 * 8) * 16 + pair + i / 2 * 8;
        x[i] = *reinterpret_cast<const unsigned*>(from);
    }
    for (int i = 0; i < 2; i++) {
        NUMBER two[2];
        for (int k = 0; k < 2; k++) two[k] = b[((pair + i * 8 + k) ^ fault) * 8 + group];
        y[i] = *reinterpret_cast<const unsigned*>(two);
    }
";

/// By `ldmatrix`, from copies in shared memory.
const BY_MATRICES: &str = "
    extern __shared__ __align__(16) unsigned char shared[];
    NUMBER* const kept_a = reinterpret_cast<NUMBER*>(shared);
    NUMBER* const kept_b = kept_a + 256;
    auto& barrier = *reinterpret_cast<cuda::barrier<cuda::thread_scope_block>*>(kept_b + 128);
    if (threadIdx.x == 0) init(&barrier, blockDim.x);
    __syncthreads();
    const auto block = cooperative_groups::this_thread_block();
    cuda::memcpy_async(block, kept_a, a, 512, barrier);
    cuda::memcpy_async(block, kept_b, b, 256, barrier);
    barrier.arrive_and_wait();
    const int row = threadIdx.x % 16;
    const unsigned of_a = unsigned(__cvta_generic_to_shared(kept_a + row * 16 + threadIdx.x / 16 * 8));
    const unsigned of_b = unsigned(__cvta_generic_to_shared(kept_b + row * 8));
    asm volatile(\"ldmatrix.sync.aligned.m8n8.x4.shared::cta.b16 {%0, %1, %2, %3}, [%4];\"
                 : \"=r\"(x[0]), \"=r\"(x[1]), \"=r\"(x[2]), \"=r\"(x[3]) : \"r\"(of_a));
    asm volatile(\"ldmatrix.sync.aligned.m8n8.x2.trans.shared::cta.b16 {%0, %1}, [%2];\"
                 : \"=r\"(y[0]), \"=r\"(y[1]) : \"r\"(of_b));
";

/// A type's names in C++ and in PTX.
type Names = [&'static str; 2];
const F16: Names = ["__half", "f16"];
const BF16: Names = ["__nv_bfloat16", "bf16"];

fn source_of_product([number, kind]: Names, fragments: &str) -> String {
    let source = PRODUCT.replace("FRAGMENTS", fragments);
    source.replace("NUMBER", number).replace("KIND", kind)
}

/// A number of 16 bits.
trait Half: Clone {
    fn of(value: f32) -> Self;
}

impl Half for f16 {
    fn of(value: f32) -> Self {
        Self::from_f32(value)
    }
}

impl Half for bf16 {
    fn of(value: f32) -> Self {
        Self::from_f32(value)
    }
}

fn halves<E: Half>(values: &[f32]) -> Vec<E> {
    values.iter().map(|&value| E::of(value)).collect()
}

/// Returns a 16 × 16 and a 16 × 8 matrix of small whole numbers without symmetry, and their product.
fn factors() -> [Vec<f32>; 3] {
    let a: Vec<f32> = (0..256).map(|i| ((i * 7 + i / 16 * 3) % 17) as f32 - 8.0).collect();
    let b: Vec<f32> = (0..128).map(|i| ((i * 5 + i / 8 * 11) % 19) as f32 - 9.0).collect();
    let product = (0..128)
        .map(|i| (0..16).map(|k| a[i / 8 * 16 + k] * b[k * 8 + i % 8]).sum())
        .collect();
    [a, b, product]
}

fn product<E: Half>(names: Names, fragments: &str, fault: i32) -> Result<Vec<f32>> {
    let stream = open(0)?;
    let [a, b, _] = factors();
    let (a, b) = (upload(&halves::<E>(&a), stream)?, upload(&halves::<E>(&b), stream)?);
    let output = allocate(128 * 4, stream)?;
    let mut arguments = [argument(&a), argument(&b), argument(&output), argument(&fault)];
    let function = of(&source_of_product(names, fragments), "product")?;
    launch(function, [1, 32], stream, &mut arguments)?;
    Ok(download(output, 128, stream)?)
}

fn is_product(found: &[f32]) -> Result<()> {
    let [.., expected] = factors();
    ensure!(found == expected, "{found:?}, expected {expected:?}");
    Ok(())
}

fn right<E: Half>(names: Names) -> Result<()> {
    is_product(&product::<E>(names, BY_ELEMENTS, 0)?)
}

fn wrong_index(_: &Role) -> Result<()> {
    for fault in [1, 2, 8] {
        let found = product::<f16>(F16, BY_ELEMENTS, fault)?;
        ensure!(
            is_product(&found).is_err(),
            "the product is right with row ^ {fault} of B"
        );
    }
    Ok(())
}

fn loaded(_: &Role) -> Result<()> {
    is_product(&product::<f16>(F16, BY_MATRICES, 0)?)
}

/// Copies two numbers for each of 32 threads, in a group each, and writes what is there after a wait for all groups but
/// the last `PENDING`.
const GROUPED: &str = "
extern \"C\" __global__ void grouped(const float* input, float* output) {
    extern __shared__ __align__(16) unsigned char shared[];
    float* const kept = reinterpret_cast<float*>(shared);
    for (int place = threadIdx.x; place < 64; place += 32) {
        const unsigned to = unsigned(__cvta_generic_to_shared(kept + place));
        asm volatile(\"cp.async.ca.shared::cta.global [%0], [%1], %2, %2;\"
                     :: \"r\"(to), \"l\"(input + place), \"n\"(4));
        asm volatile(\"cp.async.commit_group;\" ::: \"memory\");
    }
    asm volatile(\"cp.async.wait_group PENDING;\" ::: \"memory\");
    for (int place = threadIdx.x; place < 64; place += 32) output[place] = kept[place];
}
";

fn grouped(_: &Role) -> Result<()> {
    let stream = open(0)?;
    let numbers: Vec<f32> = (1..65).map(|i| i as f32).collect();
    let input = upload(&numbers, stream)?;
    for (pending, there) in [("0", 64), ("1", 32)] {
        let output = allocate(64 * 4, stream)?;
        let function = of(&GROUPED.replace("PENDING", pending), "grouped")?;
        launch(function, [1, 32], stream, &mut [argument(&input), argument(&output)])?;
        let found: Vec<f32> = download(output, 64, stream)?;
        ensure!(found[..there] == numbers[..there], "{found:?}, expected {numbers:?}");
        let is_early = |(found, number): (&f32, &f32)| found == number;
        let mut late = std::iter::zip(&found[there..], &numbers[there..]);
        ensure!(!late.any(is_early), "made before the wait: {found:?}");
    }
    Ok(())
}

/// `A Bᵀ` of two tiles, by cooperative matrices.
const COOPERATIVE: &str = "
#include <cuda_fp16.h>
#include <mma.h>
using namespace nvcuda::wmma;
extern \"C\" __global__ void cooperative(const __half* a, const __half* b, float* output) {
    fragment<matrix_a, 16, 16, 16, __half, row_major> of_a;
    fragment<matrix_b, 16, 16, 16, __half, col_major> of_b;
    fragment<accumulator, 16, 16, 16, float> sums;
    load_matrix_sync(of_a, a, 16);
    load_matrix_sync(of_b, b, 16);
    fill_fragment(sums, 0.0f);
    mma_sync(sums, of_a, of_b, sums);
    store_matrix_sync(output, sums, 16, mem_row_major);
}
";

fn cooperative(_: &Role) -> Result<()> {
    let stream = open(0)?;
    let number = |i: usize| ((i * 7 + i / 16 * 3) % 17) as f32 - 8.0;
    let [a, b] = [0, 1000].map(|first| (first..first + 256).map(number).collect::<Vec<f32>>());
    let dot = |i: usize| (0..16).map(|k| a[i / 16 * 16 + k] * b[i % 16 * 16 + k]).sum();
    let expected: Vec<f32> = (0..256).map(dot).collect();
    let (a, b) = (upload(&halves::<f16>(&a), stream)?, upload(&halves::<f16>(&b), stream)?);
    let output = allocate(256 * 4, stream)?;
    let mut arguments = [argument(&a), argument(&b), argument(&output)];
    launch(of(COOPERATIVE, "cooperative")?, [1, 32], stream, &mut arguments)?;
    let found: Vec<f32> = download(output, 256, stream)?;
    ensure!(found == expected, "{found:?}, expected {expected:?}");
    Ok(())
}

/// Each thread reads what its neighbour wrote, without the barrier that this needs.
const FORGOTTEN: &str = "
extern \"C\" __global__ void forgotten(float* output) {
    extern __shared__ __align__(16) unsigned char shared[];
    float* const parts = reinterpret_cast<float*>(shared);
    parts[threadIdx.x] = threadIdx.x;
    output[threadIdx.x] = parts[threadIdx.x ^ 1];
}
";

fn forgotten_barrier(_: &Role) -> Result<()> {
    let stream = open(0)?;
    let output = allocate(64 * 4, stream)?;
    launch(of(FORGOTTEN, "forgotten")?, [1, 64], stream, &mut [argument(&output)])?;
    let found: Vec<f32> = download(output, 64, stream)?;
    let seen: Vec<f32> = (0..64).map(|i| (i ^ 1) as f32).collect();
    ensure!(found != seen, "threads saw what others had not surely written");
    Ok(())
}

/// Half of the threads never reach the barrier.
const UNREACHED: &str = "
extern \"C\" __global__ void unreached(float* output) {
    if (threadIdx.x < blockDim.x / 2) __syncthreads();
    output[threadIdx.x] = 1;
}
";

fn unreached_barrier(_: &Role) -> Result<()> {
    let stream = open(0)?;
    let output = allocate(64 * 4, stream)?;
    launch(of(UNREACHED, "unreached")?, [1, 64], stream, &mut [argument(&output)])?;
    ensure!(code(synchronize(stream)) == sys::CUresult::CUDA_ERROR_LAUNCH_FAILED);
    Ok(())
}

fn in_journal(_: &Role) -> Result<()> {
    let stream = open(0)?;
    let mut journal = Journal::open()?;
    ensure!(journal.launches()?.is_empty());
    let output = allocate(64 * 4, stream)?;
    let function = of(FORGOTTEN, "forgotten")?;
    for (blocks, shared) in [(1, 256), (2, 304)] {
        let mut arguments = [argument(&output)];
        // SAFETY: the kernel takes one pointer.
        unsafe { result::launch_kernel(function, (blocks, 1, 1), (32, 2, 1), shared, stream, &mut arguments)? };
    }
    let expected = [(1, 256), (2, 304)].map(|(blocks, shared_memory)| Launch {
        kernel: "forgotten".to_owned(),
        grid: [blocks, 1, 1],
        block: [32, 2, 1],
        shared_memory,
    });
    let found = journal.launches()?;
    ensure!(found == expected, "{found:?}, expected {expected:?}");
    ensure!(journal.launches()?.is_empty(), "launches are read twice");
    ensure!(journal.source("forgotten", "sm_80")? == FORGOTTEN);
    ensure!(
        journal.source("forgotten", "sm_90a").is_err(),
        "it was not compiled for that"
    );
    Ok(())
}

fn reports(_: &Role) -> Result<()> {
    let toolkit = Toolkit::find().map_err(|error| Error::msg(error.to_string()))?;
    let product = source_of_product(BF16, BY_ELEMENTS);
    for architecture in Architecture::ALL {
        let compile = |source: &str| toolkit.compile(source, architecture, 0).context(architecture);
        let (sums, product) = (compile(ROW_SUMS)?, compile(&product)?);
        for taken in [sums, product] {
            let Resources { registers, spilled, .. } = taken;
            ensure!(
                (8..256).contains(&registers) && spilled == 0,
                "{architecture}: {taken:?}"
            );
        }
        let is_right = sums.shared_memory >= 128 && sums.matrix_instructions == 0;
        ensure!(is_right, "{architecture}, sums through shared memory: {sums:?}");
        ensure!(
            product.matrix_instructions == 1,
            "{architecture}, one product of a tile: {product:?}"
        );
        let listing = toolkit.listing(&source_of_product(BF16, BY_ELEMENTS), architecture)?;
        ensure!(listing.contains("HMMA.16816"), "{architecture}: {listing}");
    }
    Ok(())
}
