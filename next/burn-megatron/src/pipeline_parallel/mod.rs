//! Pipeline parallelism: a model cut into stages, one or more per rank, that pass activations on and gradients back.
//!
//! From what is decided to what is done:
//!
//! | file | what it holds |
//! |---|---|
//! | [`schedule`] | what each rank does in which order, without a tensor |
//! | `layer_layout` | which layers of a transformer each stage has |
//! | `stage` | [`PipelineStage`], what is asked of a part of a model |
//! | `pass`, `segment` | one micro-batch through one chunk; one graph |
//! | `host_activations` | what graphs keep, in host memory between the passes |
//! | `traffic`, `boundary` | what comes and goes; how it crosses |
//! | `timeline` | what happened when, measured |
//! | `profile` | [`PipelineProfile`], bubble and costs of what was measured |
//! | `trace` | [`chrome_trace`], what was measured as a file for a viewer |

mod boundary;
mod host_activations;
mod layer_layout;
mod pass;
mod profile;
pub mod schedule;
mod segment;
mod stage;
mod timeline;
mod trace;
mod traffic;

pub use layer_layout::{LayerLayout, LayerLayoutError, LayerSizes};
pub use profile::{PipelineProfile, ProfileError, StepProfile};
pub use stage::{PipelineStage, StageOutput, forward_segments};
pub use timeline::{Activity, Timeline, TimelineEvent, TimelineLabel, TimelineObserver};
pub use trace::chrome_trace;
