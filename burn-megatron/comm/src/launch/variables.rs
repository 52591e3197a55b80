//! Names of the environment variables that `launch` reads; our own launcher sets all of them but the last six.
//!
//! Those of Open MPI and Slurm stand in the files that read them.

/// This process's rank in the job.
pub const RANK: &str = "RANK";
/// Number of ranks in the job.
pub const WORLD_SIZE: &str = "WORLD_SIZE";
/// This process's rank among those of its host.
pub const LOCAL_RANK: &str = "LOCAL_RANK";
/// Number of ranks on this host.
pub const LOCAL_WORLD_SIZE: &str = "LOCAL_WORLD_SIZE";
/// Name or address of the host of rank 0.
pub const MASTER_ADDR: &str = "MASTER_ADDR";
/// Port of the launcher's store; see [`Environment::store_port`](super::Environment::store_port).
pub const MASTER_PORT: &str = "MASTER_PORT";
/// The job's id: 16 hexadecimal digits, lower case.
pub const JOB_ID: &str = "BURN_MEGATRON_JOB_ID";
/// The job's secret: any text of 16 bytes or more.
pub const JOB_TOKEN: &str = "BURN_MEGATRON_JOB_TOKEN";
/// `1` when the launcher hosts this crate's store at MASTER_PORT, so that rank 0 need not.
pub const STORE_HOSTED: &str = "BURN_MEGATRON_STORE_HOSTED";
/// The id of the job's first start, which is the same after a restart.
pub const RUN: &str = "BURN_MEGATRON_RUN";
/// How many times our launcher has started the ranks before.
pub const RESTARTS: &str = "BURN_MEGATRON_RESTARTS";
/// Port at which rank 0 hosts the store; MASTER_PORT + 1 unless set.
pub const STORE_PORT: &str = "BURN_MEGATRON_STORE_PORT";
/// This host's identity, instead of host name and boot id: lets a test pretend that ranks are on several hosts.
pub const HOST: &str = "BURN_MEGATRON_HOST";
/// The longest silence of a rank or of the store in seconds, 0.5 to 86400; 30 unless set.
pub const HEARTBEAT_LIMIT: &str = "BURN_MEGATRON_HEARTBEAT_LIMIT_SECS";
/// The interface to listen on: a name, an address, or a network such as `10.0.0.0/8`.
pub const INTERFACE: &str = "BURN_MEGATRON_INTERFACE";
/// NCCL's own choice of an interface. [`join`](super::join) sets it where an interface was asked for.
pub const NCCL_INTERFACE: &str = "NCCL_SOCKET_IFNAME";
/// NCCL's switch for connecting each of its algorithms at its first use. [`join`](super::join) sets it to 0.
pub const NCCL_RUNTIME_CONNECT: &str = "NCCL_RUNTIME_CONNECT";
/// The number of CUDA's queues to a GPU. [`join`](super::join) sets it to 32.
pub const CUDA_MAX_CONNECTIONS: &str = "CUDA_DEVICE_MAX_CONNECTIONS";
/// torchrun's id of the run.
pub const RUN_ID: &str = "TORCHELASTIC_RUN_ID";
/// How many times torchrun has restarted the ranks.
pub const RESTART_COUNT: &str = "TORCHELASTIC_RESTART_COUNT";
