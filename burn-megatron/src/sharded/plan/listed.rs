//! [`planned_parameters`]: a model's parameters, as a plan sees them.

use burn::module::{Module, ModuleVisitor, Param};
use burn::tensor::Tensor;

use super::{PlanError, PlannedParameter};
use crate::sharded::slot::opened;

/// Returns a model's float parameters, in the order of the model. Forces lazy ones.
///
/// # Errors
/// When one is on a device whose tensors cannot be placed.
pub(in crate::sharded) fn planned_parameters<M: Module>(model: &M) -> Result<Vec<PlannedParameter>, PlanError> {
    let mut listed = Listed::default();
    model.visit(&mut listed);
    listed.error.map_or(Ok(listed.parameters), Err)
}

#[derive(Default)]
struct Listed {
    /// Names, with the types of the modules that have them.
    path: Vec<(String, String)>,
    parameters: Vec<PlannedParameter>,
    error: Option<PlanError>,
}

impl ModuleVisitor for Listed {
    fn enter_module(&mut self, name: &str, container_type: &str) {
        let layer = container_type.split_once(':').map_or("", |(_, layer)| layer);
        self.path.push((name.to_owned(), layer.to_owned()));
    }

    fn exit_module(&mut self, _name: &str, _container_type: &str) {
        self.path.pop();
    }

    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
        let names: Vec<&str> = self.path.iter().map(|(name, _)| name.as_str()).collect();
        let (name, tensor) = (names.join("."), param.base());
        let shape = tensor.dims().to_vec();
        if let Err(error) = opened(tensor) {
            let name = name.clone();
            self.error.get_or_insert(PlanError::OtherDevice { name, error });
        }
        self.parameters.push(PlannedParameter {
            name,
            shape,
            layer: self.path.last().map_or(String::new(), |(_, layer)| layer.clone()),
        });
    }
}
