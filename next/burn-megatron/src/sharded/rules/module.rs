//! The rule of operations whose dimensions have names: convolutions, pooling, interpolation, attention.
//!
//! A dimension with a name can be cut: every operand that has it is cut along it, the others are whole. If the result
//! has it, the result is cut; if it is summed over, each rank has a term. Dimensions without a name must be whole.

use super::super::placement::AxisPlacement::{Replicated, Shard};
use super::super::placement::{AxisRole, PARTIAL_SUM};
use super::{AxisPlan, AxisView, Operand, Rule};

/// A dimension that must be whole.
const UNNAMED: u8 = b'.';

/// An operation on named dimensions, written as `bi..,oi..,o->bo..`: operands, then results.
///
/// A convolution, for example: an input of batch and channels, a weight of output and input channels, a bias of output
/// channels. Names are single letters; `.` is a dimension that must be whole. The same letter has the same length in
/// all operands, or 1 in those that are broadcast along it.
#[derive(Clone, Debug)]
pub struct Named {
    operands: Vec<&'static [u8]>,
    results: Vec<&'static [u8]>,
    /// The operands that are parameters: on a tensor axis their cut counts.
    parameters: &'static [usize],
    /// The operands that are added to the result, once.
    added: &'static [usize],
    /// The operands that the results are linear in, if all others are whole.
    linear: &'static [usize],
    /// Names that must be whole, such as channels in groups.
    fixed: &'static [u8],
}

impl Named {
    /// Returns the rule for dimensions as described.
    ///
    /// # Panics
    /// When the description has no `->`.
    pub fn new(description: &'static str) -> Self {
        let (operands, results) = description.split_once("->").expect("operands -> results");
        Self::of(operands.split(','), results.split(','))
    }

    /// Returns the rule for operands and results of these dimensions: some of them may be missing in some calls.
    pub fn of(
        operands: impl IntoIterator<Item = &'static str>,
        results: impl IntoIterator<Item = &'static str>,
    ) -> Self {
        Self {
            operands: operands.into_iter().map(str::as_bytes).collect(),
            results: results.into_iter().map(str::as_bytes).collect(),
            parameters: &[],
            added: &[],
            linear: &[],
            fixed: &[],
        }
    }

    /// With these operands as parameters.
    pub fn parameters(self, parameters: &'static [usize]) -> Self {
        Self { parameters, ..self }
    }

    /// With these operands added to the result.
    pub fn added(self, added: &'static [usize]) -> Self {
        Self { added, ..self }
    }

    /// With results that are linear in each of these operands.
    pub fn linear(self, linear: &'static [usize]) -> Self {
        Self { linear, ..self }
    }

    /// With these names whole.
    pub fn fixed(self, fixed: &'static [u8]) -> Self {
        Self { fixed, ..self }
    }

    /// The name of the dimension that an operand is cut along, if it can stay so.
    fn name_of_cut(&self, view: &AxisView, operand: usize) -> Option<u8> {
        let cut = view.settled(operand).cut()?;
        let name = self.operands[operand][cut];
        let is_summed = !self.results.iter().all(|result| result.contains(&name));
        // A sum over ranks is the sum of what the operation gives only where that is linear in its operands.
        let is_possible = !is_summed || !self.linear.is_empty();
        let is_free = name != UNNAMED && !self.fixed.contains(&name);
        (is_free && is_possible && length_of(name, &self.operands, view.operands).is_some()).then_some(name)
    }
}

impl Rule for Named {
    /// The lengths of dimensions without a name, or with one that must be whole, are 0: nothing depends on them, and
    /// whoever runs the operation sees them.
    fn shapes(&self, operands: &[Operand]) -> Vec<Vec<usize>> {
        let length = |&name: &u8| {
            if self.fixed.contains(&name) {
                // Channels in groups have other lengths in a weight than in the input and the output.
                0
            } else {
                length_of(name, &self.operands, operands).unwrap_or(0)
            }
        };
        self.results
            .iter()
            .map(|names| names.iter().map(length).collect())
            .collect()
    }

    fn plan(&self, view: &AxisView) -> AxisPlan {
        let count = view.operands.len();
        let whole = || AxisPlan::new(vec![Replicated; count], vec![Replicated; self.results.len()]);
        if let Some(terms) = self.terms(view) {
            return terms;
        }
        // Parameters first on a tensor axis, last on the others.
        let is_preferred = |operand: &usize| self.parameters.contains(operand) == (view.role() == AxisRole::Tensor);
        let (preferred, others): (Vec<usize>, Vec<usize>) = (0..count).partition(is_preferred);
        let mut names = preferred
            .into_iter()
            .chain(others)
            .filter_map(|operand| self.name_of_cut(view, operand));
        let Some(name) = names.next() else {
            return whole();
        };
        let in_result = |names: &&[u8]| position(names, name).map_or(PARTIAL_SUM, Shard);
        let results: Vec<_> = self.results.iter().map(in_result).collect();
        let needs = (0..count).map(|operand| match position(self.operands[operand], name) {
            Some(dimension) if view.shape(operand)[dimension] == 1 => Replicated,
            Some(dimension) => Shard(dimension),
            None if self.added.contains(&operand) && results.contains(&PARTIAL_SUM) => PARTIAL_SUM,
            None => Replicated,
        });
        AxisPlan::new(needs.collect::<Vec<_>>(), results)
    }
}

impl Named {
    /// The answer where one operand is a sum that has not been made and everything else is whole.
    fn terms(&self, view: &AxisView) -> Option<AxisPlan> {
        let count = view.operands.len();
        let mut partial = (0..count).filter(|&operand| view.place(operand).is_partial());
        let (one, None) = (partial.next()?, partial.next()) else {
            return None;
        };
        let others_are_whole = (0..count).all(|operand| operand == one || view.place(operand) == Replicated);
        if view.place(one) != PARTIAL_SUM || !self.linear.contains(&one) || !others_are_whole {
            return None;
        }
        let needs = (0..count).map(|operand| {
            if operand == one || self.added.contains(&operand) {
                PARTIAL_SUM
            } else {
                Replicated
            }
        });
        Some(AxisPlan::new(
            needs.collect::<Vec<_>>(),
            vec![PARTIAL_SUM; self.results.len()],
        ))
    }
}

fn position(names: &[u8], name: u8) -> Option<usize> {
    names.iter().position(|&other| other == name)
}

/// The length of a named dimension: the same in all operands that are not broadcast along it, else none.
fn length_of(name: u8, names: &[&'static [u8]], operands: &[Operand]) -> Option<usize> {
    let mut lengths = names
        .iter()
        .zip(operands)
        .filter_map(|(names, operand)| Some(operand.shape[position(names, name)?]))
        .filter(|&length| length != 1);
    let first = lengths.next().unwrap_or(1);
    (name != UNNAMED && lengths.all(|length| length == first)).then_some(first)
}
