//! Sizes of tiles, loads, fragments and products, which the kernels share.

use cubecl::prelude::barrier::{copy_async, copy_async_checked};
use cubecl::prelude::*;

use super::super::device::HeadRows;
use crate::cube::nvidia::exp2_approximate;

/// Units of a plane.
pub const PLANE: usize = 32;
/// Rows and inner elements of a product.
pub const SIDE: usize = 16;
/// Columns of a product.
pub const COLUMNS: usize = 8;
/// Numbers of 16 bits that a copy or a row of `ldmatrix` takes.
pub const LOAD: usize = 8;
/// Factor of exponents that makes them those of 2.
pub const LOG2_E: f32 = std::f32::consts::LOG2_E;

/// How large the blocks are that a cube works on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Tile {
    /// Planes of a cube.
    pub planes: usize,
    /// Times 16 rows that each plane keeps in registers.
    pub row_tiles: usize,
    /// Keys of a block, where a cube keeps queries; queries, where it keeps keys.
    pub passing: usize,
    /// Blocks of rows that stay in shared memory.
    pub kept: usize,
    /// Blocks of rows that pass there at once.
    pub buffers: usize,
    /// Elements of a head, rounded up so that cubes share whole products of 16; those beyond the head's are zeros.
    pub width: usize,
    /// True if weights are dropped.
    pub has_dropout: bool,
}

impl Tile {
    /// The tile of the forward pass for heads of `d_head` elements; `is_short` of registers, where other things take
    /// them: places of 64 bits, ranges of keys, a bias.
    pub fn forward(d_head: usize, has_dropout: bool, is_short: bool) -> Self {
        let width = d_head.next_multiple_of(SIDE);
        // Two tiles of rows share what is loaded of the keys; as long as it all fits the registers.
        let (row_tiles, passing) = match width {
            ..=64 if has_dropout || is_short => (2, 64),
            ..=64 => (2, 128),
            65..=128 if has_dropout => (1, 64),
            65..=128 if is_short => (2, 32),
            65..=128 => (2, 64),
            _ => (1, 32),
        };
        Self {
            planes: 4,
            row_tiles,
            passing,
            kept: 1,
            buffers: 2,
            width,
            has_dropout,
        }
    }

    /// The tile of the backward pass where a cube keeps queries.
    pub fn backward(d_head: usize, has_dropout: bool) -> Self {
        let width = d_head.next_multiple_of(SIDE);
        Self {
            planes: 4,
            row_tiles: 1,
            passing: match width {
                ..=64 => 64,
                // What is drawn for dropout takes registers.
                97..=128 if has_dropout => 16,
                193.. => 16,
                _ => 32,
            },
            kept: 2,
            buffers: 4,
            width,
            has_dropout,
        }
    }

    /// Returns whether the left fragments of what stays fit the registers, backward.
    pub fn holds_left(&self) -> bool {
        self.width <= 128
    }

    /// The shared memory of a cube, in bytes: the blocks that stay and those that pass.
    pub fn shared_memory(&self) -> usize {
        let rows = self.kept * self.staying() + self.buffers * self.passing;
        rows * self.width * size_of::<u16>()
    }

    /// Rows that a cube keeps.
    pub fn staying(&self) -> usize {
        self.planes * self.row_tiles * SIDE
    }

    /// Units of a cube.
    pub fn units(&self) -> usize {
        self.planes * PLANE
    }

    /// Loads of a row.
    pub fn vectors(&self) -> usize {
        self.width / LOAD
    }

    /// How many neighbouring loads of a row change places among themselves: a power of two that divides a row, eight
    /// at most.
    pub fn swizzled(&self) -> usize {
        1 << self.vectors().trailing_zeros().min(3)
    }
}

/// Returns what the numbers of a row's neighbouring loads are changed by (exclusive or): the loads at the same place of
/// eight rows one below the other are in different banks of shared memory.
#[cube]
fn swizzle(row: usize, #[comptime] tile: Tile) -> usize {
    let swizzled = comptime!(tile.swizzled());
    row / comptime!(8 / swizzled) % swizzled
}

/// Starts the copies of rows into shared memory; zeros where there is no row or no element. Who reads them waits for
/// them.
#[cube]
pub fn copy<F: Float, N: Size>(
    from: &[Vector<F, N>],
    rows: &HeadRows,
    first: usize,
    to: &mut Shared<[Vector<F, N>]>,
    at: usize,
    #[comptime] length: usize,
    #[comptime] tile: Tile,
) {
    let vectors = comptime!(tile.vectors());
    // The rows that are copied at once; the units that are left over do nothing.
    let turn = comptime!(tile.units() / vectors);
    let row = UNIT_POS as usize / vectors;
    let vector = UNIT_POS as usize % vectors;
    let has_row = comptime!(tile.units().is_multiple_of(vectors)) || row < turn;
    let is_whole = first + length <= rows.count && rows.d_head == tile.width;
    let stride = rows.stride / LOAD;
    let source = rows.start / LOAD + (first + row) * stride + vector;
    let target = at + row * vectors;
    if has_row {
        if is_whole {
            #[unroll]
            for step in 0..comptime!(length.div_ceil(turn)) {
                if comptime!((step + 1) * turn <= length) || step * turn + row < length {
                    let place = source + step * turn * stride;
                    let vector = vector ^ swizzle(row + step * turn, tile);
                    let target = target + comptime!(step * turn * vectors) + vector;
                    copy_async(from.slice(place, place + 1), to.slice_mut(target, target + 1), 8u32);
                }
            }
        } else {
            #[unroll]
            for step in 0..comptime!(length.div_ceil(turn)) {
                if comptime!((step + 1) * turn <= length) || step * turn + row < length {
                    let is_there = first + row + step * turn < rows.count && vector * LOAD < rows.d_head;
                    // Where there is nothing, nothing is read, but the address must be one.
                    let place = select(is_there, source + step * turn * stride, 0usize);
                    let count = select(is_there, 1usize, 0usize);
                    let vector = vector ^ swizzle(row + step * turn, tile);
                    let target = target + comptime!(step * turn * vectors) + vector;
                    copy_async_checked(from.slice(place, place + count), to.slice_mut(target, target + 1), 8u32);
                }
            }
        }
    }
}

/// Starts the copies of a number for each of some rows into shared memory; zeros where there is no row.
#[cube]
pub fn copy_numbers(
    from: &[f32],
    start: usize,
    rows: usize,
    first: usize,
    to: &mut Shared<[f32]>,
    at: usize,
    #[comptime] length: usize,
) {
    let unit = UNIT_POS as usize;
    // There are at least `length` units.
    if unit < length {
        let is_there = first + unit < rows;
        let place = select(is_there, start + first + unit, 0usize);
        let count = select(is_there, 1usize, 0usize);
        let target = at + unit;
        copy_async_checked(from.slice(place, place + count), to.slice_mut(target, target + 1), 1u32);
    }
}

/// Loads the fragment of a left factor: 16 rows from `row` on, 16 elements from vector `vector` on.
#[cube]
pub fn left<F: Float, N: Size, P: Size>(
    from: &Shared<[Vector<F, N>]>,
    row: usize,
    vector: usize,
    #[comptime] tile: Tile,
) -> Array<Vector<F, P>> {
    let def = cmma::MmaDefinition::<F, F, f32>::new(16usize, 8usize, 16usize);
    let lane = lane();
    // Lanes 0 to 15 name the rows' first halves, 16 to 31 their second halves.
    let place = fragment_place(0usize, row, lane % 16, vector, lane / 16, tile);
    def.load_matrix::<_, P>(from.slice(place, place + 1), cmma::MatrixIdent::A, 4usize, false)
}

/// Loads the fragments of two right factors, whose columns are 16 rows from `row` on: 16 elements from `vector` on.
#[cube]
pub fn right_of_rows<F: Float, N: Size, P: Size>(
    from: &Shared<[Vector<F, N>]>,
    at: usize,
    row: usize,
    vector: usize,
    #[comptime] tile: Tile,
) -> Array<Vector<F, P>> {
    let def = cmma::MmaDefinition::<F, F, f32>::new(16usize, 8usize, 16usize);
    let lane = lane();
    // Eight lanes name a matrix's rows: the first factor's halves, then the second one's.
    let place = fragment_place(at, row, lane / 16 * 8 + lane % 8, vector, lane / 8 % 2, tile);
    def.load_matrix::<_, P>(from.slice(place, place + 1), cmma::MatrixIdent::B, 4usize, false)
}

/// Loads the fragments of two right factors, whose rows are 16 rows from `row` on: each has eight elements, from
/// `vector` on.
#[cube]
pub fn right_of_columns<F: Float, N: Size, P: Size>(
    from: &Shared<[Vector<F, N>]>,
    at: usize,
    row: usize,
    vector: usize,
    #[comptime] tile: Tile,
) -> Array<Vector<F, P>> {
    let def = cmma::MmaDefinition::<F, F, f32>::new(16usize, 8usize, 16usize);
    let lane = lane();
    let place = fragment_place(at, row, lane % 16, vector, lane / 16, tile);
    def.load_matrix::<_, P>(from.slice(place, place + 1), cmma::MatrixIdent::B, 4usize, true)
}

/// This unit's number in its plane: planes have 32 units, which the constant's own name does not tell the compiler.
#[cube]
pub fn lane() -> usize {
    UNIT_POS as usize % PLANE
}

/// Loads the fragment of a left factor, whose columns are 16 rows from `row` on: 16 elements from vector `vector` on.
#[cube]
pub fn left_of_columns<F: Float, N: Size, P: Size>(
    from: &Shared<[Vector<F, N>]>,
    row: usize,
    vector: usize,
    #[comptime] tile: Tile,
) -> Array<Vector<F, P>> {
    let def = cmma::MmaDefinition::<F, F, f32>::new(16usize, 8usize, 16usize);
    let lane = lane();
    // Eight lanes name a matrix's columns: the first half's rows 0 to 7 and 8 to 15, then the second half's.
    let place = fragment_place(0usize, row, lane / 16 * 8 + lane % 8, vector, lane / 8 % 2, tile);
    def.load_matrix::<_, P>(from.slice(place, place + 1), cmma::MatrixIdent::A, 4usize, true)
}

/// Where a lane's row of a fragment is: `own_row` below `row`, and `own_vector`, 0 or 1, after `vector`. `row` is a
/// multiple of eight and `vector` of two, so that what depends on the lane does not depend on them.
#[cube]
pub fn fragment_place(
    at: usize,
    row: usize,
    own_row: usize,
    vector: usize,
    own_vector: usize,
    #[comptime] tile: Tile,
) -> usize {
    let swizzled = comptime!(tile.swizzled());
    let own = own_row * comptime!(tile.vectors()) + ((vector % swizzled + own_vector) ^ swizzle(own_row, tile));
    at + row * comptime!(tile.vectors()) + vector / swizzled * swizzled + own
}

/// Adds a product to the accumulator at `index`: of a left fragment and the `which`th of two right ones.
#[cube]
pub fn multiply<F: Float, P: Size>(
    factor: &Array<Vector<F, P>>,
    factors: &Array<Vector<F, P>>,
    which: usize,
    sums: &mut Array<Vector<f32, P>>,
    index: usize,
) {
    let def = cmma::MmaDefinition::<F, F, f32>::new(16usize, 8usize, 16usize);
    let mut right = Array::<Vector<F, P>>::new(2usize);
    right[0] = factors[which * 2];
    right[1] = factors[which * 2 + 1];
    let mut sum = Array::<Vector<f32, P>>::new(2usize);
    sum[0] = sums[index * 2];
    sum[1] = sums[index * 2 + 1];
    let sum = def.execute(factor, &right, &sum);
    sums[index * 2] = sum[0];
    sums[index * 2 + 1] = sum[1];
}

/// Returns the place of an index counted from the end.
#[cube]
pub fn from_the_end(index: u32, count: u32) -> u32 {
    count - 1 - index
}

/// `2^x` of each.
#[cube]
pub fn exp2<P: Size>(exponents: Vector<f32, P>) -> Vector<f32, P> {
    let mut powers = Vector::<f32, P>::empty();
    #[unroll]
    for element in 0..P::value() {
        powers.insert(element, exp2_approximate(exponents.extract(element)));
    }
    powers
}

/// The largest of the four lanes that hold a row.
#[cube]
pub fn row_maximum(value: f32) -> f32 {
    let value = max(value, plane_shuffle_xor(value, 1u32));
    max(value, plane_shuffle_xor(value, 2u32))
}

/// The sum of the four lanes that hold a row.
#[cube]
pub fn row_sum(value: f32) -> f32 {
    let value = value + plane_shuffle_xor(value, 1u32);
    value + plane_shuffle_xor(value, 2u32)
}
