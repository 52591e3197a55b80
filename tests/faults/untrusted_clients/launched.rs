//! Jobs of processes: which addresses they listen on, and where their secret does not appear.

use std::fs;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, TcpListener};

use burn_megatron::launch::{Environment, JoinConfig, LaunchError, Launcher, report_and_exit};
use tests::job::{Ended, Job, folder, launch, note};
use tests::processes::{children_of, wait_until};
use tests::sockets::{CONNECTED, LISTENING, own_ends};

use crate::{LONG, compute};

const CASE: &str = "waits_for_go";
/// The interface that the launcher is asked for.
const INTERFACE: &str = "UNTRUSTED_CLIENTS_INTERFACE";

pub fn act_as_launcher() -> ! {
    let mut launcher = Launcher::new(2);
    if let Ok(interface) = std::env::var(INTERFACE) {
        launcher = launcher.interface(interface);
    }
    launch(launcher)
}

/// Says its secret to the test when it has computed with the others, and fails when it is to go.
pub fn act_as_rank(environment: &Environment) {
    note(&format!("pid-{}", environment.rank), std::process::id());
    tracing_subscriber::fmt()
        .with_max_level(tracing_subscriber::filter::LevelFilter::TRACE)
        .with_writer(std::io::stderr)
        .init();
    let world = burn_megatron::launch::join(environment, &JoinConfig::new().with_all_timeouts(LONG)).unwrap();
    let _group = compute(&world);
    note(
        &format!("ready-{}", world.rank()),
        String::from_utf8_lossy(world.job_token()),
    );
    assert!(wait_until(LONG, || folder().join("go").exists()), "go does not come");
    report_and_exit(&world, &LaunchError::EmptyWorld);
}

/// A job of this program: the launcher and two ranks, which have connected and wait for `go`.
struct Waiting {
    job: Job,
    token: String,
}

impl Waiting {
    fn start(environment: &[(&str, &str)]) -> Waiting {
        let job = Job::start_with("untrusted_clients", CASE, environment).unwrap();
        let tokens = job
            .wait_until_ready(2)
            .unwrap_or_else(|failed| panic!("{:?}", failed.message()));
        Waiting {
            job,
            token: tokens[0].clone(),
        }
    }

    /// The launcher and the processes that it has started.
    fn pids(&self) -> Vec<u32> {
        let pid = self.job.launcher.id();
        [vec![pid], children_of(pid)].concat()
    }

    /// Fails unless the store and the ranks listen on this address only, and everybody is connected by it.
    fn expect_only(&self, ip: IpAddr) {
        let doors = own_ends(&self.pids(), LISTENING);
        // The store's, and one of each rank, at which the others connect when they first have something to say.
        assert!(
            doors.len() == 3 && doors.iter().all(|door| door.ip() == ip),
            "listens on {doors:?}, expected {ip}"
        );
        // Both ends of two ranks' lives, of their requests to the store and of what they have said to each other. A
        // rank publishes the address that it listens on, and an accepted connection has that address.
        let connected = own_ends(&self.pids(), CONNECTED);
        assert!(
            connected.len() >= 8 && connected.iter().all(|end| end.ip() == ip),
            "{connected:?}, expected {ip}"
        );
    }

    /// Lets the job end with an error; returns all that it printed.
    fn end(self) -> String {
        fs::write(self.job.folder.path().join("go"), "").unwrap();
        let ended: Ended = self.job.end().unwrap_or_else(|failed| panic!("{:?}", failed.message()));
        let printed = ended.stdout + &ended.stderr;
        assert!(!ended.status.success(), "no rank ends with an error:\n{printed}");
        printed
    }
}

pub fn the_token_is_in_no_command_line_and_in_nothing_that_is_printed() {
    let job = Waiting::start(&[]);
    let token = job.token.clone();
    assert_eq!(token.len(), 64);
    let pids = job.pids();
    let mut seen = 0;
    for process in fs::read_dir("/proc").unwrap().flatten() {
        let Ok(line) = fs::read(process.path().join("cmdline")) else {
            continue;
        };
        assert!(
            !String::from_utf8_lossy(&line).contains(&token),
            "{:?} shows the token",
            process.path()
        );
        let pid = process.file_name().to_string_lossy().parse().unwrap_or(0);
        seen += usize::from(pids.contains(&pid) && !line.is_empty());
    }
    assert_eq!(seen, 3, "a launcher and two ranks have command lines");
    // By default, a job on one node cannot be reached from outside.
    job.expect_only(Ipv4Addr::LOCALHOST.into());
    let printed = job.end();
    assert!(
        printed.contains("TRACE") || printed.contains("DEBUG"),
        "the log is on:\n{printed}"
    );
    assert!(
        printed.contains("the world size is 0"),
        "the error is there:\n{printed}"
    );
    assert!(
        !printed.contains(&token) && !printed.contains(&token[..16]),
        "the token was printed:\n{printed}"
    );
}

pub fn a_job_listens_on_the_interface_that_was_asked_for_and_on_no_other() {
    let mut wishes = vec![("127.0.0.0/8".to_string(), IpAddr::from(Ipv4Addr::LOCALHOST))];
    if TcpListener::bind("[::1]:0").is_ok() {
        wishes.push(("::1".into(), Ipv6Addr::LOCALHOST.into()));
    } else {
        println!("not tried: this host has no IPv6");
    }
    // The interface of the route to elsewhere, if there is one; nothing is sent.
    let socket = std::net::UdpSocket::bind("0.0.0.0:0").unwrap();
    if socket.connect("192.0.2.1:9").is_ok() {
        let outer = socket.local_addr().unwrap().ip();
        wishes.push((outer.to_string(), outer));
    } else {
        println!("not tried: this host has no address but loopback");
    }
    for (wish, ip) in wishes {
        let job = Waiting::start(&[(INTERFACE, &wish)]);
        job.expect_only(ip);
        job.end();
        println!("{wish}: on {ip} only");
    }
}

pub fn an_interface_that_is_not_there_is_an_error_that_lists_those_that_are() {
    let error = Launcher::new(2).interface("none7").run().unwrap_err().to_string();
    assert!(
        error.starts_with("this host has no interface \"none7\" (BURN_MEGATRON_INTERFACE); it has "),
        "{error}"
    );
    assert!(error.contains("lo 127.0.0.1"), "{error}");
}

pub fn a_world_beyond_all_bounds_is_an_error_before_anything_is_allocated() {
    let error = Launcher::new(usize::MAX).run().unwrap_err().to_string();
    assert!(
        error.ends_with("must be at most 1048576; valid: 1 to 1048576"),
        "{error}"
    );
}
