//! [`Rotary`]: the rotary position embedding of a model's layers, which share its tables: one copy per device, type and
//! backend, such as one with autodiff and one without.

use std::any::Any;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use burn::tensor::{DType, Int, Tensor, TensorData, backend::Backend};
use cubecl_kernels::rotary::tables::{RotaryScaling, tables};
use cubecl_kernels::rotary::{RotaryAngles, RotaryLayout};

/// How queries and keys are turned.
#[derive(Clone, Debug, PartialEq)]
pub struct RotaryConfig {
    /// The positions that there are, from 0.
    pub max_positions: usize,
    /// How many of a head's elements are turned: the first ones, an even number.
    pub rotated: usize,
    /// What the wavelengths are powers of: pair i turns by `base^(-2i / rotated)` per position.
    pub base: f64,
    /// How the frequencies are changed for longer texts.
    pub scaling: RotaryScaling,
    /// Which elements are a pair.
    pub layout: RotaryLayout,
}

/// The rotary embedding of a model. Clones, such as those of its layers, share what is on the device.
///
/// # Reference
/// Su et al. 2021, arXiv:2104.09864, section 3.2.
#[derive(Clone)]
pub struct Rotary {
    config: Arc<RotaryConfig>,
    /// One [`OnDevice`] per backend, device and type.
    cache: Arc<Mutex<Vec<Box<dyn Any + Send>>>>,
}

/// Where the tokens of a forward pass are in their texts.
pub(super) enum RotaryPositions<B: Backend> {
    /// Known on the host.
    OnHost(HostPositions),
    /// On the device, one for each token.
    OnDevice(Tensor<B, 1, Int>),
}

/// Positions that are known on the host.
pub(super) enum HostPositions {
    /// Of samples of this many tokens, each from position 0.
    Samples { count: usize, seq_length: usize },
    /// One for each token.
    Given(Arc<[i32]>),
}

/// What is on a device.
struct OnDevice<B: Backend> {
    device: B::Device,
    dtype: DType,
    /// Cosines and sines, `[max_positions, rotated / 2]`.
    tables: [Tensor<B, 2>; 2],
    /// Those of the last forward pass, which all layers share.
    positions: Option<(HostPositions, Tensor<B, 1, Int>)>,
}

impl Rotary {
    /// Returns the embedding of a model.
    pub fn new(config: RotaryConfig) -> Self {
        Self {
            config: Arc::new(config),
            cache: Arc::default(),
        }
    }

    /// The angles of tokens at these positions.
    ///
    /// # Panics
    /// When samples are longer than the positions that there are, or one that is given is none of these.
    pub(super) fn angles<B: Backend>(
        &self,
        positions: RotaryPositions<B>,
        dtype: DType,
        device: &B::Device,
    ) -> RotaryAngles<B> {
        // Angles are computed with in f32, and in f64 where everything is.
        let dtype = if dtype == DType::F64 { DType::F64 } else { DType::F32 };
        // A panic while the lock is held leaves whole entries.
        let mut cache = self.cache.lock().unwrap_or_else(PoisonError::into_inner);
        let is_this = |entry: &OnDevice<B>| entry.device == *device && entry.dtype == dtype;
        let found = cache.iter().position(|entry| entry.downcast_ref().is_some_and(is_this));
        let index = found.unwrap_or_else(|| {
            cache.push(Box::new(self.upload::<B>(dtype, device)));
            cache.len() - 1
        });
        let entry: &mut OnDevice<B> = cache[index].downcast_mut().expect("found by its type");
        let positions = match positions {
            RotaryPositions::OnHost(positions) => entry.uploaded(positions, self.config.max_positions),
            RotaryPositions::OnDevice(positions) => positions,
        };
        let [cosine, sine] = entry.tables.clone();
        RotaryAngles {
            cosine,
            sine,
            positions,
            layout: self.config.layout,
        }
    }

    fn upload<B: Backend>(&self, dtype: DType, device: &B::Device) -> OnDevice<B> {
        let RotaryConfig {
            max_positions,
            rotated,
            base,
            scaling,
            ..
        } = &*self.config;
        let (cosine, sine) = tables(*max_positions, *rotated, *base, scaling);
        let tensor = |values: Vec<f64>| {
            let data = TensorData::new(values, [*max_positions, rotated / 2]).convert_dtype(dtype);
            Tensor::from_data(data, (device, dtype))
        };
        OnDevice {
            device: device.clone(),
            dtype,
            tables: [tensor(cosine), tensor(sine)],
            positions: None,
        }
    }
}

impl<B: Backend> OnDevice<B> {
    fn uploaded(&mut self, positions: HostPositions, max_positions: usize) -> Tensor<B, 1, Int> {
        if let Some((last, uploaded)) = &self.positions
            && positions.is(last)
        {
            return uploaded.clone();
        }
        let values = positions.values(max_positions);
        let count = values.len();
        let data = TensorData::new(values, [count]);
        let uploaded = Tensor::from_data(data, (&self.device, DType::I32));
        self.positions = Some((positions, uploaded.clone()));
        uploaded
    }
}

impl HostPositions {
    fn is(&self, other: &Self) -> bool {
        match (self, other) {
            (
                Self::Samples { count, seq_length },
                Self::Samples {
                    count: n,
                    seq_length: s,
                },
            ) => (count, seq_length) == (n, s),
            // Both are held, so that no other is at the same place.
            (Self::Given(one), Self::Given(other)) => Arc::ptr_eq(one, other),
            _ => false,
        }
    }

    /// One for each token, all below `max_positions`.
    fn values(&self, max_positions: usize) -> Vec<i32> {
        match self {
            Self::Samples { count, seq_length } => {
                assert!(
                    *seq_length <= max_positions,
                    "samples of {seq_length} tokens have no positions from {max_positions} on"
                );
                (0..*count).flat_map(|_| 0..*seq_length as i32).collect()
            }
            Self::Given(given) => {
                let is_there = |position: &&i32| (0..max_positions as i64).contains(&i64::from(**position));
                if let Some(position) = given.iter().find(|position| !is_there(position)) {
                    panic!("position {position} is not one of the {max_positions} that there are");
                }
                given.to_vec()
            }
        }
    }
}

impl fmt::Debug for Rotary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.config.fmt(f)
    }
}
