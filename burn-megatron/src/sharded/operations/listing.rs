//! [`operation_rules`]: every operation of burn's that has a rule, and the page of the documentation that lists them.

use std::collections::BTreeMap;
use std::fmt::Write;

use super::{activation, boolean, float, integer, module};

/// An operation and how it is placed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OperationRule {
    /// Its name in its trait.
    pub name: &'static str,
    /// burn's trait.
    pub group: &'static str,
    /// Its rule.
    pub rule: &'static str,
}

/// Returns all operations that have a rule, by their traits. Those of burn's that are not among them are made of these
/// by burn.
pub fn operation_rules() -> Vec<OperationRule> {
    let groups = [
        ("FloatTensorOps", float::RULES),
        ("IntTensorOps", integer::RULES),
        ("BoolTensorOps", boolean::RULES),
        ("ModuleOps", module::RULES),
        ("ActivationOps", activation::RULES),
    ];
    let of_group = |(group, rules): (&'static str, &'static [(&'static str, &'static str)])| {
        rules
            .iter()
            .map(move |&(name, rule)| OperationRule { name, group, rule })
    };
    groups.into_iter().flat_map(of_group).collect()
}

/// Returns the page that lists all operations by their rules, in Markdown.
pub fn operations_page() -> String {
    let mut page = String::from(
        "# Operations of `Sharded` and their rules\n\n\
         Made by the library; a test compares, and leaves the page as it should be.\n\n\
         A rule says, for one axis of the mesh, where an operation's operands must be and where its result then\n\
         is: see [`sharded/rules`](../src/sharded/rules). The rules of layers are written with named dimensions,\n\
         as `bi..,oi..,o->bo..`: a dimension with a name can be cut, `.` must be whole. Operations of burn's that\n\
         are not here burn makes of these; the fused operations of `cubecl-kernels` have their rules with them,\n\
         as `Operation::part_rule`. Quantized tensors are refused by name. No operation gathers for want of a\n\
         rule; one that is *gathered* says why.\n",
    );
    let mut by_group: BTreeMap<&str, BTreeMap<&str, Vec<&str>>> = BTreeMap::new();
    for OperationRule { name, group, rule } in operation_rules() {
        by_group.entry(group).or_default().entry(rule).or_default().push(name);
    }
    for (group, by_rule) in by_group {
        let count: usize = by_rule.values().map(Vec::len).sum();
        let _ = write!(page, "\n## {group}: {count}\n\n| rule | operations |\n|---|---|\n");
        for (rule, mut names) in by_rule {
            names.sort_unstable();
            let names: Vec<String> = names.iter().map(|name| format!("`{name}`")).collect();
            let rule = rule.split_whitespace().collect::<Vec<_>>().join(" ");
            let rule = if rule.contains(' ') && !rule.contains(['(', '{']) {
                rule
            } else {
                format!("`{rule}`")
            };
            let _ = writeln!(page, "| {rule} | {} |", names.join(", "));
        }
    }
    page
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn no_operation_is_listed_twice() {
        let rules = operation_rules();
        let names: HashSet<&str> = rules.iter().map(|rule| rule.name).collect();
        assert_eq!(names.len(), rules.len());
    }

    #[test]
    fn the_page_of_operations_lists_them_all() {
        let committed = include_str!("../../../docs/operations.md");
        let page = operations_page();
        if !committed.starts_with(&page) {
            let path = std::env::temp_dir().join("operations.md");
            std::fs::write(&path, page).unwrap();
            panic!(
                "docs/operations.md does not begin with the page that the rules make, which is now in {}",
                path.display()
            );
        }
    }
}
