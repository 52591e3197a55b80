//! What the ranks of each case do; those of cases that end badly are in `endings`.

use std::error::Error;
use std::io::Write;

use burn::tensor::{DType, Device, Tensor, TensorData};
use burn_megatron::collectives::{
    CollectiveError, GroupConfig, Movement, NcclTraffic, ProcessGroup, ReduceOp, TensorCall, move_data, recv_start,
    run, send_start,
};
use burn_megatron::cuda::{self, Sharing};
use burn_megatron::launch::{Environment, JoinConfig, Launcher, World, join, report_and_exit};

use crate::devices::nccl::endings::{self, PAUSED};
use crate::devices::nccl::{LONG, RANKS, chunks, gather, many, matmul, memory, pipeline, placed, room};
use tests::job::{launch, note};

pub type Outcome = Result<(), Box<dyn Error>>;
/// Sums of small multiples of 6 are exact in every type, and so are means over up to three ranks.
const UNIT: f64 = 6.0;
const FLOATS: [DType; 4] = [DType::F32, DType::F64, DType::F16, DType::BF16];
/// Rows, which three and two ranks divide, and columns, which nothing divides.
const SHAPES: [[usize; 2]; 3] = [[6, 1], [12, 7], [6, 131]];

pub fn act_as_launcher() -> ! {
    let ranks = std::env::var(RANKS)
        .ok()
        .and_then(|ranks| ranks.parse().ok())
        .expect("the test sets it");
    launch(Launcher::new(ranks))
}

pub fn act_as_rank(case: &str, environment: &Environment) {
    note(&format!("pid-{}", environment.rank), std::process::id());
    let pauses_in = (environment.rank == 1 && case == "drop").then_some(PAUSED);
    tracing_subscriber::fmt()
        .with_ansi(false)
        .with_writer(move || Log { pauses_in })
        .init();
    if case == "one_visible" {
        // SAFETY: this process has no other thread yet.
        unsafe { std::env::set_var("CUDA_VISIBLE_DEVICES", environment.local_rank.to_string()) };
    }
    let options = JoinConfig {
        timeout: endings::timeout_of(case).unwrap_or(LONG),
        ..JoinConfig::new().with_all_timeouts(LONG)
    };
    let world = match join(environment, &options) {
        Ok(world) => world,
        Err(error) => panic!("{error}"),
    };
    if let Err(error) = play(case, &world) {
        println!("rank {} stops: {error}", world.rank());
        report_and_exit(&world, &*error);
    }
}

fn play(case: &str, world: &World) -> Outcome {
    match case {
        "operations" => operations(&Gpu::of(world)?),
        "order" => order(&Gpu::of(world)?),
        "transfers" => transfers(&Gpu::of(world)?),
        "empty" => empty(&Gpu::of(world)?),
        "all_groups" => many::all_groups(world),
        "slow" => memory::slow(world),
        "pipeline" => pipeline::pipeline(world),
        "evaluation" => pipeline::evaluation(world),
        "chunks" => chunks::chunks(world),
        "slow_chunks" => chunks::slow_chunks(world),
        "gather" => gather::gather(world),
        "placed" => placed::placed(world),
        "room" => room::room(world),
        "products" => matmul::products(world),
        "other_products" => matmul::other_products(world),
        "interface" => {
            let interface = std::env::var("NCCL_SOCKET_IFNAME");
            println!("rank {} connects over {interface:?}", world.rank());
            for name in ["NCCL_RUNTIME_CONNECT", "CUDA_DEVICE_MAX_CONNECTIONS"] {
                println!("rank {} has {name}={:?}", world.rank(), std::env::var(name));
            }
            Ok(())
        }
        "missing" => {
            match Gpu::of(world) {
                Ok(_) => println!("rank {} lacks nothing", world.rank()),
                Err(error) => println!("rank {} is refused: {error}", world.rank()),
            }
            Ok(())
        }
        _ => endings::play(case, world),
    }
}

/// Standard output, and a place where a rank is held up.
struct Log {
    pauses_in: Option<&'static str>,
}

impl Write for Log {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        std::io::stdout().write_all(bytes)?;
        if self
            .pauses_in
            .is_some_and(|text| String::from_utf8_lossy(bytes).contains(text))
        {
            std::thread::sleep(LONG);
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        std::io::stdout().flush()
    }
}

/// A rank on its GPU, with a group of all ranks over NCCL.
pub struct Gpu {
    pub number: usize,
    pub device: Device,
    pub group: ProcessGroup,
}

impl Gpu {
    pub fn of(world: &World) -> Result<Self, Box<dyn Error>> {
        Self::with(world, Sharing::Refused)
    }

    pub fn with(world: &World, sharing: Sharing) -> Result<Self, Box<dyn Error>> {
        let number = cuda::choose(world.local_rank(), sharing)?;
        let ranks: Vec<usize> = (0..world.world_size()).collect();
        let options = GroupConfig::new().with_nccl_gpu(Some(number));
        let group = ProcessGroup::connect(world, "all", &ranks, &options)?;
        Ok(Self {
            number,
            device: Device::cuda(number),
            group,
        })
    }

    pub fn tensor(&self, shape: [usize; 2], dtype: DType, value: impl Fn(usize) -> f64) -> Tensor<2> {
        let values: Vec<f64> = (0..shape[0] * shape[1]).map(value).collect();
        let data = TensorData::new(values, shape).convert_dtype(dtype);
        Tensor::from_data(data, (&self.device, dtype))
    }

    /// What this rank has, and its sum over all.
    pub fn sum(&self) -> Result<Vec<f64>, CollectiveError> {
        let own = self.tensor([6, 7], DType::F32, |place| value(self.group.rank(), place));
        run(own, TensorCall::AllReduce(ReduceOp::Sum), &self.group).map(values)
    }

    /// The bytes that went through the engine for host memory.
    fn bytes_staged(&self) -> u64 {
        self.group.bytes_communicated() - NcclTraffic::of(&self.group).unwrap_or_default().bytes
    }

    /// Checks that a call sends `bytes` bytes from this rank over NCCL, and nothing over the host.
    fn over_nccl<R>(
        &self,
        what: &str,
        bytes: usize,
        call: impl FnOnce() -> Result<R, CollectiveError>,
    ) -> Result<R, Box<dyn Error>> {
        let (staged, before) = (self.bytes_staged(), NcclTraffic::of(&self.group).unwrap_or_default());
        let result = call()?;
        let after = NcclTraffic::of(&self.group).ok_or("the group has no NCCL")?;
        let moved = (
            after.calls - before.calls,
            after.bytes - before.bytes,
            self.bytes_staged() - staged,
        );
        if moved == (1, bytes as u64, 0) {
            Ok(result)
        } else {
            Err(format!("{what}: (calls, bytes, bytes through host memory) are {moved:?}, not (1, {bytes}, 0)").into())
        }
    }
}

pub fn value(rank: usize, place: usize) -> f64 {
    UNIT * ((place % 5 + 3 * rank) as f64 - 4.0)
}

pub fn values(tensor: Tensor<2>) -> Vec<f64> {
    tensor.into_data().iter::<f64>().collect()
}

pub fn expect_same(what: &str, found: &[f64], expected: &[f64]) -> Outcome {
    if found == expected {
        Ok(())
    } else {
        Err(format!("{what}: {found:?} instead of {expected:?}").into())
    }
}

/// Every operation, in every type, on dense tensors and on views.
fn operations(gpu: &Gpu) -> Outcome {
    let (group, size, rank) = (&gpu.group, gpu.group.size(), gpu.group.rank());
    // The first call connects the ranks, through the host.
    gpu.sum()?;
    for (dtype, shape) in FLOATS.into_iter().flat_map(|dtype| SHAPES.map(|shape| (dtype, shape))) {
        let [rows, columns] = shape;
        let length = rows * columns;
        let what = |operation: &str| format!("{operation} of {shape:?} in {dtype:?} on rank {rank} of {size}");
        let own = || gpu.tensor(shape, dtype, |place| value(rank, place));
        // What a ring would send.
        let bytes = length * dtype.size();
        let (around, halves) = (bytes * (size - 1), bytes * (size - 1) / size);
        let sum = |place: usize| (0..size).map(|rank| value(rank, place)).sum::<f64>();
        let all: Vec<f64> = (0..size)
            .flat_map(|rank| (0..length).map(move |place| value(rank, place)))
            .collect();

        for op in [ReduceOp::Sum, ReduceOp::Mean, ReduceOp::Max] {
            let expected: Vec<f64> = (0..length)
                .map(|place| match op {
                    ReduceOp::Sum => sum(place),
                    ReduceOp::Mean => sum(place) / size as f64,
                    ReduceOp::Max => value(size - 1, place),
                })
                .collect();
            let name = what(&format!("all_reduce {op}"));
            let found = gpu.over_nccl(&name, 2 * bytes * (size - 1) / size, || {
                run(own(), TensorCall::AllReduce(op), group)
            })?;
            expect_same(&name, &values(found), &expected)?;
            // Whoever else holds the tensor keeps what it has.
            let held = own();
            let found = run(held.clone(), TensorCall::AllReduce(op), group)?;
            expect_same(&what("all_reduce of a held tensor"), &values(found), &expected)?;
            let kept: Vec<f64> = (0..length).map(|place| value(rank, place)).collect();
            expect_same(&what("what is held"), &values(held), &kept)?;
        }
        let moved = |what: &str, bytes, movement| gpu.over_nccl(what, bytes, || move_data(own(), movement, group));
        let gathered = moved(&what("all_gather"), around, Movement::AllGather { dimension: 0 })?;
        expect_same(&what("all_gather"), &values(gathered), &all)?;
        let gathered = moved(
            &what("all_gather along 1"),
            around,
            Movement::AllGather { dimension: 1 },
        )?;
        let joined: Vec<f64> = (0..rows)
            .flat_map(|row| (0..size).flat_map(move |rank| (0..columns).map(move |c| value(rank, row * columns + c))))
            .collect();
        expect_same(&what("all_gather along 1"), &values(gathered), &joined)?;
        let part = length / size;
        let scattered = moved(&what("reduce_scatter"), halves, Movement::ReduceScatter)?;
        let expected: Vec<f64> = (rank * part..(rank + 1) * part).map(sum).collect();
        expect_same(&what("reduce_scatter"), &values(scattered), &expected)?;
        for root in 0..size {
            let is_last = (rank + 1) % size == root;
            let found = gpu.over_nccl(&what("broadcast"), if is_last { 0 } else { bytes }, || {
                run(own(), TensorCall::Broadcast { root }, group)
            })?;
            let expected: Vec<f64> = (0..length).map(|place| value(root, place)).collect();
            expect_same(&what("broadcast"), &values(found), &expected)?;
        }
        // Columns of a wider tensor, the other way round: neither dense nor at the start of its memory.
        let wide = gpu.tensor([columns + 3, rows + 2], dtype, |place| {
            let (column, row) = (place / (rows + 2), place % (rows + 2));
            if column >= 3 && row >= 2 {
                value(rank, (row - 2) * columns + column - 3)
            } else {
                1e4
            }
        });
        let view = wide.slice([3..columns + 3, 2..rows + 2]).swap_dims(0, 1);
        let found = run(view, TensorCall::AllReduce(ReduceOp::Sum), group)?;
        expect_same(
            &what("all_reduce of a view"),
            &values(found),
            &(0..length).map(sum).collect::<Vec<_>>(),
        )?;
    }
    Ok(())
}

/// Kernels that write what is reduced, reductions, and kernels that read the result, with nothing that waits on the
/// host.
fn order(gpu: &Gpu) -> Outcome {
    const ROUNDS: usize = 12;
    let (size, rank) = (gpu.group.size(), gpu.group.rank());
    let shape = [64, 33];
    let step = gpu.tensor(shape, DType::F32, |place| value(rank, place));
    let mut sum = gpu.tensor(shape, DType::F32, |_| 0.0);
    for round in 0..ROUNDS {
        // Of each round its own, in memory that the allocator hands on from round to round.
        let own = step.clone() * (round as f32 + 1.0) + sum.clone() * 0.5;
        let reduced = run(own, TensorCall::AllReduce(ReduceOp::Sum), &gpu.group)?;
        sum = reduced * 0.5;
    }
    let expected: Vec<f64> = (0..shape[0] * shape[1])
        .map(|place| {
            let total: f64 = (0..size).map(|rank| value(rank, place)).sum();
            (0..ROUNDS).fold(0.0_f32, |sum, round| {
                (total as f32 * (round as f32 + 1.0) + sum * 0.5 * size as f32) * 0.5
            })
        })
        .map(f64::from)
        .collect();
    let found = values(sum);
    let worst = found
        .iter()
        .zip(&expected)
        .map(|(found, expected)| (found - expected).abs() / (expected.abs() + 1.0));
    let worst = worst.fold(0.0, |worst: f64, difference| {
        if difference.is_nan() {
            f64::INFINITY
        } else {
            worst.max(difference)
        }
    });
    // f32, and a few roundings in each round.
    if worst < 1e-5 {
        Ok(())
    } else {
        Err(format!("the sums are off by {worst}").into())
    }
}

/// Messages around the ring in both directions at once, with receives that were posted two messages ahead.
fn transfers(gpu: &Gpu) -> Outcome {
    const MESSAGES: usize = 6;
    let (group, size, rank) = (&gpu.group, gpu.group.size(), gpu.group.rank());
    let (next, previous) = ((rank + 1) % size, (rank + size - 1) % size);
    let shape = [5, 77];
    let message = |from: usize, number: usize, place: usize| value(from, place) + number as f64;
    let post = |from: usize| recv_start(shape, DType::F32, &gpu.device, from, group);
    let mut from_previous: std::collections::VecDeque<_> = (0..2).map(|_| post(previous)).collect();
    let mut from_next: std::collections::VecDeque<_> = match size {
        // The same rank, whose messages come in one order.
        2 => Default::default(),
        _ => (0..2).map(|_| post(next)).collect(),
    };
    let mut staged = None;
    for number in 0..MESSAGES {
        for to in if size == 2 { vec![next] } else { vec![next, previous] } {
            // Its memory is free for the next tensor at once, as far as the allocator knows.
            let tensor = gpu.tensor(shape, DType::F32, |place| message(rank, number, place));
            send_start(tensor, to, group).wait()?;
            let _ = gpu.tensor(shape, DType::F32, |_| -1.0) * 2.0;
        }
        for (from, receives) in [(previous, &mut from_previous), (next, &mut from_next)] {
            if let Some(receive) = receives.pop_front() {
                let found = values(receive.tensor()?);
                let expected: Vec<f64> = (0..shape[0] * shape[1])
                    .map(|place| message(from, number, place))
                    .collect();
                expect_same(
                    &format!("message {number} from rank {from} at rank {rank}"),
                    &found,
                    &expected,
                )?;
                if number + 2 < MESSAGES {
                    receives.push_back(post(from));
                }
            }
        }
        // The first message of each direction connects its ranks, through the host.
        staged.get_or_insert_with(|| gpu.bytes_staged());
    }
    let traffic = NcclTraffic::of(group).ok_or("the group has no NCCL")?;
    let sends = MESSAGES as u64 * if size == 2 { 1 } else { 2 };
    let moved = (traffic.calls, traffic.bytes, gpu.bytes_staged() - staged.unwrap_or(0));
    let expected = (2 * sends, sends * (shape[0] * shape[1] * 4) as u64, 0);
    if moved == expected {
        Ok(())
    } else {
        Err(format!("(calls, bytes, bytes through host memory) are {moved:?}, not {expected:?}").into())
    }
}

/// Every operation on tensors without elements, between others that have some.
fn empty(gpu: &Gpu) -> Outcome {
    let (group, size, rank) = (&gpu.group, gpu.group.size(), gpu.group.rank());
    let same = |what: &str, found: Tensor<2>, shape: [usize; 2]| -> Outcome {
        // Burn cannot read it: CUDA refuses the launch that this takes, and every read after it fails.
        if found.dims() == shape {
            Ok(())
        } else {
            Err(format!("{what} of nothing is {:?}, not {shape:?}", found.dims()).into())
        }
    };
    let sums: Vec<f64> = (0..42)
        .map(|place| (0..size).map(|rank| value(rank, place)).sum())
        .collect();
    for shape in [[0, 4], [0, 1]] {
        let [rows, columns] = shape;
        let nothing = Tensor::<2>::empty(shape, (&gpu.device, DType::F32));
        // A tensor without another holder is reduced in place.
        let nothing = run(nothing, TensorCall::AllReduce(ReduceOp::Sum), group)?;
        // Held, and not made again each time: after some dozens of empty reservations CubeCL's allocator fails.
        let own = || nothing.clone();
        for op in [ReduceOp::Sum, ReduceOp::Mean, ReduceOp::Max] {
            same("all_reduce", run(own(), TensorCall::AllReduce(op), group)?, shape)?;
        }
        let moved = |movement| move_data(own(), movement, group);
        same(
            "all_gather",
            moved(Movement::AllGather { dimension: 0 })?,
            [rows * size, columns],
        )?;
        same(
            "all_gather",
            moved(Movement::AllGather { dimension: 1 })?,
            [rows, columns * size],
        )?;
        same(
            "reduce_scatter",
            moved(Movement::ReduceScatter)?,
            [rows / size, columns],
        )?;
        for root in 0..size {
            same("broadcast", run(own(), TensorCall::Broadcast { root }, group)?, shape)?;
        }
        expect_same("what follows", &gpu.sum()?, &sums)?;
        if size == 1 {
            continue;
        }
        // Nothing, something, nothing.
        let (next, previous) = ((rank + 1) % size, (rank + size - 1) % size);
        let something = [2, 3];
        let shapes = [shape, something, shape];
        let receives = shapes.map(|shape| recv_start(shape, DType::F32, &gpu.device, previous, group));
        for shape in shapes {
            let tensor = if shape == something {
                gpu.tensor(shape, DType::F32, |place| value(rank, place))
            } else {
                nothing.clone()
            };
            send_start(tensor, next, group).wait()?;
        }
        let [first, second, third] = receives;
        same("a first message", first.tensor()?, shape)?;
        let expected: Vec<f64> = (0..6).map(|place| value(previous, place)).collect();
        expect_same("a message between", &values(second.tensor()?), &expected)?;
        same("a last message", third.tensor()?, shape)?;
    }
    Ok(())
}
