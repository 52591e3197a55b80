//! [`operation_rules`]: every operation of burn's that has a rule.

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
}
