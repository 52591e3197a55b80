//! [`ProfiledSteps`]: the steps that a tool captures, and [`CudaProfiler`], which tells the tool when.
//!
//! `nsys profile --capture-range=cudaProfilerApi` records between `cudaProfilerStart` and `cudaProfilerStop`, or the
//! driver's `cuProfilerStart` and `cuProfilerStop`. Both libraries are loaded when they are needed.

use std::ffi::c_int;
use std::ops::RangeInclusive;

use libloading::Library;

/// The driver, and CUDA's runtime, by the names of its versions.
const DRIVER: &str = "libcuda.so.1";
const RUNTIMES: [&str; 4] = [
    "libcudart.so.13",
    "libcudart.so.12",
    "libcudart.so.11.0",
    "libcudart.so",
];

type Call = unsafe extern "C" fn() -> c_int;

/// Which steps are captured, on which ranks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProfiledSteps {
    /// The steps, counted from 1.
    pub steps: RangeInclusive<u64>,
    /// The ranks; all of them if empty.
    pub ranks: Vec<usize>,
}

impl ProfiledSteps {
    /// Whether a rank takes part.
    pub fn has_rank(&self, rank: usize) -> bool {
        self.ranks.is_empty() || self.ranks.contains(&rank)
    }

    /// Whether the capture starts before this step of a run that starts with `first`: at its first step, or at the
    /// run's, if that is later.
    pub fn starts_before(&self, step: u64, first: u64) -> bool {
        self.steps.contains(&step) && step == first.max(*self.steps.start())
    }

    /// Whether the capture ends after this step: it is the last of them, or of the run.
    pub fn ends_after(&self, step: u64, is_last: bool) -> bool {
        self.steps.contains(&step) && (is_last || step == *self.steps.end())
    }
}

/// What tells a tool to record.
#[derive(Debug)]
pub struct CudaProfiler {
    /// Each with its library's name; the first that succeeds counts.
    calls: Vec<(&'static str, Call, Call)>,
}

impl CudaProfiler {
    /// Loads the driver's functions and the runtime's, as far as they are there. A machine without CUDA has none.
    pub fn load() -> Self {
        let driver = load(DRIVER, c"cuProfilerStart", c"cuProfilerStop");
        let runtime = RUNTIMES
            .iter()
            .find_map(|name| load(name, c"cudaProfilerStart", c"cudaProfilerStop"));
        Self {
            calls: driver.into_iter().chain(runtime).collect(),
        }
    }

    /// Whether there is anything to tell.
    pub fn is_there(&self) -> bool {
        !self.calls.is_empty()
    }

    /// Starts to record; returns the library that did it, or what each one answered.
    ///
    /// # Errors
    /// The libraries that refused, with the number of CUDA's error.
    pub fn start(&self) -> Result<&'static str, String> {
        self.first(|(_, start, _)| *start)
    }

    /// Stops to record.
    ///
    /// # Errors
    /// As [`start`](Self::start).
    pub fn stop(&self) -> Result<&'static str, String> {
        self.first(|(_, _, stop)| *stop)
    }

    fn first(&self, call: impl Fn(&(&'static str, Call, Call)) -> Call) -> Result<&'static str, String> {
        let mut refusals = Vec::new();
        for library in &self.calls {
            // SAFETY: takes nothing, and may be called at any time; without a context it returns an error.
            match unsafe { call(library)() } {
                0 => return Ok(library.0),
                error => refusals.push(format!("{}: error {error}", library.0)),
            }
        }
        if refusals.is_empty() {
            refusals.push(format!("neither {DRIVER} nor {} is there", RUNTIMES[0]));
        }
        Err(refusals.join(", "))
    }
}

fn load(name: &'static str, start: &std::ffi::CStr, stop: &std::ffi::CStr) -> Option<(&'static str, Call, Call)> {
    // SAFETY: NVIDIA's libraries may be loaded at any time on any thread.
    let library = unsafe { Library::new(name) }.ok()?;
    // SAFETY: the types are those of cudaProfiler.h and cuda_profiler_api.h.
    let calls = unsafe {
        let start = *library.get::<Call>(start.to_bytes_with_nul()).ok()?;
        (name, start, *library.get::<Call>(stop.to_bytes_with_nul()).ok()?)
    };
    // The driver does not expect to be unloaded.
    std::mem::forget(library);
    Some(calls)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_capture_has_one_start_and_one_end() {
        let profiled = ProfiledSteps {
            steps: 3..=5,
            ranks: vec![0, 2],
        };
        assert!(profiled.has_rank(2) && !profiled.has_rank(1));
        let all = ProfiledSteps {
            ranks: Vec::new(),
            ..profiled.clone()
        };
        assert!(all.has_rank(1));
        // By the first and the last step of the run.
        for (first, last, start, end) in [
            (1, 9, Some(3), Some(5)),
            (1, 4, Some(3), Some(4)),
            (4, 9, Some(4), Some(5)),
            (5, 5, Some(5), Some(5)),
            (6, 9, None, None),
            (1, 2, None, None),
        ] {
            let starts: Vec<u64> = (first..=last)
                .filter(|step| profiled.starts_before(*step, first))
                .collect();
            let ends: Vec<u64> = (first..=last)
                .filter(|step| profiled.ends_after(*step, *step == last))
                .collect();
            assert_eq!(
                (starts, ends),
                (start.into_iter().collect(), end.into_iter().collect()),
                "{first} to {last}"
            );
        }
    }

    unsafe extern "C" fn succeeds() -> c_int {
        0
    }

    unsafe extern "C" fn refuses() -> c_int {
        201
    }

    #[test]
    fn the_first_library_that_can_is_taken_and_refusals_are_named() {
        let profiler = CudaProfiler {
            calls: vec![("driver", refuses, refuses), ("runtime", succeeds, refuses)],
        };
        assert!(profiler.is_there());
        assert_eq!(profiler.start(), Ok("runtime"));
        assert_eq!(profiler.stop(), Err("driver: error 201, runtime: error 201".to_owned()));
        let none = CudaProfiler { calls: Vec::new() };
        let error = none.start().unwrap_err();
        assert!(!none.is_there() && error.contains("libcuda.so.1"), "{error}");
    }
}
