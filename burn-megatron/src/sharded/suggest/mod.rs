//! [`Plan::suggest`]: the plan of a model that costs least, found by steps that are counted.
//!
//! | file | what it holds |
//! |---|---|
//! | `choices` | what a plan may do with each layer, by the types and names of a model's modules |
//! | `config` | the machine, and what a step is expected to take on it |
//! | `report` | the plans that were tried, with their costs |

mod choices;
mod config;
mod report;

use std::collections::HashMap;

use burn::module::Module;

pub use config::SuggestConfig;
pub use report::{Candidate, SuggestError, Suggestion};

use super::explain::Explanation;
use super::mesh::Mesh;
use super::plan::Plan;
use crate::collectives::{CollectiveError, ReduceOp, catch_collective_error};
use choices::{Choice, choices};

impl Plan {
    /// Returns the plan of a model on a mesh that costs least of those that were tried, and the costs of all.
    ///
    /// `run` makes the model, places it by the plan it gets, and [`explain`](super::explain())s a whole step of it: so
    /// what is compared are communication, arithmetic and bytes per rank as they are, of real steps. From these
    /// [`SuggestConfig::seconds`] makes the time that a step is expected to take. A plan with which a rank has more
    /// bytes of parameters than [`SuggestConfig::with_parameter_bytes`] says is taken for one that costs more than any
    /// other.
    ///
    /// It tries burn's attention, feed-forward, recurrent and convolutional layers, embeddings and linear layers
    /// cut over the tensor-parallel ranks where these divide their sizes, and [`fully_shard`](Self::fully_shard) over
    /// those of data. First nothing and all of these; then, from the better of them, one layer after the other is
    /// changed, as long as that makes it cheaper. That takes some steps for each kind of layer, however many layers
    /// there are, and may miss a plan for which several layers would have to be changed at once.
    ///
    /// # Communication
    /// The collectives of the steps, and per plan and axis of the mesh an all-reduce of 40 bytes; every rank must call.
    ///
    /// # Errors
    /// When a step fails, a collective fails, or no plan leaves little enough on a rank. After a step that failed the
    /// mesh's groups take no further calls ([`ProcessGroup::give_up`]), so that no rank waits for one that has failed.
    ///
    /// [`ProcessGroup::give_up`]: crate::collectives::ProcessGroup::give_up
    ///
    /// # Example
    /// ```
    /// use burn::nn::LinearConfig;
    /// use burn::tensor::Tensor;
    /// use burn_flex::{Flex, FlexDevice};
    /// use burn_megatron::collectives::CollectiveError;
    /// use burn_megatron::prelude::*;
    /// use burn_megatron::sharded::{Mesh, Plan, SuggestConfig, backward, device, explain, parallelize};
    ///
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let mesh = Mesh::of(&ParallelContext::single(1))?;
    /// let device = device::<Flex>(FlexDevice).autodiff();
    /// let model = LinearConfig::new(4, 2).init(&device);
    /// let suggestion = Plan::suggest(&model, &mesh, &SuggestConfig::new(), |plan| {
    ///     let placed = parallelize(model.clone(), plan, &mesh).expect("it fits the model");
    ///     let (explanation, step) = explain(&placed, &mesh, || {
    ///         backward(placed.forward(Tensor::<2>::ones([8, 4], &device)).mean(), &placed)
    ///     });
    ///     step?;
    ///     Ok::<_, CollectiveError>(explanation)
    /// })?;
    /// println!("{suggestion}");
    /// let placed = parallelize(model, suggestion.plan(), &mesh)?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn suggest<M, E>(
        model: &M,
        mesh: &Mesh,
        config: &SuggestConfig,
        run: impl FnMut(&Plan) -> Result<Explanation, E>,
    ) -> Result<Suggestion, SuggestError>
    where
        M: Module,
        E: Into<Box<dyn std::error::Error + Send + Sync>>,
    {
        let choices = choices(model, mesh.shape());
        let mut search = Search {
            choices: &choices,
            mesh,
            config,
            run,
            candidates: Vec::new(),
            known: HashMap::new(),
        };
        search.descend()?;
        let mut candidates = search.candidates;
        candidates.sort_by(|a, b| {
            order(config, a)
                .partial_cmp(&order(config, b))
                .expect("costs are numbers")
        });
        let best = &candidates[0];
        match config.parameter_bytes {
            Some(limit) if best.parameter_bytes > limit => Err(SuggestError::TooLarge {
                limit,
                least: best.parameter_bytes,
                plan: best.plan.clone(),
            }),
            _ => Ok(Suggestion { candidates }),
        }
    }
}

/// For each choice 0 for nothing, or the number of the alternative from 1.
type Selection = Vec<usize>;

/// The search for the cheapest plan.
struct Search<'a, F> {
    choices: &'a [Choice],
    mesh: &'a Mesh,
    config: &'a SuggestConfig,
    run: F,
    candidates: Vec<Candidate>,
    /// The number of the candidate.
    known: HashMap<Selection, usize>,
}

impl<F, E> Search<'_, F>
where
    F: FnMut(&Plan) -> Result<Explanation, E>,
    E: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    fn descend(&mut self) -> Result<(), SuggestError> {
        let mut best = vec![0; self.choices.len()];
        let mut cost = self.cost(&best)?;
        let all = vec![1; self.choices.len()];
        self.take_if_cheaper(all, &mut best, &mut cost)?;
        loop {
            let before = best.clone();
            for choice in 0..self.choices.len() {
                for alternative in 0..=self.choices[choice].len() {
                    let mut changed = best.clone();
                    changed[choice] = alternative;
                    self.take_if_cheaper(changed, &mut best, &mut cost)?;
                }
            }
            if best == before {
                return Ok(());
            }
        }
    }

    fn take_if_cheaper(
        &mut self,
        other: Selection,
        best: &mut Selection,
        cost: &mut (usize, f64),
    ) -> Result<(), SuggestError> {
        let other_cost = self.cost(&other)?;
        if other_cost < *cost {
            (*best, *cost) = (other, other_cost);
        }
        Ok(())
    }

    /// Returns the costs of a plan, found by a step if it has not been tried.
    fn cost(&mut self, selection: &Selection) -> Result<(usize, f64), SuggestError> {
        if let Some(&number) = self.known.get(selection) {
            return Ok(order(self.config, &self.candidates[number]));
        }
        let chosen = self.choices.iter().zip(selection).filter(|&(_, &number)| number > 0);
        let plan = chosen.fold(Plan::new(), |plan, (choice, &number)| plan.and(&choice[number - 1]));
        let step = catch_collective_error(|| (self.run)(&plan).map_err(Into::into));
        let explanation = match step.unwrap_or_else(|error| Err(error.into())) {
            Ok(explanation) => explanation,
            Err(source) => {
                self.mesh
                    .give_up(&format!("a step failed for which a plan was tried: {source}"));
                return Err(SuggestError::Step { plan, source });
            }
        };
        let candidate = self.candidate(plan, &explanation).inspect_err(|error| {
            // Those of another axis may wait for this rank.
            self.mesh
                .give_up(&format!("the costs of a plan were not compared: {error}"));
        })?;
        let cost = order(self.config, &candidate);
        self.known.insert(selection.clone(), self.candidates.len());
        self.candidates.push(candidate);
        Ok(cost)
    }

    /// Returns a plan with its costs on the rank for which they are highest, so that all ranks choose the same plan.
    fn candidate(&self, plan: Plan, explanation: &Explanation) -> Result<Candidate, CollectiveError> {
        let (collectives, communicated_bytes) = explanation.total();
        let mut costs = [
            self.config.seconds(explanation, self.mesh),
            explanation.local_parameter_bytes() as f64,
            explanation.operations as f64,
            collectives as f64,
            communicated_bytes as f64,
        ];
        for axis in 0..self.mesh.shape().num_axes() {
            let group = self.mesh.group(axis).labelled("comparing what plans cost");
            group.all_reduce(&mut costs, ReduceOp::Max)?;
        }
        let [seconds, counts @ ..] = costs;
        let [parameter_bytes, operations, collectives, communicated_bytes] = counts.map(|count| count as u64);
        Ok(Candidate {
            plan,
            seconds,
            parameter_bytes: parameter_bytes as usize,
            operations,
            collectives: collectives as usize,
            communicated_bytes: communicated_bytes as usize,
        })
    }
}

/// Orders plans: first by the room that they need beyond what there is, then by time.
fn order(config: &SuggestConfig, candidate: &Candidate) -> (usize, f64) {
    let limit = config.parameter_bytes.unwrap_or(usize::MAX);
    (candidate.parameter_bytes.saturating_sub(limit), candidate.seconds)
}
