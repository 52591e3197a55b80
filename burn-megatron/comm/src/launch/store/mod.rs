//! The rendezvous store: a key-value store over TCP where the ranks of a job meet, and which notices when one dies. Its
//! other end is [`server`](super::server).
//!
//! - [`Store`] (here): what a rank holds; every clone may be used from any thread.
//! - [`client`]: a rank's end of a connection.
//! - [`protocol`]: what goes over the wire, once the [`handshake`](super::handshake) is over.
//! - [`table`]: keys, values and limits.
//!
//! Keys do not travel on the connection that stands for a rank (see [`liveness`](super::liveness)), so that a
//! large value never delays the news of a failure.

mod client;
#[cfg(feature = "fuzzing")]
pub(super) mod fuzzing;
// Without a server, a client's half of it is used.
#[cfg_attr(not(feature = "tcp"), allow(dead_code))]
pub(super) mod protocol;
pub(super) mod table;

#[cfg(feature = "tcp")]
#[cfg(test)]
mod tests;

pub(crate) use client::BoundedStream;
pub(super) use client::{StoreAddress, StoreConnection, deadline_after};
#[cfg(test)]
pub(super) use protocol::read_body;
pub(crate) use protocol::{Absent, MAX_GATHERED_VALUE_BYTES, NodeTable, Runs, Saying};
pub(super) use protocol::{HeartbeatStatus, PeerId, RankStatus, Reply, Request};
pub use protocol::{MAX_KEY_BYTES, MAX_VALUE_BYTES};
pub use table::MAX_STORE_BYTES;

use std::io;
use std::net::{Shutdown, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::{Condvar, Mutex};
use socket2::SockRef;

use self::table::{Table, TableError, check_entry};
use super::error::LaunchError;
use super::peer_failure::PeerFailure;

/// Longest time for a request that the store answers at once.
const REQUEST_LIMIT: Duration = Duration::from_secs(30);
/// Longest time for one more connection to a store that was reached before.
const CONNECT_LIMIT: Duration = Duration::from_secs(5);
/// How much later than the store a client gives up on a `wait`: as long as heartbeats may go unanswered by default,
/// since the store's host may have too much to do.
const WAIT_SLACK: Duration = Duration::from_secs(30);
/// Longest time for the news of a failure to reach the store, and for the connection that carries it.
const FAIL_LIMIT: Duration = Duration::from_secs(1);
/// Connections that are kept for later requests.
const IDLE_CONNECTIONS: usize = 2;

/// Key-value store of the job: blocking, thread-safe, cheap to clone.
///
/// Calls of several threads run at the same time. A world of one keeps its keys in the process.
#[derive(Clone, Debug)]
pub struct Store {
    backing: Arc<Backing>,
}

#[derive(Debug)]
enum Backing {
    InProcess {
        table: Mutex<Table>,
        changed: Condvar,
    },
    Remote {
        address: StoreAddress,
        idle: Mutex<Vec<StoreConnection>>,
        /// The longest wait for anything that the store answers at once.
        limit: Duration,
        /// The connections on which an answer is waited for.
        busy: Mutex<Vec<Weak<TcpStream>>>,
        /// Whether the store has not answered for so long that it is not asked any more.
        is_out_of_reach: AtomicBool,
    },
}

impl Store {
    /// Returns an empty store of this process alone.
    pub(super) fn in_process() -> Store {
        let table = Mutex::new(Table::new(MAX_STORE_BYTES));
        Store {
            backing: Arc::new(Backing::InProcess {
                table,
                changed: Condvar::new(),
            }),
        }
    }

    /// Returns a client of the store at `address`; connects when it is used. Nothing that the store answers at once
    /// takes longer than `timeout`, nor than 30 s.
    pub(super) fn remote(address: StoreAddress, timeout: Duration) -> Store {
        Store {
            backing: Arc::new(Backing::Remote {
                address,
                idle: Mutex::default(),
                busy: Mutex::default(),
                limit: timeout.min(REQUEST_LIMIT),
                is_out_of_reach: AtomicBool::new(false),
            }),
        }
    }

    /// Makes every further request fail at once, and those that wait for an answer: the store has not answered for too
    /// long.
    pub(super) fn give_up(&self) {
        if let Backing::Remote {
            is_out_of_reach, busy, ..
        } = &*self.backing
        {
            is_out_of_reach.store(true, Ordering::SeqCst);
            for stream in busy.lock().iter().filter_map(Weak::upgrade) {
                // It may be closed already.
                let _ = stream.shutdown(Shutdown::Both);
            }
        }
    }

    /// Returns what the store knows of a rank; gives up soon, for the caller is about to end.
    pub(super) fn rank_status(&self, rank: usize) -> Result<RankStatus, LaunchError> {
        let operation = format!("ask for rank {rank}");
        self.call(Request::AskRank { rank }, FAIL_LIMIT, operation, |reply| match reply {
            Reply::Rank(status) => Ok(status),
            other => Err(other),
        })
    }

    /// Sets a key, new or not.
    ///
    /// # Errors
    /// The key or value is too long, the store is full, or it does not answer.
    pub fn set(&self, key: &str, value: &[u8]) -> Result<(), LaunchError> {
        self.set_within(key, value, self.limit())
    }

    /// Sets a key, and gives up after `limit`: for a process that is about to end.
    pub(crate) fn set_within(&self, key: &str, value: &[u8], limit: Duration) -> Result<(), LaunchError> {
        let request = Request::Set {
            key: key.into(),
            value: value.to_vec(),
        };
        self.call_for_done(request, limit, format!("set {key:?}"))
    }

    /// Returns the value of a key, as soon as the key exists.
    ///
    /// # Errors
    /// The key is not set within `timeout`, a rank fails meanwhile ([`LaunchError::PeerFailed`]), or the store does
    /// not answer.
    pub fn wait(&self, key: &str, timeout: Duration) -> Result<Vec<u8>, LaunchError> {
        self.wait_with_slack(key, timeout, self.limit().min(WAIT_SLACK))
    }

    /// Returns the value of a note, as [`wait`](Self::wait) does: for a process that is about to end, which does not
    /// wait long for a store that it may not reach any more.
    pub(crate) fn read_note(&self, key: &str, timeout: Duration) -> Result<Vec<u8>, LaunchError> {
        self.wait_with_slack(key, timeout, FAIL_LIMIT)
    }

    /// Waits for a key; the store has `slack` to say that the time is over.
    fn wait_with_slack(&self, key: &str, timeout: Duration, slack: Duration) -> Result<Vec<u8>, LaunchError> {
        let request = Request::Wait {
            key: key.into(),
            timeout,
        };
        let limit = timeout.saturating_add(slack);
        self.call(request, limit, format!("wait {key:?}"), |reply| match reply {
            Reply::Value(value) => Ok(Ok(value.to_vec())),
            Reply::TimedOut => Ok(Err(LaunchError::WaitTimeout {
                key: key.into(),
                timeout,
            })),
            Reply::Failed(failure) => Ok(Err(LaunchError::PeerFailed(failure))),
            other => Err(other),
        })?
    }

    /// Says something to all members of some groups, and returns what the members of each have said once all have, in
    /// all groups; or the first group of which some have not within `timeout`. One message, and one back.
    ///
    /// # Errors
    /// A value is too long, the members of a group disagree on their number, a rank fails meanwhile
    /// ([`LaunchError::PeerFailed`]), or the store does not answer.
    pub(crate) fn gather(
        &self,
        sayings: &[Saying],
        timeout: Duration,
    ) -> Result<Result<Vec<Runs>, Absent>, LaunchError> {
        let [first, others @ ..] = sayings else {
            return Ok(Ok(vec![]));
        };
        let operation = match others.len() {
            0 => format!("gather {:?}", first.key),
            count => format!("gather {:?} and {count} more", first.key),
        };
        let request = Request::Gather {
            sayings: sayings.to_vec(),
            timeout,
        };
        let are_answer = |groups: &[Runs]| {
            groups.len() == sayings.len()
                && groups
                    .iter()
                    .zip(sayings)
                    .all(|(runs, saying)| runs.are_of(saying.size))
        };
        let is_of_group = |absent: &Absent| {
            let saying = sayings.get(absent.saying);
            saying.is_some_and(|saying| absent.members.iter().all(|member| *member < saying.size))
        };
        let limit = timeout.saturating_add(self.limit().min(WAIT_SLACK));
        self.call(request, limit, operation, |reply| match reply {
            Reply::Gathered(groups) if are_answer(&groups) => Ok(Ok(Ok(groups))),
            Reply::Absent(absent) if is_of_group(&absent) => Ok(Ok(Err(absent))),
            Reply::Failed(failure) => Ok(Err(LaunchError::PeerFailed(failure))),
            other => Err(other),
        })?
    }

    /// Adds to a counter in one step, and returns its new value. A counter begins at 0.
    ///
    /// Its value, as [`Store::wait`] gives it, is an `i64` in 8 bytes, little endian.
    ///
    /// # Errors
    /// The key holds something else, the sum overflows, or the store does not answer.
    pub fn add(&self, key: &str, delta: i64) -> Result<i64, LaunchError> {
        self.add_within(key, delta, self.limit())
    }

    /// Adds to a counter, and gives up after `limit`: for a process that is about to end.
    pub(super) fn add_within(&self, key: &str, delta: i64, limit: Duration) -> Result<i64, LaunchError> {
        let request = Request::Add { key: key.into(), delta };
        self.call(request, limit, format!("add {key:?}"), |reply| match reply {
            Reply::Count(count) => Ok(count),
            other => Err(other),
        })
    }

    /// Removes a key, if it exists.
    ///
    /// # Errors
    /// The store does not answer.
    pub fn delete(&self, key: &str) -> Result<(), LaunchError> {
        self.delete_within(key, self.limit())
    }

    fn delete_within(&self, key: &str, limit: Duration) -> Result<(), LaunchError> {
        self.call_for_done(Request::Delete { key: key.into() }, limit, format!("delete {key:?}"))
    }

    /// Sets a key for others to find should things go wrong; gives up soon, for the caller has other things to do.
    pub(crate) fn leave_note(&self, key: &str, value: &[u8]) -> Result<(), LaunchError> {
        self.set_within(key, value, FAIL_LIMIT)
    }

    /// Removes a note; gives up soon.
    pub(crate) fn remove_note(&self, key: &str) -> Result<(), LaunchError> {
        self.delete_within(key, FAIL_LIMIT)
    }

    /// Tells the store that a rank has failed; gives up soon, for the caller is about to end.
    pub(super) fn fail(&self, failure: &PeerFailure) -> Result<(), LaunchError> {
        self.call_for_done(Request::Fail(failure.clone()), FAIL_LIMIT, "report a failure".into())
    }

    /// Tells the store that a rank's process has ended; gives up soon, as above.
    pub(super) fn process_ended(&self, rank: usize, host: &str, what: &str) -> Result<(), LaunchError> {
        let request = Request::Ended {
            rank,
            host: host.into(),
            what: what.into(),
        };
        self.call_for_done(request, FAIL_LIMIT, "report an end".into())
    }

    /// The longest wait for what the store answers at once.
    fn limit(&self) -> Duration {
        match &*self.backing {
            Backing::InProcess { .. } => REQUEST_LIMIT,
            Backing::Remote { limit, .. } => *limit,
        }
    }

    fn call_for_done(&self, request: Request, timeout: Duration, operation: String) -> Result<(), LaunchError> {
        self.call(request, timeout, operation, |reply| match reply {
            Reply::Done => Ok(()),
            other => Err(other),
        })
    }

    /// Sends a request over an idle connection, or a new one; `answer` gives back replies it does not expect.
    ///
    /// A connection that broke is dropped, not tried again: an `add` may have been done already.
    fn call<T>(
        &self,
        request: Request,
        timeout: Duration,
        operation: String,
        answer: impl FnOnce(Reply) -> Result<T, Reply>,
    ) -> Result<T, LaunchError> {
        check(&request).map_err(|error| LaunchError::StoreRefused {
            operation: operation.clone(),
            reason: error.to_string(),
        })?;
        let (address, idle, busy, is_out_of_reach) = match &*self.backing {
            Backing::InProcess { table, changed } => {
                return answer(answer_alone(table, changed, request)).map_err(|reply| LaunchError::StoreRefused {
                    operation,
                    reason: match reply {
                        Reply::Rejected(reason) => reason,
                        other => format!("unexpected reply {other:?}"),
                    },
                });
            }
            Backing::Remote {
                address,
                idle,
                busy,
                is_out_of_reach,
                ..
            } => (address, idle, busy, is_out_of_reach),
        };
        let given_up = || {
            if is_out_of_reach.load(Ordering::SeqCst) {
                return Err(address.lost(&operation, "it has not answered this rank's heartbeats".into()));
            }
            Ok(())
        };
        given_up()?;
        let kept = idle.lock().pop();
        let mut connection = match kept {
            Some(connection) => connection,
            None => StoreConnection::connect_again(address, timeout.min(CONNECT_LIMIT)).map_err(|error| {
                // A store that was there and cannot be reached is lost: say in which operation.
                match error {
                    LaunchError::Unreachable { waited, reason, .. } => {
                        address.lost(&operation, format!("no connection within {waited:.1?}: {reason}"))
                    }
                    other => other,
                }
            })?,
        };
        let stream = connection.stream();
        busy.lock().push(Weak::clone(&stream));
        // Who gives up now finds the connection among the busy ones, and who did so before is seen here.
        let reply = given_up().and_then(|()| connection.call(&request, timeout, &operation));
        busy.lock().retain(|other| !other.ptr_eq(&stream));
        let reply = reply.or_else(|error| given_up().and(Err(error)))?;
        let result = match answer(reply) {
            Ok(result) => result,
            Err(Reply::Rejected(reason)) => return Err(LaunchError::StoreRefused { operation, reason }),
            Err(other) => return Err(connection.unexpected(&operation, &other)),
        };
        let mut idle = idle.lock();
        if idle.len() < IDLE_CONNECTIONS {
            idle.push(connection);
        }
        Ok(result)
    }
}

/// Checks the limits of what a request names, before it is sent.
fn check(request: &Request) -> Result<(), TableError> {
    match request {
        Request::Set { key, value } => check_entry(key, value),
        Request::Wait { key, .. } | Request::Add { key, .. } | Request::Delete { key } => check_entry(key, &[]),
        Request::Gather { sayings, .. } => sayings.iter().try_for_each(|saying| check_entry(&saying.key, &[])),
        _ => Ok(()),
    }
}

/// Answers a request in a world of one, where no one else is to learn of anything.
fn answer_alone(table: &Mutex<Table>, changed: &Condvar, request: Request) -> Reply {
    let answered = match request {
        Request::Set { key, value } => table.lock().set(&key, value.into()).map(|()| Reply::Done),
        Request::Add { key, delta } => table.lock().add(&key, delta).map(Reply::Count),
        Request::Wait { key, timeout } => {
            let mut table = table.lock();
            changed.wait_while_for(&mut table, |table| table.value(&key).is_none(), timeout);
            return table.value(&key).map_or(Reply::TimedOut, Reply::Value);
        }
        Request::Delete { key } => {
            table.lock().delete(&key);
            Ok(Reply::Done)
        }
        Request::Gather { sayings, .. } => {
            return Reply::Rejected(format!("a world of one has no group of {}", sayings[0].size));
        }
        Request::AskRank { .. } => return Reply::Rejected("a world of one has no other rank".into()),
        _ => Ok(Reply::Done),
    };
    changed.notify_all();
    answered.unwrap_or_else(|error| Reply::Rejected(error.to_string()))
}

/// Sets what both ends of a connection need: no delay for small messages.
///
/// And no probes of the kernel. A killed process closes its connections at once; a host that loses power or network
/// does not, and then heartbeats decide, or the time that a request has. Probes would give up a connection after a time
/// of their own, and break a job that a network failed for less than the heartbeats' limit.
pub(super) fn set_socket_options(stream: &impl std::os::fd::AsFd) -> io::Result<()> {
    SockRef::from(stream).set_tcp_nodelay(true)
}
