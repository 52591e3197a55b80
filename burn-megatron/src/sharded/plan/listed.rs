//! [`planned_parameters`]: a model's parameters, as a plan sees them.

use burn::module::{Module, ModuleVisitor, Param};
use burn::tensor::Tensor;
use burn::tensor::backend::Backend;

use super::PlannedParameter;

/// Returns a model's float parameters, in the order of the model. Forces lazy ones.
pub(in crate::sharded) fn planned_parameters<B: Backend, M: Module<B>>(model: &M) -> Vec<PlannedParameter> {
    let mut listed = Listed::default();
    model.visit(&mut listed);
    listed.parameters
}

#[derive(Default)]
struct Listed {
    /// Names, with the types of the modules that have them.
    path: Vec<(String, String)>,
    parameters: Vec<PlannedParameter>,
}

impl<B: Backend> ModuleVisitor<B> for Listed {
    fn enter_module(&mut self, name: &str, container_type: &str) {
        let layer = container_type.split_once(':').map_or("", |(_, layer)| layer);
        self.path.push((name.to_owned(), layer.to_owned()));
    }

    fn exit_module(&mut self, _name: &str, _container_type: &str) {
        self.path.pop();
    }

    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<B, D>>) {
        let names: Vec<&str> = self.path.iter().map(|(name, _)| name.as_str()).collect();
        self.parameters.push(PlannedParameter {
            name: names.join("."),
            shape: param.val().dims().to_vec(),
            layer: self.path.last().map_or(String::new(), |(_, layer)| layer.clone()),
        });
    }
}
