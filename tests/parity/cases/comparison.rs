//! What the layer and fixture cases share: a rank's place and numbers, passes with a given output
//! gradient, and comparisons of a rank's part with the whole.

use std::cell::Cell;
use std::collections::BTreeMap;

use anyhow::{Context as _, ensure};
use burn::module::{Module, ModuleVisitor, Param};
use burn::tensor::{DType, Gradients, Int, Tensor, TensorData};
use burn_megatron::collectives::{EngineChoice, GroupConfig, ProcessGroup, ReduceOp};
use burn_megatron::context::{ParallelContext, ParallelContextConfig};
use burn_megatron::launch::World;
use burn_megatron::parameters::{Declaration, Distribution, Placement, read_host, tensor_from_host};
use burn_megatron::parity::{Judge, Tolerance, compare_shard};
use burn_megatron::random::RandomStream;
use burn_megatron::topology::ParallelConfig;

use tests::harness::Case;

pub const SEED: u64 = 42;

/// How the ranks of a case are laid out, by its name in the list of trials.
#[derive(Clone, Copy, Debug)]
pub struct Layout {
    pub name: &'static str,
    pub tensor: usize,
    pub sequence: bool,
    pub data: usize,
    pub pipeline: usize,
    /// Chunks per stage.
    pub chunks: usize,
    /// Groups of data-parallel ranks that each share out what is sharded.
    pub instances: usize,
}

pub const ONE: Layout = layout("one_rank", 1, false, 1);
pub const TP2: Layout = layout("tp2", 2, false, 1);
pub const TP4: Layout = layout("tp4", 4, false, 1);
pub const TP2SP: Layout = layout("tp2sp", 2, true, 1);
pub const TP4SP: Layout = layout("tp4sp", 4, true, 1);
pub const DP2: Layout = layout("dp2", 1, false, 2);
pub const DP4: Layout = layout("dp4", 1, false, 4);
pub const HSDP2X2: Layout = layout("hsdp2x2", 1, false, 4).instances(2);
pub const PP2: Layout = layout("pp2", 1, false, 1).stages(2, 1);

pub const fn layout(name: &'static str, tensor: usize, sequence: bool, data: usize) -> Layout {
    Layout {
        name,
        tensor,
        sequence,
        data,
        pipeline: 1,
        chunks: 1,
        instances: 1,
    }
}

impl Layout {
    /// The same on several stages, of several chunks each.
    pub const fn stages(self, pipeline: usize, chunks: usize) -> Self {
        Self {
            pipeline,
            chunks,
            ..self
        }
    }

    /// The same in several instances of what is sharded.
    pub const fn instances(self, instances: usize) -> Self {
        Self { instances, ..self }
    }

    /// Adds what [`Scene::new`] reads to a case.
    pub fn describe(&self, case: Case, dtype: &str) -> Case {
        case.with("tensor", self.tensor)
            .with("sequence", self.sequence)
            .with("pipeline", self.pipeline)
            .with("instances", self.instances)
            .with("dtype", dtype)
    }

    pub fn world_size(&self) -> usize {
        self.tensor * self.data * self.pipeline
    }
}

/// How close two results must be.
#[derive(Clone, Copy, Debug)]
pub enum Closeness {
    /// Equal: only data moved, or the same additions were done in the same order.
    Bits,
    /// Apart by the rounding of one pass.
    Pass,
    /// Apart by what optimizer steps make of that rounding.
    Training,
}

/// This rank's place in a case, and its comparisons.
pub struct Scene {
    pub context: ParallelContext,
    pub dtype: DType,
    worst: Cell<f64>,
}

/// An output, and the gradients that a given gradient of it led to.
pub struct Pass {
    pub output: Vec<f64>,
    pub input_gradient: Vec<f64>,
    pub gradients: Gradients,
}

/// What a parameter has declared, its values and its gradient, complete.
type LocalParameter = (Declaration, Vec<f64>, Vec<f64>);

/// A whole parameter's values and its gradient, by name.
pub type WholeParameters = BTreeMap<String, (Vec<f64>, Vec<f64>)>;

impl Scene {
    pub fn new(case: &Case, world: &World) -> anyhow::Result<Self> {
        Ok(Self {
            context: connect(case, world)?,
            dtype: dtype(case)?,
            worst: Cell::new(0.0),
        })
    }

    pub fn group(&self) -> &ProcessGroup {
        self.context.tensor_group()
    }

    pub fn size(&self) -> usize {
        self.group().size()
    }

    /// The largest accepted difference so far, over the norm of what was compared.
    pub fn worst(&self) -> f64 {
        self.worst.get()
    }

    /// N(0, 1) numbers by name: the same on every rank, exact in f32.
    pub fn random(&self, name: &str, len: usize) -> Vec<f64> {
        let mut values = vec![0.0; len];
        RandomStream::new(SEED, name).fill_normal(0, 1.0, &mut values);
        values.iter().map(|&value| f64::from(value as f32)).collect()
    }

    /// Whole numbers from -8 to 8 by name: their sums are exact in any order.
    pub fn integers(&self, name: &str, len: usize) -> Vec<f64> {
        let mut values = vec![0.0; len];
        RandomStream::new(SEED, name).fill_uniform(0, 8.5, &mut values);
        values.iter().map(|value| value.round()).collect()
    }

    /// A tensor of the case's type.
    pub fn tensor<const D: usize>(&self, values: Vec<f64>, shape: [usize; D]) -> Tensor<D> {
        tensor_from_host(values, shape, self.dtype, &tests::device())
    }

    pub fn ids(&self, values: &[i32]) -> Tensor<1, Int> {
        Tensor::from_data(
            TensorData::new(values.to_vec(), [values.len()]),
            (&tests::device(), DType::I32),
        )
    }

    /// This rank's part of an activation that is cut along a dimension, or the whole of one that is not.
    pub fn placement(&self, shape: &[usize], cut: Option<usize>) -> Placement {
        match cut {
            Some(dimension) => Placement::shard(shape, dimension, self.group().rank(), self.size()),
            None => Placement::whole(shape),
        }
    }

    /// The dimension along which activations between tensor-parallel regions are cut: tokens, or none.
    pub fn token_cut(&self) -> Option<usize> {
        self.context.is_sequence_parallel().then_some(0)
    }

    /// This rank's part of a whole.
    pub fn part<const D: usize>(&self, whole: &[f64], placement: &Placement, shape: [usize; D]) -> Tensor<D> {
        self.tensor(cut(whole, placement), shape)
    }

    /// Fails unless this rank's part is that of the whole, up to the rounding of a pass.
    pub fn close(&self, what: &str, local: &[f64], whole: &[f64], placement: &Placement) -> anyhow::Result<()> {
        self.compare(Closeness::Pass, what, local, whole, placement)
    }

    /// Fails unless this rank's part is that of the whole, bit by bit.
    pub fn exact(&self, what: &str, local: &[f64], whole: &[f64], placement: &Placement) -> anyhow::Result<()> {
        self.compare(Closeness::Bits, what, local, whole, placement)
    }

    /// Fails unless this rank's part is as close as asked to that of the whole, in norm.
    pub fn compare(
        &self,
        closeness: Closeness,
        what: &str,
        local: &[f64],
        whole: &[f64],
        placement: &Placement,
    ) -> anyhow::Result<()> {
        let tolerance = match closeness {
            Closeness::Bits => 0.0,
            // The narrowest there is: it is meant for a scalar at the end of a whole model.
            Closeness::Pass => Tolerance::of(self.dtype).loss,
            Closeness::Training => Tolerance::of(self.dtype).parameter,
        };
        for part in compare_shard(what, whole, local, placement) {
            let allowed = tolerance * part.reference_norm;
            ensure!(
                part.difference <= allowed,
                "rank {}: {} differs by {:.2e} from the whole, of norm {:.2e}",
                self.context.rank(),
                part.name,
                part.difference,
                part.reference_norm
            );
            if part.difference > 0.0 {
                let ratio = part.difference / part.reference_norm;
                self.worst.set(self.worst.get().max(ratio));
            }
        }
        ensure!(
            padding_is_zero(local, placement),
            "rank {}: the padding of {what} is not zero",
            self.context.rank()
        );
        Ok(())
    }

    /// Fails unless a module's declared parameters are those of the whole, bit by bit, and their gradients too, up to
    /// rounding.
    ///
    /// A partial gradient is summed over the tensor group first: that is what its declaration says is missing.
    pub fn parameters<M: Module>(
        &self,
        scope: &str,
        module: &M,
        gradients: &Gradients,
        whole: &WholeParameters,
    ) -> anyhow::Result<()> {
        self.parameters_within(Closeness::Pass, scope, module, gradients, whole)
    }

    /// As [`parameters`](Self::parameters), with gradients as close as asked.
    pub fn parameters_within<M: Module>(
        &self,
        closeness: Closeness,
        scope: &str,
        module: &M,
        gradients: &Gradients,
        whole: &WholeParameters,
    ) -> anyhow::Result<()> {
        let found = self.local_parameters(module, gradients)?;
        let prefix = format!("{scope}.");
        ensure!(
            found.len() == whole.len(),
            "{scope}: {} parameters against {}",
            found.len(),
            whole.len()
        );
        for (Declaration { name, placement, .. }, values, gradient) in found {
            let short = name.strip_prefix(&prefix).unwrap_or(&name);
            let (expected, expected_gradient) = whole.get(short).with_context(|| format!("no whole {short}"))?;
            self.exact(&name, &values, expected, &placement)?;
            let what = format!("gradient of {name}");
            self.compare(closeness, &what, &gradient, expected_gradient, &placement)?;
        }
        Ok(())
    }

    fn local_parameters<M: Module>(&self, module: &M, gradients: &Gradients) -> anyhow::Result<Vec<LocalParameter>> {
        struct Reader<'a> {
            scene: &'a Scene,
            gradients: &'a Gradients,
            found: anyhow::Result<Vec<LocalParameter>>,
        }
        impl Reader<'_> {
            fn read<const D: usize>(&self, param: &Param<Tensor<D>>) -> anyhow::Result<LocalParameter> {
                let declaration = self.scene.context.registry().declaration(param.id);
                let declaration = declaration.context("a parameter is undeclared")?;
                let tensor = param.val();
                let mut gradient = read_host(
                    tensor
                        .grad(self.gradients)
                        .with_context(|| format!("{} has no gradient", declaration.name))?,
                );
                if declaration.distribution == Distribution::PartialOverTensor {
                    self.scene.group().all_reduce(&mut gradient, ReduceOp::Sum)?;
                }
                Ok((declaration, read_host(tensor), gradient))
            }
        }
        impl ModuleVisitor for Reader<'_> {
            fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
                let read = self.read(param);
                match (&mut self.found, read) {
                    (Ok(found), Ok(read)) => found.push(read),
                    (Ok(_), Err(error)) => self.found = Err(error),
                    (Err(_), _) => {}
                }
            }
        }
        let mut reader = Reader {
            scene: self,
            gradients,
            found: Ok(Vec::new()),
        };
        module.visit(&mut reader);
        reader.found
    }
}

impl Pass {
    /// Runs `forward`, and a backward pass in which the output's gradient is `output_gradient`.
    pub fn run<const D: usize, const E: usize>(
        input: Tensor<D>,
        output_gradient: Tensor<E>,
        forward: impl FnOnce(Tensor<D>) -> Tensor<E>,
    ) -> Self {
        let input = input.require_grad();
        let output = forward(input.clone());
        let gradients = backward(output.clone(), output_gradient);
        Self {
            output: read_host(output),
            input_gradient: read_host(input.grad(&gradients).expect("the output depends on the input")),
            gradients,
        }
    }

    /// Fails unless this rank's output and input gradient are its parts of the serial pass's, up to rounding.
    pub fn compare(
        &self,
        scene: &Scene,
        what: &str,
        serial: &Pass,
        input: &Placement,
        output: &Placement,
    ) -> anyhow::Result<()> {
        scene.close(&format!("{what}: output"), &self.output, &serial.output, output)?;
        let name = format!("{what}: input gradient");
        scene.close(&name, &self.input_gradient, &serial.input_gradient, input)
    }
}

/// Connects the groups of a case's layout.
pub fn connect(case: &Case, world: &World) -> anyhow::Result<ParallelContext> {
    let config = ParallelConfig {
        tensor_parallel_size: case.setting("tensor")?,
        pipeline_parallel_size: case.setting("pipeline")?,
        sequence_parallel: case.setting("sequence")?,
    };
    let config = ParallelContextConfig::new(config).with_seed(SEED);
    // Not every case has shards.
    let instances = case.setting("instances").unwrap_or(1);
    let config = config.with_num_distributed_optimizer_instances(instances);
    let config = match case.setting::<String>("engine").as_deref() {
        Ok("tcp") => config.with_groups(GroupConfig::new().with_engine(EngineChoice::Tcp)),
        _ => config,
    };
    Ok(config.init(world)?)
}

pub fn dtype(case: &Case) -> anyhow::Result<DType> {
    Ok(match case.setting::<String>("dtype")?.as_str() {
        "f64" => DType::F64,
        _ => DType::F32,
    })
}

/// Runs a backward pass in which the output's gradient is `output_gradient`.
pub fn backward<const D: usize>(output: Tensor<D>, output_gradient: Tensor<D>) -> Gradients {
    assert_eq!(output.dims(), output_gradient.dims(), "the output and its gradient");
    (output * output_gradient).sum().backward()
}

/// A parameter of a plain layer with its gradient, as [`WholeParameters`] has it.
pub fn whole<const D: usize>(param: &Param<Tensor<D>>, gradients: &Gradients) -> (Vec<f64>, Vec<f64>) {
    let gradient = param.val().grad(gradients).expect("every parameter is used");
    (read_host(param.val()), read_host(gradient))
}

/// Prints the largest differences that a judge has accepted.
pub fn print_worst(judge: &Judge) {
    println!(
        "worst differences: loss {:.1e}, gradient {:.1e}, parameter {:.1e}",
        judge.worst_loss(),
        judge.worst_gradient(),
        judge.worst_parameter()
    );
}

/// The elements of a whole that a placement covers, in the order of its local array; padding is zero.
pub fn cut(whole: &[f64], placement: &Placement) -> Vec<f64> {
    let mut local = vec![0.0; placement.local_len()];
    for run in placement.runs() {
        local[run.local..run.local + run.length].copy_from_slice(&whole[run.logical..run.logical + run.length]);
    }
    local
}

/// Whether everything outside the logical array is zero.
pub fn padding_is_zero(values: &[f64], placement: &Placement) -> bool {
    let mut padding = values.to_vec();
    for run in placement.runs() {
        padding[run.local..run.local + run.length].fill(0.0);
    }
    padding.iter().all(|&value| value == 0.0)
}
