//! Models as burn's records have them, and new ones of the same values.

use burn::module::Module;
use burn::store::ModuleRecord;
use burn::tensor::{Bytes, Device};
use burn_megatron::initialize;

use super::subjects::Subject;

/// Returns a model's record, through bytes.
pub fn record_of<M: Module>(model: &M) -> anyhow::Result<ModuleRecord> {
    let bytes = model.clone().into_record().into_bytes()?;
    Ok(ModuleRecord::from_bytes(Bytes::from_bytes_vec(bytes.to_vec()))?)
}

/// Makes models of the values that this draws. Clones would share the running state of a norm.
pub fn maker<M: Subject>(dropout: f64, device: &Device) -> anyhow::Result<impl Fn() -> M> {
    let record = record_of(&initialize(M::make(dropout, device)))?;
    let device = device.clone();
    Ok(move || M::make(dropout, &device).load_record(record.clone()))
}
