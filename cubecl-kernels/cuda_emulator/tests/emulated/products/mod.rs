//! cuBLASLt: products against the host's, in the order of their streams, and calls that are refused.

mod described;
mod refusals;
mod trial;

use std::time::Instant;

use anyhow::{Context as _, Error, Result, ensure};
use burn::tensor::DType;
use cubecl_kernels::cublaslt::measured::{self, Product, Products};
use cudarc::cublaslt::result as lt;
use cudarc::cublaslt::sys::{
    cublasLtMatmulDescAttributes_t as OperationAttribute, cublasLtMatmulHeuristicResult_t as Choice,
    cublasLtMatrixLayoutAttribute_t as LayoutAttribute, cublasStatus_t as Status, cudaDataType as DataType,
};
use cudarc::driver::result;
use half::bf16;

use crate::gpu::{Address, allocate, download, is_busy, open, pause, synchronize, upload, write};
use crate::scene::{Role, Scene};
use described::{Call, Described, Number, Types, status};
use refusals::refused;
use trial::{TRIAL, Trial, WORKSPACE, check_types, compare, filled, number, put};

pub fn scenes() -> Vec<Scene> {
    vec![
        Scene::new("products::are_the_hosts_for_all_types_and_transpositions", as_the_host),
        Scene::new("products::do_not_read_c_where_beta_is_zero", c_is_not_read),
        Scene::new("products::are_added_to_c_in_place", in_place),
        Scene::new("products::do_not_depend_on_how_operands_are_stored", same_bits),
        Scene::new("products::have_a_bias_for_each_row", bias),
        Scene::new("products::of_a_batch_leave_out_what_is_between", batch),
        Scene::new("products::come_in_the_order_of_their_stream", in_order).jitter(300),
        Scene::new("products::of_large_matrices_take_little_time", large),
        Scene::new("products::overwrite_their_workspace", workspace),
        Scene::new("products::whose_result_overlaps_an_operand_are_not_numbers", overlap),
        Scene::new("products::are_those_that_layers_run_when_they_are_measured", measured),
        Scene::new("products::of_other_types_are_refused", refusals::other_types),
        Scene::new("products::of_shapes_that_do_not_fit_are_refused", refusals::shapes),
        Scene::new("products::with_wrong_arguments_are_refused", refusals::wrong_arguments).devices(2),
        Scene::new("products::of_freed_memory_end_the_context", refusals::freed),
    ]
}

/// Products of row-major matrices, planned for all multiprocessors and for some, are added to what is there.
fn measured(_: &Role) -> Result<()> {
    let stream = open(0)?;
    // SAFETY: the device's context is current, and stays.
    let products = unsafe { Products::new() }.map_err(Error::msg)?;
    let [rows, depth, columns] = [5, 7, 13];
    for is_transposed in TRANSPOSITIONS {
        let product = Product {
            dtypes: [DType::F32; 2],
            shape: [rows, depth, columns],
            is_transposed,
            is_added: true,
        };
        let stored = |seed, [rows, columns]: [usize; 2], is_transposed| {
            let [outer, inner] = if is_transposed {
                [columns, rows]
            } else {
                [rows, columns]
            };
            let numbers = (0..outer * inner).map(|at| {
                let (outer, inner) = (at / inner, at % inner);
                let [row, column] = if is_transposed { [inner, outer] } else { [outer, inner] };
                number(seed, row, column) as f32
            });
            upload(&numbers.collect::<Vec<f32>>(), stream)
        };
        let a = stored(1, [rows, depth], is_transposed[0])?;
        let b = stored(2, [depth, columns], is_transposed[1])?;
        let output = upload(&vec![1f32; rows * columns], stream)?;
        for multiprocessors in [None, Some(100)] {
            let choice = measured::Choice {
                multiprocessors,
                ..Default::default()
            };
            let planned = products
                .plan(&product, choice)
                .map_err(Error::msg)?
                .context("a kernel")?;
            // SAFETY: the matrices are never freed.
            unsafe { products.launch(&planned, [a, b, output], stream) }.map_err(Error::msg)?;
        }
        for (place, found) in download::<f32>(output, rows * columns, stream)?.into_iter().enumerate() {
            let (row, column) = (place / columns, place % columns);
            let sum: f64 = (0..depth).map(|at| number(1, row, at) * number(2, at, column)).sum();
            let expected = 1.0 + 2.0 * sum;
            ensure!(
                (f64::from(found) - expected).abs() < 1e-4,
                "{found} for {expected} at {row}, {column}"
            );
        }
        // The emulator has one kernel, and the device 108 multiprocessors.
        let second = measured::Choice {
            recommendation: 1,
            ..Default::default()
        };
        ensure!(
            products.plan(&product, second).map_err(Error::msg)?.is_none(),
            "a second kernel"
        );
        let most = measured::Choice {
            multiprocessors: Some(109),
            ..Default::default()
        };
        ensure!(
            products.plan(&product, most).is_err(),
            "more multiprocessors than there are"
        );
    }
    Ok(())
}

const TRANSPOSITIONS: [[bool; 2]; 4] = [[false, false], [false, true], [true, false], [true, true]];

fn as_the_host(_: &Role) -> Result<()> {
    let stream = open(0)?;
    let handle = lt::create_handle()?;
    for shape in [[5, 7, 13], [13, 5, 7], [1, 7, 5], [7, 1, 13], [1, 1, 1], [33, 65, 129]] {
        for is_transposed in TRANSPOSITIONS {
            for (gap, alpha, beta) in [(0, 1.0, 0.0), (3, 0.5, -2.0)] {
                let trial = Trial {
                    shape,
                    is_transposed,
                    gap,
                    alpha,
                    beta,
                    ..TRIAL
                };
                check_types(handle, &trial, stream)?;
            }
        }
    }
    // SAFETY: it is no longer used.
    unsafe { lt::destroy_handle(handle)? };
    Ok(())
}

fn c_is_not_read(_: &Role) -> Result<()> {
    let stream = open(0)?;
    let handle = lt::create_handle()?;
    // In `check`, C is not a number where beta is zero.
    let trial = Trial {
        is_in_place: true,
        gap: 2,
        ..TRIAL
    };
    check_types(handle, &trial, stream)?;
    check_types(handle, &TRIAL, stream)?;
    let [a, b] = TRIAL.operands();
    let described = Described::new(Types::of::<f32, f32>(), &TRIAL)?;
    let d = allocate(35 * 4, stream)?;
    let matrices = [put::<f32>(&a, stream)?, put::<f32>(&b, stream)?, 0, d];
    described.multiply(handle, &Call::new(&TRIAL, matrices, stream))?;
    let expected = filled((5, 7), 0, |row, column| TRIAL.element(row, column));
    compare::<f32>(&expected, d, stream)
}

fn in_place(_: &Role) -> Result<()> {
    let stream = open(0)?;
    let handle = lt::create_handle()?;
    for gap in [0, 1] {
        let trial = Trial {
            beta: 1.0,
            is_in_place: true,
            gap,
            ..TRIAL
        };
        check_types(handle, &trial, stream)?;
    }
    Ok(())
}

/// Numbers whose sums round in `f32`, so that their order shows.
fn thirds(seed: usize, row: usize, column: usize) -> f64 {
    number(seed, row, column) / 3.0 + 1e-3 * row as f64
}

fn same_bits(_: &Role) -> Result<()> {
    let stream = open(0)?;
    let handle = lt::create_handle()?;
    let mut all = Vec::new();
    for is_transposed in TRANSPOSITIONS {
        for gap in [0, 2] {
            let trial = Trial {
                shape: [7, 5, 130],
                is_transposed,
                gap,
                ..TRIAL
            };
            let [a, b, ..] = trial.stored();
            let [is_a, is_b] = is_transposed;
            let element = |is_transposed: bool, seed: usize| {
                move |row, column| {
                    if is_transposed {
                        thirds(seed, column, row)
                    } else {
                        thirds(seed, row, column)
                    }
                }
            };
            let a = put::<f32>(&filled(a, gap, element(is_a, 1)), stream)?;
            let b = put::<f32>(&filled(b, gap, element(is_b, 2)), stream)?;
            let d = put::<f32>(&filled((7, 5), gap, |_, _| 0.0), stream)?;
            let described = Described::new(Types::of::<f32, f32>(), &trial)?;
            described.multiply(handle, &Call::new(&trial, [a, b, d, d], stream))?;
            let values = download::<f32>(d, (7 + gap) * 5, stream)?;
            let bits: Vec<u32> = values
                .chunks_exact(7 + gap)
                .flat_map(|column| column[..7].iter().map(|value| value.to_bits()))
                .collect();
            all.push(bits);
        }
    }
    ensure!(all.iter().all(|bits| *bits == all[0]), "{all:x?}");
    for (at, &bits) in all[0].iter().enumerate() {
        let terms = (0..130).map(|inner| {
            let (a, b) = (thirds(1, at % 7, inner) as f32, thirds(2, inner, at / 7) as f32);
            f64::from(a) * f64::from(b)
        });
        let (sum, size) = terms.fold((0.0f64, 0.0f64), |(sum, size), term| (sum + term, size + term.abs()));
        // Each of 130 sums is rounded by at most half of a unit in the last place of what was added so far.
        let error = (f64::from(f32::from_bits(bits)) - sum).abs();
        ensure!(error <= 130.0 * f64::from(f32::EPSILON) * size, "{at}: off by {error}");
    }
    Ok(())
}

fn bias(_: &Role) -> Result<()> {
    let stream = open(0)?;
    let handle = lt::create_handle()?;
    for (beta, gap) in [(0.0, 0), (1.0, 2)] {
        let trial = Trial {
            has_bias: true,
            beta,
            gap,
            ..TRIAL
        };
        check_types(handle, &trial, stream)?;
    }
    // Of another type than the result.
    let trial = Trial {
        has_bias: true,
        ..TRIAL
    };
    let [a, b] = trial.operands();
    let d = allocate(35 * 2, stream)?;
    let matrices = [put::<bf16>(&a, stream)?, put::<bf16>(&b, stream)?, d, d];
    let described = Described::new(Types::of::<bf16, bf16>(), &trial)?;
    let values: Vec<f64> = (0..5).map(|row| number(4, row, 0)).collect();
    described.set_bias(put::<f32>(&values, stream)?)?;
    let attribute = OperationAttribute::CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE;
    described.set(attribute, DataType::CUDA_R_32F)?;
    described.multiply(handle, &Call::new(&trial, matrices, stream))?;
    let expected = filled((5, 7), 0, |row, column| trial.element(row, column));
    compare::<bf16>(&expected, d, stream)?;
    // Of no address, of a type that does not go with the result's, and in f64.
    described.set_bias(0)?;
    let status = status(described.multiply(handle, &Call::new(&trial, matrices, stream)));
    ensure!(status == Status::CUBLAS_STATUS_INVALID_VALUE, "{status:?}");
    described.set(attribute, DataType::CUDA_R_64F)?;
    refused(&described, handle, Status::CUBLAS_STATUS_NOT_SUPPORTED)?;
    let described = Described::new(Types::of::<f64, f64>(), &trial)?;
    described.set_bias(d)?;
    refused(&described, handle, Status::CUBLAS_STATUS_NOT_SUPPORTED)
}

/// Three of each four columns of B and D, as a batch of two with the same A.
fn batch(_: &Role) -> Result<()> {
    let stream = open(0)?;
    let handle = lt::create_handle()?;
    let trial = Trial {
        shape: [5, 8, 13],
        gap: 2,
        ..TRIAL
    };
    let [a, b] = trial.operands();
    let (a, b) = (put::<f32>(&a, stream)?, put::<f32>(&b, stream)?);
    let [_, b_stored, _, output] = trial.stored();
    let d = put::<f32>(&filled(output, trial.gap, |_, _| f64::NAN), stream)?;
    let described = Described::new(Types::of::<f32, f32>(), &trial)?;
    let offsets = [0, b_stored.0, output.0, output.0].map(|rows| match rows {
        0 => 0,
        rows => 4 * (rows + trial.gap) as i64,
    });
    for (layout, offset) in offsets.into_iter().enumerate() {
        if offset > 0 {
            described.set_layout(layout, LayoutAttribute::CUBLASLT_MATRIX_LAYOUT_COLS, 3u64)?;
        }
        described.set_layout(layout, LayoutAttribute::CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, 2i32)?;
        let attribute = LayoutAttribute::CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET;
        described.set_layout(layout, attribute, offset)?;
    }
    described.multiply(handle, &Call::new(&trial, [a, b, d, d], stream))?;
    let expected = filled(output, trial.gap, |row, column| match column % 4 {
        3 => f64::NAN,
        _ => trial.element(row, column),
    });
    compare::<f32>(&expected, d, stream)
}

fn in_order(_: &Role) -> Result<()> {
    let stream = open(0)?;
    let handle = lt::create_handle()?;
    let trial = Trial {
        shape: [4, 4, 4],
        ..TRIAL
    };
    let described = Described::new(Types::of::<f32, f32>(), &trial)?;
    let one = upload(&[1.0f32; 16], stream)?;
    let places: [Address; 3] = [allocate(64, stream)?, allocate(64, stream)?, allocate(64, stream)?];
    let [first, copied, second] = places;
    let algorithm = Some(described.choose(handle, WORKSPACE as u64)?.algo);
    let workspace = allocate(WORKSPACE, stream)?;
    let call = |a, d| Call {
        algorithm,
        workspace,
        workspace_bytes: WORKSPACE,
        ..Call::new(&trial, [a, one, d, d], stream)
    };
    for turn in 0..20 {
        let values = [turn as f32; 16];
        write(copied, &values, stream)?;
        described.multiply(handle, &call(copied, first))?;
        // SAFETY: all are 64 bytes.
        unsafe {
            result::memset_d8_async(copied, 0, 64, stream)?;
            result::memcpy_dtod_async(copied, first, 64, stream)?;
            described.multiply(handle, &call(copied, second))?;
            result::memset_d8_async(first, 0, 64, stream)?;
        }
        let found = download::<f32>(second, 16, stream)?;
        ensure!(found == [turn as f32 * 16.0; 16], "turn {turn}: {found:?}");
    }
    // The call returns before its stream comes to it.
    pause(stream, 200)?;
    described.multiply(handle, &call(copied, second))?;
    ensure!(is_busy(stream), "a product waited for its stream");
    synchronize(stream)?;
    Ok(())
}

fn large(_: &Role) -> Result<()> {
    let stream = open(0)?;
    let handle = lt::create_handle()?;
    let trial = Trial {
        shape: [512; 3],
        ..TRIAL
    };
    let [a, b] = trial.operands();
    let (a, b) = (put::<bf16>(&a, stream)?, put::<bf16>(&b, stream)?);
    let d = allocate(512 * 512 * 2, stream)?;
    let described = Described::new(Types::of::<bf16, bf16>(), &trial)?;
    synchronize(stream)?;
    let start = Instant::now();
    described.multiply(handle, &Call::new(&trial, [a, b, d, d], stream))?;
    synchronize(stream)?;
    let elapsed = start.elapsed();
    let found = download::<bf16>(d, 512 * 512, stream)?;
    for at in (0..512 * 512).step_by(4099) {
        let (found, expected) = (found[at], bf16::of(trial.element(at % 512, at / 512)));
        ensure!(found == expected, "element {at} is {found}, not {expected}");
    }
    // It takes some tens of milliseconds; the rest is for a machine that does other things.
    ensure!(elapsed.as_secs() < 3, "{elapsed:?}");
    Ok(())
}

fn workspace(_: &Role) -> Result<()> {
    let stream = open(0)?;
    let handle = lt::create_handle()?;
    let described = Described::new(Types::of::<f32, f32>(), &TRIAL)?;
    let [a, b] = TRIAL.operands();
    let (a, b) = (put::<f32>(&a, stream)?, put::<f32>(&b, stream)?);
    let d = allocate(35 * 4, stream)?;
    let shared = upload(&vec![1.0f32; WORKSPACE / 4], stream)?;
    let call = |choice: &Choice, matrices: [Address; 4]| Call {
        algorithm: Some(choice.algo),
        workspace: shared,
        workspace_bytes: WORKSPACE,
        ..Call::new(&TRIAL, matrices, stream)
    };
    // An algorithm that may have none leaves it.
    let without = described.choose(handle, (1 << 20) - 1)?;
    ensure!(without.workspaceSize == 0, "{without:?}");
    described.multiply(handle, &call(&without, [a, b, d, d]))?;
    let values = download::<f32>(shared, WORKSPACE / 4, stream)?;
    ensure!(values.iter().all(|&value| value == 1.0), "it was written");
    let with = described.choose(handle, 1 << 20)?;
    ensure!(with.workspaceSize == 1 << 20, "{with:?}");
    described.multiply(handle, &call(&with, [a, b, d, d]))?;
    let values = download::<f32>(shared, WORKSPACE / 4, stream)?;
    let (used, rest) = values.split_at((1 << 20) / 4);
    ensure!(
        used.iter().all(|value| value.is_nan()) && rest.iter().all(|&value| value == 1.0),
        "another part was written"
    );
    // A result or an operand in the workspace is not a number.
    for matrices in [[a, b, shared, shared], [shared, b, d, d]] {
        write(shared, &[1.0f32; 65], stream)?;
        described.multiply(handle, &call(&with, matrices))?;
        let values = download::<f32>(matrices[3], 35, stream)?;
        ensure!(values.iter().all(|value| value.is_nan()), "{values:?}");
    }
    Ok(())
}

fn overlap(_: &Role) -> Result<()> {
    let stream = open(0)?;
    let handle = lt::create_handle()?;
    let trial = Trial {
        shape: [4, 4, 4],
        gap: 4,
        ..TRIAL
    };
    let described = Described::new(Types::of::<f32, f32>(), &trial)?;
    let (a, b) = (upload(&[1.0f32; 32], stream)?, upload(&[1.0f32; 32], stream)?);
    described.multiply(handle, &Call::new(&trial, [a, b, a, a], stream))?;
    let values = download::<f32>(a, 4, stream)?;
    ensure!(values.iter().all(|value| value.is_nan()), "{values:?}");
    // Between the columns of an operand there may be others.
    let a = upload(&[1.0f32; 32], stream)?;
    described.multiply(handle, &Call::new(&trial, [a, b, a + 16, a + 16], stream))?;
    let values = download::<f32>(a, 8, stream)?;
    ensure!(values == [1.0, 1.0, 1.0, 1.0, 4.0, 4.0, 4.0, 4.0], "{values:?}");
    Ok(())
}
