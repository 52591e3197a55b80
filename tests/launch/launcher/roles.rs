//! What the launcher and the ranks of each case do.

use std::error::Error;
use std::fs;
use std::io::{self, Write};
use std::process::Command;
use std::thread::sleep;
use std::time::{Duration, Instant};

use burn_megatron::launch::{
    Environment, JoinConfig, Launcher, Nodes, Prefix, SECONDARY_FAILURE_EXIT_CODE, StopFlag, World, install_panic_hook,
    report_and_exit,
};

use crate::launch::launcher::{LONG, NODE, NODE_ZERO};
use tests::job::{launch, note};

// ---------------------------------------------------------------------------------------------- the launcher's role

pub fn act_as_launcher(case: &str) -> ! {
    let short = Duration::from_millis(300);
    let launcher = match case {
        "fails_twice" => Launcher::new(3).max_restarts(5),
        "fails_always" => Launcher::new(2).max_restarts(1),
        "fails_at_once" => Launcher::new(3).max_restarts(100),
        "unlogged_error" => Launcher::new(3).log_ranks([0].iter().collect()),
        "two_writers" => Launcher::new(2).prefix(Prefix::AllButRankZero),
        "stubborn_rank" | "never_joins" => Launcher::new(2).failure_grace(short),
        "deaf" => Launcher::new(2).interrupt_grace(LONG),
        "crowd" => Launcher::new(16),
        "busy" => Launcher::new(8),
        _ => Launcher::new(3),
    };
    let launcher = match std::env::var(NODE) {
        // Longer than a variable may be.
        Ok(node) if case == "cannot_start_elsewhere" && node.starts_with('1') => {
            on_one_of_several_nodes(&node).environment("HUGE", "x".repeat(1 << 20))
        }
        Ok(node) if case == "fails_once" => on_one_of_several_nodes(&node).max_restarts(1),
        Ok(node) if case == "deaf" => on_one_of_several_nodes(&node).max_restarts(3).interrupt_grace(short),
        Ok(node) => on_one_of_several_nodes(&node),
        Err(_) => launcher,
    };
    launch(launcher.environment("SPECIAL", "given"))
}

/// Two ranks on each node.
fn on_one_of_several_nodes(node: &str) -> Launcher {
    let numbers: Vec<usize> = node
        .split(' ')
        .map(|number| number.parse().expect("the test writes numbers"))
        .collect();
    let [rank, count, port] = numbers[..] else {
        panic!("the test writes three numbers, not {node:?}")
    };
    Launcher::new(4)
        .rendezvous_timeout(Duration::from_secs(10))
        .nodes(Nodes {
            count,
            rank,
            master_addr: NODE_ZERO.into(),
            master_port: port as u16,
        })
}

// ---------------------------------------------------------------------------------------------------- a rank's role

/// The longest silence of the ranks that compute on every core for twice that time; by default it is 30 s.
const BUSY_LIMIT: Duration = Duration::from_secs(2);

pub fn act_as_rank(case: &str, environment: &Environment) {
    let rank = environment.rank;
    note(&format!("pid-{rank}"), std::process::id());
    match case {
        "never_joins" if rank == 1 => sleep(LONG),
        "ends_without_joining" if rank == 1 => return,
        "ends_without_joining_elsewhere" if rank == 3 => return,
        "late_elsewhere" if rank >= 2 => sleep(LONG),
        "late_rank" if rank == 1 => sleep(Duration::from_millis(700)),
        "two_writers" => return write_many_lines(rank),
        "hosting_rank_killed" => tracing_subscriber::fmt().with_writer(io::stderr).init(),
        _ => {}
    }
    let rendezvous_timeout = if case == "never_joins" {
        Duration::from_millis(500)
    } else {
        LONG
    };
    let options = JoinConfig {
        rendezvous_timeout,
        timeout: LONG,
        heartbeat_limit: (case == "busy").then_some(BUSY_LIMIT),
        ..JoinConfig::new()
    };
    let world = match World::join(environment, &options) {
        Ok(world) => world,
        Err(error) => {
            eprintln!("{error}");
            std::process::exit(SECONDARY_FAILURE_EXIT_CODE);
        }
    };
    install_panic_hook(&world);
    if let Err(error) = play(case, &world) {
        report_and_exit(&world, &*error);
    }
}

/// What the ranks of each case do after joining.
fn play(case: &str, world: &World) -> Result<(), Box<dyn Error>> {
    let rank = world.rank();
    let wait_in_vain = || world.store().wait("never", LONG).map(drop);
    match (case, rank) {
        ("busy", _) => std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    let begun = Instant::now();
                    while begun.elapsed() < 2 * BUSY_LIMIT {
                        std::hint::spin_loop();
                    }
                });
            }
        }),
        ("success" | "late_rank" | "crowd", _) => {
            world.store().set(&format!("here-{rank}"), b"")?;
            for other in 0..world.world_size() {
                world.store().wait(&format!("here-{other}"), LONG)?;
            }
            println!(
                "hello from {rank} of {}, {}",
                world.world_size(),
                std::env::var("SPECIAL")?
            );
        }
        ("fails_twice", _) => {
            let restarts = starts_before();
            println!("start {restarts} is job {}", world.job_id());
            match (restarts, rank) {
                (2.., _) => {}
                (_, 1) => std::process::exit(3),
                _ => wait_in_vain()?,
            }
        }
        ("fails_once", 3) if starts_before() == 0 => std::process::exit(3),
        ("fails_once", _) if starts_before() == 1 => {}
        ("fails_always" | "fails_at_once", 1) => std::process::exit(3),
        ("exit_three", 1) => std::process::exit(3),
        ("own_error" | "unlogged_error", 1) => return Err("loss is not finite".into()),
        ("panic", 1) => panic!("index out of range"),
        ("killed" | "launcher_killed", _) => {
            let leftover = format!("/dev/shm/burn-megatron-test-{}-{rank}", world.job_id());
            fs::write(&leftover, "leftover")?;
            let grandchild = Command::new("sleep").arg("300").spawn()?;
            note(&format!("pid-sleep-{rank}"), grandchild.id());
            note(&format!("ready-{rank}"), leftover);
            if case == "launcher_killed" {
                sleep(LONG); // deaf to the news that the store is gone
            }
            wait_in_vain()?;
        }
        ("stubborn_rank", 1) => std::process::exit(4),
        ("hosting_rank_killed" | "waiting", _) => {
            note(&format!("ready-{rank}"), "");
            wait_in_vain()?;
        }
        ("stubborn_rank" | "deaf", _) => {
            let _ignored = StopFlag::install()?;
            note(&format!("ready-{rank}"), "");
            sleep(LONG);
        }
        ("interrupted", _) => {
            let stop = StopFlag::install()?;
            note(&format!("ready-{rank}"), "");
            while !stop.is_set() {
                sleep(Duration::from_millis(5));
            }
            println!("stopped in good order");
        }
        _ => wait_in_vain()?,
    }
    Ok(())
}

fn starts_before() -> u64 {
    let environment = Environment::detect().expect("the launcher's variables are right");
    environment.expect("a launcher has started this rank").restarts()
}

fn write_many_lines(rank: usize) {
    let mut stdout = io::stdout();
    for line in 0..2000 {
        // In pieces, so that a line is often cut where the pipe is read.
        write!(stdout, "line {line} of ").expect("stdout is open");
        stdout.flush().expect("stdout is open");
        writeln!(stdout, "rank {rank}").expect("stdout is open");
    }
}
