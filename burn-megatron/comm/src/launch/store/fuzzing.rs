//! What must hold whatever comes over a connection to the store; see [`crate::fuzzing`].

use std::collections::HashMap;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex};
use tokio::task::{JoinHandle, LocalSet};

use super::protocol::{
    Absent, HeartbeatStatus, NodeTable, PeerId, RankStatus, Reply, Request, Runs, Saying, read_body, read_body_async,
};
use crate::fuzzing::Script;
use crate::launch::identity::JobToken;
use crate::launch::peer_failure::PeerFailure;
use crate::launch::server::{Job, accept, answer_requests};

const TOKEN: &str = "a token that no input can guess";
const WORLD_SIZE: usize = 3;
/// What a pipe between the two ends holds: more than the answers to all requests of one input.
const PIPE_BYTES: usize = 4 << 10;
/// Connections of one input, at a time and in all.
const CONNECTIONS: usize = 4;
const MAX_OPENED: usize = 64;
/// Far longer than any timeout that a script can ask for, by the runtime's clock, which does not wait.
const ANSWER_LIMIT: Duration = Duration::from_secs(3600);

/// A body that is a message is the only encoding of that message; both ways of reading a frame agree.
pub fn store_protocol(data: &[u8]) {
    if let Ok(request) = Request::from_body(data) {
        let frame = request.to_frame();
        assert_eq!(&frame[4..], data, "{request:?} has two encodings");
    }
    if let Ok(reply) = Reply::from_body(data) {
        let frame = reply.to_frame();
        assert_eq!(&frame[4..], data, "{reply:?} has two encodings");
        let _ = format!("{reply:?}");
    }
    let (mut blocking, mut polled) = (data, data);
    run_on_runtime(async {
        loop {
            match (read_body(&mut blocking), read_body_async(&mut polled).await) {
                (Ok(body), Ok(same)) => {
                    assert_eq!(body, same);
                    let _ = (Request::from_body(&body), Reply::from_body(&body));
                }
                (Err(error), Err(same)) => return assert_eq!(error.kind(), same.kind()),
                (body, same) => panic!("read {body:?} and {same:?} from the same bytes"),
            }
        }
    });
}

/// Valid bodies of every kind, and a stream of frames.
pub fn store_protocol_seeds() -> Vec<Vec<u8>> {
    let frames = requests().into_iter().map(|request| request.to_frame());
    let frames: Vec<_> = frames
        .chain(replies().into_iter().map(|reply| reply.to_frame()))
        .collect();
    let bodies = frames.iter().map(|frame| frame[4..].to_vec());
    // The kinds that hold lists and bytes, with the longest lengths that can be claimed and with 64 KiB.
    let kinds = 0_u8..16;
    let claims = [
        &[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1][..],
        &[0x80, 0x80, 4],
    ];
    let claimed = kinds.flat_map(|kind| claims.map(|length| [&[kind], length, &[0; 24]].concat()));
    bodies.chain([frames.concat()]).chain(claimed).collect()
}

/// Plays a script of connections against the server's state machine: strangers, clients that say half of something,
/// ranks, launchers, in any order. Nothing panics, every answer is a message, keys hold what was set last, and when all
/// have gone no wait is left.
pub fn store_server(data: &[u8]) {
    run_on_runtime(async {
        let job = Job::new(WORLD_SIZE, "0123456789abcdef".into(), JobToken::from_text(TOKEN), None);
        let mut play = Play {
            job,
            clients: [const { None }; CONNECTIONS],
            opened: 0,
            keys: HashMap::new(),
        };
        let mut script = Script::new(data);
        while !script.is_over() {
            play.step(&mut script).await;
        }
        play.end().await;
    });
}

/// A job from its first rank to its last, deaths, launchers, strangers.
pub fn store_server_seeds() -> Vec<Vec<u8>> {
    // One act per line: who, what, and its bytes.
    let all_register = [vec![0, 0, 2, 0], vec![1, 0, 2, 1], vec![2, 0, 2, 2]].concat();
    vec![
        [
            vec![0, 3, 5, b'v', b'a', b'l', b'u', b'e'],
            vec![0, 4, 1],
            vec![0, 5, 7],
            vec![0, 6],
        ]
        .concat(),
        [all_register.clone(), vec![0, 7], vec![1, 7], vec![2, 7]].concat(),
        [all_register.clone(), vec![1, 8], vec![3, 4, 1]].concat(),
        [vec![3, 9, 1], vec![3, 7], vec![0, 10, 2]].concat(),
        [all_register.clone(), vec![3, 11, 1]].concat(),
        [all_register, vec![3, 16, 1, 0, 2], vec![3, 14, 250], vec![3, 10, 1]].concat(),
        [vec![0, 17, 0, 1, 1, 1, b'v', 9], vec![1, 17, 1, 1, 2, 1, b'w', 9]].concat(),
        [vec![0, 12, 4, 9, 0, 0, 0], vec![0, 13, 3, 5, 0, 0], vec![0, 14, 3]].concat(),
    ]
}

/// One connection as its client sees it.
struct Client {
    stream: DuplexStream,
    server: JoinHandle<()>,
    /// Whether the next answer is still that to the last request: not after raw bytes, nor once it has registered.
    in_step: bool,
    is_stranger: bool,
}

struct Play {
    job: std::sync::Arc<Job>,
    clients: [Option<Client>; CONNECTIONS],
    opened: usize,
    /// What the keys hold, as far as it is known.
    keys: HashMap<String, Vec<u8>>,
}

impl Play {
    async fn step(&mut self, script: &mut Script<'_>) {
        let who = usize::from(script.byte()) % CONNECTIONS;
        let act = script.byte() % 18;
        match act {
            // A stranger: whatever it says, it gets nowhere.
            13 => {
                self.close(who).await;
                if let Some(mut client) = self.open(true).await {
                    let _ = client.stream.write_all(script.counted()).await;
                    self.clients[who] = Some(client);
                }
                return settle().await;
            }
            8 => return self.close(who).await,
            14 => return tokio::time::sleep(Duration::from_millis(script.byte().into())).await,
            _ => {}
        }
        if self.clients[who].is_none() {
            self.clients[who] = self.open(false).await;
        }
        let Some(client) = &mut self.clients[who] else { return };
        if act == 12 || client.is_stranger {
            // Half a message, or garbage: from here on this client's answers are not foreseen.
            client.in_step = false;
            let _ = tokio::time::timeout(ANSWER_LIMIT, client.stream.write_all(script.counted())).await;
            check_answers(&drain(&mut client.stream).await, client.is_stranger);
            return;
        }
        let request = request(act, script);
        let frame = request.to_frame();
        if !client.in_step {
            let _ = tokio::time::timeout(ANSWER_LIMIT, client.stream.write_all(&frame)).await;
            check_answers(&drain(&mut client.stream).await, false);
            // It is not known which requests were understood.
            self.keys.clear();
            return;
        }
        if client.stream.write_all(&frame).await.is_err() {
            return;
        }
        match request {
            Request::Hello { .. } | Request::Watch { .. } => {
                client.in_step = false;
                check_answers(&drain(&mut client.stream).await, false);
            }
            request => {
                let answer = tokio::time::timeout(ANSWER_LIMIT, read_body_async(&mut client.stream)).await;
                let body = answer
                    .expect("every request has an answer in time")
                    .expect("an answer is whole");
                let reply = Reply::from_body(&body).expect("an answer is a message");
                self.compare(&request, &reply);
            }
        }
    }

    /// Compares an answer with what the keys are known to hold.
    fn compare(&mut self, request: &Request, reply: &Reply) {
        if self.clients.iter().flatten().any(|client| !client.in_step) {
            // What one of these has said earlier may take effect at any time.
            return self.keys.clear();
        }
        match (request, reply) {
            (Request::Set { key, value }, Reply::Done) => drop(self.keys.insert(key.clone(), value.clone())),
            (Request::Delete { key }, Reply::Done) => drop(self.keys.remove(key)),
            (Request::Add { key, .. }, Reply::Count(count)) => {
                self.keys.insert(key.clone(), count.to_le_bytes().to_vec());
            }
            (Request::Wait { key, .. }, Reply::Value(value)) => {
                if let Some(known) = self.keys.get(key) {
                    assert_eq!(known[..], value[..], "key {key:?}");
                }
            }
            (Request::Wait { key, .. }, Reply::TimedOut | Reply::Failed(_)) => {
                assert!(
                    !self.keys.contains_key(key),
                    "key {key:?} is set, and a wait for it is in vain"
                );
            }
            (Request::Gather { sayings, .. }, Reply::Gathered(groups)) => {
                let are_of = |(saying, runs): (&Saying, &Runs)| runs.are_of(saying.size);
                assert!(groups.len() == sayings.len() && sayings.iter().zip(groups).all(are_of));
            }
            (Request::Gather { sayings, .. }, Reply::Absent(Absent { saying, members })) => {
                let size = sayings[*saying].size;
                assert!(members.iter().all(|index| *index < size));
            }
            (Request::Gather { .. }, Reply::Failed(_)) => assert!(self.job.first_failure().is_some()),
            (Request::Goodbye | Request::Add { .. } | Request::Gather { .. }, Reply::Rejected(_))
            | (Request::Fail(_) | Request::Ended { .. }, Reply::Done)
            | (Request::RelayedHeartbeat { .. }, Reply::Heard | Reply::NotPresent | Reply::Failed(_)) => {}
            (request, reply) => panic!("{request:?} was answered by {reply:?}"),
        }
        if let Request::Fail(_) = request {
            assert!(self.job.first_failure().is_some());
        }
    }

    /// Opens a connection; a client other than a stranger carries out the handshake.
    async fn open(&mut self, is_stranger: bool) -> Option<Client> {
        if self.opened == MAX_OPENED {
            return None;
        }
        self.opened += 1;
        let (stream, mut theirs) = duplex(PIPE_BYTES);
        let job = self.job.clone();
        let server = tokio::task::spawn_local(async move {
            if is_stranger {
                let accepted = tokio::time::timeout(ANSWER_LIMIT, accept(&mut theirs, &job.token)).await;
                assert!(!matches!(accepted, Ok(Ok(()))), "a stranger was let in");
                return;
            }
            let (mut reader, mut writer) = tokio::io::split(theirs);
            let _ = answer_requests(&mut reader, &mut writer, &job).await;
        });
        Some(Client {
            stream,
            server,
            in_step: true,
            is_stranger,
        })
    }

    async fn close(&mut self, who: usize) {
        if let Some(client) = self.clients[who].take() {
            drop(client.stream);
            let ended = tokio::time::timeout(ANSWER_LIMIT, client.server).await;
            ended
                .expect("the server notices that a client has gone")
                .expect("no panic");
            if !client.in_step {
                self.keys.clear();
            }
        }
    }

    async fn end(mut self) {
        for who in 0..CONNECTIONS {
            self.close(who).await;
        }
        assert!(self.job.is_idle(), "somebody is still waited for");
    }
}

/// A request made of the script's bytes: few ranks, few keys, so that they meet.
fn request(act: u8, script: &mut Script<'_>) -> Request {
    let key = |script: &mut Script<'_>| ["", "a", "b", "c"][usize::from(script.byte() % 4)].to_string();
    let timeout = |script: &mut Script<'_>| Duration::from_millis(script.byte().into());
    let host = || "host/boot".to_string();
    let (rank, world_size) = (usize::from(script.byte() % 5), WORLD_SIZE);
    match act {
        0 | 1 => Request::Hello {
            rank,
            world_size: if act == 0 { world_size } else { script.byte().into() },
            host: host(),
            timeout: timeout(script) * 100,
        },
        2 | 3 => Request::Set {
            key: key(script),
            value: script.counted().to_vec(),
        },
        4 => Request::Wait {
            key: key(script),
            timeout: timeout(script),
        },
        5 | 15 => Request::Add {
            key: key(script),
            delta: if act == 5 {
                i64::from(script.byte() as i8)
            } else {
                i64::MAX
            },
        },
        6 => Request::Delete { key: key(script) },
        9 => Request::Watch {
            node_rank: rank,
            world_size,
            host: host(),
            ranks: rank..WORLD_SIZE.min(rank + 1),
        },
        10 => Request::Ended {
            rank,
            host: host(),
            what: "exit code 1".into(),
        },
        11 => Request::Fail(PeerFailure::new(rank, host(), "fell")),
        16 => Request::RelayedHeartbeat {
            peer: if script.byte() == 0 {
                PeerId::Rank(rank)
            } else {
                PeerId::Launcher(rank)
            },
            limit: timeout(script) * 100,
            progress: "last collective #1".into(),
        },
        17 => Request::Gather {
            sayings: (0..script.byte() % 4)
                .map(|_| Saying {
                    key: key(script),
                    index: rank,
                    size: script.byte().into(),
                    value: script.counted().to_vec(),
                })
                .collect(),
            timeout: timeout(script),
        },
        _ => Request::Goodbye,
    }
}

/// What has come from the server by now.
async fn drain(stream: &mut DuplexStream) -> Vec<u8> {
    let mut heard = Vec::new();
    let mut buffer = [0; 1024];
    // The clock advances only when nothing else can: until then the server answers.
    while let Ok(Ok(count @ 1..)) = tokio::time::timeout(Duration::from_millis(1), stream.read(&mut buffer)).await {
        heard.extend(&buffer[..count]);
    }
    heard
}

fn check_answers(mut heard: &[u8], is_stranger: bool) {
    if is_stranger {
        return assert!(heard.len() <= 73, "a stranger hears {} bytes", heard.len());
    }
    while !heard.is_empty() {
        let body = read_body(&mut heard).expect("answers are whole");
        Reply::from_body(&body).expect("an answer is a message");
    }
}

async fn settle() {
    tokio::time::sleep(Duration::from_millis(1)).await;
}

/// Runs on a runtime whose clock jumps to the next event instead of waiting for it.
fn run_on_runtime<T>(future: impl Future<Output = T>) -> T {
    let mut builder = tokio::runtime::Builder::new_current_thread();
    let runtime = builder
        .enable_time()
        .start_paused(true)
        .build()
        .expect("a runtime starts");
    LocalSet::new().block_on(&runtime, future)
}

fn failure() -> PeerFailure {
    PeerFailure::new(1, "node1/boot", "connection lost (killed?)")
}

fn requests() -> Vec<Request> {
    let (key, host) = ("step".to_string(), "node1/boot".to_string());
    let timeout = Duration::from_millis(1500);
    vec![
        Request::Hello {
            rank: 1,
            world_size: 2,
            host: host.clone(),
            timeout,
        },
        Request::Goodbye,
        Request::Set {
            key: key.clone(),
            value: vec![1, 2, 3],
        },
        Request::Wait {
            key: key.clone(),
            timeout,
        },
        Request::Add {
            key: key.clone(),
            delta: -1,
        },
        Request::Delete { key },
        Request::Fail(failure()),
        Request::Watch {
            node_rank: 1,
            world_size: 2,
            host: host.clone(),
            ranks: 1..2,
        },
        Request::Ended {
            rank: 1,
            host,
            what: "exit code 1".into(),
        },
        Request::Heartbeat {
            limit: timeout,
            progress: "last collective #1".into(),
        },
        Request::Gather {
            sayings: vec![Saying {
                key: "engine".into(),
                index: 1,
                size: 2,
                value: b"tcp".to_vec(),
            }],
            timeout,
        },
        Request::AskRank { rank: 1 },
        Request::RelayedHeartbeat {
            peer: PeerId::Launcher(1),
            limit: timeout,
            progress: "last collective #1".into(),
        },
    ]
}

fn replies() -> Vec<Reply> {
    vec![
        Reply::Done,
        Reply::Value([1, 2, 3].into()),
        Reply::Count(-1),
        Reply::TimedOut,
        Reply::Rejected("no".into()),
        Reply::Failed(failure()),
        Reply::Roster {
            job_id: "0123456789abcdef".into(),
            nodes: NodeTable::of_hosts(["node0/boot", "node1/boot", "node0/boot"]),
            first_host: "node0/boot".into(),
        },
        Reply::Gathered(vec![Runs::of([b"tcp".to_vec(), b"tcp".to_vec(), vec![]])]),
        Reply::Absent(Absent {
            saying: 0,
            members: vec![1],
        }),
        Reply::Missing(vec![0, 3]),
        Reply::Closing,
        Reply::Welcome {
            job_id: "0123456789abcdef".into(),
        },
        Reply::Heard,
        Reply::Rank(RankStatus {
            host: "node1/boot".into(),
            heartbeats: Some(HeartbeatStatus {
                silence: Duration::from_millis(10),
                limit: Duration::from_millis(1500),
                progress: "last collective #1".into(),
            }),
        }),
        Reply::NotPresent,
    ]
}
