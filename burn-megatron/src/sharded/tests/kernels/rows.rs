//! Sums of a residual stream, alone and with the norm after them, and softmax: over rows, samples and heads.

use burn::tensor::{Bool, Device, Tensor, TensorData};
use cubecl_kernels::bias_dropout_add::bias_dropout_add;
use cubecl_kernels::linear::linear;
use cubecl_kernels::norm::{Addends, NormKind, NormParameters, add_norm, norm_of_stream};
use cubecl_kernels::random::{RowDropout, RowPlace};
use cubecl_kernels::softmax::{SoftmaxMask, scaled_masked_softmax};

use super::super::super::{AxisRole, Mesh, TrafficKind};
use super::super::ranks::{DATA_2_TENSOR_2, TENSOR_2, on_mesh};
use super::{Cuts, expect_same, operand, placed_device, plain, plain_device};

const ROWS: [usize; 2] = [5, 6];

/// The matrices and vectors of a sum and its norm.
struct Operands {
    matrices: [Tensor<2>; 2],
    vectors: [Tensor<1>; 3],
}

fn placed(mesh: &Mesh, cuts: [Cuts; 2]) -> Operands {
    let whole = [(AxisRole::Data, None), (AxisRole::Tensor, None)];
    Operands {
        matrices: [0, 1].map(|n| operand(n, ROWS, mesh, cuts[n])),
        vectors: [2, 3, 4].map(|n| operand(n, [ROWS[1]], mesh, whole)),
    }
}

fn serial() -> Operands {
    Operands {
        matrices: [0, 1].map(|n| plain(n, ROWS)),
        vectors: [2, 3, 4].map(|n| plain(n, [ROWS[1]])),
    }
}

/// Which of the operation's forms.
#[derive(Clone, Copy, Debug)]
struct Form {
    kind: NormKind,
    has_bias: bool,
    drops: bool,
}

const FORMS: [Form; 3] = [
    Form {
        kind: NormKind::Layer,
        has_bias: true,
        drops: true,
    },
    Form {
        kind: NormKind::Layer,
        has_bias: true,
        drops: false,
    },
    Form {
        kind: NormKind::Rms,
        has_bias: false,
        drops: false,
    },
];

impl Form {
    fn dropout(self) -> Option<RowDropout> {
        self.drops.then(|| RowDropout {
            key: [3, 5],
            iteration: 2,
            first_head: 0,
            probability: 0.3,
            places: (0..5).map(|position| RowPlace { position, sample: 7 }).collect(),
        })
    }

    fn addends(self, of: &Operands) -> Addends {
        let [input, residual] = of.matrices.clone();
        Addends {
            input,
            bias: self.has_bias.then(|| of.vectors[0].clone()),
            residual,
            dropout: self.dropout(),
        }
    }

    fn parameters(self, of: &Operands) -> NormParameters {
        NormParameters {
            kind: self.kind,
            weight: of.vectors[1].clone(),
            bias: (self.kind == NormKind::Layer).then(|| of.vectors[2].clone()),
            epsilon: 1e-5,
        }
    }

    /// A tensor that the sum, the norm, or both have a part in.
    fn run(self, use_of: usize, of: &Operands) -> Tensor<2> {
        let fused = || add_norm(self.addends(of), self.parameters(of)).expect("they fit");
        match use_of {
            0 => bias_dropout_add(self.addends(of)).expect("they fit"),
            1 => {
                let [sum, norm] = fused();
                sum + norm
            }
            2 => fused()[1].clone(),
            3 => fused()[0].clone(),
            _ => {
                let [stream, norm] = norm_of_stream(of.matrices[0].clone(), self.parameters(of)).expect("they fit");
                stream * norm
            }
        }
    }

    /// The vectors that the operation has.
    fn vectors(self, use_of: usize, of: &Operands) -> Vec<Tensor<1>> {
        let bias = (self.has_bias && use_of < 4).then(|| of.vectors[0].clone());
        let has_norm = matches!(use_of, 1 | 2 | 4);
        let of_norm = has_norm.then(|| of.vectors[1].clone());
        let of_layer = (has_norm && self.kind == NormKind::Layer).then(|| of.vectors[2].clone());
        bias.into_iter().chain(of_norm).chain(of_layer).collect()
    }

    fn matrices(use_of: usize, of: &Operands) -> Vec<Tensor<2>> {
        of.matrices[..if use_of < 4 { 2 } else { 1 }].to_vec()
    }
}

#[test]
fn sums_and_their_norms_are_the_same_over_rows() {
    on_mesh(DATA_2_TENSOR_2, |_, mesh| {
        let cuts = |data, tensor| [(AxisRole::Data, data), (AxisRole::Tensor, tensor)];
        let layouts = [
            [cuts(None, None); 2],
            [cuts(Some(0), None); 2],
            [cuts(None, Some(1)), cuts(None, Some(0))],
            [cuts(Some(0), None), cuts(Some(0), Some(1))],
        ];
        for form in FORMS {
            for layout in layouts {
                for use_of in 0..5 {
                    let name = format!("{form:?}, use {use_of}, {layout:?}");
                    let (own, other) = (placed(mesh, layout), serial());
                    // A graph is good for one backward pass.
                    let outputs = (form.run(use_of, &own), form.run(use_of, &other));
                    let matrices = (Form::matrices(use_of, &own), Form::matrices(use_of, &other));
                    expect_same(&name, (outputs.0, matrices.0), (outputs.1, matrices.1));
                    let outputs = (form.run(use_of, &own), form.run(use_of, &other));
                    let vectors = (form.vectors(use_of, &own), form.vectors(use_of, &other));
                    expect_same(&name, (outputs.0, vectors.0), (outputs.1, vectors.1));
                }
            }
        }
    });
}

/// What a row-parallel layer leaves is scattered to the rows of a residual stream that is cut.
#[test]
fn a_sum_that_meets_a_cut_stream_is_scattered() {
    on_mesh(TENSOR_2, |_, mesh| {
        let cuts = |cut| [(AxisRole::Data, None), (AxisRole::Tensor, cut)];
        let input: Tensor<2> = operand(0, [4, 8], mesh, cuts(Some(1))).inner();
        let weight = operand(1, [8, 6], mesh, cuts(Some(0))).inner();
        let stream = operand(2, [4, 6], mesh, cuts(Some(0))).inner();
        let product = linear(input, weight, None).expect("they fit");
        mesh.start_counting();
        let addends = Addends {
            input: product,
            bias: None,
            residual: stream,
            dropout: None,
        };
        bias_dropout_add(addends).expect("they fit");
        let kinds: Vec<_> = mesh.stop_counting().iter().map(|record| record.kind).collect();
        assert_eq!(kinds, [TrafficKind::ReduceScatter]);
    });
}

#[test]
fn softmax_is_the_same_over_samples_heads_and_queries() {
    const SCORES: [usize; 4] = [3, 4, 5, 5];
    fn given(device: &Device) -> Tensor<4, Bool> {
        let is_masked: Vec<bool> = (0..75).map(|index| index % 7 == 3).collect();
        Tensor::from_data(TensorData::new(is_masked, [3, 1, 5, 5]), device)
    }
    fn mask(which: usize, device: &Device) -> SoftmaxMask {
        match which {
            0 => SoftmaxMask::Nothing,
            1 => SoftmaxMask::Causal,
            _ => SoftmaxMask::Given(given(device)),
        }
    }
    on_mesh(DATA_2_TENSOR_2, |_, mesh| {
        for which in 0..3 {
            for (data, tensor) in [(None, None), (Some(0), Some(1)), (Some(0), Some(2)), (None, Some(3))] {
                let own = operand(0, SCORES, mesh, [(AxisRole::Data, data), (AxisRole::Tensor, tensor)]);
                let other = plain(0, SCORES);
                let output = scaled_masked_softmax(own.clone(), mask(which, &placed_device()), 0.7).expect("it fits");
                let expected =
                    scaled_masked_softmax(other.clone(), mask(which, &plain_device()), 0.7).expect("it fits");
                let name = format!("mask {which}, cut {data:?} and {tensor:?}");
                expect_same(&name, (output, vec![own]), (expected, vec![other]));
            }
        }
    });
}
