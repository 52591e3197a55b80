//! Which of this host's addresses the job listens on: [`Selection`], as `BURN_MEGATRON_INTERFACE` or a flag gives it;
//! and how it listens ([`listen`]).
//!
//! Used by the launcher and by rank 0 for the store, by every rank for its data.

use std::fmt;
use std::io;
use std::net::{IpAddr, SocketAddr, TcpListener, UdpSocket};
use std::time::Duration;

use if_addrs::get_if_addrs;
use ipnet::IpNet;
use socket2::{Domain, Socket, Type};

use super::error::LaunchError;
use super::resolver::Resolver;
use super::variables;

/// Connections that the kernel holds until they are accepted: a burst of strangers, and the ranks after it.
const BACKLOG: i32 = 4096;

/// Longest time to resolve the name of the store's host.
const RESOLVE_LIMIT: Duration = Duration::from_secs(30);

/// The wish for an interface.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Selection<'a> {
    /// By its name: `eth0`.
    Name(&'a str),
    /// By its address.
    Address(IpAddr),
    /// By the network that its address is in: `10.0.0.0/8`.
    Network(IpNet),
}

/// One address of one interface.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Interface {
    name: String,
    address: IpAddr,
}

impl fmt::Display for Interface {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{} {}", self.name, self.address)
    }
}

impl Interface {
    /// Whether its address is one of those that mean nothing without the interface's name.
    fn is_link_local(&self) -> bool {
        matches!(self.address, IpAddr::V6(address) if address.is_unicast_link_local())
    }
}

impl Selection<'_> {
    fn parse(text: &str) -> Selection<'_> {
        match (text.parse(), text.parse()) {
            (Ok(address), _) => Selection::Address(address),
            (_, Ok(network)) => Selection::Network(network),
            _ => Selection::Name(text),
        }
    }

    fn takes(&self, interface: &Interface) -> bool {
        match self {
            Selection::Name(name) => interface.name == *name,
            Selection::Address(address) => interface.address == *address,
            Selection::Network(network) => network.contains(&interface.address),
        }
    }

    /// The first address that is taken, an IPv4 address before others: what a host's name mostly resolves to.
    fn choose(&self, interfaces: &[Interface]) -> Option<IpAddr> {
        let mut taken: Vec<_> = interfaces.iter().filter(|interface| self.takes(interface)).collect();
        // Stable, so the order of the system otherwise.
        taken.sort_by_key(|interface| interface.address.is_ipv6());
        taken.first().map(|interface| interface.address)
    }
}

/// Returns the address of the interface that was asked for: by `chosen`, or else by `BURN_MEGATRON_INTERFACE`; `None`
/// if neither says anything.
///
/// # Errors
/// This host has no such interface; the error lists those it has.
pub(super) fn chosen_address(chosen: Option<&str>) -> Result<Option<IpAddr>, LaunchError> {
    let from_environment = std::env::var(variables::INTERFACE).ok();
    let wish = chosen.or(from_environment.as_deref()).filter(|text| !text.is_empty());
    wish.map(|text| address_among(text, &interfaces()?)).transpose()
}

/// Sets what NCCL and CUDA read from the environment, unless it is set there: the interface that was asked for; that
/// NCCL connects all its algorithms when it connects ranks, not at the first use of each, in the middle of a step; and
/// the most queues to a GPU, of which each stream needs one.
///
/// Only a process with one thread may set variables: with more, nothing is set, and a line in the log says so.
///
/// # Errors
/// As [`chosen_address`].
pub(super) fn set_variables_of_nccl(chosen: Option<&str>) -> Result<(), LaunchError> {
    let mut values = vec![
        (variables::NCCL_RUNTIME_CONNECT, "0".to_owned()),
        (variables::CUDA_MAX_CONNECTIONS, "32".to_owned()),
    ];
    let is_unset = |name: &str| std::env::var_os(name).is_none();
    if is_unset(variables::NCCL_INTERFACE)
        && let Some(address) = chosen_address(chosen)?
        && let Some(name) = name_of(address, &interfaces()?)
    {
        // By its whole name: without the sign NCCL takes all interfaces whose names begin so.
        values.push((variables::NCCL_INTERFACE, format!("={name}")));
    }
    values.retain(|(name, _)| is_unset(name));
    if num_threads() == Some(1) {
        for (name, value) in values {
            // SAFETY: this process has one thread, so that none reads the environment meanwhile.
            unsafe { std::env::set_var(name, value) };
        }
    } else if !values.is_empty() {
        let settings: Vec<String> = values.iter().map(|(name, value)| format!("{name}={value}")).collect();
        let settings = settings.join(" ");
        tracing::info!("NCCL and CUDA choose by themselves, for this process has several threads: set {settings}");
    }
    Ok(())
}

fn name_of(address: IpAddr, interfaces: &[Interface]) -> Option<String> {
    let found = interfaces.iter().find(|interface| interface.address == address);
    found.map(|interface| interface.name.clone())
}

/// The threads of this process, where the system says it.
fn num_threads() -> Option<usize> {
    Some(std::fs::read_dir("/proc/self/task").ok()?.count())
}

fn address_among(wish: &str, interfaces: &[Interface]) -> Result<IpAddr, LaunchError> {
    Selection::parse(wish)
        .choose(interfaces)
        .ok_or_else(|| LaunchError::NoSuchInterface {
            wish: wish.to_string(),
            variable: variables::INTERFACE,
            present: interfaces
                .iter()
                .map(Interface::to_string)
                .collect::<Vec<_>>()
                .join(", "),
        })
}

/// The addresses of this host. Those that only count on one link are left out: other hosts cannot use them as they are.
fn interfaces() -> Result<Vec<Interface>, LaunchError> {
    let found = get_if_addrs().map_err(|source| LaunchError::System {
        action: "cannot list this host's network interfaces".into(),
        source,
    })?;
    let interfaces = found.into_iter().map(|interface| Interface {
        address: interface.ip(),
        name: interface.name,
    });
    Ok(interfaces.filter(|interface| !interface.is_link_local()).collect())
}

/// Returns where the store of a job listens that reaches it at `master_addr`.
///
/// The interface that was asked for, unless this host's own ranks would not find it there; else, if `master_addr` is an
/// address of this host, that one, loopback only for a job on one host; else all, with a warning: the name means
/// something else to this host than to others.
///
/// # Errors
/// `master_addr` is no name, or is not resolved within 30 s; it is an address of this host, but of another interface
/// than the one asked for.
pub(super) fn store_address(
    master_addr: &str,
    port: u16,
    is_one_host: bool,
    interface: Option<IpAddr>,
) -> Result<SocketAddr, LaunchError> {
    let resolved = Resolver::new(master_addr, port)
        .addresses(RESOLVE_LIMIT)
        .map_err(|source| LaunchError::System {
            action: format!("cannot resolve {}={master_addr:?}", variables::MASTER_ADDR),
            source,
        })?;
    let resolved: Vec<IpAddr> = resolved.iter().map(SocketAddr::ip).collect();
    let own: Vec<IpAddr> = interfaces()?.into_iter().map(|interface| interface.address).collect();
    choose_store_address(master_addr, &resolved, &own, is_one_host, interface).map(|ip| SocketAddr::new(ip, port))
}

fn choose_store_address(
    master_addr: &str,
    resolved: &[IpAddr],
    own: &[IpAddr],
    is_one_host: bool,
    interface: Option<IpAddr>,
) -> Result<IpAddr, LaunchError> {
    // All of 127.0.0.0/8 is this host, although only one address of it is listed.
    let is_own = |ip: &IpAddr| own.contains(ip) || ip.is_loopback();
    // Its own ranks find the store on loopback, the others elsewhere: it listens on all interfaces.
    let is_loopback_to_itself = !is_one_host && is_own_loopback_name(master_addr, resolved);
    if let Some(interface) = interface.filter(|_| !is_loopback_to_itself) {
        if resolved.contains(&interface) || !resolved.iter().all(is_own) {
            return Ok(interface);
        }
        return Err(LaunchError::InterfaceMismatch {
            interface,
            master_addr: master_addr.to_string(),
            resolved: resolved.to_vec(),
        });
    }
    let is_reachable = |ip: &&IpAddr| is_own(ip) && (is_one_host || !ip.is_loopback());
    if let Some(ip) = resolved.iter().find(is_reachable) {
        return Ok(*ip);
    }
    // A literal address is meant as given: a loopback address never stands for another host.
    if let Ok(ip) = master_addr.parse::<IpAddr>()
        && is_own(&ip)
    {
        return Ok(ip);
    }
    let (addr, interface) = (variables::MASTER_ADDR, variables::INTERFACE);
    tracing::warn!(
        "the store listens on all interfaces: {addr}={master_addr:?} is none of this host's addresses {own:?} that \
         others reach; set {addr}, or {interface} where an address is translated on the way, to one of them"
    );
    match resolved.first() {
        Some(IpAddr::V6(_)) => Ok(std::net::Ipv6Addr::UNSPECIFIED.into()),
        _ => Ok(std::net::Ipv4Addr::UNSPECIFIED.into()),
    }
}

/// Whether a name means loopback to this host, and something else to others, as Debian's 127.0.1.1 in /etc/hosts.
fn is_own_loopback_name(master_addr: &str, resolved: &[IpAddr]) -> bool {
    let is_loopback_to_all = master_addr == "localhost" || master_addr.parse::<IpAddr>().is_ok();
    !is_loopback_to_all && !resolved.is_empty() && resolved.iter().all(IpAddr::is_loopback)
}

/// Returns where a rank listens for its data that reaches the store at `master_addr` by its own address `reached_by`,
/// when no interface was asked for.
///
/// That address, unless it is loopback although there are other hosts: then that of this host's only other interface,
/// or the one of its default route.
///
/// # Errors
/// It is not clear which of several interfaces the other hosts reach.
pub(super) fn data_address(reached_by: IpAddr, master_addr: &str, is_one_host: bool) -> Result<IpAddr, LaunchError> {
    if is_one_host || !is_own_loopback_name(master_addr, &[reached_by]) {
        return Ok(reached_by);
    }
    choose_data_address(reached_by, master_addr, &interfaces()?, default_route(reached_by))
}

fn choose_data_address(
    reached_by: IpAddr,
    master_addr: &str,
    interfaces: &[Interface],
    default_route: Option<IpAddr>,
) -> Result<IpAddr, LaunchError> {
    let others = interfaces.iter().filter(|interface| !interface.address.is_loopback());
    let (alike, unlike): (Vec<_>, Vec<_>) =
        others.partition(|interface| interface.address.is_ipv4() == reached_by.is_ipv4());
    let candidates = if alike.is_empty() { unlike } else { alike };
    let chosen = match candidates[..] {
        // A host without any is alone, whatever its ranks say of their hosts.
        [] => return Ok(reached_by),
        [only] => Some(only),
        _ => candidates
            .iter()
            .copied()
            .find(|interface| Some(interface.address) == default_route),
    };
    let Some(chosen) = chosen else {
        return Err(LaunchError::LoopbackForOthers {
            address: reached_by,
            master_addr: master_addr.to_string(),
            variable: variables::INTERFACE,
            present: candidates
                .iter()
                .map(|interface| interface.to_string())
                .collect::<Vec<_>>()
                .join(", "),
        });
    };
    tracing::warn!(
        "{}={master_addr:?} is the loopback address {reached_by} to this host, which other hosts do not reach: this \
         rank listens on {chosen} instead; choose another one by {}",
        variables::MASTER_ADDR,
        variables::INTERFACE
    );
    Ok(chosen.address)
}

/// The address from which this host sends to hosts that it knows nothing of.
fn default_route(like: IpAddr) -> Option<IpAddr> {
    // Addresses for documentation. A datagram socket that connects only looks up the route.
    let (any, far) = match like {
        IpAddr::V4(_) => ("0.0.0.0:0", "192.0.2.1:9"),
        IpAddr::V6(_) => ("[::]:0", "[2001:db8::1]:9"),
    };
    let socket = UdpSocket::bind(any).ok()?;
    socket.connect(far).ok()?;
    Some(socket.local_addr().ok()?.ip())
}

/// Listens on an address, non-blocking.
///
/// Like [`TcpListener::bind`], but with room for more than its 128 connections that wait to be accepted. When that room
/// is full, a rank that comes after a crowd of strangers would have to try again a second later.
///
/// # Errors
/// The address is not this host's, or the port is taken.
pub(crate) fn listen(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, None)?;
    // A port that an ended job had is free at once.
    socket.set_reuse_address(true)?;
    socket.bind(&address.into())?;
    socket.listen(BACKLOG)?;
    socket.set_nonblocking(true)?;
    Ok(socket.into())
}

/// Any text is a wish; one for an address is met by that address only, one for a network by its addresses.
#[cfg(feature = "fuzzing")]
pub(super) fn fuzz_selection(text: &str) {
    let interfaces = ["127.0.0.1", "10.1.2.3", "::1", "2001:db8::7"].map(|address| Interface {
        name: "eth0".into(),
        address: address.parse().expect("an address"),
    });
    let chosen = address_among(text, &interfaces);
    match (Selection::parse(text), chosen) {
        (Selection::Name(name), chosen) => assert_eq!(chosen.is_ok(), name == "eth0"),
        (Selection::Address(wish), Ok(address)) => assert_eq!(wish, address),
        (Selection::Network(network), Ok(address)) => assert!(network.contains(&address)),
        (_, Err(error)) => assert!(error.to_string().contains("eth0 10.1.2.3")),
    }
}

#[cfg(test)]
mod tests;
