//! What the ranks do where linear layers communicate in chunks while cuBLASLt multiplies.

use std::num::NonZeroUsize;
use std::time::{Duration, Instant};

use burn::module::Param;
use burn::nn::Linear;
use burn::tensor::{DType, Device, Tensor, TensorData};
use burn_megatron::collectives::{GroupConfig, NcclTraffic};
use burn_megatron::context::{ParallelContext, ParallelContextConfig, TensorOverlap};
use burn_megatron::cuda::{self, Sharing};
use burn_megatron::launch::World;
use burn_megatron::tensor_parallel::{ColumnParallelLinear, RowParallelLinear};
use burn_megatron::topology::ParallelConfig;
use cubecl_kernels::linear::multiplies_in_library;

use crate::devices::nccl::ranks::{Outcome, expect_same, values};

/// Rows of each rank, in chunks of two, three and three.
const ROWS: usize = 8;
const CHUNKS: u64 = 3;
/// What two and three ranks divide.
const INPUTS: usize = 12;
const OUTPUTS: usize = 18;
/// Rounds one after the other, whose memory is handed on.
const ROUNDS: usize = 4;

/// How much longer each matmul and each call of NCCL takes, in microseconds.
pub const SLOW: &str = "300000";

/// Outputs and gradients of both layers, exactly: of small integers, every sum is exact in 16 bits too.
pub fn chunks(world: &World) -> Outcome {
    let (device, context) = connect(world)?;
    if !multiplies_in_library(&device.clone().inner()) {
        return Err("layers do not know that cuBLASLt multiplies, and would choose no chunks".into());
    }
    for dtype in [DType::BF16, DType::F32, DType::F16] {
        for round in 0..ROUNDS {
            let scene = Scene {
                device: &device,
                context: &context,
                dtype,
                round,
            };
            scene.column()?;
            scene.row()?;
        }
    }
    Ok(())
}

/// The time of passes in which each chunk takes as long to communicate as to multiply.
pub fn slow_chunks(world: &World) -> Outcome {
    let (device, context) = connect(world)?;
    let slow = Duration::from_micros(SLOW.parse()?);
    let mut least: Option<[(&str, Duration); 3]> = None;
    for round in 0..3 {
        let scene = Scene {
            device: &device,
            context: &context,
            dtype: DType::BF16,
            round,
        };
        let times = scene.times()?;
        // In the first round kernels are loaded, and the ranks connected.
        if round > 0 {
            let least = least.get_or_insert(times);
            least
                .iter_mut()
                .zip(times)
                .for_each(|(least, time)| least.1 = least.1.min(time.1));
        }
    }
    // Per chunk a call and a matmul; in the backward pass, also the matmul of the weight's gradient.
    for ((pass, took), matmuls) in least.into_iter().flatten().zip([CHUNKS, CHUNKS, CHUNKS + 1]) {
        let in_turn = slow * (CHUNKS + matmuls) as u32;
        println!("rank {}: the {pass} takes {took:?}, in turn {in_turn:?}", world.rank());
        // All but one chunk overlap; half of that is left to the machine.
        if took > in_turn - slow * (CHUNKS - 1) as u32 / 2 {
            return Err(format!("the {pass} takes {took:?}, calls and matmuls in turn {in_turn:?}").into());
        }
    }
    Ok(())
}

/// This rank's GPU, and the ranks as one tensor-parallel group, whose layers communicate in chunks.
fn connect(world: &World) -> Result<(Device, ParallelContext), Box<dyn std::error::Error>> {
    let gpu = cuda::choose(world.local_rank(), Sharing::Refused)?;
    cuda::enable_cublaslt(gpu)?;
    let parallel = ParallelConfig {
        tensor_parallel_size: world.world_size(),
        sequence_parallel: true,
        ..ParallelConfig::default()
    };
    let context = ParallelContextConfig::new(parallel)
        .with_groups(GroupConfig::new().with_nccl_gpu(Some(gpu)))
        .init(world)?;
    let count = NonZeroUsize::new(CHUNKS as usize).ok_or("no chunks")?;
    let context = context.with_tensor_overlap(TensorOverlap::Chunks(count));
    Ok((Device::cuda(gpu).autodiff(), context))
}

struct Scene<'a> {
    device: &'a Device,
    context: &'a ParallelContext,
    dtype: DType,
    round: usize,
}

/// A matrix on the host.
#[derive(Clone)]
struct Matrix {
    rows: usize,
    columns: usize,
    values: Vec<f64>,
}

impl Matrix {
    /// Small integers.
    fn new(rows: usize, columns: usize, seed: usize) -> Self {
        let value = |place: usize| ((place * 37 + seed * 101 + place / 7) % 3) as f64 - 1.0;
        Self {
            rows,
            columns,
            values: (0..rows * columns).map(value).collect(),
        }
    }

    fn at(&self, row: usize, column: usize) -> f64 {
        self.values[row * self.columns + column]
    }

    fn times(&self, other: &Self) -> Self {
        assert_eq!(self.columns, other.rows);
        let sum = |row, column| (0..self.columns).map(|k| self.at(row, k) * other.at(k, column)).sum();
        Self::of(self.rows, other.columns, sum)
    }

    fn turned(&self) -> Self {
        Self::of(self.columns, self.rows, |row, column| self.at(column, row))
    }

    /// Part `part` of `parts` of the rows.
    fn part_of_rows(&self, part: usize, parts: usize) -> Self {
        let rows = self.rows / parts;
        Self::of(rows, self.columns, |row, column| self.at(part * rows + row, column))
    }

    fn part_of_columns(&self, part: usize, parts: usize) -> Self {
        self.turned().part_of_rows(part, parts).turned()
    }

    fn of(rows: usize, columns: usize, value: impl Fn(usize, usize) -> f64) -> Self {
        let values = (0..rows).flat_map(|row| (0..columns).map(move |column| (row, column)));
        Self {
            rows,
            columns,
            values: values.map(|(row, column)| value(row, column)).collect(),
        }
    }
}

impl Scene<'_> {
    fn column(&self) -> Outcome {
        let (rank, ranks) = self.place();
        let input = Matrix::new(ROWS * ranks, INPUTS, 1 + self.round);
        let gradient = Matrix::new(ROWS * ranks, OUTPUTS, 2 + self.round);
        let (linear, weight) = self.linear("column", INPUTS, OUTPUTS);
        let layer = ColumnParallelLinear::from_linear(linear, &self.context.scope(self.name("column")))?;
        let own = self.tensor(&input.part_of_rows(rank, ranks)).require_grad();
        let output = self.chunks_and("forward pass of the column-parallel layer", 0, || {
            layer.forward(own.clone())
        })?;
        let of_output = self.tensor(&gradient.part_of_columns(rank, ranks));
        // The input is gathered, and its gradient reduce-scattered, whole, each during a matmul.
        let gradients = self.calls("backward pass of the column-parallel layer", 2, || {
            (output.clone() * of_output).sum().backward()
        })?;
        let bias = bias(OUTPUTS);
        let mut expected = input.times(&weight);
        for (place, value) in expected.values.iter_mut().enumerate() {
            *value += bias[place % OUTPUTS];
        }
        self.expect("column output", output.inner(), &expected.part_of_columns(rank, ranks))?;
        let of_input = own.grad(&gradients).ok_or("no gradient")?;
        let expected = gradient.times(&weight.turned()).part_of_rows(rank, ranks);
        self.expect("column input gradient", of_input, &expected)?;
        let of_weight = layer.weight.val().grad(&gradients).ok_or("no gradient")?;
        let expected = input.turned().times(&gradient).part_of_columns(rank, ranks);
        self.expect("column weight gradient", of_weight, &expected)
    }

    fn row(&self) -> Outcome {
        let (rank, ranks) = self.place();
        let input = Matrix::new(ROWS * ranks, OUTPUTS, 3 + self.round);
        let gradient = Matrix::new(ROWS * ranks, INPUTS, 4 + self.round);
        let (linear, weight) = self.linear("row", OUTPUTS, INPUTS);
        let layer = RowParallelLinear::from_linear(linear, &self.context.scope(self.name("row")))?;
        let own = self.tensor(&input.part_of_columns(rank, ranks)).require_grad();
        let product = || layer.forward_without_bias(own.clone()).0;
        let output = self.chunks_and("forward pass of the row-parallel layer", 0, product)?;
        let of_output = self.tensor(&gradient.part_of_rows(rank, ranks));
        let gradients = self.chunks_and("backward pass of the row-parallel layer", 0, || {
            (output.clone() * of_output).sum().backward()
        })?;
        let expected = input.times(&weight).part_of_rows(rank, ranks);
        self.expect("row output", output.inner(), &expected)?;
        let of_input = own.grad(&gradients).ok_or("no gradient")?;
        let expected = gradient.times(&weight.turned()).part_of_columns(rank, ranks);
        self.expect("row input gradient", of_input, &expected)?;
        let of_weight = layer.weight.val().grad(&gradients).ok_or("no gradient")?;
        let expected = input.turned().times(&gradient).part_of_rows(rank, ranks);
        self.expect("row weight gradient", of_weight, &expected)
    }

    /// What the passes take that communicate in chunks.
    fn times(&self) -> Result<[(&'static str, Duration); 3], Box<dyn std::error::Error>> {
        let (rank, ranks) = self.place();
        let column = ColumnParallelLinear::from_linear(
            self.linear("column", INPUTS, OUTPUTS).0,
            &self.context.scope(self.name("column")),
        )?;
        let row = RowParallelLinear::from_linear(
            self.linear("row", OUTPUTS, INPUTS).0,
            &self.context.scope(self.name("row")),
        )?;
        let input = self.tensor(&Matrix::new(ROWS, INPUTS, rank));
        let hidden = self
            .tensor(&Matrix::new(ROWS * ranks, OUTPUTS / ranks, rank))
            .require_grad();
        let gradient = self.tensor(&Matrix::new(ROWS, INPUTS, rank));
        let (_, of_column) = self.timed(|| column.forward_without_bias(input))?;
        let (output, of_row) = self.timed(|| row.forward_without_bias(hidden).0)?;
        let loss = (output * gradient).sum();
        let (_, of_gradient) = self.timed(|| loss.backward())?;
        Ok([
            ("column-parallel forward pass", of_column),
            ("row-parallel forward pass", of_row),
            ("row-parallel backward pass", of_gradient),
        ])
    }

    /// What a pass gives, and what it takes until the device is done.
    fn timed<R>(&self, pass: impl FnOnce() -> R) -> Result<(R, Duration), Box<dyn std::error::Error>> {
        self.device.sync()?;
        let begun = Instant::now();
        let result = pass();
        self.device.sync()?;
        Ok((result, begun.elapsed()))
    }

    fn place(&self) -> (usize, usize) {
        let group = self.context.tensor_group();
        (group.rank(), group.size())
    }

    fn name(&self, layer: &str) -> String {
        format!("{layer} {:?} {}", self.dtype, self.round)
    }

    /// A layer of burn's, and its weight.
    fn linear(&self, name: &str, inputs: usize, outputs: usize) -> (Linear, Matrix) {
        let weight = Matrix::new(inputs, outputs, name.len() + self.round);
        let bias = TensorData::new(bias(outputs), [outputs]).convert_dtype(self.dtype);
        let linear = Linear {
            weight: Param::from_tensor(self.tensor(&weight)),
            bias: Some(Param::from_tensor(Tensor::from_data(bias, (self.device, self.dtype)))),
        };
        (linear, weight)
    }

    fn tensor(&self, matrix: &Matrix) -> Tensor<2> {
        let data = TensorData::new(matrix.values.clone(), [matrix.rows, matrix.columns]);
        Tensor::from_data(data.convert_dtype(self.dtype), (self.device, self.dtype))
    }

    /// Checks that a pass makes one call of NCCL for each chunk, and some more.
    fn chunks_and<R>(&self, what: &str, more: u64, pass: impl FnOnce() -> R) -> Result<R, Box<dyn std::error::Error>> {
        self.calls(what, CHUNKS + more, pass)
    }

    fn calls<R>(&self, what: &str, expected: u64, pass: impl FnOnce() -> R) -> Result<R, Box<dyn std::error::Error>> {
        let calls = || NcclTraffic::of(self.context.tensor_group()).unwrap_or_default().calls;
        let before = calls();
        let result = pass();
        match calls() - before {
            found if found == expected => Ok(result),
            found => Err(format!("the {what} makes {found} calls of NCCL, not {expected}").into()),
        }
    }

    fn expect(&self, what: &str, found: Tensor<2>, expected: &Matrix) -> Outcome {
        let found = values(found);
        let what = format!("{what} in {:?} on rank {}", self.dtype, self.context.rank());
        expect_same(&what, &found, &expected.values)
    }
}

fn bias(outputs: usize) -> Vec<f64> {
    (0..outputs).map(|column| (column % 5) as f64 - 2.0).collect()
}
