//! The balance of a grid of attention's blocks, whose work differs, over the multiprocessors.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use serde::{Deserialize, Serialize};

/// Causal self-attention.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Attention {
    pub samples: usize,
    /// Heads of each.
    pub heads: usize,
    /// Queries and keys of each.
    pub sequence: usize,
}

/// The order in which a grid's blocks start.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Order {
    /// All blocks of a head, from the one of most work, before the next head.
    HeadByHead,
    /// The blocks of most work of all heads of a sample, then the next ones.
    HeaviestOfAllHeads,
    /// All blocks of a head, from the one of least work.
    LightestFirst,
}

/// How a kernel divides attention into blocks.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Division {
    /// Rows of queries, or of keys, that a block keeps.
    pub kept: usize,
    /// Rows of the others that pass in an iteration.
    pub passing: usize,
    pub order: Order,
    /// What a block does before and after its loop, in iterations. Assumed.
    pub prologue: f64,
}

/// Gives each block of a grid, in its order, to the first of `slots` places that is free. Returns the time that the
/// work takes if it is spread evenly, over the time until the last block ends.
pub fn balance(attention: Attention, division: &Division, slots: usize) -> f64 {
    let costs = costs(attention, division);
    let ideal = costs.iter().sum::<f64>() / slots as f64;
    ideal / makespan(&costs, slots)
}

/// Returns the blocks' iterations, in the order in which they start.
fn costs(attention: Attention, division: &Division) -> Vec<f64> {
    let Attention {
        samples,
        heads,
        sequence,
    } = attention;
    let cost = |block: usize| {
        let seen = ((block + 1) * division.kept).min(sequence);
        division.prologue + seen as f64 / division.passing as f64
    };
    let ascending: Vec<f64> = (0..sequence.div_ceil(division.kept)).map(cost).collect();
    let descending: Vec<f64> = ascending.iter().rev().copied().collect();
    match division.order {
        Order::HeadByHead => descending.repeat(samples * heads),
        Order::LightestFirst => ascending.repeat(samples * heads),
        Order::HeaviestOfAllHeads => {
            let of_sample = descending.iter().flat_map(|cost| std::iter::repeat_n(*cost, heads));
            of_sample.collect::<Vec<f64>>().repeat(samples)
        }
    }
}

fn makespan(costs: &[f64], slots: usize) -> f64 {
    // Thousandths of an iteration, so that they have an order.
    let mut free: BinaryHeap<Reverse<u64>> = std::iter::repeat_n(Reverse(0), slots).collect();
    let mut last = 0;
    for cost in costs {
        let Reverse(start) = free.pop().expect("there are slots");
        let end = start + (cost * 1000.0).round() as u64;
        last = last.max(end);
        free.push(Reverse(end));
    }
    last as f64 / 1000.0
}

#[cfg(test)]
mod tests {
    use super::*;

    const SMALL: Attention = Attention {
        samples: 8,
        heads: 16,
        sequence: 1024,
    };

    fn of(kept: usize, passing: usize, order: Order, prologue: f64, slots: usize) -> f64 {
        let division = Division {
            kept,
            passing,
            order,
            prologue,
        };
        balance(SMALL, &division, slots)
    }

    #[test]
    fn heavy_blocks_first_balance_best() {
        let by_head = of(128, 32, Order::HeadByHead, 2.0, 216);
        let of_all = of(128, 32, Order::HeaviestOfAllHeads, 2.0, 216);
        assert!((by_head - 0.82).abs() < 0.005, "{by_head}");
        assert!((of_all - 0.88).abs() < 0.005, "{of_all}");
        assert!((of(64, 32, Order::HeadByHead, 2.0, 216) - 0.89).abs() < 0.005);
        assert!((of(64, 32, Order::HeaviestOfAllHeads, 2.0, 216) - 0.97).abs() < 0.005);
    }

    #[test]
    fn one_wave_of_equal_blocks_is_balanced() {
        assert_eq!(of(1024, 64, Order::HeadByHead, 0.0, 128), 1.0);
    }
}
