//! The process of the store: burn-megatron's own, as a launcher starts it.

use std::net::{Ipv4Addr, SocketAddr};

use anyhow::anyhow;
use burn_megatron::launch::{JobToken, StoreServer, StoreServerConfig};

use crate::rendezvous::child::{commands, describe, report};
use crate::rendezvous::messages::{Command, Report};

/// Digits of a job's id.
const ID_DIGITS: usize = 16;

/// Serves the store of a job until this process ends.
///
/// # Errors
/// When it cannot be started; when it is asked for what ranks do.
pub fn serve(ranks: usize, token: &str) -> anyhow::Result<()> {
    let commands = commands()?;
    let job_id = &token.as_bytes()[..ID_DIGITS.min(token.len())];
    let server = StoreServer::start(StoreServerConfig {
        listen: SocketAddr::new(Ipv4Addr::LOCALHOST.into(), 0),
        port_variable: "MASTER_PORT",
        world_size: ranks,
        job_id: String::from_utf8_lossy(job_id).into_owned(),
        token: JobToken::from_text(token),
        on_failure: None,
    })?;
    let port = Some(server.address().port());
    report(&Report::Started { port });
    for command in commands {
        match command {
            Command::Describe => describe(|usage| {
                let traffic = server.traffic();
                usage.store_messages = traffic.requests + traffic.replies;
                usage.store_bytes = traffic.request_bytes + traffic.reply_bytes;
                usage.store_connections = traffic.connections;
            }),
            other => return Err(anyhow!("a store does not {other:?}")),
        }
    }
    Ok(())
}
