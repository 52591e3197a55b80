//! [`Rotary`]: the rotary position embedding of a model's layers, which share its tables: one copy per device, type and
//! backend, such as one with autodiff and one without.

use std::fmt;
use std::sync::Arc;

use burn::tensor::{DType, Device, Int, Tensor, TensorData};
use cubecl_kernels::rotary::tables::{RotaryScaling, tables};
use cubecl_kernels::rotary::{RotaryAngles, RotaryLayout};

use super::per_device::{PerDevice, upload};

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
    /// An [`OnDevice`] each.
    devices: PerDevice,
}

/// Where the tokens of a forward pass are in their texts.
pub(super) enum RotaryPositions {
    /// Known on the host.
    OnHost(HostPositions),
    /// On the device, one for each token.
    OnDevice(Tensor<1, Int>),
}

/// Positions that are known on the host.
pub(super) enum HostPositions {
    /// Of samples of this many tokens, each from position 0.
    Samples { count: usize, seq_length: usize },
    /// One for each token.
    Given(Arc<[i32]>),
}

struct OnDevice {
    /// Cosines and sines, `[max_positions, rotated / 2]`.
    tables: [Tensor<2>; 2],
    /// Those of the last forward pass, which all layers share.
    positions: Option<(HostPositions, Tensor<1, Int>)>,
}

impl Rotary {
    /// Returns the embedding of a model.
    pub fn new(config: RotaryConfig) -> Self {
        Self {
            config: Arc::new(config),
            devices: PerDevice::default(),
        }
    }

    /// The angles of tokens at these positions.
    ///
    /// # Panics
    /// When samples are longer than the positions that there are, or one that is given is none of these.
    pub(super) fn angles(&self, positions: RotaryPositions, dtype: DType, device: &Device) -> RotaryAngles {
        let max_positions = self.config.max_positions;
        let make = |dtype| self.upload(dtype, device);
        let run = |entry: &mut OnDevice, _| {
            let positions = match positions {
                RotaryPositions::OnHost(positions) => entry.uploaded(positions, max_positions, device),
                RotaryPositions::OnDevice(positions) => positions,
            };
            let [cosine, sine] = entry.tables.clone();
            RotaryAngles {
                cosine,
                sine,
                positions,
                layout: self.config.layout,
            }
        };
        self.devices.with::<_, _>(dtype, device, make, run)
    }

    fn upload(&self, dtype: DType, device: &Device) -> OnDevice {
        let RotaryConfig {
            max_positions,
            rotated,
            base,
            scaling,
            ..
        } = &*self.config;
        let (cosine, sine) = tables(*max_positions, *rotated, *base, scaling);
        let shape = [*max_positions, rotated / 2];
        OnDevice {
            tables: [cosine, sine].map(|values| upload(values, shape, dtype, device)),
            positions: None,
        }
    }
}

impl OnDevice {
    fn uploaded(&mut self, positions: HostPositions, max_positions: usize, device: &Device) -> Tensor<1, Int> {
        if let Some((last, uploaded)) = &self.positions
            && positions.is(last)
        {
            return uploaded.clone();
        }
        let values = positions.values(max_positions);
        let count = values.len();
        let data = TensorData::new(values, [count]);
        let uploaded = Tensor::from_data(data, (device, DType::I32));
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
