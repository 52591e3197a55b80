//! How a rank joins: starts or finds the store, registers, and waits for the others.
//!
//! [`World::join`]: super::World::join

use std::net::IpAddr;
use std::time::{Duration, Instant};

use super::JoinConfig;
use super::membership::Membership;
use crate::launch::environment::Environment;
use crate::launch::error::LaunchError;
use crate::launch::host::{host_identity, host_name};
use crate::launch::identity::random_job_id;
use crate::launch::liveness::{FailureSignal, Rhythm, send_heartbeat};
use crate::launch::network::{chosen_address, data_address, store_address};
use crate::launch::peer_failure::PeerFailure;
use crate::launch::server::{StoreServer, StoreServerConfig};
use crate::launch::store::{NodeTable, Reply, Request, Store, StoreAddress, StoreConnection, deadline_after};
use crate::launch::variables;

/// How much later than the store a rank gives up waiting for the others.
const REPLY_SLACK: Duration = Duration::from_secs(5);

/// What a rank has when all have come.
pub(super) struct Joined {
    pub(super) nodes: NodeTable,
    /// This rank's.
    pub(super) host: String,
    /// That of rank 0.
    pub(super) first_host: String,
    pub(super) local_address: IpAddr,
    pub(super) job_id: String,
    pub(super) store: Store,
    pub(super) failure: FailureSignal,
    pub(super) membership: Membership,
    /// What this rank says when it loses the store.
    pub(super) store_lost: PeerFailure,
    /// The same when the store does not answer.
    pub(super) out_of_reach: PeerFailure,
}

/// Joins the job of `environment`, within `options.rendezvous_timeout`.
pub(super) fn join(environment: &Environment, options: &JoinConfig, rhythm: Rhythm) -> Result<Joined, LaunchError> {
    let Environment { rank, world_size, .. } = *environment;
    let timeout = options.rendezvous_timeout;
    let deadline = deadline_after(timeout);
    let host = environment.host.clone().unwrap_or_else(host_identity);

    let interface = chosen_address(options.interface.as_deref())?;
    let hosts_store = rank == 0 && !environment.store_hosted_elsewhere;
    let server = hosts_store.then(|| start_server(environment, interface)).transpose()?;
    let address = StoreAddress::new(&environment.master_addr, environment.store_port()?, environment.token());
    let mut connection = StoreConnection::connect(&address, timeout)?;

    let time_left = deadline.saturating_duration_since(Instant::now());
    let hello = Request::Hello {
        rank,
        world_size,
        host: host.clone(),
        timeout: time_left,
    };
    let reply = register(&mut connection, &hello, time_left.saturating_add(REPLY_SLACK), rhythm)?;
    let (job_id, nodes, first_host) = match reply {
        Reply::Roster {
            job_id,
            nodes,
            first_host,
        } if nodes.is_of(world_size) => (job_id, nodes, first_host),
        Reply::Missing(missing) => {
            return Err(LaunchError::RendezvousTimeout {
                address: address.to_string(),
                timeout,
                missing,
                world_size,
            });
        }
        Reply::Rejected(reason) => {
            return Err(LaunchError::RegistrationRefused {
                address: address.to_string(),
                rank,
                reason,
            });
        }
        Reply::Failed(failure) => return Err(LaunchError::PeerFailed(failure)),
        other => return Err(connection.unexpected("rendezvous", &other)),
    };

    let store = Store::remote(address.clone(), options.timeout);
    let failure = FailureSignal::announced_to(&store);
    let local_address = match interface {
        Some(interface) => interface,
        None => data_address(
            connection.local_address()?,
            &environment.master_addr,
            nodes.is_one_node(),
        )?,
    };
    let is_launchers = environment.store_hosted_elsewhere;
    let is_here = is_launchers && host == first_host;
    let store_lost = PeerFailure {
        what: if is_here {
            format!("lost the launcher's store at {address} (has the launcher ended or been killed?)")
        } else if is_launchers {
            lost_store_of_node_zero(&address)
        } else {
            format!("lost the store at {address}, which rank 0 hosts (killed?)")
        },
        rank: if is_here { rank } else { 0 },
        host: first_host.clone(),
    };
    let out_of_reach = PeerFailure {
        what: if store_lost.rank == rank {
            "lost contact with the launcher (stopped?)".into()
        } else {
            lost_contact(&store_lost.host)
        },
        ..store_lost.clone()
    };
    let membership = Membership::watch(connection, failure.clone(), store_lost.clone(), server, options.linger)?;
    Ok(Joined {
        nodes,
        host,
        first_host,
        local_address,
        job_id,
        store,
        failure,
        membership,
        store_lost,
        out_of_reach,
    })
}

/// Registers, and waits until the store says what has come of it. Sends heartbeats meanwhile, so that a rank that is
/// stopped or cut off while others have not come is distinguished from one that waits.
fn register(
    connection: &mut StoreConnection,
    hello: &Request,
    limit: Duration,
    rhythm: Rhythm,
) -> Result<Reply, LaunchError> {
    const OPERATION: &str = "rendezvous";
    let deadline = deadline_after(limit);
    connection.send(hello, limit, OPERATION)?;
    let mut rest = Vec::new();
    loop {
        let next = deadline_after(rhythm.interval).min(deadline);
        while let Some(reply) = connection.receive_before(next, limit, OPERATION)? {
            if reply != Reply::Heard {
                return Ok(reply);
            }
        }
        if Instant::now() >= deadline {
            return Err(connection.late(OPERATION, limit));
        }
        // A store that has refused this rank takes no more: what it said is still to be read.
        send_heartbeat(connection, &mut rest, rhythm, "waits for all ranks to join".into());
    }
}

/// What a process on another node says when the store does not answer.
pub(in crate::launch) fn lost_contact(host: &str) -> String {
    let host = host_name(host);
    format!("is out of reach: lost contact with host {host} (stopped, or the network between cut?)")
}

/// What happened when a process on another node loses the store.
pub(in crate::launch) fn lost_store_of_node_zero(address: &StoreAddress) -> String {
    format!("lost the store at {address}, on this rank's node (launcher ended or killed, or the network between cut?)")
}

/// Starts the store on rank 0 of a job whose launcher has none.
fn start_server(environment: &Environment, interface: Option<IpAddr>) -> Result<StoreServer, LaunchError> {
    let port = environment.store_port()?;
    let is_one_host = environment.local_world_size == environment.world_size;
    let listen = store_address(&environment.master_addr, port, is_one_host, interface)?;
    // On loopback, too: other users of this host reach it.
    if environment.job_token.is_none() {
        tracing::warn!(
            "the job's token is derived from the launcher's id of the job, which others may know: set {} to a secret \
             on shared networks and hosts",
            variables::JOB_TOKEN
        );
    }
    StoreServer::start(StoreServerConfig {
        listen,
        port_variable: variables::STORE_PORT,
        world_size: environment.world_size,
        job_id: environment.job_id.clone().map_or_else(random_job_id, Ok)?,
        token: environment.token(),
        on_failure: None,
    })
}
