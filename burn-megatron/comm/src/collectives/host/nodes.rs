//! Which ranks of a group are on the same node.

use std::collections::HashSet;
use std::ops::Range;

/// Returns the ranks of each host, from the host of every rank in rank order.
///
/// # Errors
/// When the ranks of a host are not next to each other: a sum in rank order would then go back and forth.
pub(in crate::collectives) fn nodes_of(hosts: &[&str]) -> Result<Vec<Range<usize>>, String> {
    let mut nodes: Vec<Range<usize>> = Vec::new();
    let mut known = HashSet::new();
    for (rank, host) in hosts.iter().enumerate() {
        let is_next = rank > 0 && hosts[rank - 1] == *host;
        if let Some(last) = nodes.last_mut()
            && is_next
        {
            last.end = rank + 1;
            continue;
        }
        if !known.insert(*host) {
            let between = hosts[rank - 1];
            return Err(format!(
                "hierarchical needs the ranks of each host next to each other, but between those on {host} there are \
                 ranks on {between}; use tcp or auto"
            ));
        }
        nodes.push(rank..rank + 1);
    }
    Ok(nodes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neighbours_on_a_host_are_a_node() {
        let nodes = nodes_of(&["a", "a", "b", "c", "c", "c"]).unwrap();
        assert_eq!(nodes, [0..2, 2..3, 3..6]);
    }

    #[test]
    fn a_host_that_comes_back_is_refused() {
        let error = nodes_of(&["a", "b", "a"]).unwrap_err();
        assert!(error.contains("between those on a there are ranks on b"), "{error}");
    }
}
