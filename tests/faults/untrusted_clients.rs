//! Everything that listens, among strangers: a crowd that says nothing, too little, too slowly, nonsense or what it has
//! overheard, while real jobs come together and compute. What is listened on, and where the job's secret may not
//! appear.

// Helpers of tests, which clippy does not know as such outside of `cfg(test)`.
#![allow(clippy::unwrap_used)]

use std::collections::HashSet;
use std::fs;
use std::io::{Read, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use burn_megatron::collectives::{EngineChoice, GroupConfig, ProcessGroup, ReduceOp};
use burn_megatron::launch::{
    Environment, JobToken, JoinConfig, LaunchError, Launcher, StoreServer, StoreServerConfig, World, variables,
};

const LONG: Duration = Duration::from_secs(60);
/// Connections of a crowd.
const CROWD: usize = 2000;

/// One test at a time: they count this process's memory and descriptors.
static ALONE: Mutex<()> = Mutex::new(());

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

fn descriptors() -> usize {
    fs::read_dir("/proc/self/fd").unwrap().count()
}

fn resident_bytes() -> usize {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse::<usize>().unwrap() << 10
}

/// Raises this process's limit of descriptors to the most that the system allows.
fn raise_descriptor_limit() {
    let mut limit = libc::rlimit {
        rlim_cur: 0,
        rlim_max: 0,
    };
    // SAFETY: a live struct of the right type, in both calls.
    unsafe {
        assert_eq!(libc::getrlimit(libc::RLIMIT_NOFILE, &mut limit), 0);
        limit.rlim_cur = limit.rlim_max;
        assert_eq!(libc::setrlimit(libc::RLIMIT_NOFILE, &limit), 0);
    }
    assert!(
        limit.rlim_cur >= 2 * CROWD as u64,
        "{} descriptors are too few for a crowd",
        limit.rlim_cur
    );
}

/// Numbers of the kernel for the states of sockets.
const LISTENING: &str = "0A";
const CONNECTED: &str = "01";

/// The addresses of the processes' own ends of sockets in this state, from the kernel's tables.
fn sockets(pids: &[u32], state: &str) -> Vec<SocketAddr> {
    let inode = |link: &Path| {
        let target = fs::read_link(link).ok()?.to_string_lossy().into_owned();
        target.strip_prefix("socket:[")?.strip_suffix(']').map(str::to_owned)
    };
    let folders = pids
        .iter()
        .filter_map(|pid| fs::read_dir(format!("/proc/{pid}/fd")).ok());
    let inodes: HashSet<String> = folders
        .flatten()
        .flatten()
        .filter_map(|entry| inode(&entry.path()))
        .collect();
    let mut addresses = Vec::new();
    for table in ["/proc/net/tcp", "/proc/net/tcp6"] {
        for line in fs::read_to_string(table).unwrap_or_default().lines().skip(1) {
            let fields: Vec<&str> = line.split_whitespace().collect();
            if fields[3] != state || !inodes.contains(fields[9]) {
                continue;
            }
            let (address, port) = fields[1].split_once(':').unwrap();
            // Words of the machine's byte order.
            let bytes: Vec<u8> = (0..address.len() / 8)
                .flat_map(|word| {
                    u32::from_str_radix(&address[8 * word..][..8], 16)
                        .unwrap()
                        .to_ne_bytes()
                })
                .collect();
            let ip: IpAddr = match bytes[..].try_into() {
                Ok(bytes) => Ipv4Addr::from_octets(bytes).into(),
                Err(_) => Ipv6Addr::from_octets(bytes[..].try_into().unwrap()).into(),
            };
            addresses.push(SocketAddr::new(ip, u16::from_str_radix(port, 16).unwrap()));
        }
    }
    addresses
}

/// A crowd at every door of this process, until it is stopped.
struct Crowd {
    stop: AtomicBool,
    /// Connections that it holds open.
    held: AtomicUsize,
    /// Connections that it has made, and the doors that it has found.
    made: AtomicUsize,
    doors: Mutex<HashSet<SocketAddr>>,
    /// What a client of an earlier handshake said.
    overheard: Vec<u8>,
}

impl Crowd {
    fn is_over(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    /// Looks for doors, as a port scan would, and makes `CROWD` connections to each once it is found, of every kind.
    fn run(&self) {
        let mut crowded = HashSet::new();
        while !self.is_over() {
            for door in sockets(&[std::process::id()], LISTENING) {
                if crowded.insert(door) {
                    self.doors.lock().unwrap().insert(door);
                    self.crowd_at(door);
                }
            }
            thread::sleep(Duration::from_millis(5));
        }
    }

    fn crowd_at(&self, door: SocketAddr) {
        let mut half_open = Vec::new();
        let mut slow = Vec::new();
        let mut last_slow = Instant::now();
        for number in 0..CROWD {
            let Ok(mut stream) = TcpStream::connect_timeout(&door, Duration::from_secs(1)) else {
                break; // the door has closed: the mesh is connected
            };
            self.made.fetch_add(1, Ordering::Relaxed);
            let _ = stream.set_write_timeout(Some(Duration::from_millis(200)));
            let said: &[u8] = match number % 8 {
                0 => b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n",
                1 => &[0xa5; 4096],
                2 => b"",
                3 => b"BMSTORE1",
                4 => &self.overheard,
                5 => &[0xff; 200], // lengths far too large, wherever one stands
                6 => b"BURNMEG1\x01\x02\x03",
                _ => b"B",
            };
            // It may have been closed already.
            let _ = stream.write_all(said);
            match number % 8 {
                2 => {} // a port scan: connects and closes
                7 if slow.len() < 32 => slow.push(stream),
                _ => half_open.push(stream),
            }
            self.held.store(half_open.len() + slow.len(), Ordering::Relaxed);
            if last_slow.elapsed() > Duration::from_secs(1) {
                last_slow = Instant::now();
                slow.iter_mut().for_each(|stream| drop(stream.write_all(b"M")));
            }
        }
        // The half-open ones stay until the job is done.
        let until = Instant::now() + Duration::from_secs(2);
        while !self.is_over() && Instant::now() < until {
            slow.iter_mut().for_each(|stream| drop(stream.write_all(b"M")));
            thread::sleep(Duration::from_millis(100));
        }
        drop((half_open, slow));
        self.held.store(0, Ordering::Relaxed);
    }
}

#[test]
fn a_crowd_at_every_door_neither_delays_a_job_nor_takes_its_memory() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    raise_descriptor_limit();
    let token = "a secret of the job in the crowd";
    let server = store(3, token);
    let overheard = overhear(token);
    let crowds = [0, 1, 2].map(|_| {
        Arc::new(Crowd {
            stop: AtomicBool::new(false),
            held: AtomicUsize::new(0),
            made: AtomicUsize::new(0),
            doors: Mutex::default(),
            overheard: overheard.clone(),
        })
    });
    let (descriptors_before, memory_before) = (descriptors(), resident_bytes());
    let is_done = AtomicBool::new(false);
    let (mut most_descriptors, mut most_memory) = (0, 0);
    let mut taken = Duration::ZERO;
    thread::scope(|scope| {
        for crowd in &crowds {
            scope.spawn(|| crowd.run());
        }
        thread::sleep(Duration::from_millis(200)); // the crowd is there first
        let job = scope.spawn(|| {
            let start = Instant::now();
            thread::scope(|scope| {
                for rank in 0..3 {
                    let port = server.address().port();
                    scope.spawn(move || {
                        let world = join(rank, 3, port, token).unwrap();
                        // While a group connects, its ranks listen: new doors, again and again.
                        for _ in 0..30 {
                            compute(&world);
                            thread::sleep(Duration::from_millis(50));
                        }
                        world.leave();
                    });
                }
            });
            is_done.store(true, Ordering::Relaxed);
            start.elapsed()
        });
        while !is_done.load(Ordering::Relaxed) && !job.is_finished() {
            let held = || -> usize { crowds.iter().map(|crowd| crowd.held.load(Ordering::Relaxed)).sum() };
            let (before, now, after) = (held(), descriptors(), held());
            // Counting takes time, in which a crowd grows by hundreds.
            if before == after {
                most_descriptors = most_descriptors.max(now.saturating_sub(before));
            }
            most_memory = most_memory.max(resident_bytes());
            thread::sleep(Duration::from_millis(10));
        }
        let joined = job.join();
        crowds
            .iter()
            .for_each(|crowd| crowd.stop.store(true, Ordering::Relaxed));
        taken = joined.unwrap();
    });
    let made: usize = crowds.iter().map(|crowd| crowd.made.load(Ordering::Relaxed)).sum();
    let doors = crowds[0].doors.lock().unwrap().len();
    println!(
        "{made} strangers at {doors} doors; the job took {taken:?}; descriptors {descriptors_before} -> \
         {most_descriptors}, memory {} -> {} KiB",
        memory_before >> 10,
        most_memory >> 10
    );
    assert!(made >= CROWD && doors >= 2, "{made} strangers came to {doors} doors");
    assert!(taken < Duration::from_secs(20), "the job took {taken:?}");
    assert_eq!(server.first_failure(), None);
    // The store's 4 * 3 + 64 connections, and two ranks' 256 candidates; the job's own, and those in between.
    let allowed = descriptors_before + 4 * 3 + 64 + 2 * 256 + 150;
    assert!(
        most_descriptors <= allowed,
        "{most_descriptors} descriptors, {allowed} allowed"
    );
    assert!(
        most_memory - memory_before < 64 << 20,
        "{} bytes more",
        most_memory - memory_before
    );
}

/// A relay in front of a store, which keeps what goes over it.
struct Relay {
    port: u16,
    /// Of each connection: what the client said, and what the store said.
    said: Arc<Mutex<Vec<[Vec<u8>; 2]>>>,
}

impl Relay {
    fn start(store: SocketAddr) -> Relay {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let said: Arc<Mutex<Vec<[Vec<u8>; 2]>>> = Arc::default();
        let all = said.clone();
        // Ends with the process: nothing waits for it.
        thread::spawn(move || {
            while let Ok((client, _)) = listener.accept() {
                let Ok(server) = TcpStream::connect(store) else {
                    continue;
                };
                let index = {
                    let mut all = all.lock().unwrap();
                    all.push(Default::default());
                    all.len() - 1
                };
                for (side, mut from, mut to) in [
                    (0, client.try_clone().unwrap(), server.try_clone().unwrap()),
                    (1, server, client),
                ] {
                    let all = all.clone();
                    thread::spawn(move || {
                        let mut buffer = [0; 4096];
                        while let Ok(count @ 1..) = from.read(&mut buffer) {
                            all.lock().unwrap()[index][side].extend(&buffer[..count]);
                            if to.write_all(&buffer[..count]).is_err() {
                                break;
                            }
                        }
                        let _ = to.shutdown(std::net::Shutdown::Both);
                    });
                }
            }
        });
        Relay { port, said }
    }
}

/// Runs a job of two ranks whose connections to the store go over a relay.
fn run_over_relay(server: &StoreServer, token: &str) -> Relay {
    let relay = Relay::start(server.address());
    thread::scope(|scope| {
        for rank in 0..2 {
            let port = relay.port;
            scope.spawn(move || drop(compute(&join(rank, 2, port, token).unwrap())));
        }
    });
    relay
}

/// What a client said in a handshake that succeeded.
fn overhear(token: &str) -> Vec<u8> {
    let server = store(2, token);
    let relay = run_over_relay(&server, token);
    let said = relay.said.lock().unwrap();
    said[0][0].clone()
}

#[test]
fn the_token_never_crosses_the_wire_and_what_does_opens_nothing() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let token = "0f1e2d3c4b5a69788796a5b4c3d2e1f0";
    let server = store(2, token);
    let relay = run_over_relay(&server, token);
    let said = relay.said.lock().unwrap();
    assert!(said.len() >= 4, "{} connections went over the relay", said.len());
    let raw: Vec<u8> = (0..16)
        .map(|at| u8::from_str_radix(&token[2 * at..][..2], 16).unwrap())
        .collect();
    for bytes in said.iter().flatten() {
        // Nor any half of it, as text or as the bytes that it stands for.
        for secret in [&token.as_bytes()[..16], &token.as_bytes()[16..], &raw[..8], &raw[8..]] {
            assert!(
                !bytes.windows(secret.len()).any(|piece| piece == secret),
                "the token crossed the wire"
            );
        }
    }
    // Every client's words again, to the same store.
    for [client, _] in said.iter() {
        let mut replay = TcpStream::connect(server.address()).unwrap();
        replay.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
        let _ = replay.write_all(client);
        let mut answer = Vec::new();
        let _ = replay.read_to_end(&mut answer);
        // Magic and a new nonce, then refused (0) and no proof; a reset may have cut that short.
        assert!(
            answer.len() <= 73 && answer.iter().skip(40).all(|byte| *byte == 0),
            "{answer:?}"
        );
    }
}

#[test]
fn a_rank_of_another_job_is_refused_at_once_and_nobody_else_notices() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let (one, other) = ("the secret of one job", "the secret of another job");
    let servers = [store(2, one), store(2, other)];
    // The ports the wrong way round.
    for (server, token) in [(&servers[1], one), (&servers[0], other)] {
        let start = Instant::now();
        let error = join(0, 2, server.address().port(), token).unwrap_err();
        assert!(matches!(error, LaunchError::TokenRefused { .. }), "{error}");
        assert!(start.elapsed() < Duration::from_secs(5));
        assert!(!error.to_string().contains(token));
    }
    thread::scope(|scope| {
        for (server, token) in [(&servers[0], one), (&servers[1], other)] {
            for rank in 0..2 {
                let port = server.address().port();
                scope.spawn(move || drop(compute(&join(rank, 2, port, token).unwrap())));
            }
        }
    });
    assert!(servers.iter().all(|server| server.first_failure().is_none()));
}

/// Tells the parts of a job where to meet the test: a folder.
const MEETING: &str = "BURN_MEGATRON_TEST_MEETING";

fn meeting() -> Option<std::path::PathBuf> {
    std::env::var_os(MEETING).map(Into::into)
}

fn wait_for(what: &Path) {
    let end = Instant::now() + Duration::from_secs(30);
    while !what.exists() {
        assert!(Instant::now() < end, "{} does not come", what.display());
        thread::sleep(Duration::from_millis(10));
    }
}

#[test]
#[ignore = "the launcher of the tests below"]
fn part_launcher() {
    let Some(folder) = meeting() else { return };
    let mut launcher = Launcher::new(2).arguments(["--ignored", "--exact", "part_rank", "--nocapture"]);
    if let Ok(interface) = fs::read_to_string(folder.join("interface")) {
        launcher = launcher.interface(interface);
    }
    let summary = launcher.run().unwrap();
    assert!(!summary.is_success(), "a rank ends with an error");
}

#[test]
#[ignore = "a rank of the tests below"]
fn part_rank() {
    let Some(folder) = meeting() else { return };
    tracing_subscriber::fmt()
        .with_max_level(tracing_subscriber::filter::LevelFilter::TRACE)
        .with_writer(std::io::stderr)
        .init();
    let environment = Environment::detect().unwrap().expect("a launcher started this rank");
    let world = burn_megatron::launch::join(&environment, &JoinConfig::new().with_all_timeouts(LONG)).unwrap();
    let _group = compute(&world);
    fs::write(folder.join(format!("ready-{}", world.rank())), world.job_token()).unwrap();
    wait_for(&folder.join("go"));
    let error = LaunchError::EmptyWorld;
    burn_megatron::launch::report_and_exit(&world, &error);
}

/// A job of this program: the launcher and two ranks, which have connected and wait for `go`.
struct Job {
    child: Child,
    folder: tempfile::TempDir,
}

impl Job {
    fn start(interface: Option<&str>) -> Job {
        let folder = tempfile::tempdir().unwrap();
        if let Some(interface) = interface {
            fs::write(folder.path().join("interface"), interface).unwrap();
        }
        let child = Command::new(std::env::current_exe().unwrap())
            .args(["--ignored", "--exact", "part_launcher", "--nocapture"])
            .env(MEETING, folder.path())
            .env_remove("MASTER_PORT")
            .env_remove("MASTER_ADDR")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let job = Job { child, folder };
        wait_for(&job.folder.path().join("ready-0"));
        wait_for(&job.folder.path().join("ready-1"));
        job
    }

    /// The launcher and the processes that it has started.
    fn pids(&self) -> Vec<u32> {
        let pid = self.child.id();
        let tasks = fs::read_dir(format!("/proc/{pid}/task"))
            .into_iter()
            .flatten()
            .flatten();
        let children = tasks.filter_map(|task| fs::read_to_string(task.path().join("children")).ok());
        let children: Vec<u32> = children
            .flat_map(|text| {
                text.split_whitespace()
                    .map(|pid| pid.parse().unwrap())
                    .collect::<Vec<_>>()
            })
            .collect();
        [vec![pid], children].concat()
    }

    /// Fails unless the store listens on this address only, and everybody is connected by it.
    fn expect_only(&self, ip: IpAddr) {
        let doors = sockets(&self.pids(), LISTENING);
        assert!(
            matches!(&doors[..], [store] if store.ip() == ip),
            "listens on {doors:?}, expected {ip}"
        );
        // Both ends of two ranks' lives, and of their two connections to each other. A rank publishes the address that
        // it listens on, and an accepted connection has that address.
        let connected = sockets(&self.pids(), CONNECTED);
        assert!(
            connected.len() >= 8 && connected.iter().all(|end| end.ip() == ip),
            "{connected:?}, expected {ip}"
        );
    }

    /// Lets the job end; returns all that it printed.
    fn end(mut self) -> String {
        fs::write(self.folder.path().join("go"), "").unwrap();
        let outputs = [
            Box::new(self.child.stdout.take().unwrap()) as Box<dyn Read + Send>,
            Box::new(self.child.stderr.take().unwrap()),
        ];
        let readers = outputs.map(|mut output| {
            thread::spawn(move || {
                let mut bytes = Vec::new();
                output.read_to_end(&mut bytes).unwrap();
                bytes
            })
        });
        let end = Instant::now() + LONG;
        let status = loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                break status;
            }
            assert!(Instant::now() < end, "the job does not end");
            thread::sleep(Duration::from_millis(10));
        };
        let text = readers.map(|reader| reader.join().unwrap()).concat();
        let text = String::from_utf8_lossy(&text).into_owned();
        assert!(status.success(), "{text}");
        text
    }
}

impl Drop for Job {
    fn drop(&mut self) {
        // A test that fails leaves no job running; the kernel ends the ranks with their launcher.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn the_token_is_in_no_command_line_and_in_nothing_that_is_printed() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let job = Job::start(None);
    let token = fs::read_to_string(job.folder.path().join("ready-0")).unwrap();
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

#[test]
fn a_job_listens_on_the_interface_that_was_asked_for_and_on_no_other() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
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
        let job = Job::start(Some(&wish));
        job.expect_only(ip);
        job.end();
        println!("{wish}: on {ip} only");
    }
}

#[test]
fn an_interface_that_is_not_there_is_an_error_that_lists_those_that_are() {
    let error = Launcher::new(2).interface("none7").run().unwrap_err().to_string();
    assert!(
        error.starts_with("this host has no interface \"none7\" (BURN_MEGATRON_INTERFACE); it has "),
        "{error}"
    );
    assert!(error.contains("lo 127.0.0.1"), "{error}");
}

#[test]
fn a_world_beyond_all_bounds_is_an_error_before_anything_is_allocated() {
    let error = Launcher::new(usize::MAX).run().unwrap_err().to_string();
    assert!(
        error.ends_with("must be at most 1048576; valid: 1 to 1048576"),
        "{error}"
    );
}
