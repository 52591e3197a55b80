//! [`LaunchError`]: what can go wrong from reading the environment to leaving the job.

use std::io;
use std::net::IpAddr;
use std::time::Duration;

use super::peer_failure::PeerFailure;
use crate::ranks::RankSet;

/// Why a process could not find, join or talk to its job.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs, reason = "the messages say it")]
pub enum LaunchError {
    #[error("environment variable {name}={value:?}: {rule}")]
    InvalidVariable {
        name: &'static str,
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
        name: &'static str,
        /// The variable by which the launcher was recognised.
        sign: &'static str,
        all: String,
    },

    /// RANK may be the number of a pod or a node, which starts ranks, or that of a rank.
    #[error(
        "environment variable LOCAL_WORLD_SIZE is not set although RANK is, and WORLD_SIZE is above 1: if RANK is the \
         number of this pod or node, unset it (env -u RANK) and start one launcher on each, with --nnodes, --node-rank \
         and --master-addr; if it is that of a rank, set LOCAL_RANK and LOCAL_WORLD_SIZE too, 0 and 1 where a host has \
         one rank"
    )]
    PodOrRank,

    #[error("the world size is 0: a job has at least 1 rank")]
    EmptyWorld,

    #[error(
        "several ranks need burn-megatron's feature `tcp`, which is on by default; this program was built without it"
    )]
    WithoutTcp,

    #[error(
        "the program asked for {asked} ranks, but the job that this process was started in has {started}; start as \
         many, or ask for 1, which accepts any number"
    )]
    OtherWorldSize { asked: usize, started: usize },

    /// The numbers of a job on several nodes do not fit each other.
    #[error("{what}={value}: {rule}")]
    InvalidNodes {
        what: &'static str,
        value: usize,
        /// The rule, and what would be valid.
        rule: String,
    },

    #[error(
        "environment variable {variable} is not set, and the launchers of {nodes} nodes need a common secret: set it \
         to the same text of {min_bytes} bytes or more on every node, such as 64 random hexadecimal digits"
    )]
    NoCommonToken {
        variable: &'static str,
        nodes: usize,
        min_bytes: usize,
    },

    /// The store knows the job but does not take this node's launcher.
    #[error("the store at {address} refused the launcher of node {node_rank}: {reason}")]
    NodeRefused {
        address: String,
        node_rank: usize,
        /// Both sides of the contradiction.
        reason: String,
    },

    #[error(
        "the rendezvous store cannot listen on {address}: the port is taken by another process; \
         end that process, choose another port in {variable}, or (with the local launcher) unset it for a free one"
    )]
    PortTaken { address: String, variable: &'static str },

    #[error(
        "this process needs {needed} file descriptors, and may open {allowed}: raise its hard limit (`ulimit -Hn`; \
         LimitNOFILE= of a systemd unit, /etc/security/limits.conf, or --ulimit nofile= of a container)"
    )]
    TooFewDescriptors { needed: u64, allowed: u64 },

    /// The rendezvous store could not be started for another reason.
    #[error("the rendezvous store cannot listen on {address}: {source}")]
    Listen { address: String, source: io::Error },

    #[error("this host has no interface {wish:?} ({variable}); it has {present}")]
    NoSuchInterface {
        wish: String,
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
        interface: IpAddr,
        master_addr: String,
        resolved: Vec<IpAddr>,
    },

    /// A rank would listen for its data where the other hosts do not reach it.
    #[error(
        "{master_addr:?} is the loopback address {address} to this host, which the other hosts do not reach, and it is \
         not clear which of {present} they do: choose one by {variable} or --interface"
    )]
    LoopbackForOthers {
        address: IpAddr,
        master_addr: String,
        variable: &'static str,
        /// The other interfaces of this host, each with an address.
        present: String,
    },

    #[error("rank {rank} of {world_size} could not be started: {source}")]
    Spawn {
        rank: usize,
        world_size: usize,
        source: io::Error,
    },

    #[error(
        "{} did not end within {waited:?} of SIGKILL (uninterruptible system call?); pid(s) {pids:?}",
        ranks.iter().collect::<RankSet>().named()
    )]
    RanksStuck {
        ranks: Vec<usize>,
        pids: Vec<u32>,
        waited: Duration,
    },

    /// The operating system refused something that this module needs.
    #[error("{action}: {source}")]
    System { action: String, source: io::Error },

    /// Nothing that answers was found at the store's address.
    #[error(
        "cannot reach the rendezvous store at {address} within {waited:?}: {reason}; \
         is the launcher (or rank 0) running, and does a firewall let this port through?"
    )]
    Unreachable {
        address: String,
        waited: Duration,
        reason: String,
    },

    #[error(
        "the service at {address} is not a burn-megatron store: is another program (a web server, PyTorch's TCPStore) \
         using this port?"
    )]
    NotAStore { address: String },

    #[error("no common protocol with the store at {address}: {versions}; is this program the same on every node?")]
    OtherVersion { address: String, versions: String },

    /// The store does not know this job's token, or does not know it itself.
    #[error("job token not accepted by the store at {address}: is another job using this port?")]
    TokenRefused { address: String },

    /// The store knows the job but does not take this rank.
    #[error("the store at {address} refused rank {rank}: {reason}")]
    RegistrationRefused {
        address: String,
        rank: usize,
        /// Both sides of the contradiction.
        reason: String,
    },

    #[error(
        "rendezvous at {address} timed out after {timeout:?}: waiting for {} of {world_size}",
        missing.iter().collect::<RankSet>().named()
    )]
    RendezvousTimeout {
        address: String,
        timeout: Duration,
        missing: Vec<usize>,
        world_size: usize,
    },

    #[error("key {key:?} was not set in the store within {timeout:?}")]
    WaitTimeout { key: String, timeout: Duration },

    /// The store refused a request, for a reason of limits or of kind.
    #[error("the store refused {operation}: {reason}")]
    StoreRefused {
        /// The operation and its key.
        operation: String,
        reason: String,
    },

    /// The connection to the store broke, or the store did not answer in time.
    #[error("lost the store at {address} during {operation}: {reason}")]
    StoreLost {
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
