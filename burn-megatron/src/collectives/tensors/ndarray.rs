//! `CollectiveBackend` for burn's backend of `ndarray`: tensors are in host memory, and nothing is better than
//! `staging`.

use burn_ndarray::{FloatNdArrayElement, IntNdArrayElement, NdArray, NdArrayTensor, QuantElement, SharedArray};

use super::CollectiveBackend;

impl<E, I, Q> CollectiveBackend for NdArray<E, I, Q>
where
    E: FloatNdArrayElement,
    I: IntNdArrayElement,
    Q: QuantElement,
    NdArrayTensor: From<SharedArray<E>> + From<SharedArray<I>>,
{
}
