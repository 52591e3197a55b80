//! [`explain`]: where a model's parameters are, and what one real step communicated, operation by operation.

pub(super) mod work;

use std::collections::BTreeMap;
use std::fmt;

use burn::module::{Module, Param};
use burn::tensor::Tensor;
use serde::Serialize;

use super::mesh::Mesh;
use super::placement::{AxisPlacement, AxisRole};
use super::rules::Operand;
use super::slot::look;
use super::traffic::{Phase, TrafficKind, TrafficRecord};
use crate::parameters::{PathVisitor, visit_paths};

/// A model's parameters and the communication of a step. `Display` writes it as tables.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Explanation {
    /// Every parameter, in the order of the model.
    pub parameters: Vec<ParameterPlace>,
    /// The communication, by phase, operation, axis and kind.
    pub traffic: Vec<TrafficRow>,
    /// The arithmetic operations of this rank: two for each term of matmuls, linear layers and convolutions,
    /// one for each element of what other operations make.
    pub operations: u64,
}

/// Where a parameter is.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ParameterPlace {
    /// The path in the model.
    pub name: String,
    /// The whole shape.
    pub shape: Vec<usize>,
    /// The placement on each axis of the mesh, such as `S(0)`.
    pub placement: Vec<String>,
    /// Bytes of this rank's part.
    pub local_bytes: usize,
    /// Bytes of the whole.
    pub bytes: usize,
}

/// Collectives of one kind that one operation needed.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct TrafficRow {
    /// The part of the step.
    pub phase: Phase,
    /// The operation of the backend.
    pub operation: &'static str,
    /// The mesh's axis.
    pub axis: usize,
    /// The kind of collective.
    pub kind: TrafficKind,
    /// The number of collectives.
    pub count: usize,
    /// The bytes of all of them, as [`TrafficRecord`] counts them.
    pub bytes: usize,
    /// The parameters that the operations had, or that the last operation before them had.
    pub near: Vec<String>,
    /// A cheaper way, where one is known.
    pub advice: Option<&'static str>,
}

/// Runs a step, and returns what it communicated next to where the model's parameters are.
///
/// `step` is a whole step: forward pass, [`backward`](super::backward), and the optimizer's. Every rank must call.
pub fn explain<M: Module, T>(model: &M, mesh: &Mesh, step: impl FnOnce() -> T) -> (Explanation, T) {
    let mut lister = Lister {
        mesh,
        places: Vec::new(),
        names: BTreeMap::new(),
    };
    visit_paths(model, &mut lister);
    let Lister { places, names, .. } = lister;
    mesh.start_counting_near(names);
    let (result, operations) = work::counted(step);
    let traffic = rows(mesh, &mesh.stop_counting());
    let explanation = Explanation {
        parameters: places,
        traffic,
        operations,
    };
    (explanation, result)
}

impl Explanation {
    /// The number of collectives of a step, and their bytes.
    pub fn total(&self) -> (usize, usize) {
        self.traffic
            .iter()
            .fold((0, 0), |(count, bytes), row| (count + row.count, bytes + row.bytes))
    }

    /// The bytes of this rank's parts of the parameters.
    pub fn local_parameter_bytes(&self) -> usize {
        self.parameters.iter().map(|parameter| parameter.local_bytes).sum()
    }

    /// The number of collectives of a phase and kind on an axis.
    pub fn count(&self, phase: Phase, axis: usize, kind: TrafficKind) -> usize {
        let of_kind = |row: &&TrafficRow| (row.phase, row.axis, row.kind) == (phase, axis, kind);
        self.traffic.iter().filter(of_kind).map(|row| row.count).sum()
    }

    /// The rows for which something is known that would be cheaper.
    pub fn careless(&self) -> impl Iterator<Item = &TrafficRow> {
        self.traffic.iter().filter(|row| row.advice.is_some())
    }
}

fn rows(mesh: &Mesh, records: &[TrafficRecord]) -> Vec<TrafficRow> {
    let mut rows: BTreeMap<(Phase, &'static str, usize, TrafficKind), TrafficRow> = BTreeMap::new();
    for record in records {
        let TrafficRecord {
            phase,
            operation,
            axis,
            kind,
            bytes,
            ref near,
            ..
        } = *record;
        let row = rows
            .entry((phase, operation, axis, kind))
            .or_insert_with(|| TrafficRow {
                phase,
                operation,
                axis,
                kind,
                count: 0,
                bytes: 0,
                near: Vec::new(),
                advice: advice(mesh, record),
            });
        row.count += 1;
        row.bytes += bytes;
        for name in near {
            if !row.near.contains(name) {
                row.near.push(name.clone());
            }
        }
    }
    rows.into_values().collect()
}

/// Returns a cheaper way than a collective on a tensor axis that Megatron's layers do not make.
fn advice(mesh: &Mesh, record: &TrafficRecord) -> Option<&'static str> {
    let is_tensor = mesh.shape().role(record.axis) == AxisRole::Tensor;
    // The input of a linear layer, which merges the batch with the sequence first.
    let is_sequence = mesh.sequence_dimension().is_some()
        && record.kind == TrafficKind::AllGather
        && ["float_reshape", "float_matmul", "linear"].contains(&record.operation);
    if !is_tensor || is_sequence || record.phase == Phase::Gradients {
        return None;
    }
    let moves = [
        "reshape",
        "slice",
        "cat",
        "expand",
        "repeat",
        "flip",
        "unfold",
        "permute",
        "swap_dims",
    ];
    let along = ["softmax", "sort", "topk", "cum", "arg", "layer_norm"];
    let is_like = |names: &[&str]| names.iter().any(|name| record.operation.contains(name));
    match record.kind {
        TrafficKind::AllGather if is_like(&moves) => Some(
            "the cut of an activation does not survive this: choose a number of ranks that divides the heads, or end \
             the cut with row(…) on the layer that follows",
        ),
        TrafficKind::AllGather if is_like(&along) => Some(
            "this needs all of a dimension that is cut: end the cut before it with row(…), or leave the layer whole",
        ),
        TrafficKind::AllGather if record.phase == Phase::Forward => Some(
            "an activation that was cut is made whole: where column(…) is not followed by row(…), leave the first \
             layer whole, or cut the second by row(…)",
        ),
        _ => None,
    }
}

/// Visits a model's parameters.
struct Lister<'a> {
    mesh: &'a Mesh,
    places: Vec<ParameterPlace>,
    /// By the number of the tensor.
    names: BTreeMap<u64, String>,
}

impl PathVisitor for Lister<'_> {
    fn visit<const D: usize>(&mut self, name: String, param: &Param<Tensor<D>>) {
        let tensor = look(param.base());
        let Operand { shape, places } = tensor.operand();
        let mesh = self.mesh.shape();
        let local: usize = mesh.local_shape(&shape, &places, self.mesh.ranks()).iter().product();
        self.names.insert(tensor.id(), name.clone());
        self.places.push(ParameterPlace {
            name,
            placement: places[..mesh.num_axes()].iter().map(AxisPlacement::to_string).collect(),
            local_bytes: local * tensor.element_type().size(),
            bytes: shape.iter().product::<usize>() * tensor.element_type().size(),
            shape,
        });
    }
}

impl fmt::Display for Explanation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let width = self
            .parameters
            .iter()
            .map(|parameter| parameter.name.len())
            .max()
            .unwrap_or(0);
        for ParameterPlace {
            name,
            shape,
            placement,
            local_bytes,
            bytes,
        } in &self.parameters
        {
            let (shape, placement) = (format!("{shape:?}"), placement.join(" "));
            writeln!(
                f,
                "{name:width$}  {shape:14} {placement:14} {local_bytes:>12} of {bytes} bytes"
            )?;
        }
        let sum = |bytes: fn(&ParameterPlace) -> usize| self.parameters.iter().map(bytes).sum::<usize>();
        let (local, whole) = (sum(|parameter| parameter.local_bytes), sum(|parameter| parameter.bytes));
        writeln!(f, "parameters: {local} of {whole} bytes on this rank\n")?;
        for row in &self.traffic {
            let (phase, kind) = (format!("{:?}", row.phase), format!("{:?}", row.kind));
            write!(
                f,
                "{phase:10} {:24} axis {}  {kind:14} {:>5} × {:>12} bytes",
                row.operation, row.axis, row.count, row.bytes
            )?;
            match row.near.len() {
                0 => writeln!(f)?,
                1 => writeln!(f, "  {}", row.near[0])?,
                more => writeln!(f, "  {} and {} more", row.near[0], more - 1)?,
            }
            if let Some(advice) = row.advice {
                writeln!(f, "           cheaper: {advice}")?;
            }
        }
        let (count, bytes) = self.total();
        writeln!(f, "communication of a step: {count} collectives, {bytes} bytes")?;
        writeln!(f, "arithmetic of a step on this rank: {} operations", self.operations)
    }
}
