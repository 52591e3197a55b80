//! The norms on the CPU.

use burn::tensor::{Element, Tensor};
use burn_flex::{Flex, FlexTensor};

use super::{AddRule, AddendGradients, Addends, NormGradients, NormKind, NormParameters, NormStatistics, reference};
use crate::bias_dropout_add::flex::{InputGradient, Others};
use crate::flex::blocks::{Rows, add_up, each_row, in_blocks, uninit};
use crate::flex::lanes::{Destination, accumulate, map, sum, sums};
use crate::flex::math::{Real, vectorised};
use crate::flex::number::{Number, with_number};
use crate::flex::tensor::{Place, flat, rounded, tensor};
use crate::precision::narrow;

/// Returns the norm of each row, and the rows' statistics.
pub fn forward(input: Tensor<Flex, 2>, parameters: &NormParameters<Flex>) -> (Tensor<Flex, 2>, NormStatistics<Flex>) {
    with_number!(input.dtype(), T => forward_in::<T>(input, parameters))
}

/// Returns the gradients for the output's gradient.
pub fn backward(
    input: Tensor<Flex, 2>,
    parameters: &NormParameters<Flex>,
    statistics: NormStatistics<Flex>,
    gradient: Tensor<Flex, 2>,
) -> NormGradients<Flex> {
    let given = Given {
        hidden: input,
        parameters,
        statistics,
        of_hidden: None,
        addends: None,
    };
    with_number!(given.hidden.dtype(), T => given.backward::<T>(gradient)).1
}

/// Returns the sum, its norm, and the rows' statistics.
pub fn add_forward(
    addends: Addends<Flex>,
    parameters: &NormParameters<Flex>,
) -> ([Tensor<Flex, 2>; 2], NormStatistics<Flex>) {
    with_number!(addends.input.dtype(), T => add_forward_in::<T>(addends, parameters))
}

/// Returns the gradients of the addends and of the norm for the gradients of the sum, where it has one, and of the norm.
pub fn add_backward(
    hidden: Tensor<Flex, 2>,
    parameters: &NormParameters<Flex>,
    statistics: NormStatistics<Flex>,
    gradients: [Option<Tensor<Flex, 2>>; 2],
    addends: &AddRule,
) -> (AddendGradients<Flex>, NormGradients<Flex>) {
    let [of_hidden, of_output] = gradients;
    let Some(of_output) = of_output else {
        return reference::add_backward(hidden, parameters, statistics, [of_hidden, None], addends);
    };
    let given = Given {
        hidden,
        parameters,
        statistics,
        of_hidden,
        addends: Some(addends),
    };
    let (input, norm) = with_number!(given.hidden.dtype(), T => given.backward::<T>(of_output));
    let (input, bias) = input.expect("there are addends");
    let addends = AddendGradients {
        input: input.unwrap_or_else(|| norm.input.clone()),
        bias,
        residual: norm.input.clone(),
    };
    (addends, norm)
}

/// A norm's parameters, as rows of a block read them.
struct Parameters {
    kind: NormKind,
    epsilon: f64,
    weight: FlexTensor,
    bias: Option<FlexTensor>,
}

impl Parameters {
    fn of(parameters: &NormParameters<Flex>) -> Self {
        Self {
            kind: parameters.kind,
            epsilon: parameters.epsilon,
            weight: flat(parameters.weight.clone()),
            bias: parameters.bias.clone().map(flat),
        }
    }

    /// The same in the type that is computed in; zeros for a bias that there is not.
    #[inline(always)]
    fn row<T: Number>(&self) -> Norm<T::Real> {
        let weight = T::read(self.weight.storage(), &mut Vec::new()).to_vec();
        let bias = match &self.bias {
            Some(bias) => T::read(bias.storage(), &mut Vec::new()).to_vec(),
            None => vec![T::Real::ZERO; weight.len()],
        };
        Norm {
            kind: self.kind,
            epsilon: T::Real::of(self.epsilon),
            weight,
            bias,
        }
    }
}

struct Norm<R> {
    kind: NormKind,
    epsilon: R,
    weight: Vec<R>,
    bias: Vec<R>,
}

impl<R: Real> Norm<R> {
    /// The mean, 0 for an RMS norm, and the reciprocal of the standard deviation.
    #[inline(always)]
    fn statistics(&self, row: &[R]) -> [R; 2] {
        let share = R::ONE / R::of(row.len() as f64);
        let mean = match self.kind {
            NormKind::Layer => sum(row) * share,
            NormKind::Rms => R::ZERO,
        };
        let [squares] = sums(
            [row],
            #[inline(always)]
            |[x]| {
                let distance = x - mean;
                [distance * distance]
            },
        );
        [mean, R::ONE / (squares * share + self.epsilon).sqrt()]
    }

    #[inline(always)]
    fn apply(&self, row: Destination<'_, R>, [mean, reciprocal]: [R; 2]) {
        map(
            row,
            [&self.weight, &self.bias],
            #[inline(always)]
            |x, [weight, bias]| (x - mean) * reciprocal * weight + bias,
        );
    }
}

/// The rows' statistics, while they are being written.
struct Statistics<R> {
    kind: NormKind,
    mean: Vec<R>,
    reciprocal: Vec<R>,
}

impl<R: Real + Number> Statistics<R> {
    fn new(kind: NormKind, rows: usize) -> Self {
        let [mean, reciprocal] = [(); 2].map(|()| vec![R::ZERO; rows]);
        Self { kind, mean, reciprocal }
    }

    fn rows(&mut self) -> (Rows<&mut [R]>, Rows<&mut [R]>) {
        (Rows::new(&mut self.mean, 1), Rows::new(&mut self.reciprocal, 1))
    }

    fn finish(self) -> NormStatistics<Flex> {
        let rows = self.mean.len();
        NormStatistics {
            mean: (self.kind == NormKind::Layer).then(|| tensor(self.mean, [rows])),
            reciprocal: tensor(self.reciprocal, [rows]),
        }
    }
}

fn forward_in<T: Number>(
    input: Tensor<Flex, 2>,
    parameters: &NormParameters<Flex>,
) -> (Tensor<Flex, 2>, NormStatistics<Flex>) {
    let shape @ [rows, columns] = input.dims();
    let parameters = Parameters::of(parameters);
    let mut statistics = Statistics::<T::Real>::new(parameters.kind, rows);
    let mut place = Place::<T>::over(input);
    let parts = (place.rows(columns), statistics.rows());
    in_blocks(shape, parts, |range, parts| {
        vectorised(
            #[inline(always)]
            || {
                let norm = parameters.row::<T>();
                let mut buffer = Vec::new();
                each_row(
                    range,
                    parts,
                    #[inline(always)]
                    |_, (input, (mean, reciprocal))| {
                        T::through(
                            input.values,
                            &mut buffer,
                            #[inline(always)]
                            |input| {
                                let statistics = norm.statistics(input.source());
                                [mean.values[0], reciprocal.values[0]] = statistics;
                                norm.apply(input, statistics);
                            },
                        );
                    },
                );
            },
        );
    });
    // SAFETY: every row was mapped.
    (unsafe { place.finish(shape) }, statistics.finish())
}

fn add_forward_in<T: Number>(
    addends: Addends<Flex>,
    parameters: &NormParameters<Flex>,
) -> ([Tensor<Flex, 2>; 2], NormStatistics<Flex>) {
    let shape @ [rows, columns] = addends.input.dims();
    let parameters = Parameters::of(parameters);
    let mut statistics = Statistics::<T::Real>::new(parameters.kind, rows);
    let (input, others) = Others::of(addends);
    let mut hidden = Place::<T>::over(input);
    let mut output = uninit::<T>(rows * columns);
    let parts = (
        hidden.rows(columns),
        Rows::new(&mut output[..], columns),
        statistics.rows(),
    );
    in_blocks(shape, parts, |range, parts| {
        vectorised(
            #[inline(always)]
            || {
                let norm = parameters.row::<T>();
                let mut others = others.rows::<T>(columns);
                let mut buffers = [Vec::new(), Vec::new()];
                let [buffer, output_buffer] = &mut buffers;
                each_row(
                    range,
                    parts,
                    #[inline(always)]
                    |row, (input, output, (mean, reciprocal))| {
                        T::through(
                            input.values,
                            buffer,
                            #[inline(always)]
                            |input| {
                                let hidden = others.add(row, input);
                                // The norm is that of the sum as the next layer sees it.
                                T::round(hidden);
                                let statistics = norm.statistics(hidden);
                                [mean.values[0], reciprocal.values[0]] = statistics;
                                T::make(
                                    hidden,
                                    output.values,
                                    output_buffer,
                                    #[inline(always)]
                                    |output| norm.apply(output, statistics),
                                );
                            },
                        );
                    },
                );
            },
        );
    });
    // SAFETY: every row was mapped.
    let hidden = unsafe { hidden.finish(shape) };
    // SAFETY: every row was made.
    let output = tensor(unsafe { output.assume_init() }.into_vec(), shape);
    ([hidden, output], statistics.finish())
}

/// What a backward pass is given besides the gradient of the norm.
struct Given<'a> {
    hidden: Tensor<Flex, 2>,
    parameters: &'a NormParameters<Flex>,
    statistics: NormStatistics<Flex>,
    of_hidden: Option<Tensor<Flex, 2>>,
    addends: Option<&'a AddRule>,
}

/// The gradients of the input, where it is not that of the sum, and of the bias.
type OfAddends = (Option<Tensor<Flex, 2>>, Option<Tensor<Flex, 1>>);

impl Given<'_> {
    /// The gradients of the addends, where there are any, and those of the norm; its input's is that of the sum.
    fn backward<T: Number>(self, of_output: Tensor<Flex, 2>) -> (Option<OfAddends>, NormGradients<Flex>) {
        let shape @ [rows, columns] = self.hidden.dims();
        let parameters = Parameters::of(self.parameters);
        let kind = parameters.kind;
        let reciprocals = flat(narrow(self.statistics.reciprocal, T::Real::dtype()));
        let means = self.statistics.mean.map(|mean| flat(narrow(mean, T::Real::dtype())));
        let reciprocals = reciprocals.storage::<T::Real>();
        let means = means.as_ref().map(|means| means.storage::<T::Real>());
        let (hidden, of_hidden) = (flat(self.hidden), self.of_hidden.map(flat));
        let hidden = hidden.storage::<T>();
        let of_hidden = of_hidden.as_ref().map(|gradient| gradient.storage::<T>());
        let no_addends = AddRule {
            has_bias: false,
            dropout: None,
        };
        let rule = self.addends.unwrap_or(&no_addends);
        let mut of_input = rule.dropout.is_some().then(|| uninit::<T>(rows * columns));
        let mut place = Place::<T>::over(of_output);
        let parts = (
            place.rows(columns),
            of_input.as_mut().map(|of_input| Rows::new(&mut of_input[..], columns)),
        );
        let sums = in_blocks(shape, parts, |range, parts| {
            let mut input = InputGradient::<T>::new(rule, columns);
            let mut block = vectorised(
                #[inline(always)]
                || NormGradient::new(kind, parameters.row::<T>().weight),
            );
            vectorised(
                #[inline(always)]
                || {
                    let mut buffers = [Vec::new(), Vec::new(), Vec::new()];
                    let [hidden_buffer, of_hidden_buffer, buffer] = &mut buffers;
                    each_row(
                        range,
                        parts,
                        #[inline(always)]
                        |row, (gradient, of_input)| {
                            let at_row = row * columns..(row + 1) * columns;
                            let hidden = T::read(&hidden[at_row.clone()], hidden_buffer);
                            let of_hidden = of_hidden.map(
                                #[inline(always)]
                                |gradient| T::read(&gradient[at_row], of_hidden_buffer),
                            );
                            let mean = means.map_or(T::Real::ZERO, |means| means[row]);
                            let statistics = [mean, reciprocals[row]];
                            T::through(
                                gradient.values,
                                buffer,
                                #[inline(always)]
                                |gradient| {
                                    let gradient = block.row(gradient, hidden, of_hidden, statistics);
                                    if of_input.is_some() || rule.has_bias {
                                        let of_input = of_input.map(
                                            #[inline(always)]
                                            |of_input| of_input.values,
                                        );
                                        input.of(row, gradient, of_input);
                                    }
                                },
                            );
                        },
                    );
                },
            );
            [block.of_weight, block.of_bias, input.bias]
        });
        let total = |which: usize| {
            let sums = sums.iter().map(|sums| &sums[which][..]);
            rounded::<T, 1>(add_up(sums, columns), [columns])
        };
        let [of_weight, of_bias, of_addend] = [0, 1, 2].map(total);
        let norm = NormGradients {
            // SAFETY: every row was mapped.
            input: unsafe { place.finish(shape) },
            weight: of_weight,
            bias: parameters.bias.is_some().then_some(of_bias),
        };
        let addends = self.addends.map(|rule| {
            // SAFETY: every row was made.
            let of_input = of_input.map(|of_input| tensor(unsafe { of_input.assume_init() }.into_vec(), shape));
            (of_input, rule.has_bias.then_some(of_addend))
        });
        (addends, norm)
    }
}

/// The gradients in the rows of a block.
struct NormGradient<R> {
    kind: NormKind,
    weight: Vec<R>,
    of_weight: Vec<R>,
    of_bias: Vec<R>,
}

impl<R: Real> NormGradient<R> {
    fn new(kind: NormKind, weight: Vec<R>) -> Self {
        let [of_weight, of_bias] = [(); 2].map(|()| vec![R::ZERO; weight.len()]);
        Self {
            kind,
            weight,
            of_weight,
            of_bias,
        }
    }

    /// Makes a row of the output's gradient that of the input, with the input's further gradient added to it.
    #[inline(always)]
    fn row<'r>(
        &mut self,
        gradient: Destination<'r, R>,
        input: &[R],
        further: Option<&[R]>,
        [mean, reciprocal]: [R; 2],
    ) -> &'r mut [R] {
        let source = gradient.source();
        accumulate(
            &mut self.of_weight,
            [source, input],
            #[inline(always)]
            |[gradient, x]| gradient * ((x - mean) * reciprocal),
        );
        accumulate(
            &mut self.of_bias,
            [source],
            #[inline(always)]
            |[gradient]| gradient,
        );
        let totals = sums(
            [source, input, &self.weight],
            #[inline(always)]
            |[gradient, x, weight]| {
                let weighted = gradient * weight;
                [weighted * ((x - mean) * reciprocal), weighted]
            },
        );
        let share = R::ONE / R::of(input.len() as f64);
        let [along, constant] = totals.map(
            #[inline(always)]
            |total| total * share,
        );
        let constant = match self.kind {
            NormKind::Layer => constant,
            NormKind::Rms => R::ZERO,
        };
        let moments = Moments {
            mean,
            reciprocal,
            along,
            constant,
        };
        match further {
            None => map(
                gradient,
                [input, &self.weight],
                #[inline(always)]
                |gradient, [x, weight]| moments.slope(gradient * weight, x),
            ),
            Some(further) => map(
                gradient,
                [input, &self.weight, further],
                #[inline(always)]
                |gradient, [x, weight, further]| moments.slope(gradient * weight, x) + further,
            ),
        }
    }
}

/// What a row's gradient depends on besides the element.
#[derive(Clone, Copy)]
struct Moments<R> {
    mean: R,
    reciprocal: R,
    /// The mean of the weighted gradients times the normal row.
    along: R,
    /// The mean of the weighted gradients; 0 for an RMS norm.
    constant: R,
}

impl<R: Real> Moments<R> {
    #[inline(always)]
    fn slope(self, weighted: R, x: R) -> R {
        (weighted - (x - self.mean) * self.reciprocal * self.along - self.constant) * self.reciprocal
    }
}
