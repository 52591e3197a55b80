//! [`LaunchError`]: what can go wrong from reading the environment to leaving the job.

use std::io;
use std::net::IpAddr;
use std::time::Duration;

use super::peer_failure::PeerFailure;
use crate::ranks::RankSet;

/// Why a process could not find, join or talk to its job.
#[derive(Debug, thiserror::Error)]
pub enum LaunchError {
    /// An environment variable holds a value that breaks a rule.
    #[error("environment variable {name}={value:?}: {rule}")]
    InvalidVariable {
        /// Name of the variable.
        name: &'static str,
        /// Its value.
        value: String,
        /// The rule, and what would be valid.
        rule: String,
    },

    /// A launcher started this process, but a variable that it should have set is not there.
    #[error(
        "environment variable {name} is not set although {sign} is: a launcher sets {all}; \
         unset {sign} to let this program start its ranks itself"
    )]
    MissingVariable {
        /// Name of the missing variable.
        name: &'static str,
        /// The variable by which the launcher was recognised.
        sign: &'static str,
        /// All variables that belong together.
        all: String,
    },

    /// A launcher was asked for a job of no ranks.
    #[error("the world size is 0: a job has at least 1 rank")]
    EmptyWorld,

    /// Several ranks need what this build leaves out.
    #[error(
        "several ranks need burn-megatron's feature `tcp`, which is on by default; this program was built without it"
    )]
    WithoutTcp,

    /// The job that this process was started in has another number of ranks than the program asked for.
    #[error(
        "the program asked for {asked} ranks, but the job that this process was started in has {started}; start as \
         many, or ask for 1, which accepts any number"
    )]
    OtherWorldSize {
        /// The number of ranks that the program asked for.
        asked: usize,
        /// The number of ranks of the job.
        started: usize,
    },

    /// The numbers of a job on several nodes do not fit each other.
    #[error("{what}={value}: {rule}")]
    InvalidNodes {
        /// Which number.
        what: &'static str,
        /// Its value.
        value: usize,
        /// The rule, and what would be valid.
        rule: String,
    },

    /// Launchers on several nodes have no common secret.
    #[error(
        "environment variable {variable} is not set, and the launchers of {nodes} nodes need a common secret: set it \
         to the same text of {min_bytes} bytes or more on every node, such as 64 random hexadecimal digits"
    )]
    NoCommonToken {
        /// The variable.
        variable: &'static str,
        /// Number of nodes.
        nodes: usize,
        /// The shortest secret that is taken.
        min_bytes: usize,
    },

    /// The store knows the job but does not take this node's launcher.
    #[error("the store at {address} refused the launcher of node {node_rank}: {reason}")]
    NodeRefused {
        /// The store's address.
        address: String,
        /// This node's number.
        node_rank: usize,
        /// Both sides of the contradiction.
        reason: String,
    },

    /// The port of the rendezvous store belongs to another process.
    #[error(
        "the rendezvous store cannot listen on {address}: the port is taken by another process; \
         end that process, choose another port in {variable}, or (with the local launcher) unset it for a free one"
    )]
    PortTaken {
        /// Address and port.
        address: String,
        /// The environment variable that chooses the port.
        variable: &'static str,
    },

    /// This process may open too few file descriptors for the connections that it needs.
    #[error(
        "this process needs {needed} file descriptors, and may open {allowed}: raise its hard limit (`ulimit -Hn`; \
         LimitNOFILE= of a systemd unit, /etc/security/limits.conf, or --ulimit nofile= of a container)"
    )]
    TooFewDescriptors {
        /// How many it needs at a time.
        needed: u64,
        /// Its hard limit.
        allowed: u64,
    },

    /// The rendezvous store could not be started for another reason.
    #[error("the rendezvous store cannot listen on {address}: {source}")]
    Listen {
        /// Address and port.
        address: String,
        /// The operating system's reason.
        source: io::Error,
    },

    /// This host has no interface of the name, address or network that was asked for.
    #[error("this host has no interface {wish:?} ({variable}); it has {present}")]
    NoSuchInterface {
        /// What was asked for.
        wish: String,
        /// The environment variable that asks for an interface.
        variable: &'static str,
        /// The interfaces of this host, each with an address.
        present: String,
    },

    /// The store would listen where the other ranks do not look for it.
    #[error(
        "the interface that was asked for has the address {interface}, but the ranks look for the store at \
         {master_addr:?}, which is {resolved:?}: another interface of this host; make them agree"
    )]
    InterfaceMismatch {
        /// The address of the interface.
        interface: IpAddr,
        /// Name or address of the host of rank 0.
        master_addr: String,
        /// What it resolves to.
        resolved: Vec<IpAddr>,
    },

    /// A rank would listen for its data where the other hosts do not reach it.
    #[error(
        "{master_addr:?} is the loopback address {address} to this host, which the other hosts do not reach, and it is \
         not clear which of {present} they do: choose one by {variable} or --interface"
    )]
    LoopbackForOthers {
        /// The loopback address.
        address: IpAddr,
        /// Name of the host of rank 0.
        master_addr: String,
        /// The environment variable that asks for an interface.
        variable: &'static str,
        /// The other interfaces of this host, each with an address.
        present: String,
    },

    /// A rank's process could not be started.
    #[error("rank {rank} of {world_size} could not be started: {source}")]
    Spawn {
        /// The rank.
        rank: usize,
        /// Number of ranks of the job.
        world_size: usize,
        /// The operating system's reason.
        source: io::Error,
    },

    /// Ranks survive SIGKILL, as a process in an uninterruptible system call does.
    #[error(
        "{} did not end within {waited:?} of SIGKILL (uninterruptible system call?); pid(s) {pids:?}",
        ranks.iter().collect::<RankSet>().named()
    )]
    RanksStuck {
        /// The ranks that are still there.
        ranks: Vec<usize>,
        /// Their process ids.
        pids: Vec<u32>,
        /// How long the launcher waited.
        waited: Duration,
    },

    /// The operating system refused something that this module needs.
    #[error("{action}: {source}")]
    System {
        /// What was being done.
        action: String,
        /// The operating system's reason.
        source: io::Error,
    },

    /// Nothing that answers was found at the store's address.
    #[error(
        "cannot reach the rendezvous store at {address} within {waited:?}: {reason}; \
         is the launcher (or rank 0) running, and does a firewall let this port through?"
    )]
    Unreachable {
        /// The store's address.
        address: String,
        /// How long this rank tried.
        waited: Duration,
        /// The last attempt's reason.
        reason: String,
    },

    /// What listens at the store's address speaks another protocol.
    #[error(
        "the service at {address} is not a burn-megatron store: is another program (a web server, PyTorch's TCPStore) \
         using this port?"
    )]
    NotAStore {
        /// The address.
        address: String,
    },

    /// The store is that of a program with another version of the protocol.
    #[error("no common protocol with the store at {address}: {versions}; is this program the same on every node?")]
    OtherVersion {
        /// The address.
        address: String,
        /// Both versions.
        versions: String,
    },

    /// The store does not know this job's token, or does not know it itself.
    #[error("job token not accepted by the store at {address}: is another job using this port?")]
    TokenRefused {
        /// The store's address.
        address: String,
    },

    /// The store knows the job but does not take this rank.
    #[error("the store at {address} refused rank {rank}: {reason}")]
    RegistrationRefused {
        /// The store's address.
        address: String,
        /// This process's rank.
        rank: usize,
        /// Both sides of the contradiction.
        reason: String,
    },

    /// Some ranks never came.
    #[error(
        "rendezvous at {address} timed out after {timeout:?}: waiting for {} of {world_size}",
        missing.iter().collect::<RankSet>().named()
    )]
    RendezvousTimeout {
        /// The store's address.
        address: String,
        /// How long this rank waited.
        timeout: Duration,
        /// The ranks that had not registered.
        missing: Vec<usize>,
        /// Number of ranks of the job.
        world_size: usize,
    },

    /// A key was not set in time.
    #[error("key {key:?} was not set in the store within {timeout:?}")]
    WaitTimeout {
        /// The key.
        key: String,
        /// How long this rank waited.
        timeout: Duration,
    },

    /// The store refused a request, for a reason of limits or of kind.
    #[error("the store refused {operation}: {reason}")]
    StoreRefused {
        /// The operation and its key.
        operation: String,
        /// The rule and the values.
        reason: String,
    },

    /// The connection to the store broke, or the store did not answer in time.
    #[error("lost the store at {address} during {operation}: {reason}")]
    StoreLost {
        /// The store's address.
        address: String,
        /// The operation and its key.
        operation: String,
        /// The operating system's reason, or the unexpected answer.
        reason: String,
    },

    /// Another rank failed, so what this rank waits for will never come.
    #[error("{0}")]
    PeerFailed(PeerFailure),
}
