//! Launches the backward kernels: one that reads a row once where registers hold it, else two that read it twice.

use burn::tensor::DType;
use burn_backend::cubecl::dtype_to_elem_type;
use burn_cubecl::kernel::into_contiguous;
use burn_cubecl::tensor::CubeTensor;
use cubecl::client::Client;
use cubecl::prelude::*;

use crate::cube::columns::Partials;
use crate::cube::dropout::dropped_rows_argument;
use crate::cube::launch::{Registers, RowPlan, address_type, empty_beside, plane_size};
use crate::cube::reduce::RowsLaunch;
use crate::cube::walk::{RowWalk, dims};
use crate::norm::kernel::shared::{BeforeLaunch, RowSums};
use crate::norm::kernel::{backward, wide};
use crate::norm::{Backward, RowGradients};
use crate::operation::{Of, Operation};
use crate::precision::is_half;
use crate::random::RowDropout;

/// The numbers of a row that a plane has to itself holds for each of its units, at most: no unit waits for another
/// plane.
const OF_A_PLANE: usize = 32;
/// With this many units, each has 128 registers.
const MOST_UNITS: usize = 512;
/// With this many, each has 255.
const MEANS_UNITS: usize = 256;
/// Registers of the backward kernel for other things than what it holds of the row, and for the words of dropout.
const OTHER_REGISTERS: usize = 40;
const DROPOUT_REGISTERS: usize = 24;

/// Tensors that the kernels read.
struct Read<'a> {
    input: CubeTensor,
    weight: CubeTensor,
    gradient: CubeTensor,
    mean: Option<CubeTensor>,
    reciprocal: CubeTensor,
    of_hidden: Option<CubeTensor>,
    dropout: Option<&'a RowDropout>,
    sums: RowSums,
}

/// Tensors that the kernels write: gradients, and the sums of parts of the rows.
struct Written {
    result: CubeTensor,
    of_input: Option<CubeTensor>,
    partials: Partials,
}

/// Returns the gradients of rows for those of the sum, if it has one, and of the norm, and the sums of parts of the
/// rows: for the norm's weight, its bias and the addend's, where there are these.
pub(in super::super) fn backward(
    rule: &Backward,
    ((hidden, weight, (mean, reciprocal)), of_hidden, of_output): Of<<Backward as Operation>::Inputs, CubeTensor>,
) -> (Of<RowGradients, CubeTensor>, Partials) {
    let [input, weight, gradient, reciprocal] = [hidden, weight, of_output, reciprocal].map(into_contiguous);
    let [mean, of_hidden] = [mean, of_hidden].map(|tensor| tensor.map(into_contiguous));
    let read = Read {
        input,
        weight,
        gradient,
        mean,
        reciprocal,
        of_hidden,
        dropout: rule.dropout.as_ref(),
        sums: RowSums {
            bias: rule.has_bias,
            addend: rule.has_addend_bias,
        },
    };
    let Written {
        result,
        of_input,
        partials,
    } = read.launch();
    ((result, of_input), partials)
}

impl Read<'_> {
    fn client(&self) -> &Client {
        &self.input.client
    }

    fn launch(&self) -> Written {
        let [_, columns] = dims(&self.input);
        let dtype = self.input.dtype;
        // 32 bytes each of input and gradient are on their way for each unit, or more.
        let wanted = if columns <= OF_A_PLANE * plane_size(self.client()) {
            OF_A_PLANE
        } else {
            32 / dtype.size()
        };
        let registers = Registers {
            wanted,
            most: wanted.max(16),
        };
        let plan = RowPlan::of_units(self.client(), dtype, dims(&self.input), registers, MOST_UNITS);
        if plan.layout.is_unrolled {
            self.launch_once(&plan)
        } else {
            self.launch_twice()
        }
    }

    /// Rows that registers hold.
    fn launch_once(&self, plan: &RowPlan) -> Written {
        let dtype = self.input.dtype;
        // Input, gradient and weight end up in f32, in addition to the sums.
        let sums = self.sums.count();
        let others = OTHER_REGISTERS + self.dropout.map_or(0, |_| DROPOUT_REGISTERS);
        let registers = |arrays: usize| plan.layout.slots * plan.vector_size * arrays + others;
        let most = 65_536 / plan.cube_dim.num_elems() as usize;
        let holds_weight = is_half(dtype) && registers(sums + 3) <= most;
        let arrays = sums + if holds_weight { 3 } else { 2 };
        let cubes = plan.resident_cubes(self.client(), registers(arrays).min(most));
        let written = self.written(cubes);
        let Written {
            result,
            of_input,
            partials,
        } = &written;
        let partials = partials.tensor();
        // SAFETY: the kernel bounds what it reads and writes by the rows' count and length, which are those of all
        // tensors; the partial sums have a row for each cube.
        unsafe {
            backward::backward::launch_unchecked(
                self.client(),
                CubeCount::new_1d(cubes as u32),
                plan.cube_dim,
                address_type(&[&self.input, partials]),
                plan.vector_size,
                argument(&self.input),
                argument(&self.weight),
                argument(&self.gradient),
                self.mean.as_ref().map(argument).into(),
                argument(&self.reciprocal),
                self.before(),
                argument(result),
                of_input.as_ref().map(argument).into(),
                argument(partials),
                plan.rows_argument(),
                dims(&self.input)[1] as f32,
                self.sums,
                plan.layout,
                holds_weight,
                dtype_to_elem_type(dtype),
            );
        }
        written
    }

    /// Rows of any length.
    fn launch_twice(&self) -> Written {
        let (client, dtype) = (self.client(), self.input.dtype);
        let [rows, columns] = dims(&self.input);
        let statistics = || empty_beside(&self.input, &[rows], DType::F32);
        let levels = self.mean.as_ref().map(|_| statistics());
        let alongs = statistics();
        let registers = Registers { wanted: 16, most: 16 };
        let mut plan = RowPlan::of_units(client, dtype, [rows, columns], registers, MEANS_UNITS);
        // The kernel goes over a row whatever its length.
        plan.layout.slots = 1;
        plan.layout.is_unrolled = false;
        // SAFETY: the kernel bounds what it reads and writes by the rows' count and length, which are those of all
        // tensors.
        unsafe {
            wide::row_means::launch_unchecked(
                client,
                plan.cube_count(client),
                plan.cube_dim,
                address_type(&[&self.input]),
                plan.vector_size,
                argument(&self.input),
                argument(&self.weight),
                argument(&self.gradient),
                self.mean.as_ref().map(argument).into(),
                argument(&self.reciprocal),
                levels.as_ref().map(argument).into(),
                argument(&alongs),
                plan.rows_argument(),
                columns as f32,
                plan.layout,
                dtype_to_elem_type(dtype),
            );
        }
        let walk = RowWalk::in_parts(&self.input, rows, columns);
        let written = self.written(walk.parts);
        let Written {
            result,
            of_input,
            partials,
        } = &written;
        let partials = partials.tensor();
        // SAFETY: as above; the partial sums have a row for each part.
        unsafe {
            wide::columns_backward::launch_unchecked(
                client,
                walk.cube_count(),
                walk.cube_dim(),
                address_type(&[&self.input, partials]),
                walk.vector_size,
                argument(&self.input),
                argument(&self.weight),
                argument(&self.gradient),
                self.mean.as_ref().map(argument).into(),
                argument(&self.reciprocal),
                levels.as_ref().map(argument).into(),
                argument(&alongs),
                self.before(),
                argument(result),
                of_input.as_ref().map(argument).into(),
                argument(partials),
                RowsLaunch::new(rows, walk.vectors),
                self.sums,
                dtype_to_elem_type(dtype),
            );
        }
        written
    }

    fn before<E: Float, N: Size>(&self) -> BeforeLaunch<E, N> {
        let dropped = self
            .dropout
            .map(|dropout| dropped_rows_argument(self.client(), dropout));
        BeforeLaunch::new(self.of_hidden.as_ref().map(argument).into(), dropped.into())
    }

    /// Allocates the results, and `parts` rows of sums.
    fn written(&self, parts: usize) -> Written {
        let shape @ [_, columns] = dims(&self.input);
        let dtype = self.input.dtype;
        Written {
            result: empty_beside(&self.input, &shape, dtype),
            of_input: self.dropout.map(|_| empty_beside(&self.input, &shape, dtype)),
            partials: Partials::empty(&self.input, self.sums.count(), parts, columns),
        }
    }
}

fn argument(tensor: &CubeTensor) -> BufferArg {
    tensor.clone().into_buffer_arg()
}
