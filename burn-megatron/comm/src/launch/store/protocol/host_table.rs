//! [`HostTable`]: the host of each rank.

use std::collections::HashMap;

use serde::{Deserialize, Serialize};

use super::encoding;

/// The host of each rank. Each host is there once: a job has several ranks on each.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct HostTable {
    #[serde(serialize_with = "encoding::texts", deserialize_with = "encoding::list")]
    hosts: Vec<String>,
    /// By rank, the place in `hosts`.
    #[serde(deserialize_with = "encoding::list")]
    places: Vec<u32>,
}

impl HostTable {
    /// Returns the table of `hosts`, which are those of the ranks.
    pub(in crate::launch) fn new<'a>(hosts: impl IntoIterator<Item = &'a str>) -> HostTable {
        let mut table = HostTable::default();
        let mut known = HashMap::new();
        for host in hosts {
            let place = *known.entry(host).or_insert_with(|| {
                table.hosts.push(host.to_owned());
                table.hosts.len() as u32 - 1
            });
            table.places.push(place);
        }
        table
    }

    /// Returns whether it has the host of each of `world_size` ranks: a message may say anything.
    pub(in crate::launch) fn is_of(&self, world_size: usize) -> bool {
        let is_there = |&place: &u32| (place as usize) < self.hosts.len();
        self.places.len() == world_size && self.places.iter().all(is_there)
    }

    /// Returns the number of ranks.
    pub(crate) fn world_size(&self) -> usize {
        self.places.len()
    }

    /// Returns the host of a rank; `None` if there is no such rank.
    pub(crate) fn host_of(&self, rank: usize) -> Option<&str> {
        let host = self.hosts.get(*self.places.get(rank)? as usize)?;
        Some(host)
    }

    /// Returns the host of each rank.
    pub(in crate::launch) fn iter(&self) -> impl Iterator<Item = &str> {
        self.places.iter().map(|&place| self.hosts[place as usize].as_str())
    }
}
