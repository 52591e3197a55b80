//! How the backward kernels are launched: one that reads a row once where registers hold it, else two that read it
//! twice.

use burn::tensor::{DType, Tensor, backend::Backend};
use burn_cubecl::CubeRuntime;
use burn_cubecl::tensor::CubeTensor;
use cubecl::client::ComputeClient;
use cubecl::prelude::*;

use super::contiguous;
use crate::cube::columns::Partials;
use crate::cube::dropout::dropped_rows_argument;
use crate::cube::launch::{OnCube, Registers, RowPlan, address_type, empty_beside, plane_size};
use crate::cube::reduce::RowsLaunch;
use crate::cube::walk::RowWalk;
use crate::norm::kernel::shared::{BeforeLaunch, RowSums};
use crate::norm::kernel::{backward, wide};
use crate::norm::{AddRule, NormGradients, NormParameters, NormStatistics};
use crate::precision::is_half;
use crate::random::RowDropout;
use crate::tape::float;

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

/// What the kernels read.
struct Read<'a, R: CubeRuntime> {
    input: CubeTensor<R>,
    weight: CubeTensor<R>,
    gradient: CubeTensor<R>,
    mean: Option<CubeTensor<R>>,
    reciprocal: CubeTensor<R>,
    of_hidden: Option<CubeTensor<R>>,
    dropout: Option<&'a RowDropout>,
    sums: RowSums,
}

/// What the kernels write: gradients, and the sums of parts of the rows.
struct Written<R: CubeRuntime> {
    result: CubeTensor<R>,
    of_input: Option<CubeTensor<R>>,
    partials: Partials<R>,
}

/// What the backward pass computes of rows, and the sums of parts of these: for the norm's weight, its bias and the
/// addend's, where there are these.
pub(crate) struct RowGradients<B: Backend, R: CubeRuntime> {
    /// That of the norm's input.
    pub input: Tensor<B, 2>,
    /// That of what was added to the residual; none where there is no sum.
    pub addend: Option<Tensor<B, 2>>,
    pub partials: Partials<R>,
    sums: RowSums,
}

impl<R: CubeRuntime, B: OnCube<R>> RowGradients<B, R> {
    /// The gradients of the norm, and that of the addend's bias, of this type.
    pub fn norm_and_addend_bias(self, dtype: DType) -> (NormGradients<B>, Option<Tensor<B, 1>>) {
        let mut sums = self.partials.sum(dtype).into_iter().map(float);
        let mut next_if = |is_there: bool| is_there.then(|| sums.next().expect("it was summed"));
        let norm = NormGradients {
            input: self.input,
            weight: next_if(true).expect("a norm has a weight"),
            bias: next_if(self.sums.bias),
        };
        (norm, next_if(self.sums.addend))
    }
}

/// Returns the gradients of rows for those of the sum, where there is one, and of the norm; and the sums of parts of
/// the rows.
pub(crate) fn rows_backward<R: CubeRuntime, B: OnCube<R>>(
    hidden: Tensor<B, 2>,
    parameters: &NormParameters<B>,
    statistics: NormStatistics<B>,
    [of_hidden, of_output]: [Option<Tensor<B, 2>>; 2],
    rule: Option<&AddRule>,
) -> RowGradients<B, R> {
    let read = Read {
        input: contiguous(hidden),
        weight: contiguous(parameters.weight.clone()),
        gradient: contiguous(of_output.expect("the norm's output has a gradient")),
        mean: statistics.mean.map(contiguous),
        reciprocal: contiguous(statistics.reciprocal),
        of_hidden: of_hidden.map(contiguous),
        dropout: rule.and_then(|rule| rule.dropout.as_ref()),
        sums: RowSums {
            bias: parameters.bias.is_some(),
            addend: rule.is_some_and(|rule| rule.has_bias),
        },
    };
    let Written {
        result,
        of_input,
        partials,
    } = read.launch();
    RowGradients {
        addend: rule.map(|_| float(of_input.unwrap_or_else(|| result.clone()))),
        input: float(result),
        sums: read.sums,
        partials,
    }
}

impl<R: CubeRuntime> Read<'_, R> {
    fn client(&self) -> &ComputeClient<R> {
        &self.input.client
    }

    fn dims(&self) -> [usize; 2] {
        [0, 1].map(|dimension| self.input.meta.shape()[dimension])
    }

    fn launch(&self) -> Written<R> {
        let [_, columns] = self.dims();
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
        let plan = RowPlan::of_units(self.client(), dtype, self.dims(), registers, MOST_UNITS);
        if plan.layout.is_unrolled {
            self.launch_once(&plan)
        } else {
            self.launch_twice()
        }
    }

    /// Rows that registers hold.
    fn launch_once(&self, plan: &RowPlan) -> Written<R> {
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
            backward::backward::launch_unchecked::<R>(
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
                self.dims()[1] as f32,
                self.sums,
                plan.layout,
                holds_weight,
                dtype.into(),
            );
        }
        written
    }

    /// Rows of any length.
    fn launch_twice(&self) -> Written<R> {
        let (client, dtype) = (self.client(), self.input.dtype);
        let [rows, columns] = self.dims();
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
            wide::row_means::launch_unchecked::<R>(
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
                dtype.into(),
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
            wide::columns_backward::launch_unchecked::<R>(
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
                dtype.into(),
            );
        }
        written
    }

    fn before<E: Float, N: Size>(&self) -> BeforeLaunch<E, N, R> {
        let dropped = self
            .dropout
            .map(|dropout| dropped_rows_argument(self.client(), dropout));
        BeforeLaunch::new(self.of_hidden.as_ref().map(argument).into(), dropped.into())
    }

    /// Allocates the results, and `parts` rows of sums.
    fn written(&self, parts: usize) -> Written<R> {
        let dims @ [_, columns] = self.dims();
        let dtype = self.input.dtype;
        Written {
            result: empty_beside(&self.input, &dims, dtype),
            of_input: self.dropout.map(|_| empty_beside(&self.input, &dims, dtype)),
            partials: Partials::empty(&self.input, self.sums.count(), parts, columns),
        }
    }
}

fn argument<R: CubeRuntime>(tensor: &CubeTensor<R>) -> ArrayArg<R> {
    tensor.clone().into_array_arg()
}
