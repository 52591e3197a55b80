//! `initialize`: gives every parameter of a model its first values, in the order of the module.
//!
//! burn draws the values of a parameter when it is first used. A part of a model that is drawn by itself gets other
//! values than the same part of the whole, so what sees a part only refuses parameters without values.

use burn::module::{Module, ModuleVisitor, Param};
use burn::tensor::{Bool, Int, Tensor};

use super::RegistryError;
use super::visit::{PathVisitor, visit_paths};

/// Returns the module with the values of all its parameters drawn, in the order of its fields.
///
/// A tuple of modules is a module: `initialize((embedding, encoder, head))` draws three in this order.
///
/// ```
/// use burn::nn::LinearConfig;
/// use burn::tensor::Device;
///
/// let [first, second] = [0, 1].map(|_| LinearConfig::new(4, 4).init(&Device::flex()));
/// let (first, second) = burn_megatron::initialize((first, second));
/// assert!(first.weight.is_initialized() && second.weight.is_initialized());
/// ```
pub fn initialize<M: Module>(module: M) -> M {
    struct Drawer;
    impl ModuleVisitor for Drawer {
        fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
            param.val();
        }
        fn visit_int<const D: usize>(&mut self, param: &Param<Tensor<D, Int>>) {
            param.val();
        }
        fn visit_bool<const D: usize>(&mut self, param: &Param<Tensor<D, Bool>>) {
            param.val();
        }
    }
    module.visit(&mut Drawer);
    module
}

/// Returns the path of the first float parameter without values, in the order of the module; draws nothing.
pub fn first_undrawn<M: Module>(module: &M) -> Option<String> {
    struct Finder(Option<String>);
    impl PathVisitor for Finder {
        fn visit<const D: usize>(&mut self, path: String, param: &Param<Tensor<D>>) {
            if self.0.is_none() && !param.is_initialized() {
                self.0 = Some(path);
            }
        }
    }
    let mut finder = Finder(None);
    visit_paths(module, &mut finder);
    finder.0
}

/// Checks that every float parameter of a part of a model has values.
///
/// # Errors
/// [`RegistryError::Undrawn`], naming the first that has none.
pub(crate) fn refuse_undrawn<M: Module>(module: &M, scope: &str) -> Result<(), RegistryError> {
    match first_undrawn(module) {
        None => Ok(()),
        Some(path) => Err(RegistryError::Undrawn {
            path: [scope, &path]
                .into_iter()
                .filter(|part| !part.is_empty())
                .collect::<Vec<_>>()
                .join("."),
        }),
    }
}

#[cfg(test)]
mod tests {
    use burn::nn::{Linear, LinearConfig};
    use burn::tensor::Device;

    use super::*;

    fn linear() -> Linear {
        LinearConfig::new(3, 2).init(&Device::flex())
    }

    #[test]
    fn a_parameter_without_values_is_named_until_it_is_drawn() {
        let pair = (linear(), linear());
        pair.0.weight.val();
        assert_eq!(first_undrawn(&pair).as_deref(), Some("0.bias"));
        assert!(
            refuse_undrawn(&pair.1, "head")
                .unwrap_err()
                .to_string()
                .starts_with("parameter head.weight ")
        );
        assert_eq!(first_undrawn(&initialize(pair)), None);
    }
}
