//! Slurm's two short forms: lists of hosts such as `node[03-05,9],gpu7`, and tasks per node such as `2(x3),1`.
//!
//! Pure functions, called by [`slurm`](super::slurm). Nothing is expanded, so a range of a billion costs nothing. The
//! error is the rule that was broken.

/// Returns the first host of a list.
///
/// A host is a name in which `[...]` stands for one of several numbers or ranges, such as `rack[1-2]n[01-04]`; the
/// first one takes the first number of each.
pub(super) fn first_host(list: &str) -> Result<String, &'static str> {
    let mut host = String::new();
    let mut rest = list.trim_start();
    loop {
        let end = rest.find(['[', ',']).unwrap_or(rest.len());
        host.push_str(&rest[..end]);
        if !rest[end..].starts_with('[') {
            break;
        }
        let (inside, after) = rest[end + 1..]
            .split_once(']')
            .ok_or("a bracket is not closed; valid: node1,node2 or node[01-04,7]")?;
        host.push_str(first_number(inside)?);
        rest = after;
    }
    if host.is_empty() || host.contains(|c: char| c.is_whitespace() || c == ']') {
        return Err("the first host has no name; valid: node1,node2 or node[01-04,7]");
    }
    Ok(host)
}

/// Returns the first number of `03-05,9`, with its zeros.
fn first_number(ranges: &str) -> Result<&str, &'static str> {
    let first = ranges.split(',').next().unwrap_or_default();
    let (low, high) = first.split_once('-').unwrap_or((first, first));
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    if is_number(low) && is_number(high) {
        Ok(low)
    } else {
        Err("a bracket holds something else than numbers and ranges; valid: node[01-04,7]")
    }
}

/// Returns how many tasks the node with number `node` has, and how many all nodes have.
pub(super) fn tasks_per_node(text: &str, node: usize) -> Result<(usize, usize), &'static str> {
    const RULE: &str = "must be tasks per node; valid: 8 or 2(x3),1";
    let number = |text: &str| text.parse::<usize>().ok().filter(|&number| number > 0).ok_or(RULE);
    let (mut nodes, mut total, mut here) = (0_usize, 0_usize, None);
    for part in text.trim().split(',') {
        let (tasks, repeats) = match part.split_once("(x") {
            Some((tasks, repeats)) => (number(tasks)?, number(repeats.strip_suffix(')').ok_or(RULE)?)?),
            None => (number(part)?, 1),
        };
        nodes = nodes.checked_add(repeats).ok_or(RULE)?;
        total = tasks
            .checked_mul(repeats)
            .and_then(|sum| total.checked_add(sum))
            .ok_or(RULE)?;
        if here.is_none() && node < nodes {
            here = Some(tasks);
        }
    }
    let here = here.ok_or("has fewer nodes than SLURM_NODEID says")?;
    Ok((here, total))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn first_hosts_of_known_lists() {
        for (list, host) in [
            ("node1", "node1"),
            ("node1,node2", "node1"),
            ("node[03-05,9]", "node03"),
            ("node[9,03-05],gpu7", "node9"),
            ("gpu7,node[03-05]", "gpu7"),
            ("rack[1-2]n[01-04]-ib,x", "rack1n01-ib"),
            ("a-b.example.org", "a-b.example.org"),
            ("node[0-99999999999999999999]", "node0"),
        ] {
            assert_eq!(first_host(list).as_deref(), Ok(host), "{list}");
        }
        for wrong in [
            "",
            ",",
            "node[1",
            "node[]",
            "node[a]",
            "node[1-]",
            "node]",
            "[",
            "node[1-2,",
            " ",
        ] {
            assert!(first_host(wrong).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn tasks_of_known_lists() {
        assert_eq!(tasks_per_node("2(x3),1", 0), Ok((2, 7)));
        assert_eq!(tasks_per_node("2(x3),1", 2), Ok((2, 7)));
        assert_eq!(tasks_per_node("2(x3),1", 3), Ok((1, 7)));
        assert_eq!(tasks_per_node("8", 0), Ok((8, 8)));
        for (wrong, node) in [
            ("2(x3),1", 4),
            ("", 0),
            ("2(x", 0),
            ("2(x0)", 0),
            ("0", 0),
            ("2,,1", 0),
            ("2(3)", 0),
        ] {
            assert!(tasks_per_node(wrong, node).is_err(), "{wrong:?}");
        }
        let huge = format!("{0}(x{0})", usize::MAX);
        assert!(tasks_per_node(&huge, 0).is_err());
    }

    /// A number as Slurm writes it: with zeros in front.
    fn padded() -> impl Strategy<Value = String> {
        (0_u64..5000, 0_usize..6).prop_map(|(number, width)| format!("{number:0width$}"))
    }

    proptest! {
        #[test]
        fn first_host_takes_the_first_number_of_each_bracket(
            prefix in "[a-z][a-z0-9-]{0,8}",
            brackets in prop::collection::vec(
                (prop::collection::vec((padded(), prop::option::of(padded())), 1..4), "[a-z-]{0,3}"),
                0..3,
            ),
            others in prop::collection::vec("[a-z]{1,5}(\\[[0-9]{1,3}-[0-9]{1,3}\\])?", 0..3),
        ) {
            let (mut list, mut host) = (prefix.clone(), prefix);
            for (ranges, suffix) in brackets {
                let text = ranges.iter().map(|(low, high)| match high {
                    Some(high) => format!("{low}-{high}"),
                    None => low.clone(),
                });
                list.push_str(&format!("[{}]{suffix}", text.collect::<Vec<_>>().join(",")));
                host.push_str(&format!("{}{suffix}", ranges[0].0));
            }
            for other in others {
                list.push_str(&format!(",{other}"));
            }
            prop_assert_eq!(first_host(&list), Ok(host));
        }

        #[test]
        fn tasks_per_node_undoes_the_short_form(runs in prop::collection::vec((1_usize..9, 1_usize..5), 1..6)) {
            let parts = runs.iter().map(|&(tasks, repeats)| match repeats {
                1 => tasks.to_string(),
                _ => format!("{tasks}(x{repeats})"),
            });
            let text = parts.collect::<Vec<_>>().join(",");
            let nodes: Vec<usize> = runs.iter().flat_map(|&(tasks, repeats)| vec![tasks; repeats]).collect();
            for (node, &tasks) in nodes.iter().enumerate() {
                prop_assert_eq!(tasks_per_node(&text, node), Ok((tasks, nodes.iter().sum())));
            }
            prop_assert!(tasks_per_node(&text, nodes.len()).is_err());
        }
    }
}
