//! [`Stream`]: what goes from one segment or stage to the next, as rows of one tensor.

use burn::tensor::Tensor;

/// Tensors that the layers after a place need.
///
/// As rows of `d_model` numbers: the encoder's, the decoder's, and the weights of a relative position bias, row after
/// row, filled up with zeros.
#[derive(Clone, Debug)]
pub(super) struct Stream {
    /// The encoder's hidden states, or its output: `[batch * encoder_seq, d_model]`, this rank's rows under sequence
    /// parallelism.
    pub encoder: Tensor<2>,
    /// The decoder's hidden states, or its embedded tokens: `[batch * decoder_seq, d_model]`, likewise.
    pub decoder: Tensor<2>,
    /// The weights of the bias of this half, `[buckets, heads / tp]`; none where the half begins.
    pub bias: Option<Tensor<2>>,
}

/// How many rows of a stream each part has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct StreamSizes {
    pub encoder: usize,
    pub decoder: usize,
    /// The shape of the bias's weights, where they go along.
    pub bias: Option<[usize; 2]>,
    pub d_model: usize,
}

impl StreamSizes {
    pub fn rows(self) -> usize {
        self.encoder + self.decoder + self.bias_rows()
    }

    fn bias_rows(self) -> usize {
        self.bias
            .map_or(0, |[buckets, heads]| (buckets * heads).div_ceil(self.d_model))
    }

    /// Takes a stream apart.
    pub fn split(self, rows: Tensor<2>) -> Stream {
        let first = self.encoder + self.decoder;
        Stream {
            encoder: rows.clone().narrow(0, 0, self.encoder),
            decoder: rows.clone().narrow(0, self.encoder, self.decoder),
            bias: self.bias.map(|[buckets, heads]| {
                let count = self.bias_rows();
                let numbers = rows.narrow(0, first, count).reshape([count * self.d_model]);
                numbers.narrow(0, 0, buckets * heads).reshape([buckets, heads])
            }),
        }
    }
}

impl Stream {
    /// The parts as rows of one tensor.
    pub fn join(self) -> Tensor<2> {
        let [_, d_model] = self.encoder.dims();
        let bias = self.bias.map(|weights| {
            let [buckets, heads] = weights.dims();
            let count = (buckets * heads).div_ceil(d_model);
            let (device, dtype, numbers) = (weights.device(), weights.dtype(), weights.reshape([buckets * heads]));
            let numbers = match count * d_model - buckets * heads {
                0 => numbers,
                rest => Tensor::cat(vec![numbers, Tensor::zeros([rest], (&device, dtype))], 0),
            };
            numbers.reshape([count, d_model])
        });
        let parts = [self.encoder, self.decoder].into_iter().chain(bias);
        Tensor::cat(parts.collect(), 0)
    }
}

#[cfg(test)]
mod tests {
    use burn::tensor::Int;

    use super::*;

    #[test]
    fn a_stream_comes_apart_as_it_was_joined() {
        let device = Default::default();
        let numbers = |rows: usize, columns: usize, first: i64| {
            let all = Tensor::<1, Int>::arange(first..first + (rows * columns) as i64, &device);
            all.float().reshape([rows, columns])
        };
        for bias in [None, Some([7, 2]), Some([5, 2])] {
            let stream = Stream {
                encoder: numbers(3, 5, 0),
                decoder: numbers(2, 5, 100),
                bias: bias.map(|[buckets, heads]| numbers(buckets, heads, 200)),
            };
            let sizes = StreamSizes {
                encoder: 3,
                decoder: 2,
                bias,
                d_model: 5,
            };
            let joined = stream.clone().join();
            assert_eq!(joined.dims(), [sizes.rows(), 5]);
            let found = sizes.split(joined);
            assert_eq!(found.encoder.into_data(), stream.encoder.into_data());
            assert_eq!(found.decoder.into_data(), stream.decoder.into_data());
            let data = |bias: Option<Tensor<2>>| bias.map(|bias| bias.into_data());
            assert_eq!(data(found.bias), data(stream.bias));
        }
    }
}
