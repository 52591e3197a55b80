//! [`CompareConfig`] and [`Layout`]: how programs are compared, and in which layouts.

use super::super::mesh::Mesh;
use super::super::plan::Plan;
use crate::parity::Tolerance;

/// When operations are recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trace {
    /// In the layouts that break parity: two more runs for the first, one for each of the others. The one-rank run is
    /// recorded up to the step that fails; when a later layout fails at a later step, it is recorded again: two more
    /// runs for that layout, too.
    OnFailure,
    /// In every layout.
    Always,
    /// Never.
    Never,
}

/// How programs are compared.
#[derive(Clone, Debug)]
pub struct CompareConfig {
    pub(super) seed: u64,
    pub(super) tolerance: Option<Tolerance>,
    pub(super) trace: Trace,
    pub(super) trace_bytes: usize,
}

impl Default for CompareConfig {
    fn default() -> Self {
        Self::new()
    }
}

impl CompareConfig {
    /// Returns the settings: seed 1, the tolerance of the loss's element type, a trace on failure, and 1 GiB of host
    /// memory for it on each rank.
    pub fn new() -> Self {
        Self {
            seed: 1,
            tolerance: None,
            trace: Trace::OnFailure,
            trace_bytes: 1 << 30,
        }
    }

    /// Sets the seed of burn's random draws, which each run starts from.
    pub fn with_seed(self, seed: u64) -> Self {
        Self { seed, ..self }
    }

    /// Sets the tolerance: needed where the loss is neither f64 nor f32, and where a loss in f32 comes of a model in 16
    /// bits.
    ///
    /// In 16 bits a layout is to be as near to one rank as that is to f32, within a factor of 4. The latter is measured
    /// by another comparison, whose one-rank run (`run.layout()` is `None`) computes in f32, and whose only layout is
    /// one rank in 16 bits: [`Judgement::tolerance`](super::Judgement::tolerance).
    ///
    /// ```
    /// use burn::nn::{Linear, LinearConfig};
    /// use burn::tensor::{FloatDType, Tensor};
    /// use burn_flex::{Flex, FlexDevice};
    /// use burn_megatron::sharded::{
    ///     CompareConfig, CompareError, Layout, Mesh, Plan, Run, Trace, backward, cast_parameters, compare, device,
    /// };
    ///
    /// fn step(run: &mut Run, dtype: FloatDType) -> Result<Linear, CompareError> {
    ///     let model = run.parallelize(LinearConfig::new(4, 2).init(run.device())).expect("nothing is cut");
    ///     let cast = cast_parameters(&model, dtype);
    ///     let input = Tensor::<2>::full([8, 4], 0.3, run.device()).cast(dtype);
    ///     let loss = cast.forward(input).powi_scalar(2).mean().cast(FloatDType::F32);
    ///     let (loss, gradients) = backward(loss, &model).expect("one rank");
    ///     run.judge(&loss, &gradients, &model)?;
    ///     Ok(model)
    /// }
    ///
    /// let device = device::<Flex>(FlexDevice).autodiff();
    /// let one = [Layout::new("bf16 on one rank", &Mesh::new([])?, Plan::new())];
    /// let config = CompareConfig::new().with_trace(Trace::Never);
    /// let own = compare(&config, &one, &device, |run| match run.layout() {
    ///     None => step(run, FloatDType::F32),
    ///     Some(_) => step(run, FloatDType::BF16),
    /// })?;
    /// let config = CompareConfig::new().with_tolerance(own[0].judgement.tolerance(4.0));
    /// // The layouts on several ranks in place of `one`:
    /// compare(&config, &one, &device, |run| step(run, FloatDType::BF16))?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn with_tolerance(self, tolerance: Tolerance) -> Self {
        Self {
            tolerance: Some(tolerance),
            ..self
        }
    }

    /// Sets when operations are recorded.
    pub fn with_trace(self, trace: Trace) -> Self {
        Self { trace, ..self }
    }

    /// Sets the bytes of host memory that a rank keeps arrays of the one-rank run in. Of arrays beyond that, a sketch
    /// of 136 bytes is kept: enough to see that an array differs and by how much, but not where.
    pub fn with_trace_bytes(self, trace_bytes: usize) -> Self {
        Self { trace_bytes, ..self }
    }
}

/// A layout to compare: a mesh, and a plan by which the model's parameters are placed on it.
#[derive(Clone, Debug)]
pub struct Layout {
    pub(super) name: String,
    pub(super) mesh: Mesh,
    pub(super) plan: Plan,
}

impl Layout {
    /// Returns a layout; its name is for reports.
    pub fn new(name: impl Into<String>, mesh: &Mesh, plan: Plan) -> Self {
        Self {
            name: name.into(),
            mesh: mesh.clone(),
            plan,
        }
    }
}
