//! A pass of attention, forward or backward: what its kernels share of the matrix units' time does for products that
//! count.

use serde::{Deserialize, Serialize};

use crate::gpu::Gpu;
use crate::grid::{Attention, Division, Order, balance};
use crate::matrix::MatrixCost;
use crate::peer::{Peer, PeerError};
use crate::simulate::Utilisation;

/// Products of a pass per pair of a query and a key, each over the elements of a head: scores and output
/// forward, scores and four gradients backward.
pub const FORWARD: f64 = 2.0;
/// The same backward.
pub const BACKWARD: f64 = 5.0;
/// Iterations that a block of ours takes before and after its loop. Assumed.
const PROLOGUE: f64 = 2.0;
/// The same of FlashAttention-2.
const PEER_PROLOGUE: f64 = 1.0;
/// The share of the memory's bandwidth that kernels reach that only copy. Assumed.
pub const REACHED_BANDWIDTH: f64 = 0.85;

/// A launch of a kernel for the matrix units.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct MatrixLaunch {
    pub attention: Attention,
    pub d_head: usize,
    /// Threads of a block.
    pub threads: u32,
    /// Blocks.
    pub grid: [u32; 3],
}

/// Work of a pass on the matrix units.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Part {
    /// Products that it computes per pair of a query and a key.
    pub products: f64,
    /// The share of the matrix units' time.
    pub utilisation: Utilisation,
    pub division: Division,
    /// Blocks that run at once on a multiprocessor.
    pub resident: u32,
}

/// A pass of causal attention.
#[derive(Clone, Debug, PartialEq)]
pub struct Pass {
    pub d_head: usize,
    /// Products that count: [`FORWARD`] or [`BACKWARD`].
    pub useful: f64,
    /// The kernels on the matrix units, one after another.
    pub parts: Vec<Part>,
    /// Bytes of memory that the pass's other kernels move, per element of a head and row.
    pub other_bytes: f64,
}

/// Why a launch is not one of attention on the matrix units.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the grid {grid:?} is not blocks of rows of {heads} heads of {samples} samples")]
pub struct GridError {
    grid: [u32; 3],
    heads: usize,
    samples: usize,
}

impl MatrixLaunch {
    /// Returns the kernel's part in a pass, from its grid and its hot path.
    ///
    /// In an iteration a block copies a block of two tensors of 16-bit numbers, multiplies with it, and so tells its
    /// size. Blocks of a head begin with the one of most work, as ours do.
    ///
    /// # Errors
    ///
    /// If the grid has not the heads and samples of the problem.
    pub fn part(&self, cost: &MatrixCost, resident: u32) -> Result<Part, GridError> {
        let blocks = self.row_blocks()?;
        let passing = cost.copies * 16 * self.threads as usize / (2 * 2 * self.d_head);
        let kept = self.attention.sequence as f64 / blocks as f64;
        let warps = f64::from(self.threads) / 32.0;
        let computed = warps * cost.matrix_instructions as f64 * 2048.0;
        let is_head_first = self.grid[0] as usize == self.attention.heads;
        Ok(Part {
            products: computed / (kept * (passing * self.d_head) as f64),
            utilisation: cost.utilisation,
            division: Division {
                kept: kept.ceil() as usize,
                passing,
                order: if is_head_first {
                    Order::HeaviestOfAllHeads
                } else {
                    Order::HeadByHead
                },
                prologue: PROLOGUE,
            },
            resident,
        })
    }

    /// Returns the blocks of a head.
    fn row_blocks(&self) -> Result<u32, GridError> {
        let Attention { samples, heads, .. } = self.attention;
        let mut rest = self.grid.to_vec();
        for count in [heads, samples] {
            let place = rest.iter().position(|size| *size as usize == count).ok_or(GridError {
                grid: self.grid,
                heads,
                samples,
            })?;
            rest.remove(place);
        }
        Ok(rest[0])
    }
}

impl Pass {
    /// Returns a pass of FlashAttention-2.
    pub fn of_peer(peer: &Peer, gpu: &Gpu) -> Result<Self, PeerError> {
        Ok(Self {
            d_head: peer.d_head,
            useful: peer.products,
            parts: vec![Part {
                products: peer.products,
                utilisation: peer.cost(gpu)?.utilisation,
                division: Division {
                    kept: peer.kept,
                    passing: peer.passing,
                    order: peer.order,
                    prologue: PEER_PROLOGUE,
                },
                resident: peer.blocks as u32,
            }],
            other_bytes: peer.other_bytes,
        })
    }

    /// The time of the matrix units' peak for what counts, over the time of the loops.
    pub fn utilisation(&self) -> Utilisation {
        let time: f64 = self.parts.iter().map(Part::time).sum();
        let variance: f64 = self.parts.iter().map(|part| part.time_error().powi(2)).sum();
        Utilisation {
            mean: self.useful / time,
            standard_error: self.useful / time.powi(2) * variance.sqrt(),
        }
    }

    /// The same with the time of the other kernels, for sequences of this many tokens.
    pub fn utilisation_at(&self, sequence: usize, gpu: &Gpu) -> f64 {
        let time: f64 = self.parts.iter().map(Part::time).sum();
        // Half of the pairs of a row are kept; time in units of a product of them.
        let products_per_second = gpu.matrix_flops() / 2.0 / (sequence as f64 / 2.0);
        let others = self.other_bytes * products_per_second / (REACHED_BANDWIDTH * gpu.memory_bytes_per_second);
        self.useful / (time + others)
    }

    /// The balance of the pass's grids, the mean by time.
    pub fn balance(&self, attention: Attention, gpu: &Gpu) -> f64 {
        let total: f64 = self.parts.iter().map(Part::time).sum();
        let stretched = |part: &Part| part.time() / part.balance(attention, gpu);
        total / self.parts.iter().map(stretched).sum::<f64>()
    }
}

impl Part {
    /// The time of its loop, that of a product at the matrix units' peak being one.
    fn time(&self) -> f64 {
        self.products / self.utilisation.mean
    }

    fn time_error(&self) -> f64 {
        self.time() * self.utilisation.standard_error / self.utilisation.mean
    }

    /// The balance of its grid.
    pub fn balance(&self, attention: Attention, gpu: &Gpu) -> f64 {
        balance(
            attention,
            &self.division,
            (gpu.multiprocessors * self.resident) as usize,
        )
    }
}

/// A pass next to FlashAttention-2's.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Comparison {
    /// `forward`, `backward` or `backward, deterministic`.
    pub pass: String,
    pub d_head: usize,
    pub gpu: String,
    /// Products computed per pair, of which those that count are 2 or 5.
    pub products: f64,
    /// The simulated share of the matrix units' time for products that count, in the loops alone.
    pub utilisation: Utilisation,
    /// The same of FlashAttention-2.
    pub peer: Utilisation,
    /// Ours over theirs.
    pub of_peer: f64,
    pub of_peer_error: f64,
    /// With the other kernels, at 2048 tokens: ours, theirs, ours over theirs.
    pub with_others: [f64; 3],
    /// The balance of the grid at 8 samples of 16 heads of 1024 tokens: ours and theirs.
    pub balance: [f64; 2],
}

/// The attention that balances are stated for.
pub const BALANCED: Attention = Attention {
    samples: 8,
    heads: 16,
    sequence: 1024,
};
/// The tokens that times of other kernels are stated for.
pub const TOKENS: usize = 2048;

impl Comparison {
    /// Compares a pass with FlashAttention-2's.
    pub fn new(name: &str, ours: &Pass, peer: &Pass, gpu: &Gpu) -> Self {
        let [utilisation, of_them] = [ours, peer].map(Pass::utilisation);
        let [with, peer_with] = [ours, peer].map(|pass| pass.utilisation_at(TOKENS, gpu));
        let of_peer = utilisation.mean / of_them.mean;
        let relative = |value: Utilisation| value.standard_error / value.mean;
        Self {
            pass: name.to_string(),
            d_head: ours.d_head,
            gpu: gpu.name.to_string(),
            products: ours.parts.iter().map(|part| part.products).sum(),
            utilisation,
            peer: of_them,
            of_peer,
            of_peer_error: of_peer * relative(utilisation).hypot(relative(of_them)),
            with_others: [with, peer_with, with / peer_with],
            balance: [ours, peer].map(|pass| pass.balance(BALANCED, gpu)),
        }
    }
}
