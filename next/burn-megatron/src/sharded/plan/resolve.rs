//! A plan's lines matched with a model's parameters.

use super::{Line, Plan, PlanError, PlannedParameter};
use crate::parameters::NamePattern;
use crate::sharded::placement::{AxisPlacement, AxisRole, MeshShape, Placements, REPLICATED};
use crate::topology::nearest_multiples;

impl Plan {
    /// Returns each parameter's placements on a mesh.
    ///
    /// # Errors
    /// When a line names nothing or a layer of burn's that it is not for, when two name one parameter, when a
    /// dimension is not there or the ranks do not divide it.
    pub fn resolve(&self, parameters: &[PlannedParameter], mesh: &MeshShape) -> Result<Vec<Placements>, PlanError> {
        let mut placements = vec![REPLICATED; parameters.len()];
        // The line that has named a parameter.
        let mut named: Vec<Option<&Line>> = vec![None; parameters.len()];
        for line in &self.lines {
            let axis = axis_of(mesh, line.role);
            let cuts = line.parts.iter().any(|(_, dimension)| dimension.is_some());
            if axis.is_none() && cuts {
                return Err(PlanError::NoAxis {
                    line: line.text.clone(),
                    role: line.role,
                });
            }
            let parts = parts(line, parameters)?;
            for (part, (pattern, dimension)) in parts.iter().enumerate() {
                let mut matched = (0..parameters.len())
                    .filter(|&index| pattern.matches(&parameters[index].name))
                    .peekable();
                if part == 0 && matched.peek().is_none() {
                    return Err(PlanError::NoMatch {
                        line: line.text.clone(),
                        hint: pattern.nearest(parameters.iter().map(|parameter| parameter.name.as_str())),
                    });
                }
                for index in matched {
                    let PlannedParameter { name, layer, .. } = &parameters[index];
                    if line.not_for.contains(&layer.as_str()) {
                        return Err(PlanError::OtherLayer {
                            line: line.text.clone(),
                            name: name.clone(),
                            layer: layer.clone(),
                        });
                    }
                    if let Some(first) = named[index].replace(line) {
                        return Err(PlanError::TwoLines {
                            name: parameters[index].name.clone(),
                            first: first.text.clone(),
                            second: line.text.clone(),
                        });
                    }
                    if let (Some(dimension), Some(axis)) = (*dimension, axis) {
                        cut(
                            line,
                            &parameters[index],
                            dimension,
                            (mesh, axis),
                            &mut placements[index],
                        )?;
                    }
                }
            }
        }
        for &role in &self.fully_sharded {
            let axis = axis_of(mesh, role).ok_or_else(|| PlanError::NoAxis {
                line: format!("fully_shard({role:?})"),
                role,
            })?;
            let is_kept_whole = |line: Option<&Line>| line.is_some_and(|line| line.keeps_whole);
            for (index, parameter) in parameters.iter().enumerate() {
                let places = &mut placements[index];
                if mesh.size(axis) == 1 || is_kept_whole(named[index]) || places[axis] != AxisPlacement::Replicated {
                    continue;
                }
                let long_enough = |&dimension: &usize| mesh.can_cut(&parameter.shape, places, axis, dimension);
                if let Some(dimension) = (0..parameter.shape.len()).find(long_enough) {
                    places[axis] = AxisPlacement::Shard(dimension);
                }
            }
        }
        Ok(placements)
    }
}

/// The patterns of a line, each with the dimension that it cuts. A layer that is named by its weight is that layer.
fn parts(line: &Line, parameters: &[PlannedParameter]) -> Result<Vec<(NamePattern, Option<usize>)>, PlanError> {
    let pattern = |text: &str| {
        NamePattern::new(text).map_err(|reason| PlanError::Pattern {
            line: line.text.clone(),
            reason,
        })
    };
    let of_layer = |text: &str| {
        let (weight, part) = text.rsplit_once('.')?;
        Some(format!("{}.{part}", weight.strip_suffix(".weight")?))
    };
    let matches_some = |pattern: &NamePattern| parameters.iter().any(|parameter| pattern.matches(&parameter.name));
    let (first, _) = &line.parts[0];
    let by_weight =
        !matches_some(&pattern(first)?) && matches!(of_layer(first), Some(first) if matches_some(&pattern(&first)?));
    let parts = line.parts.iter().map(|(text, dimension)| {
        let text = of_layer(text).filter(|_| by_weight).unwrap_or_else(|| text.clone());
        Ok((pattern(&text)?, *dimension))
    });
    parts.collect()
}

/// Cuts a dimension of a parameter.
fn cut(
    line: &Line,
    parameter: &PlannedParameter,
    dimension: usize,
    (mesh, axis): (&MeshShape, usize),
    places: &mut Placements,
) -> Result<(), PlanError> {
    let PlannedParameter { name, shape, .. } = parameter;
    let (line, name) = (line.text.clone(), name.clone());
    let Some(&length) = shape.get(dimension) else {
        return Err(PlanError::NoDimension {
            line,
            name,
            shape: shape.clone(),
            dimension,
        });
    };
    let ranks = mesh.size(axis);
    if !length.is_multiple_of(ranks) {
        let divisors: Vec<String> = (1..=ranks)
            .filter(|&count| length.is_multiple_of(count))
            .map(|count| count.to_string())
            .collect();
        return Err(PlanError::Indivisible {
            line,
            name,
            dimension,
            length,
            ranks,
            nearest: nearest_multiples(length, ranks),
            divisors: divisors.join(", "),
        });
    }
    if ranks > 1 {
        places[axis] = AxisPlacement::Shard(dimension);
    }
    Ok(())
}

/// The last axis of a role: of two axes of data, that inside the replicas.
fn axis_of(mesh: &MeshShape, role: AxisRole) -> Option<usize> {
    mesh.axes_of(role).next_back()
}

#[cfg(test)]
mod tests {
    use super::AxisPlacement::{Replicated, Shard};
    use super::*;

    const DATA: usize = 0;
    const TENSOR: usize = 1;

    fn mesh(data: usize, tensor: usize) -> MeshShape {
        MeshShape::new([(AxisRole::Data, data), (AxisRole::Tensor, tensor)])
    }

    fn parameters() -> Vec<PlannedParameter> {
        let parameter = |name: &str, shape: &[usize]| PlannedParameter {
            name: name.to_owned(),
            shape: shape.to_vec(),
            layer: match name.split('.').rev().nth(1) {
                Some("embedding") => "Embedding".to_owned(),
                _ => "Linear".to_owned(),
            },
        };
        vec![
            parameter("embedding.weight", &[50, 8]),
            parameter("layers.0.query.weight", &[8, 8]),
            parameter("layers.0.query.bias", &[8]),
            parameter("layers.1.query.weight", &[8, 8]),
            parameter("layers.1.query.bias", &[8]),
            parameter("layers.0.output.weight", &[8, 8]),
            parameter("layers.0.output.bias", &[8]),
            parameter("output.weight", &[8, 3]),
            parameter("output.bias", &[3]),
        ]
    }

    fn resolve(plan: &Plan, data: usize, tensor: usize) -> Result<Vec<Placements>, PlanError> {
        plan.resolve(&parameters(), &mesh(data, tensor))
    }

    #[test]
    fn column_and_row_cut_the_layers_that_are_named() {
        let plan = Plan::new().column("layers.*.query").row("layers.*.output");
        let places: Vec<_> = resolve(&plan, 1, 2)
            .unwrap()
            .iter()
            .map(|places| places[TENSOR])
            .collect();
        let (whole, columns, bias, rows) = (Replicated, Shard(1), Shard(0), Shard(0));
        assert_eq!(places, [whole, columns, bias, columns, bias, rows, whole, whole, whole]);
    }

    #[test]
    fn a_name_ends_at_a_dot() {
        // `output.weight` of the model's root, not that of the layers.
        let places = resolve(&Plan::new().row("output"), 1, 2).unwrap();
        assert_eq!(places[5][TENSOR], Replicated);
        assert_eq!(places[7][TENSOR], Shard(0));
    }

    #[test]
    fn fully_sharding_cuts_every_parameter_next_to_other_cuts() {
        let plan = Plan::new()
            .row("layers.*.output")
            .replicated("embedding.weight")
            .fully_shard(AxisRole::Data);
        let places = resolve(&plan, 2, 2).unwrap();
        assert_eq!(places[0], REPLICATED);
        assert_eq!((places[5][DATA], places[5][TENSOR]), (Shard(0), Shard(0)));
        assert!(places[1..].iter().all(|places| places[DATA] == Shard(0)));
    }

    #[test]
    fn a_line_that_names_nothing_is_an_error_with_names_that_come_near() {
        let error = resolve(&Plan::new().column("layers.*.key"), 1, 2)
            .unwrap_err()
            .to_string();
        assert_eq!(
            error,
            "column(\"layers.*.key\") names no parameter of the model; the nearest are layers.0.query.weight, \
             layers.1.query.weight, layers.0.output.weight, embedding.weight"
        );
    }

    #[test]
    fn a_layer_may_be_named_by_its_weight() {
        let layers = Plan::new().column("layers.*.query").row("output");
        let weights = Plan::new().column("layers.*.query.weight").row("output.weight");
        assert_eq!(resolve(&weights, 1, 2).unwrap(), resolve(&layers, 1, 2).unwrap());
    }

    #[test]
    fn a_line_for_other_layers_is_an_error() {
        let error = resolve(&Plan::new().vocabulary("output"), 1, 2)
            .unwrap_err()
            .to_string();
        assert_eq!(
            error,
            "vocabulary(\"output\"): output.weight is the parameter of a Linear, whose dimensions are others; column \
             and row are for linear layers, vocabulary for embeddings, channels for convolutions, shard for any \
             parameter"
        );
        for plan in [Plan::new().channels("output"), Plan::new().channels("embedding")] {
            assert!(matches!(resolve(&plan, 1, 2), Err(PlanError::OtherLayer { .. })));
        }
        assert!(resolve(&Plan::new().vocabulary("embedding"), 1, 2).is_ok());
    }

    #[test]
    fn two_lines_for_one_parameter_are_an_error() {
        let plan = Plan::new().column("layers.*.query").row("layers.1.*");
        let error = resolve(&plan, 1, 2).unwrap_err().to_string();
        assert_eq!(
            error,
            "column(\"layers.*.query\") and row(\"layers.1.*\") both name parameter layers.1.query.weight; leave \
             one of them out, or name less"
        );
    }

    #[test]
    fn a_length_that_ranks_do_not_divide_is_an_error_with_those_that_do() {
        let error = resolve(&Plan::new().column("output"), 1, 2).unwrap_err().to_string();
        assert_eq!(
            error,
            "column(\"output\"): dimension 1 of parameter output.weight, of length 3, cannot be cut over 2 ranks; the \
             nearest valid lengths are 2 and 4, the valid numbers of ranks up to that 1"
        );
    }

    #[test]
    fn a_dimension_that_is_not_there_is_an_error() {
        let error = resolve(&Plan::new().shard("*.bias", AxisRole::Tensor, 1), 1, 2)
            .unwrap_err()
            .to_string();
        assert_eq!(
            error,
            "shard(\"*.bias\", Tensor, 1): parameter output.bias of shape [3] has no dimension 1"
        );
    }

    #[test]
    fn a_pattern_that_is_none_is_an_error() {
        let error = resolve(&Plan::new().column("layers.{query"), 1, 2).unwrap_err();
        assert!(matches!(error, PlanError::Pattern { .. }), "{error}");
    }

    #[test]
    fn one_rank_cuts_nothing() {
        let plan = Plan::new().column("layers.*.query").fully_shard(AxisRole::Data);
        assert!(resolve(&plan, 1, 1).unwrap().iter().all(|&places| places == REPLICATED));
    }
}
