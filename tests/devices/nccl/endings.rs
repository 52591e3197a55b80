//! What the ranks do of cases that end badly, or would if a wait were taken for another.

use std::time::{Duration, Instant};

use burn::tensor::DType;
use burn_megatron::collectives::{ReduceOp, TensorCall, recv_start, run, send_start};
use burn_megatron::cuda::{self, Sharing};
use burn_megatron::launch::World;

use crate::devices::nccl::LONG;
use crate::devices::nccl::ranks::{Gpu, Outcome, expect_same, value, values};
use tests::job::note;

/// What is logged when ranks have been connected.
pub const PAUSED: &str = "NCCL connects ranks";
const SHAPE: [usize; 2] = [5, 77];

/// The limit of waits in a case where it is to run out, or not to.
pub fn timeout_of(case: &str) -> Option<Duration> {
    match case {
        "late" | "absent" | "busy" | "mismatch" | "never_sent" | "never_received" | "room" => {
            Some(Duration::from_secs(10))
        }
        "ahead" => Some(Duration::from_secs(5)),
        _ => None,
    }
}

pub fn play(case: &str, world: &World) -> Outcome {
    match case {
        "for_ever" => for_ever(&Gpu::of(world)?, world),
        "late" => late(&Gpu::of(world)?, world),
        "absent" => absent(&Gpu::of(world)?, world),
        "busy" => busy(&Gpu::of(world)?, world),
        "mismatch" => mismatch(&Gpu::of(world)?),
        "never_received" => never_received(&Gpu::of(world)?, world),
        "never_sent" => never_sent(&Gpu::of(world)?, world),
        "ahead" => ahead(&Gpu::of(world)?, world),
        "leaves" => leaves(Gpu::of(world)?, world),
        "drop" => drop_in_a_call(Gpu::of(world)?, world),
        "shared_gpu" => shared_gpu(world),
        "one_visible" => one_visible(&Gpu::of(world)?),
        _ => Err(format!("no case {case:?}").into()),
    }
}

fn for_ever(gpu: &Gpu, world: &World) -> Outcome {
    for round in 0.. {
        let found = gpu.sum()?;
        if round == 1 {
            note(&format!("ready-{}", world.rank()), "");
        }
        std::hint::black_box(found);
    }
    Ok(())
}

/// Waits until the job's failure is known, prints it, and then does nothing.
fn hear(world: &World) -> Outcome {
    let cause = world.failure().wait_raised(LONG).ok_or("no rank fails")?;
    println!("rank {} hears that {cause}", world.rank());
    std::thread::sleep(LONG);
    Ok(())
}

/// Continues with reductions until one reports that an earlier one failed: what is read before is worthless.
fn reduce_in_vain(gpu: &Gpu) -> Outcome {
    gpu.sum()?;
    gpu.sum()?;
    Err("a reduction without all ranks is taken for one".into())
}

/// Rank 2 does not come to the second reduction, and rank 1 so late that rank 0 gives up long before it.
fn late(gpu: &Gpu, world: &World) -> Outcome {
    gpu.sum()?;
    match world.rank() {
        2 => return hear(world),
        1 => std::thread::sleep(world.timeout() / 2),
        _ => {}
    }
    reduce_in_vain(gpu)
}

/// Rank 1 does not come to the first reduction, at which the ranks are connected.
fn absent(gpu: &Gpu, world: &World) -> Outcome {
    match world.rank() {
        1 => hear(world),
        _ => reduce_in_vain(gpu),
    }
}

/// Rank 0 comes to the second reduction, but its GPU does not: it has much else to do before.
fn busy(gpu: &Gpu, world: &World) -> Outcome {
    gpu.sum()?;
    if world.rank() != 0 {
        return reduce_in_vain(gpu);
    }
    let mut much = gpu.tensor([8000, 1000], DType::F32, |place| place as f64);
    for _ in 0..1000 {
        much = much.cos().exp().sin();
    }
    let own = much.slice([0..6, 0..7]);
    let reduced = run(own, TensorCall::AllReduce(ReduceOp::Sum), &gpu.group)?;
    hear(world)?;
    drop(reduced);
    Ok(())
}

/// The ranks reduce tensors of different lengths.
fn mismatch(gpu: &Gpu) -> Outcome {
    gpu.sum()?;
    let own = gpu.tensor([2, 5 + gpu.group.rank()], DType::F32, |_| 1.0);
    values(run(own, TensorCall::AllReduce(ReduceOp::Sum), &gpu.group)?);
    reduce_in_vain(gpu)
}

/// Rank 1 does not send its second message, which rank 0 waits for.
fn never_sent(gpu: &Gpu, world: &World) -> Outcome {
    // What is read needs memory that is not allocated while a receive waits.
    gpu.sum()?;
    let message = || gpu.tensor(SHAPE, DType::F32, |place| value(1, place));
    if world.rank() == 1 {
        send_start(message(), 0, &gpu.group).wait()?;
        return hear(world);
    }
    let receives = [(); 2].map(|()| recv_start(SHAPE, DType::F32, &gpu.device, 1, &gpu.group));
    std::thread::sleep(world.timeout() / 2);
    for receive in receives {
        // The second one is worthless.
        values(receive.tensor()?);
    }
    reduce_in_vain(gpu)
}

/// Rank 1 does not receive what rank 0 sends, so that NCCL does not connect them.
fn never_received(gpu: &Gpu, world: &World) -> Outcome {
    if world.rank() == 1 {
        return hear(world);
    }
    let message = gpu.tensor(SHAPE, DType::F32, |place| value(0, place));
    Ok(send_start(message, 1, &gpu.group).wait()?)
}

/// Receives are posted long before they are waited for: one that connects the ranks, and one after it.
fn ahead(gpu: &Gpu, world: &World) -> Outcome {
    let of = |number: usize| (0..SHAPE[0] * SHAPE[1]).map(move |place| value(1, place) + number as f64);
    for number in 0..2 {
        gpu.group.barrier()?;
        if world.rank() == 1 {
            std::thread::sleep(world.timeout() * 8 / 5);
            let message = gpu.tensor(SHAPE, DType::F32, |place| value(1, place) + number as f64);
            send_start(message, 0, &gpu.group).wait()?;
        } else {
            let receive = recv_start(SHAPE, DType::F32, &gpu.device, 1, &gpu.group);
            std::thread::sleep(world.timeout() * 7 / 5);
            let expected: Vec<f64> = of(number).collect();
            expect_same(
                "what was posted ahead of its time",
                &values(receive.tensor()?),
                &expected,
            )?;
        }
    }
    Ok(())
}

/// Rank 1 drops its group, and the others wait for it.
fn leaves(gpu: Gpu, world: &World) -> Outcome {
    gpu.sum()?;
    if world.rank() == 1 {
        drop(gpu);
        return hear(world);
    }
    let begun = Instant::now();
    let outcome = reduce_in_vain(&gpu);
    println!("rank {} waits for {} s", world.rank(), begun.elapsed().as_secs());
    outcome
}

/// Rank 0 drops its group while a call waits in NCCL for rank 1, which is held up between connecting and its own call.
fn drop_in_a_call(gpu: Gpu, world: &World) -> Outcome {
    const DROPPED: &str = "dropped";
    if world.rank() == 1 {
        let receive = recv_start(SHAPE, DType::F32, &gpu.device, 0, &gpu.group);
        world.store().wait(DROPPED, LONG)?;
        println!(
            "rank 1 has{} received",
            if receive.finished_at().is_some() { "" } else { " not" }
        );
        world.leave();
        std::process::exit(0);
    }
    let message = gpu.tensor(SHAPE, DType::F32, |place| value(0, place));
    let sending = send_start(message, 1, &gpu.group);
    std::thread::sleep(Duration::from_secs(2));
    println!("rank 0 is {}", if sending.is_done() { "done" } else { "in its call" });
    drop(sending);
    let begun = Instant::now();
    drop(gpu);
    println!("rank 0 drops its group in {:.1} s", begun.elapsed().as_secs_f64());
    Ok(world.store().set(DROPPED, b"")?)
}

/// Each rank sees one GPU, another than the others, under the number 0.
fn one_visible(gpu: &Gpu) -> Outcome {
    if gpu.number != 0 {
        return Err(format!("the only GPU has the number {}", gpu.number).into());
    }
    cuda::check_shared(gpu.number, &gpu.group)?;
    let ranks = gpu.group.size();
    let found = gpu.sum()?;
    let expected: Vec<f64> = (0..found.len())
        .map(|place| (0..ranks).map(|rank| value(rank, place)).sum())
        .collect();
    expect_same("the sum", &found, &expected)
}

fn shared_gpu(world: &World) -> Outcome {
    let gpu = Gpu::with(world, Sharing::Allowed)?;
    let refused = cuda::check_shared(gpu.number, &gpu.group).err();
    println!(
        "rank {} is refused: {}",
        world.rank(),
        refused.map_or_else(String::new, |error| error.to_string())
    );
    match gpu.sum() {
        Ok(_) => Err("NCCL takes two ranks on one GPU, and was not asked to".into()),
        Err(error) => {
            println!("rank {}: {error}", world.rank());
            Ok(())
        }
    }
}
