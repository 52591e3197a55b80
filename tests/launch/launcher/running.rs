//! Programs whose `main` is [`run`], and what they exit with.

use std::error::Error;
use std::process::ExitCode;

use burn::tensor::Tensor;
use burn_megatron::launch::{Environment, World, run};
use burn_megatron::tensor_parallel::RowParallelLinearConfig;
use burn_megatron::topology::ParallelConfig;
use libtest_mimic::Failed;

use crate::launch::launcher::LONG;
use tests::job::{Job, expect, note};

/// How the names of cases begin that are played by [`play`], in the launcher and in the ranks.
pub const PREFIX: &str = "run_";

/// The program of a case.
pub fn play(case: &str) -> ExitCode {
    let is_rank = matches!(Environment::detect(), Ok(Some(_)));
    match case {
        "run_nobody" => run(0, greet),
        "run_fewer" if is_rank => run(2, greet),
        "run_one_in_three" if is_rank => run(1, greet),
        "run_error" => run(3, |world| -> Result<(), Box<dyn Error>> {
            if world.rank() == 1 {
                return Err("loss is not finite".into());
            }
            world.store().wait("never", LONG)?;
            Ok(())
        }),
        "run_other_batches" => run(2, give_other_batches),
        _ => run(3, greet),
    }
}

/// Gives a tensor-parallel layer another number of tokens on each rank, in no wrapper that would return the error.
fn give_other_batches(world: &World) -> anyhow::Result<()> {
    note(&format!("pid-{}", world.rank()), std::process::id());
    let context = ParallelConfig::new().with_tensor_parallel_size(2).init(world)?;
    let layer = RowParallelLinearConfig::new(2, 3).init(&tests::device(), &context.root())?;
    layer.forward(Tensor::<2>::ones([1 + world.rank(), 1], &tests::device()));
    anyhow::bail!("the layer took different numbers of tokens")
}

fn greet(world: &World) -> anyhow::Result<()> {
    note(&format!("pid-{}", world.rank()), std::process::id());
    println!("hello from {} of {}", world.rank(), world.world_size());
    Ok(())
}

pub fn run_calls_its_function_in_every_rank_and_only_there() -> Result<(), Failed> {
    for case in ["run_three", "run_one_in_three"] {
        let ended = Job::start("launcher", case)?.end()?;
        ended.expect_code(0)?;
        let greetings = ended.stdout.matches("hello from").count();
        expect(
            greetings == 3,
            &format!("{case}: {greetings} greetings\n{}", ended.stdout),
        )?;
    }
    Ok(())
}

pub fn run_ends_with_the_error_of_a_rank() -> Result<(), Failed> {
    let ended = Job::start("launcher", "run_error")?.end()?;
    ended.expect_code(1)?;
    let own = ended
        .stderr
        .lines()
        .filter(|line| line.contains("] failed: loss is not finite"));
    expect(own.count() == 1, &ended.stderr)
}

pub fn run_reports_a_collective_that_fails_in_a_layer() -> Result<(), Failed> {
    let ended = Job::start("launcher", "run_other_batches")?.end()?;
    ended.expect_code(1)?;
    ended.expect_line("] failed: rank 1 of group tensor [0, 1] called all_reduce ")?;
    ended.expect_line("failed first: exit code 1 (its message is above); then rank 0: exit code 75")
}

pub fn run_refuses_a_number_of_ranks_that_cannot_be() -> Result<(), Failed> {
    let empty = Job::start("launcher", "run_nobody")?.end()?;
    empty.expect_code(2)?;
    empty.expect_line("error: the world size is 0: a job has at least 1 rank")?;
    let fewer = Job::start("launcher", "run_fewer")?.end()?;
    fewer.expect_code(1)?;
    fewer.expect_line("the program asked for 2 ranks, but the job that this process was started in has 3")?;
    expect(!fewer.stdout.contains("hello"), &fewer.stdout)
}
