//! A crowd at every port on which this process listens, while a job comes together and computes.

use std::collections::HashSet;
use std::fs;
use std::io::Write;
use std::net::{SocketAddr, TcpStream};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use burn_megatron_comm::fuzzing::MAGIC;
use tests::sockets::{LISTENING, own_ends};

use crate::secrets::overhear;
use crate::{compute, join, store};

/// Connections of a crowd.
const CROWD: usize = 2000;

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

/// Sends the next byte of a greeting, of which `sent` bytes have been sent. What follows the magic may be anything.
fn drip((stream, sent): &mut (TcpStream, usize)) {
    let byte = MAGIC.get(*sent).copied().unwrap_or(0);
    *sent += usize::from(stream.write_all(&[byte]).is_ok());
}

impl Crowd {
    fn is_over(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    /// Looks for doors, as a port scan would, and makes `CROWD` connections to each once it is found, of every kind.
    fn run(&self) {
        let mut crowded = HashSet::new();
        while !self.is_over() {
            for door in own_ends(&[std::process::id()], LISTENING) {
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
        let greeting_cut_short = [&MAGIC[..], &[1, 2, 3]].concat();
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
                3 => &MAGIC,
                4 => &self.overheard,
                5 => &[0xff; 200], // lengths far too large, wherever one stands
                6 => &greeting_cut_short,
                _ => &MAGIC[..1], // the rest comes later, byte by byte
            };
            // It may have been closed already.
            let _ = stream.write_all(said);
            match number % 8 {
                2 => {} // a port scan: connects and closes
                7 if slow.len() < 32 => slow.push((stream, 1)),
                _ => half_open.push(stream),
            }
            self.held.store(half_open.len() + slow.len(), Ordering::Relaxed);
            if last_slow.elapsed() > Duration::from_secs(1) {
                last_slow = Instant::now();
                slow.iter_mut().for_each(drip);
            }
        }
        // The half-open ones stay until the job is done.
        let until = Instant::now() + Duration::from_secs(2);
        while !self.is_over() && Instant::now() < until {
            slow.iter_mut().for_each(drip);
            thread::sleep(Duration::from_millis(100));
        }
        drop((half_open, slow));
        self.held.store(0, Ordering::Relaxed);
    }
}

pub fn a_crowd_at_every_door_neither_delays_a_job_nor_takes_its_memory() {
    raise_descriptor_limit();
    let token = "a secret of the job in the crowd";
    let server = store(3, token);
    let overheard = overhear(token);
    let crowds = [0, 1, 2].map(|_| Crowd {
        stop: AtomicBool::new(false),
        held: AtomicUsize::new(0),
        made: AtomicUsize::new(0),
        doors: Mutex::default(),
        overheard: overheard.clone(),
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
