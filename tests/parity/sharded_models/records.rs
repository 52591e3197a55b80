//! Models as burn's recorder writes them, and new ones of the same values.

use burn::module::Module;
use burn::record::{BinBytesRecorder, DoublePrecisionSettings, Recorder};
use burn::tensor::backend::AutodiffBackend;
use burn_flex::FlexDevice;
use burn_megatron::initialize;

use super::passes::Placed;
use super::subjects::Subject;

/// A model's record as bytes; parameters keep their names and lose what burn draws of their identity.
pub fn record_of<B: AutodiffBackend, M: Module<B>>(model: &M) -> anyhow::Result<Vec<u8>> {
    Ok(BinBytesRecorder::<DoublePrecisionSettings>::default().record(model.clone().into_record(), ())?)
}

pub fn with_record<B: AutodiffBackend, M: Module<B>>(
    model: M,
    record: Vec<u8>,
    device: &B::Device,
) -> anyhow::Result<M> {
    let record = BinBytesRecorder::<DoublePrecisionSettings>::default().load(record, device)?;
    Ok(model.load_record(record))
}

/// Makes models of the values that this draws. Clones would share the running state of a norm.
pub fn maker<M: Subject<Placed>>(dropout: f64, device: &FlexDevice) -> anyhow::Result<impl Fn() -> anyhow::Result<M>> {
    let record = record_of::<Placed, M>(&initialize(M::make(dropout, device)))?;
    let device = *device;
    Ok(move || with_record::<Placed, M>(initialize(M::make(dropout, &device)), record.clone(), &device))
}
