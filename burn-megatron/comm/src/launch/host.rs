//! What tells one host from another.

use std::fs;

use super::variables;

/// Returns this host's identity: its name and the id of its present boot, as `name/boot-id`.
///
/// Equal on two ranks exactly when they share a node. Containers on one machine have names of their own, and their
/// own `/dev/shm`.
pub fn host_identity() -> String {
    let read = |path: &str| fs::read_to_string(path).map(|text| text.trim().to_string()).ok();
    let name = read("/proc/sys/kernel/hostname").unwrap_or_else(|| "unknown".into());
    match read("/proc/sys/kernel/random/boot_id") {
        Some(boot) => format!("{name}/{boot}"),
        None => name,
    }
}

/// Returns this host's identity, or the one that `BURN_MEGATRON_HOST` gives it.
pub(super) fn own_host() -> String {
    let chosen = std::env::var(variables::HOST).ok();
    chosen.filter(|host| !host.is_empty()).unwrap_or_else(host_identity)
}

/// Returns the part of a host identity that people know: the host's name.
pub fn host_name(identity: &str) -> &str {
    identity.split_once('/').map_or(identity, |(name, _boot)| name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn host_identity_has_a_name_and_a_boot() {
        let identity = host_identity();
        assert_eq!(identity, host_identity());
        assert!(identity.len() > host_name(&identity).len());
    }
}
