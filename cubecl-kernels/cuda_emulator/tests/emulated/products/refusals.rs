//! Products that are refused, and those that end the context.

use std::ptr::null_mut;

use anyhow::{Result, ensure};
use cudarc::cublaslt::result as lt;
use cudarc::cublaslt::sys::{
    cublasComputeType_t as Compute, cublasLtHandle_t as Handle, cublasLtMatmulAlgo_t as Algorithm,
    cublasLtMatmulDescAttributes_t as OperationAttribute, cublasLtMatmulPreferenceAttributes_t as PreferenceAttribute,
    cublasLtMatrixLayoutAttribute_t as LayoutAttribute, cublasStatus_t as Status, cudaDataType as DataType,
};
use cudarc::driver::{result, sys::CUresult};
use half::bf16;

use super::described::{Call, Described, Types, status};
use super::trial::{TRIAL, Trial, WORKSPACE, put};
use crate::gpu::{allocate, code, free, open, pause, stream, synchronize};
use crate::scene::Role;

/// The heuristic refuses a product, and so does the call of it, with memory that would be enough.
pub fn refused(described: &Described, handle: Handle, expected: Status) -> Result<()> {
    let found = status(described.choose(handle, WORKSPACE as u64));
    ensure!(found == expected, "the heuristic: {found:?}");
    let stream = stream()?;
    let memory = allocate(1 << 16, stream)?;
    let call = Call::new(&TRIAL, [memory; 4], stream);
    let found = status(described.multiply(handle, &call));
    ensure!(found == expected, "the product: {found:?}");
    free(memory, stream)?;
    Ok(())
}

pub fn other_types(_: &Role) -> Result<()> {
    open(0)?;
    let handle = lt::create_handle()?;
    let unsupported = Status::CUBLAS_STATUS_NOT_SUPPORTED;
    let types = Types::of::<bf16, bf16>();
    let double = Types::of::<f64, f64>();
    let operands = |operands| Types { operands, ..types };
    let output = |output| Types { output, ..types };
    let compute = |compute| Types { compute, ..types };
    for types in [
        operands(DataType::CUDA_R_8I),
        operands(DataType::CUDA_R_8F_E4M3),
        operands(DataType::CUDA_R_64F),
        operands(DataType::CUDA_R_32F),
        output(DataType::CUDA_R_16F),
        output(DataType::CUDA_R_64F),
        compute(Compute::CUBLAS_COMPUTE_16F),
        compute(Compute::CUBLAS_COMPUTE_64F),
        Types {
            scale: DataType::CUDA_R_64F,
            ..types
        },
        Types {
            compute: Compute::CUBLAS_COMPUTE_32F,
            ..double
        },
        Types {
            scale: DataType::CUDA_R_32F,
            ..double
        },
        Types {
            output: DataType::CUDA_R_32F,
            ..double
        },
    ] {
        let described = Described::new(types, &TRIAL)?;
        refused(&described, handle, unsupported).map_err(|error| error.context(format!("{types:?}")))?;
    }
    // A and B, and C and D, of two types.
    for layout in [0, 3] {
        let described = Described::new(types, &TRIAL)?;
        let attribute = LayoutAttribute::CUBLASLT_MATRIX_LAYOUT_TYPE;
        described.set_layout(layout, attribute, DataType::CUDA_R_32F)?;
        refused(&described, handle, unsupported)?;
    }
    // Rows one after the other, scalars on the device, conjugates, and other epilogues.
    let described = Described::new(types, &TRIAL)?;
    described.set_layout(1, LayoutAttribute::CUBLASLT_MATRIX_LAYOUT_ORDER, 1i32)?;
    refused(&described, handle, unsupported)?;
    described.set_layout(1, LayoutAttribute::CUBLASLT_MATRIX_LAYOUT_ORDER, 0i32)?;
    described.choose(handle, 0)?;
    for (attribute, value, usual) in [
        (OperationAttribute::CUBLASLT_MATMUL_DESC_POINTER_MODE, 1, 0),
        (OperationAttribute::CUBLASLT_MATMUL_DESC_TRANSA, 2, 0),
        (OperationAttribute::CUBLASLT_MATMUL_DESC_TRANSC, 1, 0),
        (OperationAttribute::CUBLASLT_MATMUL_DESC_EPILOGUE, 2, 1),
    ] {
        described.set::<i32>(attribute, value)?;
        refused(&described, handle, unsupported).map_err(|error| error.context(format!("{attribute:?}")))?;
        described.set::<i32>(attribute, usual)?;
    }
    let scales = OperationAttribute::CUBLASLT_MATMUL_DESC_A_SCALE_POINTER;
    ensure!(status(described.set(scales, 0u64)) == unsupported);
    described.choose(handle, 0)?;
    Ok(())
}

pub fn shapes(_: &Role) -> Result<()> {
    open(0)?;
    let handle = lt::create_handle()?;
    let types = Types::of::<f32, f32>();
    let invalid = Status::CUBLAS_STATUS_INVALID_VALUE;
    let (rows, columns) = (
        LayoutAttribute::CUBLASLT_MATRIX_LAYOUT_ROWS,
        LayoutAttribute::CUBLASLT_MATRIX_LAYOUT_COLS,
    );
    // A is 5 x 13, B is 13 x 7, C and D are 5 x 7.
    for (layout, attribute, value) in [
        (0, rows, 4u64),
        (0, columns, 12),
        (1, rows, 12),
        (1, columns, 6),
        (2, rows, 4),
        (3, columns, 6),
        (0, rows, 0),
        (0, columns, 0),
        (3, columns, 0),
        (0, columns, u64::MAX),
        // More rows than the leading dimension.
        (2, rows, 6),
    ] {
        let described = Described::new(types, &TRIAL)?;
        described.set_layout(layout, attribute, value)?;
        refused(&described, handle, invalid)
            .map_err(|error| error.context(format!("{layout} {attribute:?} {value}")))?;
    }
    for leading_dimension in [4i64, 0, -5] {
        let described = Described::new(types, &TRIAL)?;
        described.set_layout(0, LayoutAttribute::CUBLASLT_MATRIX_LAYOUT_LD, leading_dimension)?;
        refused(&described, handle, invalid)?;
    }
    // A batch that the others are not; outputs of a batch at the same place.
    let count = LayoutAttribute::CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT;
    let described = Described::new(types, &TRIAL)?;
    described.set_layout(1, count, 2i32)?;
    refused(&described, handle, invalid)?;
    for layout in 0..4 {
        described.set_layout(layout, count, 2i32)?;
    }
    refused(&described, handle, invalid)?;
    // As it is stored, but for the transposition.
    let described = Described::new(types, &TRIAL)?;
    described.set(OperationAttribute::CUBLASLT_MATMUL_DESC_TRANSA, 1i32)?;
    refused(&described, handle, invalid)
}

pub fn wrong_arguments(_: &Role) -> Result<()> {
    let (invalid, uninitialised) = (
        Status::CUBLAS_STATUS_INVALID_VALUE,
        Status::CUBLAS_STATUS_NOT_INITIALIZED,
    );
    result::init()?;
    ensure!(status(lt::create_handle()) == uninitialised, "without a context");
    let other = open(1)?;
    let elsewhere = allocate(1 << 16, other)?;
    let stream = open(0)?;
    let handle = lt::create_handle()?;
    let described = Described::new(Types::of::<f32, f32>(), &TRIAL)?;
    let (a, b) = (allocate(1 << 12, stream)?, allocate(1 << 12, stream)?);
    let (d, workspace) = (allocate(35 * 4, stream)?, allocate(WORKSPACE, stream)?);
    let algorithm = described.choose(handle, WORKSPACE as u64)?.algo;
    let right = Call {
        algorithm: Some(algorithm),
        workspace,
        workspace_bytes: 1 << 20,
        ..Call::new(&TRIAL, [a, b, d, d], stream)
    };
    described.multiply(handle, &right)?;
    let refuse = |what: &str, call: Call| {
        let found = status(described.multiply(handle, &call));
        ensure!(found == invalid, "{what}: {found:?}");
        Ok(())
    };
    refuse(
        "too small a workspace",
        Call {
            workspace_bytes: (1 << 20) - 1,
            ..right
        },
    )?;
    refuse("no workspace", Call { workspace: 0, ..right })?;
    refuse(
        "none, and none needed",
        Call {
            workspace: 0,
            algorithm: None,
            ..right
        },
    )?;
    refuse(
        "a workspace that is not aligned",
        Call {
            workspace: workspace + 8,
            ..right
        },
    )?;
    refuse(
        "a workspace on another device",
        Call {
            workspace: elsewhere,
            ..right
        },
    )?;
    refuse(
        "no algorithm",
        Call {
            algorithm: Some(Algorithm { data: [0; 8] }),
            ..right
        },
    )?;
    for at in [0, 1, 3] {
        for (what, address) in [
            ("null", 0),
            ("another device's", elsewhere),
            ("not aligned", right.matrices[at] + 2),
        ] {
            let mut matrices = right.matrices;
            matrices[at] = address;
            refuse(&format!("matrix {at} is {what}"), Call { matrices, ..right })?;
        }
    }
    refuse(
        "too short a matrix",
        Call {
            matrices: [d, b, d, d],
            ..right
        },
    )?;
    refuse(
        "no C",
        Call {
            beta: 1.0,
            matrices: [a, b, 0, d],
            ..right
        },
    )?;
    refuse("a stream of another device", Call { stream: other, ..right })?;
    refuse(
        "no stream",
        Call {
            stream: stream.wrapping_byte_add(1),
            ..right
        },
    )?;
    // The algorithm is for addresses that are aligned to 256 bytes, if the preference does not say otherwise.
    let mut matrices = right.matrices;
    matrices[0] += 16;
    refuse("A is not aligned as it was promised", Call { matrices, ..right })?;
    let [first, second, third, fourth] = described.layouts;
    let preference = lt::create_matmul_pref()?;
    let attribute = PreferenceAttribute::CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES;
    let sixteen = 16u32;
    // SAFETY: all handles are there, and so is the value.
    let choice = unsafe {
        lt::set_matmul_pref_attribute(preference, attribute, (&raw const sixteen).cast(), size_of::<u32>())?;
        lt::get_matmul_algo_heuristic(handle, described.operation, first, second, third, fourth, preference)?
    };
    let algorithm = Some(choice.algo);
    described.multiply(
        handle,
        &Call {
            matrices,
            algorithm,
            ..right
        },
    )?;
    let transposed = Described::new(
        Types::of::<f32, f32>(),
        &Trial {
            is_transposed: [true, true],
            ..TRIAL
        },
    )?;
    let found = status(transposed.multiply(handle, &right));
    ensure!(found == invalid, "an algorithm of another product: {found:?}");
    let found = status(described.multiply(null_mut(), &right));
    ensure!(found == uninitialised, "no handle: {found:?}");
    open(1)?;
    let found = status(described.multiply(handle, &right));
    ensure!(
        found == Status::CUBLAS_STATUS_EXECUTION_FAILED,
        "another device: {found:?}"
    );
    open(0)?;
    let wrong = described.set(OperationAttribute::CUBLASLT_MATMUL_DESC_TRANSA, 0u64);
    ensure!(status(wrong) == invalid, "an attribute of too many bytes");
    synchronize(stream)?;
    // SAFETY: handles that were destroyed are what is tried.
    unsafe {
        lt::destroy_handle(handle)?;
        ensure!(status(lt::destroy_handle(handle)) == uninitialised, "a second end");
        ensure!(status(described.choose(handle, 0)) == uninitialised);
        let handle = lt::create_handle()?;
        lt::destroy_matrix_layout(first)?;
        ensure!(status(lt::destroy_matrix_layout(first)) == invalid);
        ensure!(
            status(described.choose(handle, 0)) == invalid,
            "a layout that was destroyed"
        );
        ensure!(status(lt::destroy_matmul_desc(null_mut())) == invalid);
        ensure!(status(lt::destroy_matmul_pref(null_mut())) == invalid);
        let name = cudarc::cublaslt::sys::cublasLtGetStatusName(invalid);
        ensure!(std::ffi::CStr::from_ptr(name) == c"CUBLAS_STATUS_INVALID_VALUE");
        ensure!(cudarc::cublaslt::sys::cublasLtGetVersion() >= 130_000);
    }
    Ok(())
}

pub fn freed(_: &Role) -> Result<()> {
    let (owner, reader) = (open(0)?, stream()?);
    let handle = lt::create_handle()?;
    let described = Described::new(Types::of::<f32, f32>(), &TRIAL)?;
    let [a, b] = TRIAL.operands();
    let (a, b) = (put::<f32>(&a, owner)?, put::<f32>(&b, owner)?);
    let d = allocate(35 * 4, owner)?;
    synchronize(owner)?;
    pause(reader, 200)?;
    described.multiply(handle, &Call::new(&TRIAL, [a, b, d, d], reader))?;
    free(a, owner)?;
    let error = code(synchronize(reader));
    ensure!(error == CUresult::CUDA_ERROR_ILLEGAL_ADDRESS, "{error:?}");
    let found = status(described.multiply(handle, &Call::new(&TRIAL, [b, b, d, d], reader)));
    ensure!(found == Status::CUBLAS_STATUS_EXECUTION_FAILED, "{found:?}");
    Ok(())
}
