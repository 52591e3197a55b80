//! `BucketState`: what a `ShardedOptimizer` holds of all parameters of a bucket, side by side as their gradients are,
//! so that one launch updates them.

use burn::optim::Optimizer;
use burn::tensor::{DType, Device, Tensor};
use cubecl_kernels::adamw::{AdamWBuffers, AdamWRanges, adamw_ranges};

use super::piece::{Piece, Update};
use crate::data_parallel::{BucketForm, ElementWise, laid_out};

/// The main values and moments of this rank's part of a bucket.
pub(super) struct BucketState<O: Optimizer> {
    form: BucketForm<O>,
    buffers: AdamWBuffers,
}

impl<O: Optimizer> BucketState<O> {
    /// Takes main values and moments of a bucket's pieces; zeros where a piece has had no update, and in between.
    pub(super) fn of_pieces<'p>(
        form: BucketForm<O>,
        pieces: impl Iterator<Item = &'p mut Piece<O>>,
        length: usize,
        device: &Device,
    ) -> Self
    where
        O: 'p,
    {
        let mut buffers: [Vec<(usize, Tensor<1>)>; 3] = Default::default();
        for piece in pieces.filter(|piece| !piece.range.is_empty()) {
            let main = piece.main.take().into_iter();
            let moments = piece.state.take().map(form.moments).into_iter().flatten();
            for (buffer, tensor) in buffers.iter_mut().zip(main.chain(moments)) {
                buffer.push((piece.place, tensor.to_device(device)));
            }
        }
        let buffers = buffers.map(|values| laid_out(values, length, DType::F32, device));
        Self {
            form,
            buffers: AdamWBuffers::from_array(buffers),
        }
    }

    /// The main values of a piece, and its state if it has had an update.
    pub(super) fn piece(&self, piece: &Piece<O>) -> (Tensor<1>, Option<O::State<1>>) {
        let own = |buffer: Tensor<1>| buffer.slice(piece.place..piece.place + piece.range.len());
        let [main, moment_1, moment_2] = self.buffers.clone().into_array().map(own);
        let state = (piece.steps > 0).then(|| (self.form.state)(piece.steps, [moment_1, moment_2]));
        (main, state)
    }

    /// Gives a bucket's pieces their main values and states back.
    pub(super) fn spread<'p>(self, pieces: impl Iterator<Item = &'p mut Piece<O>>)
    where
        O: 'p,
    {
        for piece in pieces.filter(|piece| !piece.range.is_empty()) {
            let (main, state) = self.piece(piece);
            (piece.main, piece.state) = (Some(main), state);
        }
    }
}

impl<O: ElementWise> BucketState<O> {
    /// Updates the pieces of a bucket, and returns the new values of this rank's part of it in the module's type.
    ///
    /// One launch for each optimizer and number of updates that there is among them.
    pub(super) fn update<'p>(
        self,
        optimizers: &[O],
        pieces: impl Iterator<Item = &'p Piece<O>>,
        bucket: usize,
        update: &Update,
    ) -> (Self, Tensor<1>)
    where
        O: 'p,
    {
        let mut steps: Vec<((usize, u64), AdamWRanges)> = Vec::new();
        for piece in pieces.filter(|piece| !piece.range.is_empty()) {
            let (key, range) = ((piece.group, piece.steps), piece.place..piece.place + piece.range.len());
            match steps.iter_mut().find(|(other, _)| *other == key) {
                Some((_, step)) => step.ranges.push(range),
                None => {
                    let step = (self.form.step)(&optimizers[piece.group], update.learning_rate, piece.steps);
                    let ranges = vec![range];
                    steps.push((key, AdamWRanges { step, ranges }));
                }
            }
        }
        let steps: Vec<AdamWRanges> = steps.into_iter().map(|(_, step)| step).collect();
        let gradient = update.gradients.own_part(bucket, &update.device);
        // Where the module is by now.
        let buffers = self.buffers.into_array().map(|buffer| buffer.to_device(&update.device));
        let updated = adamw_ranges(AdamWBuffers::from_array(buffers), gradient, &steps, update.dtype);
        let (buffers, values) = updated.unwrap_or_else(|error| panic!("{error}"));
        let form = self.form;
        (Self { form, buffers }, values)
    }
}
