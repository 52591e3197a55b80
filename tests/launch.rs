//! Tests of the launcher with real processes.
//!
//! The binary plays three roles. Started by cargo, it runs the tests; a test starts it again with `LAUNCH_TEST_CASE`
//! set, and then it is the launcher of that case; the launcher starts it once per rank, and then RANK is set, too.

use std::error::Error;
use std::fs::{self, File};
use std::io::{self, Write};
use std::net::TcpListener;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus};
use std::thread::sleep;
use std::time::{Duration, Instant};

use burn_megatron::launch::{
    Environment, JoinOptions, Launcher, Nodes, Prefix, SECONDARY_FAILURE_EXIT_CODE, StopFlag, World,
    install_panic_hook, report_and_exit,
};
use libtest_mimic::{Arguments, Failed, Trial};
use tempfile::TempDir;

const CASE: &str = "LAUNCH_TEST_CASE";
const FOLDER: &str = "LAUNCH_TEST_FOLDER";
/// `node count master-port`, for a launcher of one of several nodes.
const NODE: &str = "LAUNCH_TEST_NODE";
/// Where node 0 of several listens: not the address that one node takes.
const NODE_ZERO: &str = "127.0.0.2";
const LONG: Duration = Duration::from_secs(60);

fn main() {
    match (std::env::var(CASE), Environment::detect()) {
        (Err(_), _) => run_tests(),
        (Ok(case), Ok(None)) => act_as_launcher(&case),
        (Ok(case), Ok(Some(environment))) => act_as_rank(&case, &environment),
        (Ok(_), Err(error)) => panic!("{error}"),
    }
}

// ---------------------------------------------------------------------------------------------- the launcher's role

fn act_as_launcher(case: &str) {
    let short = Duration::from_millis(300);
    let launcher = match case {
        "two_writers" => Launcher::new(2).prefix(Prefix::AllButRankZero),
        "stubborn_rank" | "never_joins" => Launcher::new(2).failure_grace(short),
        "deaf" => Launcher::new(2).interrupt_grace(LONG),
        "crowd" => Launcher::new(16),
        _ => Launcher::new(3),
    };
    let launcher = match std::env::var(NODE) {
        Ok(node) => on_one_of_several_nodes(&node),
        Err(_) => launcher,
    };
    match launcher.environment("SPECIAL", "given").run() {
        Ok(summary) => std::process::exit(summary.exit_code()),
        Err(error) => {
            eprintln!("{error}");
            std::process::exit(99);
        }
    }
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

fn act_as_rank(case: &str, environment: &Environment) {
    let rank = environment.rank;
    note(&format!("pid-{rank}"), std::process::id());
    match case {
        "never_joins" if rank == 1 => sleep(LONG),
        "ends_without_joining" if rank == 1 => return,
        "ends_without_joining_elsewhere" if rank == 3 => return,
        "late_rank" if rank == 1 => sleep(Duration::from_millis(700)),
        "two_writers" => return write_many_lines(rank),
        _ => {}
    }
    let rendezvous_timeout = if case == "never_joins" {
        Duration::from_millis(500)
    } else {
        LONG
    };
    let options = JoinOptions {
        rendezvous_timeout,
        timeout: LONG,
        ..JoinOptions::default()
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
        ("exit_three", 1) => std::process::exit(3),
        ("own_error", 1) => return Err("loss is not finite".into()),
        ("panic", 1) => panic!("index out of range"),
        ("killed" | "launcher_killed", _) => {
            let leftover = format!("/dev/shm/burn-megatron-test-{}-{rank}", world.job_id());
            fs::write(&leftover, "left behind")?;
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

fn write_many_lines(rank: usize) {
    let mut stdout = io::stdout();
    for line in 0..2000 {
        // In pieces, so that a line is often cut where the pipe is read.
        write!(stdout, "line {line} of ").expect("stdout is open");
        stdout.flush().expect("stdout is open");
        writeln!(stdout, "rank {rank}").expect("stdout is open");
    }
}

/// Leaves a file in the test's folder, whole from the moment it exists.
fn note(name: &str, content: impl ToString) {
    let folder = PathBuf::from(std::env::var_os(FOLDER).expect("the test sets its folder"));
    let draft = folder.join(format!("{name}.draft"));
    fs::write(&draft, content.to_string()).expect("the test's folder is writable");
    fs::rename(draft, folder.join(name)).expect("the test's folder is writable");
}

// --------------------------------------------------------------------------------------------------- the test's role

fn run_tests() {
    let test = |name: &'static str, body: fn() -> Result<(), Failed>| Trial::test(name, body);
    let tests = vec![
        test("all_ranks_succeed", all_ranks_succeed),
        test("sixteen_ranks_meet", sixteen_ranks_meet),
        test("late_rank_is_waited_for", late_rank_is_waited_for),
        test(
            "lines_stay_whole_and_rank_zero_can_be_plain",
            lines_stay_whole_and_rank_zero_can_be_plain,
        ),
        test(
            "exit_code_of_the_first_failure_is_kept",
            exit_code_of_the_first_failure_is_kept,
        ),
        test("own_error_is_reported_everywhere", own_error_is_reported_everywhere),
        test("panic_is_reported_everywhere", panic_is_reported_everywhere),
        test(
            "killed_rank_is_named_and_nothing_is_left",
            killed_rank_is_named_and_nothing_is_left,
        ),
        test("ranks_die_with_their_launcher", ranks_die_with_their_launcher),
        test("rank_that_never_joins_is_named", rank_that_never_joins_is_named),
        test(
            "rank_that_ends_without_joining_is_named",
            rank_that_ends_without_joining_is_named,
        ),
        test("rank_that_does_not_end_is_killed", rank_that_does_not_end_is_killed),
        test("interrupt_ends_ranks_in_good_order", interrupt_ends_ranks_in_good_order),
        test("second_interrupt_kills", second_interrupt_kills),
        test("second_signal_ends_a_rank_at_once", second_signal_ends_a_rank_at_once),
        test(
            "hosting_rank_that_is_killed_is_named",
            hosting_rank_that_is_killed_is_named,
        ),
        test("taken_port_is_an_error", taken_port_is_an_error),
        test("ranks_of_two_nodes_meet", ranks_of_two_nodes_meet),
        test("killed_rank_is_named_on_both_nodes", killed_rank_is_named_on_both_nodes),
        test(
            "killed_rank_of_node_zero_is_named_on_both_nodes",
            killed_rank_of_node_zero_is_named_on_both_nodes,
        ),
        test(
            "killed_launcher_of_node_zero_is_named",
            killed_launcher_of_node_zero_is_named,
        ),
        test(
            "rank_that_ends_without_joining_is_named_on_its_node",
            rank_that_ends_without_joining_is_named_on_its_node,
        ),
        test("nodes_that_do_not_fit_are_refused", nodes_that_do_not_fit_are_refused),
    ];
    libtest_mimic::run(&Arguments::from_args(), tests).exit();
}

fn all_ranks_succeed() -> Result<(), Failed> {
    let ended = Job::start("success")?.end()?;
    ended.expect_code(0)?;
    let mut lines: Vec<_> = ended.stdout.lines().collect();
    lines.sort_unstable();
    let expected = [0, 1, 2].map(|rank| format!("[rank {rank}] hello from {rank} of 3, given"));
    expect(lines == expected, &ended.stdout)?;
    expect(ended.stderr.is_empty(), &ended.stderr)
}

fn sixteen_ranks_meet() -> Result<(), Failed> {
    let ended = Job::start("crowd")?.end()?;
    ended.expect_code(0)?;
    expect(ended.stdout.lines().count() == 16, &ended.stdout)
}

fn late_rank_is_waited_for() -> Result<(), Failed> {
    Job::start("late_rank")?.end()?.expect_code(0)
}

fn lines_stay_whole_and_rank_zero_can_be_plain() -> Result<(), Failed> {
    let ended = Job::start("two_writers")?.end()?;
    ended.expect_code(0)?;
    for (rank, prefix) in [(0, ""), (1, "[rank 1] ")] {
        let end = format!("rank {rank}");
        let lines: Vec<_> = ended.stdout.lines().filter(|line| line.ends_with(&end)).collect();
        let expected: Vec<_> = (0..2000)
            .map(|line| format!("{prefix}line {line} of rank {rank}"))
            .collect();
        expect(lines == expected, &format!("rank {rank}: {} lines", lines.len()))?;
    }
    Ok(())
}

fn exit_code_of_the_first_failure_is_kept() -> Result<(), Failed> {
    let ended = Job::start("exit_three")?.end()?;
    ended.expect_code(3)?;
    ended.expect_line(&format!(
        "[launcher] rank 1 (pid {}) failed first: exit code 3; then rank ",
        ended.pid(1)?
    ))?;
    ended.expect_line("exit code 75 (because another rank failed)")
}

fn own_error_is_reported_everywhere() -> Result<(), Failed> {
    let ended = Job::start("own_error")?.end()?;
    ended.expect_code(1)?;
    ended.expect_line("failed first: exit code 1 (loss is not finite); then rank ")?;
    for rank in [0, 2] {
        let line = ended.line(&format!("[rank {rank}] [rank {rank} on host "))?;
        expect(
            line.contains("ends because rank 1 on host ") && line.contains("loss is not finite"),
            line,
        )?;
    }
    Ok(())
}

fn panic_is_reported_everywhere() -> Result<(), Failed> {
    let ended = Job::start("panic")?.end()?;
    ended.expect_code(101)?;
    let printed = ended
        .stderr
        .lines()
        .filter(|line| line.starts_with("[rank 1]") && line.contains("panicked: "));
    expect(printed.count() == 1, &ended.stderr)?;
    ended.expect_line("failed first: exit code 101 (panicked: index out of range at ")
}

fn killed_rank_is_named_and_nothing_is_left() -> Result<(), Failed> {
    let job = Job::start("killed")?;
    let shared_memory = job.wait_until_ready(3)?;
    let pid = job.pid("pid-2")?;
    let start = Instant::now();
    send(pid, libc::SIGKILL);
    let ended = job.end()?;
    expect(
        start.elapsed() < Duration::from_secs(10),
        &format!("took {:?}", start.elapsed()),
    )?;
    ended.expect_code(137)?;
    ended.expect_line(&format!(
        "[launcher] rank 2 (pid {pid}) failed first: killed by signal 9 (SIGKILL); then "
    ))?;
    ended.expect_line("ends because rank 2 on host ")?;
    expect(
        shared_memory.iter().all(|path| !Path::new(path).exists()),
        "files are left in /dev/shm",
    )
}

fn ranks_die_with_their_launcher() -> Result<(), Failed> {
    let mut job = Job::start("launcher_killed")?;
    let shared_memory = job.wait_until_ready(3)?;
    let ranks: Vec<_> = (0..3)
        .map(|rank| job.pid(&format!("pid-{rank}")))
        .collect::<Result<_, _>>()?;
    job.launcher.kill()?;
    job.launcher.wait()?;
    let all_gone = wait_until(Duration::from_secs(5), || !ranks.iter().any(|&pid| is_alive(pid)));
    // What nobody is left to clean up: the ranks' own children and shared memory.
    for rank in 0..3 {
        send(job.pid(&format!("pid-sleep-{rank}"))?, libc::SIGKILL);
    }
    for path in shared_memory {
        let _ = fs::remove_file(path);
    }
    expect(all_gone, "ranks outlive their launcher")
}

fn rank_that_never_joins_is_named() -> Result<(), Failed> {
    let ended = Job::start("never_joins")?.end()?;
    ended.expect_line("timed out after 500ms: waiting for rank 1 of 2")
}

fn rank_that_ends_without_joining_is_named() -> Result<(), Failed> {
    let ended = Job::start("ends_without_joining")?.end()?;
    ended.expect_code(SECONDARY_FAILURE_EXIT_CODE)?;
    ended.expect_line("(reported before: rank 1 on host localhost failed: ended without joining the job: exit code 0)")
}

fn rank_that_does_not_end_is_killed() -> Result<(), Failed> {
    let start = Instant::now();
    let ended = Job::start("stubborn_rank")?.end()?;
    ended.expect_code(4)?;
    expect(
        start.elapsed() < Duration::from_secs(10),
        &format!("took {:?}", start.elapsed()),
    )?;
    ended.expect_line("failed first: exit code 4; then rank 0: killed by signal 9 (SIGKILL) by the launcher")
}

fn interrupt_ends_ranks_in_good_order() -> Result<(), Failed> {
    for (signal, code) in [(libc::SIGINT, 130), (libc::SIGTERM, 143)] {
        let job = Job::start("interrupted")?;
        job.wait_until_ready(3)?;
        send(job.launcher.id(), signal);
        let ended = job.end()?;
        ended.expect_code(code)?;
        expect(
            ended.stdout.matches("stopped in good order").count() == 3,
            &ended.stdout,
        )?;
        ended.expect_line("all 3 ranks have ended")?;
        expect(!ended.stderr.contains("failed"), &ended.stderr)?;
    }
    Ok(())
}

fn second_interrupt_kills() -> Result<(), Failed> {
    let job = Job::start("deaf")?;
    job.wait_until_ready(2)?;
    let start = Instant::now();
    send(job.launcher.id(), libc::SIGINT);
    sleep(Duration::from_millis(300));
    send(job.launcher.id(), libc::SIGINT);
    let ended = job.end()?;
    ended.expect_code(130)?;
    expect(
        start.elapsed() < Duration::from_secs(5),
        &format!("took {:?}", start.elapsed()),
    )?;
    ended.expect_line("interrupted by signal 2 (SIGINT); all 2 ranks have ended, 2 of them killed")
}

fn second_signal_ends_a_rank_at_once() -> Result<(), Failed> {
    let job = Job::start("deaf")?;
    job.wait_until_ready(2)?;
    let pid = job.pid("pid-1")?;
    send(pid, libc::SIGTERM);
    sleep(Duration::from_millis(100));
    expect(is_alive(pid), "the first signal only asks")?;
    send(pid, libc::SIGTERM);
    let ended = job.end()?;
    ended.expect_code(143)?;
    ended.expect_line(&format!("rank 1 (pid {pid}) failed first: exit code 143"))
}

/// As under torchrun: nobody but rank 0 hosts the store.
fn hosting_rank_that_is_killed_is_named() -> Result<(), Failed> {
    let folder = TempDir::new()?;
    let store_port = TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
    let start = |rank: usize| {
        let mut command = Command::new(std::env::current_exe()?);
        command.env(CASE, "hosting_rank_killed").env(FOLDER, folder.path());
        for (name, value) in [
            ("WORLD_SIZE", 3),
            ("LOCAL_WORLD_SIZE", 3),
            ("RANK", rank),
            ("LOCAL_RANK", rank),
        ] {
            command.env(name, value.to_string());
        }
        command.env("MASTER_ADDR", "localhost").env("MASTER_PORT", "1");
        command.env("BURN_MEGATRON_STORE_PORT", store_port.to_string());
        command
            .stderr(File::create(folder.path().join(format!("stderr-{rank}")))?)
            .spawn()
    };
    let mut ranks = [start(0)?, start(1)?, start(2)?];
    let ready = |rank: usize| folder.path().join(format!("ready-{rank}")).exists();
    expect(wait_until(LONG, || (0..3).all(ready)), "the ranks are not ready")?;
    ranks[0].kill()?;
    ranks[0].wait()?;
    for rank in [1, 2] {
        let code = ranks[rank].wait()?.code();
        let stderr = fs::read_to_string(folder.path().join(format!("stderr-{rank}")))?;
        expect(
            code == Some(SECONDARY_FAILURE_EXIT_CODE),
            &format!("{code:?}: {stderr}"),
        )?;
        let cause = format!("failed: lost the store at localhost:{store_port}, which rank 0 hosts (killed?)");
        expect(
            stderr.contains("ends because rank 0 on host ") && stderr.contains(&cause),
            &stderr,
        )?;
    }
    Ok(())
}

fn taken_port_is_an_error() -> Result<(), Failed> {
    let taken = TcpListener::bind("127.0.0.1:0")?;
    let port = taken.local_addr()?.port().to_string();
    let ended = Job::start_with("success", &[("MASTER_PORT", &port)])?.end()?;
    ended.expect_code(99)?;
    ended.expect_line(&format!(
        "the rendezvous store cannot listen on 127.0.0.1:{port}: the port is taken"
    ))
}

fn ranks_of_two_nodes_meet() -> Result<(), Failed> {
    for (node, job) in start_two_nodes("success")?.into_iter().enumerate() {
        let ended = job.end()?;
        ended.expect_code(0)?;
        let mut lines: Vec<_> = ended.stdout.lines().collect();
        lines.sort_unstable();
        let expected = [2 * node, 2 * node + 1].map(|rank| format!("[rank {rank}] hello from {rank} of 4, given"));
        expect(lines == expected, &ended.stdout)?;
        expect(ended.stderr.is_empty(), &ended.stderr)?;
    }
    Ok(())
}

fn killed_rank_is_named_on_both_nodes() -> Result<(), Failed> {
    let [zero, one] = start_two_nodes("killed")?;
    zero.wait_until_ranks_are_ready(0..2)?;
    let shared_memory = one.wait_until_ranks_are_ready(2..4)?;
    let pid = one.pid("pid-3")?;
    let start = Instant::now();
    send(pid, libc::SIGKILL);
    let (zero, one) = (zero.end()?, one.end()?);
    let time = start.elapsed();
    expect(time < Duration::from_secs(10), &format!("took {time:?}"))?;
    one.expect_code(137)?;
    one.expect_line(&format!(
        "[launcher] rank 3 (pid {pid}) failed first: killed by signal 9 (SIGKILL); then rank 2: exit code 75"
    ))?;
    zero.expect_code(SECONDARY_FAILURE_EXIT_CODE)?;
    let line = zero.line("[launcher] rank 3 on host node1 (another node) failed first: ")?;
    expect(line.contains("; here rank ") && line.contains("exit code 75"), line)?;
    expect(
        shared_memory.iter().all(|path| !Path::new(path).exists()),
        "files are left in /dev/shm",
    )
}

fn killed_rank_of_node_zero_is_named_on_both_nodes() -> Result<(), Failed> {
    let [zero, one] = start_two_nodes("killed")?;
    zero.wait_until_ranks_are_ready(0..2)?;
    one.wait_until_ranks_are_ready(2..4)?;
    send(zero.pid("pid-0")?, libc::SIGKILL);
    let (zero, one) = (zero.end()?, one.end()?);
    zero.expect_code(137)?;
    one.expect_code(SECONDARY_FAILURE_EXIT_CODE)?;
    one.expect_line("[launcher] rank 0 on host node0 (another node) failed first: ")
}

fn killed_launcher_of_node_zero_is_named() -> Result<(), Failed> {
    let [mut zero, one] = start_two_nodes("waiting")?;
    zero.wait_until_ranks_are_ready(0..2)?;
    one.wait_until_ranks_are_ready(2..4)?;
    zero.launcher.kill()?;
    zero.launcher.wait()?;
    let one = one.end()?;
    one.expect_code(SECONDARY_FAILURE_EXIT_CODE)?;
    one.expect_line("(another node) failed first: lost the store at 127.0.0.2:")?;
    one.expect_line("ends because rank 0 on host node0 failed: lost the store at 127.0.0.2:")
}

fn rank_that_ends_without_joining_is_named_on_its_node() -> Result<(), Failed> {
    let [zero, one] = start_two_nodes("ends_without_joining_elsewhere")?;
    let (zero, one) = (zero.end()?, one.end()?);
    zero.expect_code(SECONDARY_FAILURE_EXIT_CODE)?;
    zero.expect_line("rank 3 on host node1 (another node) failed first: ended without joining the job: exit code 0")?;
    one.expect_code(SECONDARY_FAILURE_EXIT_CODE)
}

fn nodes_that_do_not_fit_are_refused() -> Result<(), Failed> {
    let refused = |node: &str, token: &str, expected: &str| -> Result<(), Failed> {
        let ended = Job::start_with("success", &[(NODE, node), ("BURN_MEGATRON_JOB_TOKEN", token)])?.end()?;
        ended.expect_code(99)?;
        ended.expect_line(expected)
    };
    let token = "a secret of enough bytes";
    refused(
        "2 2 1",
        token,
        "node rank=2: must be below the number of nodes, 2; valid: 0 to 1",
    )?;
    refused(
        "0 3 1",
        token,
        "world size=4: must be a multiple of the number of nodes, 3; nearest valid: 3 and 6",
    )?;
    refused(
        "0 2 1",
        "short",
        "BURN_MEGATRON_JOB_TOKEN=\"(5 bytes)\": must be a secret of at least 16 bytes",
    )?;
    let ended = Job::start_with("success", &[(NODE, "0 2 1")])?.end()?;
    ended.expect_code(99)?;
    ended.expect_line("BURN_MEGATRON_JOB_TOKEN is not set, and the launchers of 2 nodes need a common secret")
}

/// Starts the launchers of two nodes, which are two hosts by name; node 1 first, so that it has to wait.
fn start_two_nodes(case: &str) -> Result<[Job; 2], Failed> {
    let port = TcpListener::bind((NODE_ZERO, 0))?.local_addr()?.port();
    let start = |node: usize| {
        Job::start_with(
            case,
            &[
                (NODE, &format!("{node} 2 {port}")),
                ("BURN_MEGATRON_HOST", &format!("node{node}/boot")),
                ("BURN_MEGATRON_JOB_TOKEN", "a secret of enough bytes"),
            ],
        )
    };
    let one = start(1)?;
    Ok([start(0)?, one])
}

/// A launcher that runs, with its ranks.
struct Job {
    folder: TempDir,
    launcher: Child,
}

/// A launcher that has ended.
struct Ended {
    folder: TempDir,
    status: ExitStatus,
    stdout: String,
    stderr: String,
}

impl Job {
    fn start(case: &str) -> io::Result<Job> {
        Job::start_with(case, &[])
    }

    fn start_with(case: &str, environment: &[(&str, &str)]) -> io::Result<Job> {
        let folder = TempDir::new()?;
        let launcher = Command::new(std::env::current_exe()?)
            .env_remove("MASTER_PORT")
            .env_remove("RUST_BACKTRACE")
            .envs(environment.iter().copied())
            .env(CASE, case)
            .env(FOLDER, folder.path())
            .stdout(File::create(folder.path().join("stdout"))?)
            .stderr(File::create(folder.path().join("stderr"))?)
            .spawn()?;
        Ok(Job { folder, launcher })
    }

    /// Waits until each rank has said that it is ready; returns what they said.
    fn wait_until_ready(&self, ranks: usize) -> Result<Vec<String>, Failed> {
        self.wait_until_ranks_are_ready(0..ranks)
    }

    fn wait_until_ranks_are_ready(&self, ranks: Range<usize>) -> Result<Vec<String>, Failed> {
        let file = |rank: usize| self.folder.path().join(format!("ready-{rank}"));
        expect(
            wait_until(LONG, || ranks.clone().all(|rank| file(rank).exists())),
            "the ranks are not ready",
        )?;
        Ok(ranks
            .map(|rank| fs::read_to_string(file(rank)))
            .collect::<Result<_, _>>()?)
    }

    fn pid(&self, name: &str) -> Result<u32, Failed> {
        Ok(fs::read_to_string(self.folder.path().join(name))?.parse()?)
    }

    /// Waits for the launcher, and checks that it leaves no process behind.
    fn end(mut self) -> Result<Ended, Failed> {
        let mut status = None;
        wait_until(LONG, || {
            status = self.launcher.try_wait().ok().flatten();
            status.is_some()
        });
        let Some(status) = status else {
            self.launcher.kill()?;
            return Err("the launcher does not end".into());
        };
        for file in fs::read_dir(self.folder.path())? {
            let name = file?.file_name().to_string_lossy().into_owned();
            if name.starts_with("pid-") {
                // A grandchild got SIGKILL, and its new parent may take a moment to reap it.
                let pid = self.pid(&name)?;
                expect(
                    wait_until(Duration::from_secs(1), || !is_alive(pid)),
                    &format!("{name} is left running"),
                )?;
            }
        }
        let read = |name: &str| fs::read_to_string(self.folder.path().join(name));
        let (stdout, stderr) = (read("stdout")?, read("stderr")?);
        Ok(Ended {
            folder: self.folder,
            status,
            stdout,
            stderr,
        })
    }
}

impl Ended {
    fn expect_code(&self, code: i32) -> Result<(), Failed> {
        expect(
            self.status.code() == Some(code),
            &format!("{} instead of {code}\n{}", self.status, self.stderr),
        )
    }

    /// The first line of stderr that contains `text`.
    fn line(&self, text: &str) -> Result<&str, Failed> {
        let line = self.stderr.lines().find(|line| line.contains(text));
        line.ok_or_else(|| format!("no line contains {text:?}:\n{}", self.stderr).into())
    }

    fn expect_line(&self, text: &str) -> Result<(), Failed> {
        self.line(text).map(drop)
    }

    fn pid(&self, rank: usize) -> Result<u32, Failed> {
        Ok(fs::read_to_string(self.folder.path().join(format!("pid-{rank}")))?.parse()?)
    }
}

fn expect(claim: bool, otherwise: &str) -> Result<(), Failed> {
    if claim { Ok(()) } else { Err(otherwise.into()) }
}

fn wait_until(limit: Duration, mut claim: impl FnMut() -> bool) -> bool {
    let start = Instant::now();
    loop {
        if claim() {
            return true;
        }
        if start.elapsed() > limit {
            return false;
        }
        sleep(Duration::from_millis(5));
    }
}

/// Whether a process exists and is more than a zombie that nobody has reaped.
fn is_alive(pid: u32) -> bool {
    let Ok(stat) = fs::read_to_string(format!("/proc/{pid}/stat")) else {
        return false;
    };
    // The state follows the program's name, which stands in parentheses.
    let state = stat
        .rsplit(')')
        .next()
        .and_then(|rest| rest.trim_start().chars().next());
    !matches!(state, Some('Z' | 'X'))
}

fn send(pid: u32, signal: i32) {
    // SAFETY: kill takes two numbers and touches no memory of this process.
    unsafe { libc::kill(pid as libc::pid_t, signal) };
}
