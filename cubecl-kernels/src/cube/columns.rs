//! The second half of sums over a tensor's rows: kernels that pass over the rows leave the sums of some of them each,
//! and the kernels here add these up, for all vectors of an operation at once. The order is fixed, so that the same
//! inputs give the same sums.

use burn::tensor::DType;
use burn_backend::cubecl::dtype_to_elem_type;
use burn_cubecl::tensor::CubeTensor;
use cubecl::prelude::*;

use super::launch::{address_type, empty_beside, own};
use crate::gradient_place::GradientPlace;

/// Columns of a cube: few, so that the columns of a model are those of more cubes than a GPU has processors.
const WIDTH: usize = 16;
/// Units that share a column.
const HEIGHT: usize = 16;
/// Numbers that a unit asks for before it waits for any: cubes are few, and what is in flight is theirs.
const AT_ONCE: usize = 8;
/// The vectors of an operation, at most.
const MOST: usize = 3;

/// The sums of parts of the rows, of one or more vectors: `[vectors * parts, columns]` in f32, one vector's after the
/// other's.
pub struct Partials {
    sums: CubeTensor,
    vectors: usize,
}

impl Partials {
    /// Returns room on another tensor's device, not yet written.
    pub fn empty(other: &CubeTensor, vectors: usize, parts: usize, columns: usize) -> Self {
        assert!((1..=MOST).contains(&vectors), "sums of {vectors} vectors");
        Self {
            sums: empty_beside(other, &[vectors * parts, columns], DType::F32),
            vectors,
        }
    }

    /// The tensor that kernels write to.
    pub fn tensor(&self) -> &CubeTensor {
        &self.sums
    }

    /// Returns the sums of the columns, `[columns]` in `dtype` for each vector.
    pub fn sum(self, dtype: DType) -> Vec<CubeTensor> {
        let [count, columns] = self.dims();
        let outputs: Vec<_> = (0..self.vectors)
            .map(|_| empty_beside(&self.sums, &[columns], dtype))
            .collect();
        let output = |vector: usize| outputs.get(vector).map(|output| output.clone().into_buffer_arg());
        // SAFETY: the kernel bounds what it reads and writes by both dimensions, and by the vectors that there are.
        unsafe {
            sum_columns::launch_unchecked(
                &self.sums.client,
                self.cubes(),
                CubeDim::new_2d(WIDTH as u32, HEIGHT as u32),
                address_type(&[&self.sums]),
                self.sums.clone().into_buffer_arg(),
                output(0).expect("there is a vector"),
                output(1).into(),
                output(2).into(),
                count,
                columns,
                dtype_to_elem_type(dtype),
            );
        }
        outputs
    }

    /// Adds the sums of the columns to each vector's place among sums in f32, and notes which are not finite. Returns
    /// these and those, each in its own memory if nothing else holds that.
    pub fn add_to(self, sums: [CubeTensor; 2], places: &[GradientPlace]) -> [CubeTensor; 2] {
        assert_eq!(places.len(), self.vectors, "a place for each vector");
        let [count, columns] = self.dims();
        let [sums, non_finite] = sums.map(own);
        // A vector that is not there has no cubes.
        let place = |vector: usize| {
            let place = places.get(vector).unwrap_or(&places[0]);
            PlaceLaunch::new(place.offset, place.parameter, u32::from(place.is_first))
        };
        // SAFETY: as above; each vector's place is within the sums.
        unsafe {
            add_columns::launch_unchecked(
                &self.sums.client,
                self.cubes(),
                CubeDim::new_2d(WIDTH as u32, HEIGHT as u32),
                address_type(&[&self.sums, &sums]),
                self.sums.clone().into_buffer_arg(),
                sums.clone().into_buffer_arg(),
                non_finite.clone().into_buffer_arg(),
                place(0),
                place(1),
                place(2),
                count,
                columns,
            );
        }
        [sums, non_finite]
    }

    /// The parts, and the columns.
    fn dims(&self) -> [usize; 2] {
        let shape = self.sums.meta.shape();
        [shape[0] / self.vectors, shape[1]]
    }

    /// Returns the cubes of a vector's columns along x and, where there are too many, y.
    fn cubes(&self) -> CubeCount {
        let [_, columns] = self.dims();
        let most = self.sums.client.properties().hardware.max_cube_count.0 as usize;
        let cubes = columns.div_ceil(WIDTH);
        let along_x = cubes.min(most);
        CubeCount::new_3d(along_x as u32, cubes.div_ceil(along_x) as u32, self.vectors as u32)
    }
}

/// Place of the sums of a vector's columns.
#[derive(CubeType, CubeLaunch, Clone, Copy)]
struct Place {
    offset: usize,
    parameter: usize,
    /// 1 where they replace what is there.
    is_first: u32,
}

/// Writes the sums of the columns, of each vector to its own output.
#[cube(launch_unchecked, address_type = "dynamic")]
#[allow(clippy::collapsible_if, reason = "the outer one is decided when the kernel is made")]
fn sum_columns<E: Float>(
    partials: &[f32],
    first: &mut [E],
    second: ComptimeOption<&mut [E]>,
    third: ComptimeOption<&mut [E]>,
    count: usize,
    columns: usize,
    #[define(E)] _type: ElemType,
) {
    let column = own_column();
    let total = E::cast_from(column_total(partials, count, columns));
    if UNIT_POS_Y == 0 && column < columns {
        if CUBE_POS_Z == 0 {
            first[column] = total;
        }
        #[comptime]
        if let ComptimeOption::Some(second) = second {
            if CUBE_POS_Z == 1 {
                second[column] = total;
            }
        }
        #[comptime]
        if let ComptimeOption::Some(third) = third {
            if CUBE_POS_Z == 2 {
                third[column] = total;
            }
        }
    }
}

/// Adds the sums of the columns of each vector to its place.
#[cube(launch_unchecked, address_type = "dynamic")]
fn add_columns(
    partials: &[f32],
    sums: &mut [f32],
    non_finite: &mut [f32],
    first: &Place,
    second: &Place,
    third: &Place,
    count: usize,
    columns: usize,
) {
    let column = own_column();
    let total = column_total(partials, count, columns);
    if UNIT_POS_Y == 0 && column < columns {
        let (is_second, is_third) = (CUBE_POS_Z == 1, CUBE_POS_Z == 2);
        let offset = select(is_third, third.offset, select(is_second, second.offset, first.offset));
        let parameter = select(
            is_third,
            third.parameter,
            select(is_second, second.parameter, first.parameter),
        );
        let is_first = select(
            is_third,
            third.is_first,
            select(is_second, second.is_first, first.is_first),
        );
        // Does not hold for what is not a number.
        let is_finite = f32::abs(total) <= f32::max_value();
        if !is_finite {
            // Whoever else writes there writes the same.
            non_finite[parameter] = f32::new(1.0);
        }
        if is_first == 1 {
            sums[offset + column] = total;
        } else {
            sums[offset + column] += total;
        }
    }
}

/// The unit's column.
#[cube]
fn own_column() -> usize {
    (CUBE_POS_Y * CUBE_COUNT_X + CUBE_POS_X) as usize * comptime!(WIDTH) + UNIT_POS_X as usize
}

/// The sum of the column of the cube's vector; in the units of the cube's first row.
#[cube]
fn column_total(partials: &[f32], count: usize, columns: usize) -> f32 {
    let (width, height) = comptime!((WIDTH, HEIGHT));
    let column = own_column();
    let mut sum = 0.0f32;
    if column < columns {
        let start = CUBE_POS_Z as usize * count * columns;
        let mut partial = UNIT_POS_Y as usize;
        while partial < count {
            let mut loaded = Array::<f32>::new(AT_ONCE);
            #[unroll]
            for turn in 0..AT_ONCE {
                let own = partial + turn * height;
                loaded[turn] = 0.0f32;
                if own < count {
                    loaded[turn] = partials[start + own * columns + column];
                }
            }
            #[unroll]
            for turn in 0..AT_ONCE {
                sum += loaded[turn];
            }
            partial += comptime!(AT_ONCE * HEIGHT);
        }
    }
    let mut shares = Shared::<[f32]>::new_slice(comptime!(WIDTH * HEIGHT));
    shares[UNIT_POS as usize] = sum;
    sync_cube();
    let mut total = shares[UNIT_POS_X as usize];
    #[unroll]
    for share in 1..height {
        total += shares[share * width + UNIT_POS_X as usize];
    }
    total
}
