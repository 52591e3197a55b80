//! Small kernels whose results are known, and some that are wrong on purpose.

use cubecl::ir::{MatrixIdent, MatrixLayout};
use cubecl::prelude::barrier::{Barrier, copy_async};
use cubecl::prelude::*;
use cubecl::{self, cmma};
use half::f16;

/// Each row's sum: one block per row, by planes and shared memory.
#[cube(launch_unchecked)]
pub fn row_sums<F: Float>(input: &Tensor<F>, output: &mut Tensor<f32>, #[comptime] columns: usize) {
    let row = CUBE_POS;
    let mut sum = 0.0f32;
    let mut column = UNIT_POS as usize;
    while column < columns {
        sum += f32::cast_from(input[row * columns + column]);
        column += CUBE_DIM as usize;
    }
    let sum = plane_sum(sum);
    let mut parts = SharedMemory::<f32>::new(32usize);
    if UNIT_POS_PLANE == 0 {
        parts[(UNIT_POS / PLANE_DIM) as usize] = sum;
    }
    sync_cube();
    if UNIT_POS == 0 {
        let mut total = 0.0f32;
        for part in 0..CUBE_DIM / PLANE_DIM {
            total += parts[part as usize];
        }
        output[row] = total;
    }
}

/// As the plane's sum through shared memory, without the barrier that it needs.
#[cube(launch_unchecked)]
pub fn forgotten_barrier(output: &mut Tensor<f32>) {
    let mut parts = SharedMemory::<f32>::new(64usize);
    parts[UNIT_POS as usize] = f32::cast_from(UNIT_POS);
    output[UNIT_POS as usize] = parts[(UNIT_POS ^ 1) as usize];
}

/// Half of the threads never reach the barrier.
#[cube(launch_unchecked)]
pub fn unreached_barrier(output: &mut Tensor<f32>) {
    if UNIT_POS < CUBE_DIM / 2 {
        sync_cube();
    }
    output[UNIT_POS as usize] = 1.0f32;
}

/// Cannot be expanded with a size of 0.
#[cube(launch_unchecked)]
pub fn unexpandable(output: &mut Tensor<f32>, #[comptime] size: u32) {
    output[0] = comptime!(size.checked_sub(1).expect("a size above 0") as f32).runtime();
}

/// Writes past its output.
#[cube(launch_unchecked)]
pub fn stray_write(output: &mut Tensor<f32>) {
    output[(UNIT_POS + 1) as usize] = 1.0f32;
}

/// `A B` of one tile, its fragments loaded element by element. `fault` moves one index of B's.
#[cube(launch_unchecked)]
pub fn mma_product<E: Float>(a: &Tensor<E>, b: &Tensor<E>, output: &mut Tensor<f32>, #[comptime] fault: u32) {
    let def = cmma::MmaDefinition::<E, E, f32>::new(16usize, 8usize, 16usize);
    let lane = UNIT_POS_PLANE;

    // Registers of two 16-bit numbers: four of A, two of B; four f32 numbers of the product, in pairs.
    let size!(PAIR) = 2usize;
    let mut registers_a = Array::<Vector<E, PAIR>>::new(4usize);
    #[unroll]
    for i in 0..4u32 {
        let mut register = Vector::empty();
        #[unroll]
        for k in 0..2u32 {
            let (row, column) = def.position_of_nth(lane, i * 2 + k, MatrixIdent::A);
            register[k as usize] = a[(row * 16 + column) as usize];
        }
        registers_a[i as usize] = register;
    }
    let mut registers_b = Array::<Vector<E, PAIR>>::new(2usize);
    #[unroll]
    for i in 0..2u32 {
        let mut register = Vector::empty();
        #[unroll]
        for k in 0..2u32 {
            let (row, column) = def.position_of_nth(lane, i * 2 + k, MatrixIdent::B);
            register[k as usize] = b[((row ^ fault) * 8 + column) as usize];
        }
        registers_b[i as usize] = register;
    }
    let mut accumulators = Array::<Vector<f32, PAIR>>::new(2usize);
    #[unroll]
    for i in 0..2usize {
        accumulators[i] = Vector::new(0.0f32);
    }
    let products = def.execute(&registers_a, &registers_b, &accumulators);
    #[unroll]
    for i in 0..2u32 {
        let register = products[i as usize];
        #[unroll]
        for k in 0..2u32 {
            let (row, column) = def.position_of_nth(lane, i * 2 + k, MatrixIdent::Accumulator);
            output[(row * 8 + column) as usize] = register[k as usize];
        }
    }
}

/// As [`mma_product`], its factors copied asynchronously to shared memory and loaded by `ldmatrix`.
#[cube(launch_unchecked)]
pub fn mma_loaded<E: Float>(a: &Tensor<E>, b: &Tensor<E>, output: &mut Tensor<f32>) {
    let barrier = Barrier::shared(CUBE_DIM, UNIT_POS == 0);
    let def = cmma::MmaDefinition::<E, E, f32>::new(16usize, 8usize, 16usize);
    let lane = UNIT_POS_PLANE;
    let mut stage_a = SharedMemory::<E>::new_aligned(256usize, 16usize);
    let mut stage_b = SharedMemory::<E>::new_aligned(128usize, 16usize);
    barrier.memcpy_async_cooperative(&a.to_slice(), &mut stage_a.to_slice_mut());
    barrier.memcpy_async_cooperative(&b.to_slice(), &mut stage_b.to_slice_mut());
    barrier.arrive_and_wait();

    let size!(PAIR) = 2usize;
    let row = (lane % 16) as usize;
    let start = row * 16 + (lane / 16 * 8) as usize;
    let rows_a = stage_a.slice(start, start + 8);
    let registers_a = def.load_matrix::<_, PAIR>(&rows_a, MatrixIdent::A, 4usize, false);
    let rows_b = stage_b.slice(row * 8, row * 8 + 8);
    let registers_b = def.load_matrix::<_, PAIR>(&rows_b, MatrixIdent::B, 2usize, true);
    let mut accumulators = Array::<Vector<f32, PAIR>>::new(2usize);
    #[unroll]
    for i in 0..2usize {
        accumulators[i] = Vector::new(0.0f32);
    }
    let products = def.execute(&registers_a, &registers_b, &accumulators);
    #[unroll]
    for i in 0..2u32 {
        let register = products[i as usize];
        #[unroll]
        for k in 0..2u32 {
            let (row, column) = def.position_of_nth(lane, i * 2 + k, MatrixIdent::Accumulator);
            output[(row * 8 + column) as usize] = register[k as usize];
        }
    }
}

/// Copies two numbers for each of 32 units, in a group each, and writes what is there after a wait for all groups, or
/// for all but the last one. CubeCL has no such groups: comments that end themselves are their instructions.
#[cube(launch_unchecked)]
pub fn grouped_copies(input: &Tensor<f32>, output: &mut Tensor<f32>, #[comptime] is_all: bool) {
    // CubeCL includes the header of these copies where there is a barrier.
    let _header = Barrier::shared_uninit();
    let mut stage = SharedMemory::<f32>::new(64usize);
    #[unroll]
    for group in 0..2usize {
        let place = group * 32 + UNIT_POS as usize;
        copy_async(
            &input.slice(place, place + 1),
            &mut stage.slice_mut(place, place + 1),
            1u32,
        );
        comment!("\n*/ asm volatile(\"cp.async.commit_group;\" ::: \"memory\"); /*\n");
    }
    if is_all {
        comment!("\n*/ asm volatile(\"cp.async.wait_group 0;\" ::: \"memory\"); /*\n");
    } else {
        comment!("\n*/ asm volatile(\"cp.async.wait_group 1;\" ::: \"memory\"); /*\n");
    }
    #[unroll]
    for group in 0..2usize {
        let place = group * 32 + UNIT_POS as usize;
        output[place] = stage[place];
    }
}

/// `A Bᵀ` of two tiles, by cooperative matrices.
#[cube(launch_unchecked)]
pub fn cmma_product(a: &Tensor<f16>, b: &Tensor<f16>, output: &mut Tensor<f32>) {
    let a = cmma::Matrix::<f16>::from_slice(
        MatrixIdent::A,
        16usize,
        16usize,
        16usize,
        MatrixLayout::RowMajor,
        &a.to_slice(),
        16,
    );
    let b = cmma::Matrix::<f16>::from_slice(
        MatrixIdent::B,
        16usize,
        16usize,
        16usize,
        MatrixLayout::ColMajor,
        &b.to_slice(),
        16,
    );
    let product = cmma::Matrix::<f32>::from_value(
        MatrixIdent::Accumulator,
        16usize,
        16usize,
        16usize,
        MatrixLayout::Undefined,
        0.0,
    );
    cmma::execute::<f16, f16, f32, f32>(&a, &b, &product, &product);
    cmma::store(&mut output.to_slice_mut(), &product, 16, MatrixLayout::RowMajor);
}
