//! How ranks find each other: by sockets named after the unique id, which leave nothing in the file system.

use std::io;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::time::Duration;

use super::error::{Error, INTERNAL_ERROR, INVALID_USAGE, Outcome, REMOTE_ERROR, SYSTEM_ERROR};
use super::wire::{Frame, HEADER, Purpose};
use crate::driver::device::number_in_environment;

/// How often who waits looks whether it should stop.
const PAUSE: Duration = Duration::from_millis(2);
const HELLO: usize = 24;

/// Who takes part.
#[derive(Clone, Debug)]
pub struct Member {
    /// The name of the communicator, which all its ranks know.
    pub name: String,
    pub rank: usize,
    pub count: usize,
    /// Of its device.
    pub uuid: [u8; 16],
}

impl Member {
    fn address(&self, rank: usize) -> Outcome<SocketAddr> {
        let name = format!("cuda-emulator-nccl-{}-{rank}", self.name);
        SocketAddr::from_abstract_name(name).map_err(|error| system("the name of a rank's socket", &error))
    }

    fn hello(&self) -> Frame {
        let mut payload = self.uuid.to_vec();
        payload.extend((self.rank as u32).to_le_bytes());
        payload.extend((self.count as u32).to_le_bytes());
        Frame::new(Purpose::Hello, 0, payload)
    }
}

fn system(what: &str, error: &io::Error) -> Error {
    Error::new(SYSTEM_ERROR, format!("{what}: {error}"))
}

fn stopped() -> Error {
    Error::new(INTERNAL_ERROR, "the communicator was aborted")
}

/// Returns the connections to all ranks, once all have come; none to itself.
///
/// # Errors
///
/// If two ranks use the same device, or the ranks do not agree on how many they are, or `is_stopped`.
pub fn connect(member: &Member, is_stopped: &dyn Fn() -> bool) -> Outcome<Vec<Option<UnixStream>>> {
    let listener = UnixListener::bind_addr(&member.address(member.rank)?).map_err(|error| match error.kind() {
        io::ErrorKind::AddrInUse => {
            let text = format!("rank {} of {} has already checked in", member.rank, member.count);
            Error::new(INVALID_USAGE, text)
        }
        _ => system("a rank's socket", &error),
    })?;
    let mut peers: Vec<Option<(UnixStream, [u8; 16])>> = (0..member.count).map(|_| None).collect();
    for (rank, peer) in peers.iter_mut().enumerate().take(member.rank) {
        let stream = dial(&member.address(rank)?, is_stopped)?;
        let (found, uuid) = greet(&stream, member, is_stopped)?;
        if found != rank {
            return Err(Error::new(
                INTERNAL_ERROR,
                format!("rank {found} answers for rank {rank}"),
            ));
        }
        *peer = Some((stream, uuid));
    }
    listener
        .set_nonblocking(true)
        .map_err(|error| system("a rank's socket", &error))?;
    while peers.iter().skip(member.rank + 1).any(Option::is_none) {
        if is_stopped() {
            return Err(stopped());
        }
        match listener.accept() {
            Ok((stream, _)) => {
                let (rank, uuid) = greet(&stream, member, is_stopped)?;
                if rank <= member.rank || rank >= member.count || peers[rank].is_some() {
                    let text = format!("rank {rank} came to rank {} of {}", member.rank, member.count);
                    return Err(Error::new(INVALID_USAGE, text));
                }
                peers[rank] = Some((stream, uuid));
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => std::thread::sleep(PAUSE),
            Err(error) => return Err(system("a rank's socket", &error)),
        }
    }
    let takes_shared_devices = number_in_environment("NCCL_MULTI_RANK_GPU_ENABLE") == Some(1);
    let mut devices: Vec<[u8; 16]> = Vec::with_capacity(member.count);
    for (rank, peer) in peers.iter().enumerate() {
        let uuid = peer.as_ref().map_or(member.uuid, |(_, uuid)| *uuid);
        if let Some(other) = devices.iter().position(|&known| known == uuid)
            && !takes_shared_devices
        {
            let text = format!("Duplicate GPU detected : rank {other} and rank {rank} both on CUDA device {uuid:02x?}");
            return Err(Error::new(INVALID_USAGE, text));
        }
        devices.push(uuid);
    }
    let streams = peers.into_iter().map(|peer| peer.map(|(stream, _)| stream));
    Ok(streams.collect())
}

/// Connects to a rank that may not have come yet.
fn dial(address: &SocketAddr, is_stopped: &dyn Fn() -> bool) -> Outcome<UnixStream> {
    loop {
        if is_stopped() {
            return Err(stopped());
        }
        match UnixStream::connect_addr(address) {
            Ok(stream) => return Ok(stream),
            Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => std::thread::sleep(PAUSE),
            Err(error) => return Err(system("a connection to a rank", &error)),
        }
    }
}

/// Says who this is, and returns the other's rank and device.
fn greet(stream: &UnixStream, member: &Member, is_stopped: &dyn Fn() -> bool) -> Outcome<(usize, [u8; 16])> {
    let lost = |error: io::Error| Error::new(REMOTE_ERROR, format!("a rank left while ranks met: {error}"));
    stream.set_nonblocking(false).map_err(lost)?;
    member.hello().write(stream).map_err(lost)?;
    // The other may not have come so far: it waits for others too.
    stream.set_nonblocking(true).map_err(lost)?;
    let mut bytes = [0; HEADER + HELLO];
    let mut came = 0;
    while came < bytes.len() {
        match io::Read::read(&mut &*stream, &mut bytes[came..]) {
            Ok(0) => return Err(lost(io::ErrorKind::UnexpectedEof.into())),
            Ok(more) => came += more,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock && is_stopped() => return Err(stopped()),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => std::thread::sleep(PAUSE),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => (),
            Err(error) => return Err(lost(error)),
        }
    }
    stream.set_nonblocking(false).map_err(lost)?;
    let payload = Frame::read(&bytes[..]).map_err(lost)?.payload;
    let number = |at: usize| u32::from_le_bytes(std::array::from_fn(|byte| payload[at + byte])) as usize;
    if payload.len() != HELLO {
        return Err(Error::new(INTERNAL_ERROR, "a greeting of another kind"));
    }
    if number(20) != member.count {
        let text = format!("mismatch in rank count: {} and {}", member.count, number(20));
        return Err(Error::new(INVALID_USAGE, text));
    }
    Ok((number(16), std::array::from_fn(|byte| payload[byte])))
}
