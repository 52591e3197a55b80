//! [`World`]: this process's membership of its job, from joining to leaving.
//!
//! Made once at the start of a rank's program and handed to `collectives`, which find the other ranks through its
//! store and stop waiting when its failure signal is raised.

mod membership;
pub(super) mod rendezvous;

#[cfg(test)]
mod tests;

use std::any::Any;
use std::collections::HashMap;
use std::error::Error;
use std::net::{IpAddr, Ipv4Addr};
use std::path::PathBuf;
use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::Mutex;

pub(super) use self::membership::Membership;
use super::descriptors;
use super::environment::Environment;
use super::error::LaunchError;
use super::host::{host_identity, host_name};
use super::identity::{JobToken, random_job_id};
use super::liveness::{FailureSignal, HeartbeatOptions, Rhythm, Suspicions};
use super::peer_failure::PeerFailure;
use super::store::{NodeTable, PeerId, Store};
use crate::flight_recorder::{FlightRecorder, RankIdentity};

/// How a process joins its job: how long things may take, and where it listens and writes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JoinConfig {
    /// Longest wait for all ranks to come.
    pub rendezvous_timeout: Duration,
    /// [`World::timeout`]: longest wait for another rank afterwards.
    pub timeout: Duration,
    /// When rank 0 hosts the store: how long its [`World::leave`] waits for the other ranks to leave.
    pub linger: Duration,
    /// Folder for the ranks' flight records; none: where `BURN_MEGATRON_FLIGHT_RECORDER_DIR` says, if it does.
    pub flight_recorder_folder: Option<PathBuf>,
    /// Longest silence of a rank, or of the store; at most three quarters of `timeout` count. None: what
    /// `BURN_MEGATRON_HEARTBEAT_LIMIT_SECS` says, or 30 s.
    pub heartbeat_limit: Option<Duration>,
    /// Interface to listen on, by name, address or network (`eth0`, `10.0.0.5`, `10.0.0.0/8`); none: the one that
    /// `BURN_MEGATRON_INTERFACE` says, or else the one that reaches MASTER_ADDR.
    pub interface: Option<String>,
}

impl Default for JoinConfig {
    fn default() -> JoinConfig {
        JoinConfig::new()
    }
}

impl JoinConfig {
    /// Returns the configuration with ten minutes for all waits, as Megatron-LM's `--distributed-timeout-minutes`, and
    /// one minute to linger.
    pub fn new() -> JoinConfig {
        JoinConfig {
            rendezvous_timeout: Duration::from_secs(600),
            timeout: Duration::from_secs(600),
            linger: Duration::from_secs(60),
            flight_recorder_folder: None,
            heartbeat_limit: None,
            interface: None,
        }
    }

    /// Sets [`rendezvous_timeout`](Self::rendezvous_timeout).
    pub fn with_rendezvous_timeout(self, rendezvous_timeout: Duration) -> JoinConfig {
        JoinConfig {
            rendezvous_timeout,
            ..self
        }
    }

    /// Sets [`timeout`](Self::timeout).
    pub fn with_timeout(self, timeout: Duration) -> JoinConfig {
        JoinConfig { timeout, ..self }
    }

    /// Sets [`rendezvous_timeout`](Self::rendezvous_timeout) and [`timeout`](Self::timeout) to one bound.
    pub fn with_all_timeouts(self, timeout: Duration) -> JoinConfig {
        self.with_rendezvous_timeout(timeout).with_timeout(timeout)
    }
}

/// What a rank has at a time in a large job: of each group, to a few ranks.
const USUAL_CONNECTIONS: usize = 256;

/// A part of a rank that other ranks wait for, and that may be held for longer than the rank's world: a graph of burn's
/// that no backward pass has gone through is in a table of the process, with its tensors and their groups.
pub(crate) trait EndsWithWorld: std::fmt::Debug + Send + Sync {
    /// Lets the other ranks know that it has ended, if they do not.
    fn end(&self);
}

/// This process's membership of the job. Cheap to clone; the last clone to go says goodbye.
#[derive(Clone, Debug)]
pub struct World {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    rank: usize,
    local_rank: usize,
    local_world_size: usize,
    timeout: Duration,
    nodes: NodeTable,
    /// This rank's.
    host: String,
    /// That of rank 0.
    first_host: String,
    local_address: IpAddr,
    job_id: String,
    job_token: JobToken,
    store: Store,
    failure: FailureSignal,
    suspicions: Suspicions,
    flight_recorder: FlightRecorder,
    /// What this rank says when it loses the store. None in a world of one.
    store_lost: Option<PeerFailure>,
    /// What the program's parts keep for as long as the world.
    attachment: Mutex<Option<Arc<dyn Any + Send + Sync>>>,
    /// How many groups of a name there have been.
    groups: Mutex<HashMap<String, u64>>,
    /// Parts that end when this rank leaves.
    parts: Mutex<Vec<Weak<dyn EndsWithWorld>>>,
    /// The connection that stands for this rank. None in a world of one, and in a fake one.
    membership: Option<Membership>,
}

impl World {
    /// Returns a world of one rank: no sockets and no threads, a store in the process.
    ///
    /// # Panics
    /// The operating system has no random numbers.
    pub fn single() -> World {
        World::alone(None, &JoinConfig::new()).expect("the operating system has random numbers")
    }

    /// Returns a world that is not there: this process plays one rank, and no process the others.
    ///
    /// Its groups connect without waiting, collectives return as if every rank had contributed what this one has, and
    /// what is received is zero. For programs that count what a rank of a large layout does, such as `call_budget`;
    /// nothing that is computed in it means anything. PyTorch has the same as its fake process group.
    ///
    /// # Panics
    /// `rank` is not below `world_size`; the operating system has no random numbers.
    pub fn fake(rank: usize, world_size: usize) -> World {
        assert!(
            rank < world_size,
            "rank {rank} is not below the world size {world_size}"
        );
        tracing::warn!(
            "rank {rank} of {world_size} is in a fake world: no other rank exists, and results mean nothing"
        );
        let mut world = World::single();
        let inner = Arc::get_mut(&mut world.inner).expect("a new world has no clones");
        inner.rank = rank;
        inner.nodes = NodeTable::of_one_node(world_size);
        world
    }

    /// Returns whether the other ranks do not exist: see [`fake`](Self::fake).
    pub fn is_fake(&self) -> bool {
        self.inner.membership.is_none() && self.world_size() > 1
    }

    /// Joins the job that `environment` describes: finds its store, registers, and waits until all ranks have done so.
    ///
    /// Rank 0 first starts the store, unless the launcher hosts it. A world of one needs no store.
    ///
    /// # Communication
    /// Two connections to the store per rank, and a few more at times.
    ///
    /// # Errors
    /// The feature `tcp` is off; the store cannot be started or reached, or belongs to another job; some ranks do not
    /// come in time; two processes have the same rank; the ranks disagree on the world size; a rank fails meanwhile.
    pub fn join(environment: &Environment, options: &JoinConfig) -> Result<World, LaunchError> {
        if environment.world_size == 1 {
            return World::alone(Some(environment), options);
        }
        if !cfg!(feature = "tcp") {
            return Err(LaunchError::WithoutTcp);
        }
        let rhythm = Rhythm::new(options.heartbeat_limit, options.timeout)?;
        descriptors::make_room(USUAL_CONNECTIONS)?;
        let joined = rendezvous::join(environment, options, rhythm)?;
        let identity = RankIdentity {
            rank: environment.rank,
            world_size: environment.world_size,
            host: host_name(&joined.host).to_owned(),
            job_id: joined.job_id.clone(),
        };
        let flight_recorder = start_recorder(identity, options, environment.restarts())?;
        let progress = flight_recorder.clone();
        let heartbeats = HeartbeatOptions {
            rhythm,
            progress: Box::new(move || progress.last_call().unwrap_or_else(|| "no collective yet".into())),
            out_of_reach: joined.out_of_reach,
            store: joined.store.clone(),
            peer: PeerId::Rank(environment.rank),
        };
        joined.membership.start_heartbeats(joined.failure.clone(), heartbeats)?;
        Ok(World {
            inner: Arc::new(Inner {
                rank: environment.rank,
                local_rank: environment.local_rank,
                local_world_size: environment.local_world_size,
                timeout: options.timeout,
                nodes: joined.nodes,
                host: joined.host,
                first_host: joined.first_host,
                local_address: joined.local_address,
                job_id: joined.job_id,
                job_token: environment.token(),
                suspicions: Suspicions::new(joined.store.clone(), environment.rank),
                store: joined.store,
                failure: joined.failure,
                flight_recorder,
                store_lost: Some(joined.store_lost),
                groups: Mutex::default(),
                parts: Mutex::default(),
                attachment: Mutex::default(),
                membership: Some(joined.membership),
            }),
        })
    }

    fn alone(environment: Option<&Environment>, options: &JoinConfig) -> Result<World, LaunchError> {
        let given_id = environment.and_then(|environment| environment.job_id.clone());
        let given_token = environment.and_then(|environment| environment.job_token.clone());
        let given_host = environment.and_then(|environment| environment.host.clone());
        let host = given_host.unwrap_or_else(host_identity);
        let job_id = given_id.map_or_else(random_job_id, Ok)?;
        let store = Store::in_process();
        let identity = RankIdentity {
            rank: 0,
            world_size: 1,
            host: host_name(&host).to_owned(),
            job_id: job_id.clone(),
        };
        Ok(World {
            inner: Arc::new(Inner {
                rank: 0,
                local_rank: 0,
                local_world_size: 1,
                timeout: options.timeout,
                nodes: NodeTable::of_one_node(1),
                first_host: host.clone(),
                host,
                local_address: Ipv4Addr::LOCALHOST.into(),
                job_id,
                job_token: given_token.map_or_else(JobToken::random, Ok)?,
                suspicions: Suspicions::new(store.clone(), 0),
                store,
                failure: FailureSignal::detached(),
                flight_recorder: start_recorder(identity, options, environment.map_or(0, Environment::restarts))?,
                store_lost: None,
                groups: Mutex::default(),
                parts: Mutex::default(),
                attachment: Mutex::default(),
                membership: None,
            }),
        })
    }

    /// Returns this process's rank.
    pub fn rank(&self) -> usize {
        self.inner.rank
    }

    /// Returns the number of ranks.
    pub fn world_size(&self) -> usize {
        self.inner.nodes.world_size()
    }

    /// Returns this process's rank among those of its host.
    pub fn local_rank(&self) -> usize {
        self.inner.local_rank
    }

    /// Returns the number of ranks on this host.
    pub fn local_world_size(&self) -> usize {
        self.inner.local_world_size
    }

    /// Returns the longest time that anything waits for another rank.
    pub fn timeout(&self) -> Duration {
        self.inner.timeout
    }

    /// Returns the number of a rank's node; two ranks share a node exactly when theirs are equal. Nodes are numbered in
    /// the order of their first ranks.
    ///
    /// # Panics
    /// `rank` is not below the world size.
    pub fn node_of(&self, rank: usize) -> usize {
        match self.inner.nodes.node_of(rank) {
            Some(node) => node,
            None => panic!("rank {rank} is not below the world size {}", self.world_size()),
        }
    }

    /// Returns the identity of this rank's host: `name/boot-id`, or what `BURN_MEGATRON_HOST` says.
    pub fn host(&self) -> &str {
        &self.inner.host
    }

    /// Returns the identity of a rank's host. Of the nodes of this rank and of rank 0 it is known, of others the store
    /// is asked: no rank holds the names of thousands of hosts.
    ///
    /// # Communication
    /// A message to the store, and its answer.
    ///
    /// # Errors
    /// The store does not answer within a second.
    ///
    /// # Panics
    /// `rank` is not below the world size.
    pub fn host_of(&self, rank: usize) -> Result<String, LaunchError> {
        match self.node_of(rank) {
            node if node == self.node_of(self.rank()) => Ok(self.inner.host.clone()),
            0 => Ok(self.inner.first_host.clone()),
            _ => self.store().rank_status(rank).map(|status| status.host),
        }
    }

    /// Returns what is kept for as long as this rank is in the job; makes it the first time.
    ///
    /// # Errors
    /// Those of `make`.
    ///
    /// # Panics
    /// Something of another type is kept: there is one thing.
    pub(crate) fn attachment<T: Any + Send + Sync, E>(&self, make: impl FnOnce() -> Result<T, E>) -> Result<Arc<T>, E> {
        let mut attachment = self.inner.attachment.lock();
        let kept = match &*attachment {
            Some(kept) => Arc::clone(kept),
            None => {
                let kept: Arc<dyn Any + Send + Sync> = Arc::new(make()?);
                *attachment = Some(Arc::clone(&kept));
                kept
            }
        };
        Ok(kept.downcast().expect("there is one type of attachment"))
    }

    /// Counts the groups of a name: returns 1 for the first.
    pub(crate) fn count_group(&self, name: &str) -> u64 {
        let mut groups = self.inner.groups.lock();
        let count = groups.entry(name.to_owned()).or_default();
        *count += 1;
        *count
    }

    /// Ends a part when this rank leaves, if it is there then.
    pub(crate) fn ends_with_it(&self, part: Weak<dyn EndsWithWorld>) {
        let mut parts = self.inner.parts.lock();
        parts.retain(|part| part.strong_count() > 0);
        parts.push(part);
    }

    /// Returns this rank's address on the interface that was asked for, or else on the one that reaches MASTER_ADDR:
    /// where it listens for other ranks.
    pub fn local_address(&self) -> IpAddr {
        self.inner.local_address
    }

    /// Returns the job's id: 16 hexadecimal digits, random per job, the same on all ranks, fit for file names.
    ///
    /// The launcher removes files in /dev/shm whose name contains it when all ranks have ended.
    pub fn job_id(&self) -> &str {
        &self.inner.job_id
    }

    /// Returns the secret of the job, for proving membership.
    pub fn job_token(&self) -> &[u8] {
        self.inner.job_token.as_bytes()
    }

    /// Returns the job's key-value store.
    pub fn store(&self) -> &Store {
        &self.inner.store
    }

    /// Returns the signal that is raised when some rank has failed.
    pub fn failure(&self) -> &FailureSignal {
        &self.inner.failure
    }

    /// Returns whom this rank waits for or holds responsible.
    pub(crate) fn suspicions(&self) -> &Suspicions {
        &self.inner.suspicions
    }

    /// Returns the recorder of this rank's collectives.
    pub fn flight_recorder(&self) -> &FlightRecorder {
        &self.inner.flight_recorder
    }

    /// Returns who is to blame for an error that comes of losing the store: this rank only met it.
    pub(super) fn lost_store(&self, error: &(dyn Error + 'static)) -> Option<PeerFailure> {
        let lost = self.inner.store_lost.as_ref()?;
        let errors = std::iter::successors(Some(error), |&error| error.source());
        let mut causes = errors.filter_map(|error| error.downcast_ref::<LaunchError>());
        let cause = causes.find(|cause| matches!(cause, LaunchError::StoreLost { .. }))?;
        Some(PeerFailure {
            what: format!("{} ({cause})", lost.what),
            ..lost.clone()
        })
    }

    /// Tells every rank that this one has failed, unless another failed first.
    pub fn fail(&self, what: &str) {
        self.failure().raise(PeerFailure::new(self.rank(), self.host(), what));
    }

    /// Leaves the job in good order, so that the end of this process is not taken for a death.
    ///
    /// The last clone of a world does so when it is dropped; call it before `std::process::exit`. Ranks may leave at
    /// different times. Groups that are still held, as by a graph that no backward pass has gone through, end on this
    /// rank, so that others do not wait for it. Takes at most a few seconds; longer only where rank 0 hosts the store,
    /// see [`JoinConfig::linger`]. The second call does nothing.
    pub fn leave(&self) {
        self.inner.leave();
    }
}

fn start_recorder(identity: RankIdentity, options: &JoinConfig, restarts: u64) -> Result<FlightRecorder, LaunchError> {
    let folder = options.flight_recorder_folder.clone();
    FlightRecorder::from_environment(identity, folder, restarts).map_err(|source| LaunchError::System {
        action: "cannot start the flight recorder".into(),
        source,
    })
}

impl Inner {
    fn leave(&self) {
        // Another thread may be about to tell the store why this rank ends.
        self.failure.settle();
        let parts = std::mem::take(&mut *self.parts.lock());
        // After a failure every wait ends by itself.
        if !self.failure.is_raised() {
            parts.iter().filter_map(Weak::upgrade).for_each(|part| part.end());
        }
        if let Some(membership) = &self.membership {
            membership.leave(&self.failure);
        }
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        // A rank that unwinds does not leave in good order: its connection just closes.
        if !std::thread::panicking() {
            self.leave();
        }
    }
}
