//! One connection of the server: the handshake, then requests one after the other, or all that one peer says.
//!
//! Each connection is a task of its own, so a slow or silent one holds up no other.

use std::io;
use std::pin::pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::io::{
    AsyncBufRead, AsyncBufReadExt, AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, BufReader, BufWriter,
};
use tokio::net::TcpStream;
use tokio::sync::{Notify, watch};
use tokio::time::{sleep, timeout};

use super::gatherings::Answer;
use super::job::Job;
use super::pending_handshakes::PendingHandshake;
use crate::launch::handshake::{Acceptance, Next, TO_STORE};
use crate::launch::identity::JobToken;
use crate::launch::liveness::{Action, Event};
use crate::launch::store::protocol::{Absent, PeerId, Reply, Request, Saying, beginning_of_gathered, read_body_async};
use crate::launch::store::table::{TableError, check_entry};

/// Longest handshake.
const HANDSHAKE_LIMIT: Duration = Duration::from_secs(5);

/// Longest time for an answer to be taken by who has asked; clients wait for half of it.
const ANSWER_LIMIT: Duration = Duration::from_secs(60);

/// Longest time to tell a silent rank that it was given up.
const LAST_WORD_LIMIT: Duration = Duration::from_millis(100);

/// Serves a connection until it closes. `pending` marks it as a stranger until the handshake is over.
pub(super) async fn serve(mut stream: TcpStream, job: Arc<Job>, pending: PendingHandshake) {
    let peer = stream.peer_addr().ok();
    match timeout(HANDSHAKE_LIMIT, accept(&mut stream, &job.token)).await {
        Ok(Ok(())) => {}
        Ok(Err(error)) => return tracing::debug!(?peer, %error, "store: handshake refused"),
        Err(_) => return tracing::debug!(?peer, "store: handshake took longer than {HANDSHAKE_LIMIT:?}"),
    }
    drop(pending);
    job.traffic.lock().connections += 1;
    let (mut reader, mut writer) = stream.split();
    if let Err(error) = answer_requests(&mut reader, &mut writer, &job).await {
        tracing::debug!(?peer, %error, "store: connection ended");
    }
}

/// Carries out the acceptor's part of the handshake; the caller bounds its time.
pub(in crate::launch) async fn accept(
    stream: &mut (impl AsyncRead + AsyncWrite + Unpin),
    token: &JobToken,
) -> io::Result<()> {
    let mut acceptance = Acceptance::new();
    loop {
        let bytes = match stream.read(acceptance.buffer()).await? {
            0 => return Err(io::ErrorKind::UnexpectedEof.into()),
            bytes => bytes,
        };
        let next = acceptance.advance(bytes, token.as_bytes(), |claim| match *claim {
            TO_STORE => Ok(()),
            _ => Err("it does not ask for the store"),
        });
        stream.write_all(acceptance.reply()).await?;
        match next {
            Next::Wait => {}
            Next::Welcome(()) => return Ok(()),
            Next::Drop(reason) => return Err(io::Error::other(reason)),
        }
    }
}

async fn read_request(reader: &mut (impl AsyncRead + Unpin), job: &Job) -> io::Result<Request> {
    let body = read_body_async(reader).await?;
    let mut traffic = job.traffic.lock();
    traffic.requests += 1;
    traffic.request_bytes += (size_of::<u32>() + body.len()) as u64;
    drop(traffic);
    Ok(Request::from_body(&body)?)
}

/// Answers requests until the connection closes, which is an error here, or stands for a peer.
pub(in crate::launch) async fn answer_requests(
    reader: &mut (impl AsyncRead + Unpin),
    writer: &mut (impl AsyncWrite + Unpin),
    job: &Job,
) -> io::Result<()> {
    let reader = &mut BufReader::new(reader);
    loop {
        let reply = match read_request(reader, job).await? {
            Request::Hello {
                rank,
                world_size,
                host,
                timeout,
            } => {
                return match job.register(rank, world_size, &host) {
                    Ok(()) => serve_peer(reader, writer, job, PeerId::Rank(rank), timeout).await,
                    Err(refusal) => answer(writer, &refusal, job).await,
                };
            }
            Request::Watch {
                node_rank,
                world_size,
                host,
                ranks,
            } => {
                let registered = job.members(|all| all.register_launcher(node_rank, world_size, &host, ranks));
                if let Err(refusal) = registered {
                    return answer(writer, &refusal, job).await;
                }
                return serve_peer(reader, writer, job, PeerId::Launcher(node_rank), Duration::ZERO).await;
            }
            Request::Ended { rank, host, what } => {
                job.members(|all| all.process_ended(rank, &host, &what));
                Reply::Done
            }
            Request::Goodbye => Reply::Rejected("goodbye without hello".into()),
            Request::Heartbeat { .. } => Reply::Rejected("heartbeat without hello".into()),
            Request::AskRank { rank } => match job.members(|all| all.status_of(rank, Instant::now())) {
                Some(status) => Reply::Rank(status),
                None => Reply::Rejected(format!("rank {rank} of {}", job.world_size)),
            },
            Request::RelayedHeartbeat { peer, limit, progress } => job.heard_elsewhere(peer, limit, progress),
            Request::Set { key, value } => or_reason(job.set(&key, value).map(|()| Reply::Done)),
            Request::Wait { key, timeout } => wait_for_key(reader, job, &key, timeout).await?,
            Request::Add { key, delta } => or_reason(job.add(&key, delta).map(Reply::Count)),
            Request::Gather { sayings, timeout } => {
                let waiting = match job.say(&sayings) {
                    Ok(answers) => gather(reader, writer, job, &sayings, answers, timeout).await?,
                    Err(refusal) => Some(Reply::Rejected(refusal)),
                };
                match waiting {
                    Some(reply) => reply,
                    None => continue,
                }
            }
            Request::Delete { key } => {
                job.delete(&key);
                Reply::Done
            }
            Request::Fail(failure) => {
                job.members(|all| all.accuse(&failure));
                Reply::Done
            }
        };
        answer(writer, &reply, job).await?;
    }
}

fn or_reason(result: Result<Reply, TableError>) -> Reply {
    result.unwrap_or_else(|error| Reply::Rejected(error.to_string()))
}

/// Holds a `Wait` until its key exists, a rank has failed, or its time is up; ends with an error when the client has
/// gone, which would keep its place otherwise, for as long as it said it would wait.
async fn wait_for_key(
    reader: &mut (impl AsyncBufRead + Unpin),
    job: &Job,
    key: &str,
    limit: Duration,
) -> io::Result<Reply> {
    if let Err(error) = check_entry(key, &[]) {
        return Ok(Reply::Rejected(error.to_string()));
    }
    let receiver = match job.value_or_waiter(key) {
        Ok(value) => return Ok(Reply::Value(value)),
        Err(receiver) => receiver,
    };
    let mut failure = job.failure.subscribe();
    let reply = tokio::select! {
        biased;
        Ok(value) = receiver => return Ok(Reply::Value(value)),
        first = value_of(&mut failure) => Ok(Reply::Failed(first)),
        error = until_gone(reader) => Err(error),
        () = sleep(limit) => Ok(Reply::TimedOut),
    };
    job.forget_waiters(key);
    reply
}

/// Sends the answer to a `Gather` when all its groups have one; returns what else to say if a rank has failed before,
/// or the time is up. Ends as [`wait_for_key`] does when the client has gone.
async fn gather(
    reader: &mut (impl AsyncBufRead + Unpin),
    writer: &mut (impl AsyncWrite + Unpin),
    job: &Job,
    sayings: &[Saying],
    mut answers: Vec<Answer>,
    limit: Duration,
) -> io::Result<Option<Reply>> {
    let mut failure = job.failure.subscribe();
    tokio::select! {
        biased;
        groups = values_of(&mut answers) => {
            send_gathered(writer, &groups, job).await?;
            job.answered(sayings);
            return Ok(None);
        }
        first = value_of(&mut failure) => return Ok(Some(Reply::Failed(first))),
        error = until_gone(reader) => return Err(error),
        () = sleep(limit) => {}
    }
    // One that is complete by now is asked for again.
    let saying = answers.iter().position(|answer| answer.borrow().is_none()).unwrap_or(0);
    let members = job.absent(&sayings[saying].key);
    Ok(Some(Reply::Absent(Absent { saying, members })))
}

/// Waits until there are all answers.
async fn values_of(answers: &mut [Answer]) -> Vec<Arc<[u8]>> {
    let mut values = Vec::with_capacity(answers.len());
    for answer in answers {
        values.push(value_of(answer).await);
    }
    values
}

/// Waits until the other end closes. Reads into the buffer only: what comes is the next request.
async fn until_gone(reader: &mut (impl AsyncBufRead + Unpin)) -> io::Error {
    match reader.fill_buf().await {
        Ok([]) => io::ErrorKind::UnexpectedEof.into(),
        // It is there, and has said more; its end is seen when the wait is over.
        Ok(_) => std::future::pending().await,
        Err(error) => error,
    }
}

/// Waits until there is a value, and returns a copy of it: no lock is held afterwards.
async fn value_of<T: Clone>(receiver: &mut watch::Receiver<Option<T>>) -> T {
    let value = receiver
        .wait_for(Option::is_some)
        .await
        .ok()
        .and_then(|value| value.clone());
    match value {
        Some(value) => value,
        None => std::future::pending().await, // its sender is gone, so there will never be one
    }
}

async fn until_set(receiver: &mut watch::Receiver<bool>) {
    if receiver.wait_for(|set| *set).await.is_err() {
        std::future::pending::<()>().await;
    }
}

/// Reads what a registered peer says, and hands heartbeats to `on_heartbeat`; anything else than a goodbye is an error.
async fn until_goodbye(
    reader: &mut (impl AsyncRead + Unpin),
    job: &Job,
    on_heartbeat: impl Fn(Duration, String),
) -> io::Result<()> {
    loop {
        match read_request(reader, job).await? {
            Request::Heartbeat { limit, progress } => on_heartbeat(limit, progress),
            Request::Goodbye => return Ok(()),
            _ => return Err(io::ErrorKind::InvalidData.into()),
        }
    }
}

/// Stands for a registered rank, or a launcher, until it leaves, dies or falls silent, and notes which.
async fn serve_peer(
    reader: &mut (impl AsyncRead + Unpin),
    writer: &mut (impl AsyncWrite + Unpin),
    job: &Job,
    peer: PeerId,
    rendezvous_timeout: Duration,
) -> io::Result<()> {
    let served = talk_to_peer(reader, writer, job, peer, rendezvous_timeout).await;
    // A peer whose server ends can say goodbye to no one.
    let is_closing = *job.closing.borrow();
    if let (Err(error), false) = (&served, is_closing) {
        use io::ErrorKind::{HostUnreachable, NetworkUnreachable, TimedOut};
        match (error.kind(), peer) {
            // Ours, or the kernel's when its probes are not answered: the rank has not closed the connection.
            (TimedOut | HostUnreachable | NetworkUnreachable, PeerId::Rank(_)) => {
                job.on(peer, Event::Unreachable(Instant::now()));
                // If it resumes one day, it learns why the others did not continue.
                if let Some(first) = job.first_failure() {
                    let _ = timeout(LAST_WORD_LIMIT, writer.write_all(&Reply::Failed(first).to_frame())).await;
                }
            }
            _ => {
                job.on(peer, Event::Closed);
            }
        }
    }
    served
}

/// Sends a registered rank the roster, a rank and a launcher the first failure if one comes, and answers heartbeats;
/// ends well when the peer says goodbye or the server ends.
async fn talk_to_peer(
    reader: &mut (impl AsyncRead + Unpin),
    writer: &mut (impl AsyncWrite + Unpin),
    job: &Job,
    peer: PeerId,
    rendezvous_timeout: Duration,
) -> io::Result<()> {
    let mut roster = job.roster.subscribe();
    let mut failure = job.failure.subscribe();
    let mut closing = job.closing.subscribe();
    let (mut roster_due, mut failure_due) = (matches!(peer, PeerId::Rank(_)), true);
    if !roster_due {
        let job_id = job.job_id.clone();
        answer(writer, &Reply::Welcome { job_id }, job).await?;
    }
    let mut rendezvous_end = pin!(sleep(rendezvous_timeout));
    // One future until the peer has gone: a read that is dropped half-way would lose its bytes.
    let heartbeat = Notify::new();
    let mut goodbye = pin!(until_goodbye(reader, job, |limit, progress| {
        job.heard(peer, limit, progress);
        heartbeat.notify_one();
    }));
    loop {
        let frame: Arc<[u8]> = tokio::select! {
            biased;
            goodbye = &mut goodbye => {
                goodbye?;
                job.on(peer, Event::Goodbye);
                // It has left in good order, whether it takes the answer or not.
                let _ = answer(writer, &Reply::Done, job).await;
                return Ok(());
            }
            () = heartbeat.notified() => Reply::Heard.to_frame().into(),
            roster = value_of(&mut roster), if roster_due => {
                roster_due = false;
                roster
            }
            first = value_of(&mut failure), if failure_due => {
                (roster_due, failure_due) = (false, false);
                Reply::Failed(first).to_frame().into()
            }
            () = &mut rendezvous_end, if roster_due => {
                // The failure that this raises is for the others: this rank gets the full list.
                (roster_due, failure_due) = (false, false);
                let missing = job.members(|all| all.rendezvous_timed_out(rendezvous_timeout));
                Reply::Missing(missing).to_frame().into()
            }
            () = until_set(&mut closing) => return tell(writer, &Reply::Closing.to_frame(), job, peer).await,
            // Starts again whenever something happens: a piece of time counts as silent when nothing came in all of it.
            () = sleep(job.members(|all| all.listening_time(peer))) => {
                let (is_silent, now) = (job.on(peer, Event::NothingHeard) == Action::GiveUp, Instant::now());
                match peer {
                    PeerId::Rank(_) if is_silent => return Err(io::ErrorKind::TimedOut.into()),
                    // Ranks that have come speak for themselves, and need no launcher to continue.
                    PeerId::Launcher(node) if is_silent => job.members(|all| all.launcher_fell_silent(node, now)),
                    _ => {}
                }
                continue;
            }
        };
        tell(writer, &frame, job, peer).await?;
    }
}

/// Sends a frame to a rank or a launcher. One that takes nothing for as long as it may say nothing counts as silent.
async fn tell(writer: &mut (impl AsyncWrite + Unpin), frame: &[u8], job: &Job, peer: PeerId) -> io::Result<()> {
    // One future until the end: a message that is cut off would make nonsense of the next.
    let mut sending = pin!(send(writer, frame, job));
    loop {
        tokio::select! {
            biased;
            sent = &mut sending => return sent,
            () = sleep(job.members(|all| all.listening_time(peer))) => {
                if job.on(peer, Event::NothingHeard) == Action::GiveUp {
                    return Err(io::ErrorKind::TimedOut.into());
                }
            }
        }
    }
}

/// Sends the answer to a request.
async fn answer(writer: &mut (impl AsyncWrite + Unpin), reply: &Reply, job: &Job) -> io::Result<()> {
    send(writer, &reply.to_frame(), job).await
}

async fn send(writer: &mut (impl AsyncWrite + Unpin), frame: &[u8], job: &Job) -> io::Result<()> {
    count_reply(frame.len(), job);
    in_time(writer.write_all(frame)).await
}

fn count_reply(bytes: usize, job: &Job) {
    let mut traffic = job.traffic.lock();
    traffic.replies += 1;
    traffic.reply_bytes += bytes as u64;
}

async fn send_gathered(writer: &mut (impl AsyncWrite + Unpin), groups: &[Arc<[u8]>], job: &Job) -> io::Result<()> {
    let beginning = beginning_of_gathered(groups);
    count_reply(
        beginning.len() + groups.iter().map(|runs| runs.len()).sum::<usize>(),
        job,
    );
    in_time(async {
        // Few bytes become one packet; many are not copied.
        let mut writer = BufWriter::new(writer);
        writer.write_all(&beginning).await?;
        for runs in groups {
            writer.write_all(runs).await?;
        }
        writer.flush().await
    })
    .await
}

async fn in_time(sending: impl Future<Output = io::Result<()>>) -> io::Result<()> {
    let sent = timeout(ANSWER_LIMIT, sending).await;
    sent.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()))
}

#[cfg(test)]
mod tests {
    use tokio::io::duplex;

    use super::*;

    #[test]
    fn rank_that_takes_no_answer_counts_as_silent() {
        let job = Job::new(1, "0123456789abcdef".into(), JobToken::from_text("token"), None);
        let hello = Request::Hello {
            rank: 0,
            world_size: 1,
            host: "node0/boot".into(),
            timeout: Duration::from_secs(20),
        };
        let heartbeat = Request::Heartbeat {
            limit: Duration::from_millis(300),
            progress: "trains".into(),
        };
        let talk = async {
            // Of the answers to heartbeats, a few fit.
            let (mut ours, theirs) = duplex(16);
            let (mut their_reader, mut their_writer) = tokio::io::split(theirs);
            let talks = async {
                ours.write_all(&hello.to_frame()).await.unwrap();
                assert!(matches!(read_body_async(&mut ours).await, Ok(roster) if !roster.is_empty()));
                loop {
                    ours.write_all(&heartbeat.to_frame()).await.unwrap();
                    sleep(Duration::from_millis(5)).await;
                }
            };
            tokio::select! {
                served = answer_requests(&mut their_reader, &mut their_writer, &job) => served,
                () = talks => unreachable!("it talks on"),
            }
        };
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .build()
            .unwrap();
        let served = runtime.block_on(async { timeout(Duration::from_secs(20), talk).await });
        assert_eq!(
            served.expect("it ends in time").unwrap_err().kind(),
            io::ErrorKind::TimedOut
        );
        let failure = job.failure.borrow().clone().unwrap();
        assert!(failure.what.starts_with("is silent"), "{failure}");
    }
}
