//! Everything that listens, among strangers: a crowd that says nothing, too little, too slowly, nonsense or what it has
//! overheard, while real jobs come together and compute. What is listened on, and where the job's secret may not
//! appear.
//!
//! The binary plays three roles: it runs the tests; it is the launcher of a job; and,
//! with RANK set, it is one of its ranks.

// Helpers of tests, which clippy does not know as such outside of `cfg(test)`.
#![allow(clippy::unwrap_used)]

mod crowd;
mod launched;
mod secrets;

use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use burn_megatron::collectives::{EngineChoice, GroupConfig, ProcessGroup, ReduceOp};
use burn_megatron::launch::{
    Environment, JobToken, JoinConfig, LaunchError, StoreServer, StoreServerConfig, World, variables,
};
use libtest_mimic::Arguments;
use tests::job;

const LONG: Duration = Duration::from_secs(60);

fn main() {
    match (job::case(), Environment::detect()) {
        (None, _) => run_tests(),
        (Some(_), Ok(None)) => launched::act_as_launcher(),
        (Some(_), Ok(Some(environment))) => launched::act_as_rank(&environment),
        (Some(_), Err(error)) => panic!("{error}"),
    }
}

fn run_tests() {
    let tests = tests::trials![
        crowd => [a_crowd_at_every_door_neither_delays_a_job_nor_takes_its_memory],
        secrets => [
            the_token_never_crosses_the_wire_and_what_does_opens_nothing,
            a_rank_of_another_job_is_refused_at_once_and_nobody_else_notices,
        ],
        launched => [
            the_token_is_in_no_command_line_and_in_nothing_that_is_printed,
            a_job_listens_on_the_interface_that_was_asked_for_and_on_no_other,
            an_interface_that_is_not_there_is_an_error_that_lists_those_that_are,
            a_world_beyond_all_bounds_is_an_error_before_anything_is_allocated,
        ],
    ];
    let mut arguments = Arguments::from_args();
    // They count this process's memory and descriptors.
    arguments.test_threads = Some(1);
    libtest_mimic::run(&arguments, tests).exit();
}

fn store(world_size: usize, token: &str) -> StoreServer {
    StoreServer::start(StoreServerConfig {
        listen: SocketAddr::from((Ipv4Addr::LOCALHOST, 0)),
        port_variable: variables::MASTER_PORT,
        world_size,
        job_id: "0123456789abcdef".into(),
        token: JobToken::from_text(token),
        on_failure: None,
    })
    .unwrap()
}

fn join(rank: usize, world_size: usize, port: u16, token: &str) -> Result<World, LaunchError> {
    let environment = Environment::from_lookup(|name| match name {
        variables::RANK | variables::LOCAL_RANK => Some(rank.to_string()),
        variables::WORLD_SIZE | variables::LOCAL_WORLD_SIZE => Some(world_size.to_string()),
        variables::MASTER_ADDR => Some("127.0.0.1".into()),
        variables::MASTER_PORT => Some(port.to_string()),
        variables::JOB_TOKEN => Some(token.into()),
        variables::STORE_HOSTED => Some("1".into()),
        _ => None,
    })?;
    World::join(
        &environment.expect("RANK is set"),
        &JoinConfig::new().with_all_timeouts(LONG),
    )
}

/// Connects all ranks over TCP, adds up, and returns the group.
fn compute(world: &World) -> ProcessGroup {
    let ranks: Vec<usize> = (0..world.world_size()).collect();
    let options = GroupConfig::new().with_engine(EngineChoice::Tcp);
    let group = ProcessGroup::connect(world, "all", &ranks, &options).unwrap();
    let mut sum = vec![world.rank() as f32 + 1.0; 50_000];
    group.all_reduce(&mut sum, ReduceOp::Sum).unwrap();
    let expected = (1..=world.world_size()).sum::<usize>() as f32;
    assert!(sum.iter().all(|value| *value == expected));
    group.barrier().unwrap();
    group
}
