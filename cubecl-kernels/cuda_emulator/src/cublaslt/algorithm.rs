//! `Algorithm`: what the caller chooses to compute a product. There is one for each, with a workspace or without; it is
//! for addresses that are aligned as the caller's preference says.

use std::ffi::{c_int, c_void};

use super::error::{Error, Outcome};
use super::handle::device_of;
use super::preference::{PREFERENCES, Preference};
use super::problem::Problem;
use crate::driver::device::number_in_environment;
use crate::exported::{Out, exported};

/// What an algorithm needs, where it may, in bytes.
const WORKSPACE: u64 = 1 << 20;
/// The first word of all algorithms.
const MARK: u64 = u64::from_be_bytes(*b"emulator");

/// `cublasLtMatmulAlgo_t`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Algorithm {
    words: [u64; 8],
}

impl Algorithm {
    pub fn new(problem: &Problem, preference: &Preference) -> Self {
        let workspace = if preference.max_workspace < WORKSPACE {
            0
        } else {
            WORKSPACE
        };
        let [a, b, c, d] = preference.alignments.map(u64::from);
        let words = [MARK, problem.kind(), workspace, a, b, c, d, 0];
        Self { words }
    }

    /// How the addresses of A, B, C and D are aligned, in bytes.
    pub fn alignments(&self) -> [usize; 4] {
        std::array::from_fn(|matrix| self.words[3 + matrix] as usize)
    }

    /// The bytes of workspace that it needs.
    pub fn workspace(&self) -> usize {
        self.words[2] as usize
    }

    /// Checks that it is one, for products of this kind.
    pub fn check(&self, problem: &Problem) -> Outcome {
        let [mark, kind, workspace, ..] = self.words;
        if mark != MARK || ![0, WORKSPACE].contains(&workspace) {
            return Err(Error::invalid("an algorithm that no heuristic returned"));
        }
        if kind != problem.kind() {
            return Err(Error::invalid(format!(
                "an algorithm of another product than {problem:?}"
            )));
        }
        Ok(())
    }
}

/// `cublasLtMatmulHeuristicResult_t`.
#[repr(C)]
struct HeuristicResult {
    algorithm: Algorithm,
    workspace: usize,
    state: u32,
    waves: f32,
    reserved: [c_int; 4],
}

/// Returns the algorithm for a product, as a heuristic recommends it.
fn recommended(operation: *mut c_void, layouts: [*mut c_void; 4], preference: &Preference) -> Outcome<Algorithm> {
    let problem = Problem::of(operation, layouts)?;
    if preference.rounds_parts() && problem.d.element != problem.wide() {
        // cuBLASLt may choose such a kernel; a caller who wants that has no test here.
        return Err(Error::unsupported("parts of sums that are rounded to 16 bits"));
    }
    // NVIDIA's has kernels for some of these, and not for others.
    if problem.bias.is_some() && problem.rows == 1 {
        return Err(Error::unsupported("a bias of one number"));
    }
    let least = number_in_environment("CUDA_EMULATOR_CUBLASLT_ALIGNMENT").unwrap_or(1);
    if preference.alignments.iter().any(|&bytes| (bytes as usize) < least) {
        return Err(Error::unsupported(format!(
            "operands that are not aligned to {least} bytes"
        )));
    }
    Ok(Algorithm::new(&problem, preference))
}

exported! {
    fn cublasLtMatmulAlgoGetHeuristic(
        handle: *mut c_void,
        operation: *mut c_void,
        a: *mut c_void,
        b: *mut c_void,
        c: *mut c_void,
        d: *mut c_void,
        preference: *mut c_void,
        asked: c_int,
        results: Out<HeuristicResult>,
        count: Out<c_int>,
    ) {
        count.give::<Error>(0)?;
        device_of(handle)?;
        if asked < 1 {
            return Err(Error::invalid(format!("{asked} algorithms are asked for")));
        }
        let algorithm = recommended(operation, [a, b, c, d], &PREFERENCES.value(preference)?)?;
        let workspace = algorithm.workspace();
        // There is room for the requested number of results.
        results
            .give(HeuristicResult { algorithm, workspace, state: 0, waves: 1.0, reserved: [0; 4] })
            .and(count.give(1))
    }
}
