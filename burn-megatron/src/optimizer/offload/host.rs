//! [`HostState`]: the offloaded pieces of an optimizer, and their update by the CPU. Their tensors are in host memory
//! or, between updates, in a file.

use std::collections::HashMap;
use std::ops::Range;
use std::path::Path;

use burn::optim::LearningRate;
use burn::tensor::{DType, Device, FloatDType, Tensor, TensorData};

use crate::offload::{OffloadError, Offloaded, PieceTensors, TensorStore};
use crate::optimizer::StoredOptimizer;

/// A tensor of an optimizer's state by its name, as data.
pub(in crate::optimizer) type NamedData = (&'static str, TensorData);

/// Input of an update of a piece, in addition to its state.
pub(in crate::optimizer) struct PieceUpdate {
    pub learning_rate: LearningRate,
    /// Updates of the piece before this one.
    pub steps: u64,
    /// The module's values, `[range]`; needed where no main values are held.
    pub value: Option<TensorData>,
    /// `[range]`, f32 or f64.
    pub gradient: TensorData,
    /// The module's element type.
    pub dtype: DType,
}

/// A piece that is to be held here.
#[derive(Clone, Copy, Debug)]
pub(in crate::optimizer) struct HostPieceSpec {
    pub number: usize,
    pub bucket: usize,
    pub elements: usize,
    /// Number of the optimizer that updates it.
    pub group: usize,
    /// The number that it had before, if it was held then.
    pub former: Option<usize>,
}

/// Offloaded pieces of an optimizer of type `O`, by their numbers.
///
/// In a file, what is written is there after [`settle`](Self::settle).
pub(in crate::optimizer) trait OffloadedState<O>: Send {
    /// Returns whether a piece is held here.
    fn holds(&self, number: usize) -> bool;

    /// Returns whether main values are held.
    fn has_main(&self) -> bool;

    /// Holds these pieces now, in the order of their updates: those that were held before keep their tensors.
    fn hold(&mut self, pieces: &[HostPieceSpec], has_main: bool, optimizers: &[O]) -> Result<(), OffloadError>;

    /// Begins an update of pieces of these buckets, in their order.
    fn begin(&mut self, buckets: &[usize]) -> Result<(), OffloadError>;

    /// Updates a piece, and returns its new values in the module's type.
    fn update(&mut self, number: usize, optimizer: &O, update: PieceUpdate) -> Result<TensorData, OffloadError>;

    /// Ends an update: what was changed is where it is held.
    fn settle(&mut self) -> Result<(), OffloadError>;

    /// Returns some elements of a piece's main values, if there are such.
    #[cfg_attr(not(any(feature = "checkpoint", feature = "learner")), allow(dead_code))]
    fn main(&self, number: usize, elements: Range<usize>) -> Result<Option<TensorData>, OffloadError>;

    /// Returns some elements of the tensors of a piece's state: none before its first update.
    #[cfg_attr(not(any(feature = "checkpoint", feature = "learner")), allow(dead_code))]
    fn tensors(&self, number: usize, elements: Range<usize>) -> Result<Vec<NamedData>, OffloadError>;

    /// Replaces the main values of a piece; only where such are held.
    fn set_main(&mut self, number: usize, main: TensorData) -> Result<(), OffloadError>;

    /// Replaces the tensors of a piece's state.
    #[cfg_attr(not(any(feature = "checkpoint", feature = "learner")), allow(dead_code))]
    fn set_tensors(&mut self, number: usize, tensors: Option<Vec<NamedData>>) -> Result<(), OffloadError>;
}

/// Offloaded pieces of an optimizer.
pub(in crate::optimizer) struct HostState {
    pieces: HashMap<usize, HostPiece>,
    store: TensorStore,
    has_main: bool,
}

struct HostPiece {
    elements: usize,
    /// The tensors that its state may have: their places are after that of the main values.
    names: &'static [&'static str],
    has_main: bool,
    /// Places in `names` of those that its state has; `None` if there is no state.
    held: Option<Vec<usize>>,
}

impl HostPiece {
    /// The place of a tensor of its state among all of its tensors.
    fn place(&self, name: usize) -> usize {
        usize::from(self.has_main) + name
    }
}

/// The place of a piece's main values among its tensors, where it has such.
const MAIN: usize = 0;

impl HostState {
    /// Returns a state that holds no pieces yet, in memory or in a rank's file in a folder.
    pub fn new(folder: Option<&Path>, rank: usize, dtype: DType) -> Self {
        Self {
            pieces: HashMap::new(),
            store: TensorStore::new(Offloaded::OptimizerState, folder, rank, dtype),
            has_main: false,
        }
    }

    /// Takes the optimizer's state of a piece out of the store; `None` before the first update.
    fn take_state<O: StoredOptimizer>(
        &mut self,
        number: usize,
        optimizer: &O,
        steps: u64,
    ) -> Result<Option<O::State<1>>, OffloadError> {
        let piece = &self.pieces[&number];
        let Some(held) = &piece.held else {
            return Ok(None);
        };
        let mut tensors = Vec::with_capacity(held.len());
        for &name in held {
            let data = self.store.take(number, piece.place(name))?;
            tensors.push((piece.names[name], on_host(data)));
        }
        let state = optimizer.state(steps, tensors);
        Ok(Some(state.expect("the tensors are those of a state of this optimizer")))
    }

    fn put_tensors(&mut self, number: usize, tensors: Option<Vec<NamedData>>) -> Result<(), OffloadError> {
        let piece = self.pieces.get_mut(&number).expect("it is held");
        let names = piece.names;
        let place_of = |name: &str| names.iter().position(|known| *known == name);
        piece.held = None;
        if let Some(tensors) = tensors {
            let mut held = Vec::with_capacity(tensors.len());
            for (name, data) in tensors {
                let name = place_of(name).expect("an optimizer names the tensors that it may have");
                self.store.put(number, piece.place(name), data)?;
                held.push(name);
            }
            piece.held = Some(held);
        }
        Ok(())
    }
}

impl<O: StoredOptimizer> OffloadedState<O> for HostState {
    fn holds(&self, number: usize) -> bool {
        self.pieces.contains_key(&number)
    }

    fn has_main(&self) -> bool {
        self.has_main
    }

    fn hold(&mut self, pieces: &[HostPieceSpec], has_main: bool, optimizers: &[O]) -> Result<(), OffloadError> {
        let names_of = |piece: &HostPieceSpec| optimizers[piece.group].tensor_names();
        let places: Vec<PieceTensors> = pieces
            .iter()
            .map(|piece| PieceTensors {
                number: piece.number,
                bucket: piece.bucket,
                elements: piece.elements,
                num_tensors: usize::from(has_main) + names_of(piece).len(),
            })
            .collect();
        let store = self.store.emptied(&places)?;
        let mut former = std::mem::take(&mut self.pieces);
        let mut former_store = std::mem::replace(&mut self.store, store);
        self.has_main = has_main;
        for spec in pieces {
            let held = spec.former.and_then(|number| former.remove(&number));
            let piece = HostPiece {
                elements: spec.elements,
                names: names_of(spec),
                has_main,
                held: None,
            };
            self.pieces.insert(spec.number, piece);
            let (Some(number), Some(held)) = (spec.former, held) else {
                continue;
            };
            if held.has_main && has_main {
                let main = former_store.take(number, MAIN)?;
                self.store.put(spec.number, MAIN, main)?;
            }
            if let Some(names) = &held.held {
                let take = |&name: &usize| Ok((held.names[name], former_store.take(number, held.place(name))?));
                let tensors = names.iter().map(take).collect::<Result<_, OffloadError>>()?;
                self.put_tensors(spec.number, Some(tensors))?;
            }
        }
        self.store.settle()
    }

    fn begin(&mut self, buckets: &[usize]) -> Result<(), OffloadError> {
        self.store.begin(buckets)
    }

    fn update(&mut self, number: usize, optimizer: &O, update: PieceUpdate) -> Result<TensorData, OffloadError> {
        let gradient = on_host(update.gradient);
        let main_dtype = FloatDType::from(gradient.dtype());
        let main = if self.has_main {
            on_host(self.store.take(number, MAIN)?)
        } else {
            on_host(update.value.expect("it is given where no main values are held")).cast(main_dtype)
        };
        let state = self.take_state(number, optimizer, update.steps)?;
        let (main, state) = optimizer.step(update.learning_rate, main, gradient, state);
        let tensors = state.as_ref().map(O::tensors);
        // What is left of them is the only reference: their memory is moved, not copied.
        drop(state);
        let tensors = tensors.map(|tensors| {
            let data = tensors.into_iter().map(|(name, tensor)| (name, tensor.into_data()));
            data.collect()
        });
        self.put_tensors(number, tensors)?;
        let module_dtype = FloatDType::from(update.dtype);
        if !self.has_main {
            return Ok(main.cast(module_dtype).into_data());
        }
        let value = main.clone().cast(module_dtype).into_data();
        self.store.put(number, MAIN, main.into_data())?;
        Ok(value)
    }

    fn settle(&mut self) -> Result<(), OffloadError> {
        self.store.settle()
    }

    fn main(&self, number: usize, elements: Range<usize>) -> Result<Option<TensorData>, OffloadError> {
        let has_main = self.pieces[&number].has_main;
        has_main.then(|| self.store.read(number, MAIN, elements)).transpose()
    }

    fn tensors(&self, number: usize, elements: Range<usize>) -> Result<Vec<NamedData>, OffloadError> {
        let piece = &self.pieces[&number];
        let read = |&name: &usize| {
            let data = self.store.read(number, piece.place(name), elements.clone())?;
            Ok((piece.names[name], data))
        };
        piece.held.iter().flatten().map(read).collect()
    }

    fn set_main(&mut self, number: usize, main: TensorData) -> Result<(), OffloadError> {
        let expected = self.pieces[&number].elements;
        assert_eq!(main.num_elements(), expected, "main values of piece {number}");
        self.store.put(number, MAIN, main)
    }

    fn set_tensors(&mut self, number: usize, tensors: Option<Vec<NamedData>>) -> Result<(), OffloadError> {
        self.put_tensors(number, tensors)
    }
}

/// A tensor of the CPU's backend, in the type of the data.
fn on_host(data: TensorData) -> Tensor<1> {
    let dtype = data.dtype();
    Tensor::from_data(data, (&Device::flex(), dtype))
}
