//! [`Run`]: what a program that is compared gets, and the arrays that it hands over.

use burn::module::{Module, Param};
use burn::optim::GradientsParams;
use burn::tensor::{DType, Device, Tensor};

use super::super::any_tensor::AnyTensor;
use super::super::mesh::Mesh;
use super::super::parallelize::{distribute, parallelize};
use super::super::placement::AxisRole;
use super::super::plan::{Plan, PlanError};
use super::super::slot::{SlotKind, look};
use super::judgement::{Array, Bench, Outcome, Step};
use super::recorder;
use super::recording::Name;
use super::seen::Judged;
use super::{CompareError, Layout};
use crate::parameters::{PathVisitor, settle_running_states, visit_paths};

/// A run of a program that is compared: that of one rank, whose mesh has no axes, or that in a layout.
pub struct Run<'a> {
    pub(super) layout: Option<&'a Layout>,
    device: &'a Device,
    mesh: Mesh,
    judged: usize,
    /// The type of the loss.
    dtype: Option<DType>,
    task: Task<'a>,
}

/// The use of the results that a run hands over.
pub(super) enum Task<'a> {
    /// The results are kept.
    Keep(Outcome),
    /// The results are judged.
    Judge { reference: &'a Outcome, bench: Bench },
    /// The run is recorded; of one rank the losses must be what they were.
    Record { reference: &'a Outcome },
}

impl<'a> Run<'a> {
    pub(super) fn new(layout: Option<&'a Layout>, device: &'a Device, task: Task<'a>) -> Self {
        let mesh = match layout {
            Some(layout) => layout.mesh.clone(),
            None => Mesh::new([]).expect("it has no axes"),
        };
        Self {
            layout,
            device,
            mesh,
            judged: 0,
            dtype: None,
            task,
        }
    }

    /// The device that [`compare`](super::compare) was given.
    pub fn device(&self) -> &'a Device {
        self.device
    }

    /// The layout's mesh; in the one-rank run one without axes, on which every tensor is whole.
    pub fn mesh(&self) -> &Mesh {
        &self.mesh
    }

    /// The layout's name, `None` in the one-rank run.
    pub fn layout(&self) -> Option<&str> {
        self.layout.map(|layout| layout.name.as_str())
    }

    /// Returns the model with its parameters placed by the layout's plan.
    ///
    /// # Errors
    /// When the plan does not fit the model: see [`Plan::resolve`].
    pub fn parallelize<M: Module>(&self, model: M) -> Result<M, PlanError> {
        match self.layout {
            Some(layout) => parallelize(model, &layout.plan, &self.mesh),
            // Parameters get their values at the same point of the program.
            None => parallelize(model, &Plan::new(), &self.mesh),
        }
    }

    /// Returns the tensor, cut along a dimension over the ranks of a role: see [`distribute`].
    ///
    /// # Panics
    /// As [`distribute`].
    #[track_caller]
    pub fn distribute<const D: usize, K: SlotKind>(
        &self,
        tensor: Tensor<D, K>,
        role: AxisRole,
        dimension: usize,
    ) -> Tensor<D, K> {
        distribute(tensor, &self.mesh, role, dimension)
    }

    /// Hands over a step: the loss and the gradients that [`backward`](super::super::backward) has returned, and the
    /// model before its update. Call it once in every step, between the backward pass and the optimizer.
    ///
    /// # Communication
    /// Gradients and parameters that are cut are gathered: every rank must call.
    ///
    /// # Errors
    /// When the loss is not one number, there are more steps than in the one-rank run, or the one-rank run does not
    /// give the same loss a second time.
    ///
    /// # Panics
    /// When the loss or the model is on another device than one of [`device`](super::super::device()).
    pub fn judge<M: Module, const D: usize>(
        &mut self,
        loss: &Tensor<D>,
        gradients: &GradientsParams,
        model: &M,
    ) -> Result<(), CompareError> {
        let index = self.judged;
        self.judged += 1;
        self.dtype = Some(loss.dtype());
        if loss.shape().num_elements() != 1 {
            return Err(CompareError::Loss(loss.dims().to_vec()));
        }
        let loss = look(loss.clone());
        if let Task::Record { reference } = &self.task {
            if recorder::is_recording() {
                let value = first(&*loss);
                recorder::observe(Judged::Loss, &*loss);
                let gradients = Some(gradients);
                visit_paths(model, &mut Observer { gradients });
                recorder::end_step();
                let expected = reference.steps.get(index).map_or(f64::NAN, |step| step.loss);
                if self.layout.is_none() && value.to_bits() != expected.to_bits() {
                    return Err(CompareError::NotDeterministic {
                        step: self.judged,
                        first: expected,
                        second: value,
                    });
                }
            }
            return Ok(());
        }
        let step = Step {
            parameters: parameters(model),
            loss: first(&*loss),
            gradients: arrays(model, Some(gradients)),
        };
        match &mut self.task {
            Task::Keep(outcome) => outcome.steps.push(step),
            Task::Judge { reference, bench } => match reference.steps.get(index) {
                Some(expected) => bench.step(expected, &step),
                None => return Err(self.other_steps()),
            },
            Task::Record { .. } => {}
        }
        Ok(())
    }

    /// Refuses a run with other steps than the one-rank run's.
    pub(super) fn check_steps(&self) -> Result<(), CompareError> {
        match &self.task {
            Task::Judge { reference, .. } if self.judged != reference.steps.len() => Err(self.other_steps()),
            _ => Ok(()),
        }
    }

    /// Takes the model after the last step.
    pub(super) fn end<M: Module>(&mut self, model: &M) {
        match &mut self.task {
            Task::Keep(outcome) => outcome.parameters = parameters(model),
            Task::Judge { reference, bench } => bench.end(&reference.parameters, &parameters(model)),
            Task::Record { .. } => {
                if recorder::is_recording() {
                    settle_running_states(model);
                    visit_paths(model, &mut Observer { gradients: None });
                }
            }
        }
    }

    fn other_steps(&self) -> CompareError {
        let expected = match &self.task {
            Task::Judge { reference, .. } | Task::Record { reference } => reference.steps.len(),
            Task::Keep(outcome) => outcome.steps.len(),
        };
        CompareError::Steps {
            run: super::named(self.layout()),
            found: self.judged,
            expected,
        }
    }

    pub(super) fn dtype(&self) -> Option<DType> {
        self.dtype
    }

    pub(super) fn into_task(self) -> Task<'a> {
        self.task
    }
}

/// The only element of a loss.
fn first(loss: &dyn AnyTensor) -> f64 {
    loss.peek().iter::<f64>().next().unwrap_or(f64::NAN)
}

/// Reads every gradient, or without these every parameter and buffer, in the order of the model.
fn arrays<M: Module>(model: &M, gradients: Option<&GradientsParams>) -> Vec<Array> {
    struct Reader<'a> {
        gradients: Option<&'a GradientsParams>,
        arrays: Vec<Array>,
    }
    impl PathVisitor for Reader<'_> {
        fn visit<const D: usize>(&mut self, name: String, param: &Param<Tensor<D>>) {
            let tensor = match self.gradients {
                None => Some(param.base()),
                Some(gradients) => gradients.get::<D>(param.id),
            };
            if let Some(tensor) = tensor.map(look) {
                self.arrays.push(Array {
                    name,
                    shape: tensor.operand().shape,
                    values: tensor.peek().iter::<f64>().collect(),
                });
            }
        }
    }
    let mut reader = Reader {
        gradients,
        arrays: Vec::new(),
    };
    visit_paths(model, &mut reader);
    reader.arrays
}

/// Reads every parameter and buffer as it is now.
fn parameters<M: Module>(model: &M) -> Vec<Array> {
    settle_running_states(model);
    arrays(model, None)
}

/// Names parameters and gradients for the recorder, and shows it the gradients, or without these the parameters.
struct Observer<'a> {
    gradients: Option<&'a GradientsParams>,
}

impl PathVisitor for Observer<'_> {
    fn visit<const D: usize>(&mut self, path: String, param: &Param<Tensor<D>>) {
        let parameter = look(param.base());
        recorder::name(parameter.id(), || Name::Parameter(path.clone()));
        let Some(gradients) = self.gradients else {
            recorder::observe(Judged::Parameter, &*parameter);
            return;
        };
        if let Some(gradient) = gradients.get::<D>(param.id).map(look) {
            recorder::name(gradient.id(), || Name::Gradient(path));
            recorder::observe(Judged::Gradient, &*gradient);
        }
    }
}
