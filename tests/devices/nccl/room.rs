//! Kernels of NCCL that wait on the GPU for kernels of the other rank, which come after others there.

use burn::tensor::DType;
use burn_megatron::collectives::{GroupConfig, ProcessGroup, ReduceOp, TensorCall, recv_start, send_start, start};
use burn_megatron::launch::World;

use crate::devices::nccl::ranks::{Gpu, Outcome, expect_same, value, values};

const SHAPE: [usize; 2] = [6, 7];
/// Those of a pipeline's stage: two directions, each with a way in.
const DIRECTIONS: usize = 4;

/// Receives that are posted before a reduction, whose messages are sent after it; and reductions over two groups in
/// another order on each rank.
pub fn room(world: &World) -> Outcome {
    let gpu = Gpu::of(world)?;
    let named = |name: String| {
        let groups = GroupConfig::new().with_nccl_gpu(Some(gpu.number));
        ProcessGroup::connect(world, &name, &[0, 1], &groups)
    };
    let directions: Vec<ProcessGroup> = (0..DIRECTIONS)
        .map(|number| named(format!("direction {number}")))
        .collect::<Result<_, _>>()?;
    let sides = [named("left".to_owned())?, named("right".to_owned())?];
    let sums: Vec<f64> = (0..SHAPE[0] * SHAPE[1])
        .map(|place| value(0, place) + value(1, place))
        .collect();
    // The ranks are connected and the kernels loaded by the first round.
    for round in 0..3 {
        received_around_a_reduction(&gpu, &directions, &sums)?;
        reduced_in_both_orders(&gpu, &sides, &sums, round == 0)?;
    }
    Ok(())
}

fn received_around_a_reduction(gpu: &Gpu, directions: &[ProcessGroup], sums: &[f64]) -> Outcome {
    let message = |number: usize| move |place: usize| value(1, place) + number as f64;
    if gpu.group.rank() == 1 {
        expect_same("the sum", &gpu.sum()?, sums)?;
        for (number, group) in directions.iter().enumerate() {
            let own = gpu.tensor(SHAPE, DType::F32, message(number));
            send_start(own, 0, group).wait()?;
        }
        return Ok(());
    }
    let post = |group| recv_start(SHAPE, DType::F32, &gpu.device, 1, group);
    let receives: Vec<_> = directions.iter().map(post).collect();
    expect_same("the sum", &gpu.sum()?, sums)?;
    for (number, receive) in receives.into_iter().enumerate() {
        let expected: Vec<f64> = (0..SHAPE[0] * SHAPE[1]).map(message(number)).collect();
        expect_same("a message", &values(receive.tensor()?), &expected)?;
    }
    Ok(())
}

fn reduced_in_both_orders(gpu: &Gpu, sides: &[ProcessGroup; 2], sums: &[f64], in_one_order: bool) -> Outcome {
    let mut order = [0, 1];
    if gpu.group.rank() == 1 && !in_one_order {
        order.reverse();
    }
    let reduce = |side: usize| {
        let own = gpu.tensor(SHAPE, DType::F32, |place| value(gpu.group.rank(), place));
        start(own, TensorCall::AllReduce(ReduceOp::Sum), &sides[side])
    };
    for reduced in order.map(reduce) {
        expect_same("a sum", &values(reduced.tensor()?), sums)?;
    }
    Ok(())
}
