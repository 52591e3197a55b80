//! [`Recording`]: the operations of the one-rank run, with what they computed.

use std::collections::{HashMap, HashSet};
use std::fmt;

use burn::tensor::TensorData;
use serde::{Deserialize, Serialize};

use super::super::traffic::Phase;
use super::kept::Kept;
use super::seen::Seen;

/// The part of a training step that an operation belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Stage {
    /// From a batch to the loss.
    Forward,
    /// From the loss to gradients.
    Backward,
    /// What is done with gradients: clipping, the optimizer.
    Update,
}

impl fmt::Display for Stage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Stage::Forward => "forward pass",
            Stage::Backward => "backward pass",
            Stage::Update => "update",
        })
    }
}

/// What is known of an operation, apart from its tensors.
pub(super) struct Event {
    pub(super) operation: &'static str,
    pub(super) phase: Phase,
    /// The names that are open.
    pub(super) module: String,
    /// The steps that were judged before it.
    pub(super) judged: usize,
}

/// An operation of the one-rank run.
pub(super) struct Operation {
    pub(super) name: &'static str,
    pub(super) stage: Stage,
    pub(super) step: usize,
    pub(super) module: String,
    /// The numbers of its tensors.
    pub(super) operands: Vec<u64>,
    pub(super) results: Vec<u64>,
    phase: Phase,
    judged: usize,
}

/// The operations of the one-rank run, in order.
pub(super) struct Recording {
    pub(super) operations: Vec<Operation>,
    kept: HashMap<u64, Kept>,
    names: HashMap<u64, Name>,
    /// The operation that made a tensor.
    makers: HashMap<u64, usize>,
    bytes: usize,
    limit_bytes: usize,
    pub(super) num_sketches: usize,
}

impl Recording {
    pub(super) fn new(limit_bytes: usize) -> Self {
        Self {
            operations: Vec::new(),
            kept: HashMap::new(),
            names: HashMap::new(),
            makers: HashMap::new(),
            bytes: 0,
            limit_bytes,
            num_sketches: 0,
        }
    }

    pub(super) fn has(&self, id: u64) -> bool {
        self.kept.contains_key(&id)
    }

    pub(super) fn kept(&self, id: u64) -> &Kept {
        &self.kept[&id]
    }

    /// What a tensor is, if it is a parameter or a gradient.
    pub(super) fn name_of(&self, id: u64) -> Option<String> {
        self.names.get(&id).map(Name::to_string)
    }

    /// A tensor is what it was first called: a gradient may be another parameter's, too.
    pub(super) fn name(&mut self, id: u64, name: Name) {
        self.names.entry(id).or_insert(name);
    }

    pub(super) fn add(&mut self, event: Event, operands: Vec<Seen>, results: Vec<Seen>) {
        let number = self.operations.len();
        let mut keep_all = |seen: Vec<Seen>| -> Vec<u64> {
            seen.into_iter()
                .map(|Seen { id, data, .. }| {
                    if let Some(data) = data {
                        self.keep(id, data);
                    }
                    id
                })
                .collect()
        };
        let (operands, results) = (keep_all(operands), keep_all(results));
        for &id in &results {
            self.makers.entry(id).or_insert(number);
        }
        self.operations.push(Operation {
            name: event.operation,
            stage: Stage::Forward,
            step: 0,
            module: event.module,
            operands,
            results,
            phase: event.phase,
            judged: event.judged,
        });
    }

    fn keep(&mut self, id: u64, data: TensorData) {
        if self.has(id) {
            return;
        }
        let kept = if self.bytes + data.as_bytes().len() <= self.limit_bytes {
            Kept::whole(data)
        } else {
            self.num_sketches += 1;
            Kept::sketch(&data)
        };
        self.bytes += kept.bytes();
        self.kept.insert(id, kept);
    }

    /// Finds out what can be known when all operations are there.
    pub(super) fn finish(&mut self) {
        self.find_stages();
        self.name_on_the_way();
        self.find_modules();
    }

    /// Operations outside passes that use what a backward pass computed are of the update, and those before them, such
    /// as the decay of a weight. New parameters are no part of that.
    fn find_stages(&mut self) {
        let mut of_update: HashSet<u64> = HashSet::new();
        for operation in &mut self.operations {
            let is_parameter = |id: &u64| matches!(self.names.get(id), Some(Name::Parameter(_)));
            let mut tensors = operation.operands.iter().chain(&operation.results);
            let is_update = tensors.any(|id| of_update.contains(id) && !is_parameter(id));
            operation.stage = match operation.phase {
                Phase::Backward => Stage::Backward,
                Phase::Forward if !is_update => Stage::Forward,
                Phase::Forward | Phase::Gradients => Stage::Update,
            };
            if operation.stage != Stage::Forward {
                of_update.extend(&operation.results);
            }
        }
        let mut next = Stage::Forward;
        for operation in self.operations.iter_mut().rev() {
            if operation.stage == Stage::Forward && next == Stage::Update {
                operation.stage = Stage::Update;
            }
            next = operation.stage;
        }
        let mut step = 1;
        for operation in &mut self.operations {
            if operation.stage != Stage::Update {
                step = operation.judged + 1;
            }
            operation.step = step;
        }
    }

    /// Names what nothing but a gradient is made of, such as the sum over one dimension of two.
    fn name_on_the_way(&mut self) {
        let mut uses: HashMap<u64, usize> = HashMap::new();
        for id in self.operations.iter().flat_map(|operation| &operation.operands) {
            *uses.entry(*id).or_default() += 1;
        }
        for operation in self.operations.iter().rev() {
            let ([operand], [result]) = (&operation.operands[..], &operation.results[..]) else {
                continue;
            };
            let name = match self.names.get(result) {
                Some(Name::Gradient(name) | Name::TowardsGradient(name)) => name.clone(),
                _ => continue,
            };
            if operation.stage == Stage::Backward && uses[operand] == 1 && self.makers.contains_key(operand) {
                self.names.entry(*operand).or_insert(Name::TowardsGradient(name));
            }
        }
    }

    /// An operation of a backward pass is in the part of the program that its parameter is used in; or else where its
    /// upstream gradient comes from, if what it has of the forward pass was made or used there; or else where that was
    /// made.
    fn find_modules(&mut self) {
        let mut of_parameters: HashMap<&str, String> = HashMap::new();
        let mut of_users: HashMap<u64, Vec<String>> = HashMap::new();
        let forward = self
            .operations
            .iter()
            .filter(|operation| operation.stage == Stage::Forward);
        for operation in forward.filter(|operation| !operation.module.is_empty()) {
            for id in &operation.operands {
                of_users.entry(*id).or_default().push(operation.module.clone());
                if let Some(Name::Parameter(name)) = self.names.get(id) {
                    of_parameters.insert(name, operation.module.clone());
                }
            }
        }
        for number in 0..self.operations.len() {
            let operation = &self.operations[number];
            if operation.stage != Stage::Backward || !operation.module.is_empty() {
                continue;
            }
            let tensors = operation.operands.iter().chain(&operation.results);
            let mut names = tensors.filter_map(|id| self.names.get(id));
            let of_parameter = names.find_map(|name| of_parameters.get(name.parameter()));
            let made_by = |stage: Stage| {
                let makers = operation.operands.iter().filter_map(|id| self.makers.get(id));
                let mut makers = makers.map(|&maker| &self.operations[maker]);
                makers.find(|maker| (maker.stage == Stage::Forward) == (stage == Stage::Forward))
            };
            let saved = made_by(Stage::Forward).map(|maker| &maker.module);
            let upstream = made_by(Stage::Backward).map(|maker| &maker.module);
            let is_upstreams = |module: &String| {
                let users = operation.operands.iter().filter_map(|id| of_users.get(id)).flatten();
                saved.is_none_or(|saved| saved == module) || users.into_iter().any(|user| user == module)
            };
            let of_tensors = upstream.filter(|module| is_upstreams(module)).or(saved);
            if let Some(module) = of_parameter.or(of_tensors) {
                self.operations[number].module = module.clone();
            }
        }
    }

    /// The operation that made a tensor; none made a batch, a parameter at the start, or a draw.
    pub(super) fn maker(&self, id: u64) -> Option<usize> {
        self.makers.get(&id).copied()
    }

    /// The part of the program that an operation is in.
    pub(super) fn module(&self, number: usize) -> &str {
        &self.operations[number].module
    }

    /// The parameters and gradients among an operation's tensors, or else among those of the last one that had some.
    pub(super) fn near(&self, number: usize) -> Vec<String> {
        let of = |operation: &Operation| -> Vec<String> {
            let ids = operation.operands.iter().chain(&operation.results);
            let mut names: Vec<String> = Vec::new();
            for name in ids.filter_map(|&id| self.name_of(id)) {
                if !names.contains(&name) {
                    names.push(name);
                }
            }
            names
        };
        if self.operations[number].operands.is_empty() {
            return of(&self.operations[number]);
        }
        let mut lists = self.operations[..=number].iter().rev().map(of);
        lists.find(|names| !names.is_empty()).unwrap_or_default()
    }

    /// What a tensor is that no operation made.
    pub(super) fn origin(&self, id: u64) -> Option<String> {
        self.maker(id).is_none().then(|| "a batch, a constant or a draw".into())
    }

    /// What a tensor is: a parameter, the result of an operation, or something from outside.
    pub(super) fn describe(&self, id: u64) -> String {
        let of_maker = |maker: usize| format!("of operation {}, {}", maker + 1, self.operations[maker].name);
        let known = self.name_of(id).or_else(|| self.maker(id).map(of_maker));
        known.or_else(|| self.origin(id)).unwrap_or_default()
    }
}

/// What a tensor is to a model.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Name {
    Parameter(String),
    /// A parameter's gradient.
    Gradient(String),
    /// What nothing but a parameter's gradient is made of.
    TowardsGradient(String),
}

impl Name {
    fn parameter(&self) -> &str {
        match self {
            Name::Parameter(name) | Name::Gradient(name) | Name::TowardsGradient(name) => name,
        }
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Name::Parameter(name) => f.write_str(name),
            Name::Gradient(name) => write!(f, "gradient of {name}"),
            Name::TowardsGradient(name) => write!(f, "a step to the gradient of {name}"),
        }
    }
}
