//! [`Draw`]: random inputs of operations, the same on every rank.

use burn_backend::{Element, TensorData};

/// The operands of an operation, and its other arguments.
#[derive(Clone, Debug, Default)]
pub struct Inputs {
    /// The operands.
    pub tensors: Vec<Input>,
    /// Dimensions, lengths and the like, as the case reads them.
    pub arguments: Vec<usize>,
}

impl Inputs {
    /// Operands without other arguments.
    pub fn new(tensors: impl Into<Vec<Input>>) -> Self {
        Self {
            tensors: tensors.into(),
            arguments: Vec::new(),
        }
    }

    /// With these arguments.
    pub fn with(self, arguments: impl Into<Vec<usize>>) -> Self {
        Self {
            arguments: arguments.into(),
            ..self
        }
    }
}

/// An operand.
#[derive(Clone, Debug)]
pub struct Input {
    /// The elements: f64, i64 or bool.
    pub data: TensorData,
    /// Says that it can be a sum that has not been made: not with values that are not finite.
    pub has_terms: bool,
}

impl Input {
    /// An operand of these elements, which can be a sum that has not been made.
    pub fn new<E: Element>(values: Vec<E>, shape: &[usize]) -> Self {
        Self {
            data: TensorData::new(values, shape.to_vec()),
            has_terms: true,
        }
    }
}

/// Makes an operand of a shape.
pub type Make = fn(&mut Draw, &[usize]) -> Input;

/// A source of random choices (splitmix64).
#[derive(Clone, Debug)]
pub struct Draw {
    state: u64,
}

impl Draw {
    pub fn new(seed: u64) -> Self {
        Self { state: seed }
    }

    pub fn next(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut x = self.state;
        x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        x ^ (x >> 31)
    }

    /// A number below `end`.
    pub fn below(&mut self, end: usize) -> usize {
        (self.next() % end as u64) as usize
    }

    /// True once in `one_in` times.
    pub fn chance(&mut self, one_in: usize) -> bool {
        self.below(one_in) == 0
    }

    pub fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.below(from.len())]
    }

    /// The length of a dimension: some are too short to be cut, many give uneven cuts.
    pub fn length(&mut self) -> usize {
        self.pick(&[1, 2, 3, 4, 5, 6, 7, 8])
    }

    /// A length of two at least.
    pub fn longer(&mut self) -> usize {
        self.pick(&[2, 3, 4, 5, 6, 7])
    }

    /// A shape of `least` to `most` dimensions.
    pub fn shape(&mut self, least: usize, most: usize) -> Vec<usize> {
        let rank = least + self.below(most + 1 - least);
        (0..rank).map(|_| self.length()).collect()
    }

    /// One operand, of one to four dimensions.
    pub fn one(&mut self, make: Make) -> Inputs {
        let shape = self.shape(1, 4);
        Inputs::new([make(self, &shape)])
    }

    /// One operand and a dimension of it.
    pub fn along(&mut self, make: Make) -> Inputs {
        let shape = self.shape(1, 4);
        let dimension = self.below(shape.len());
        Inputs::new([make(self, &shape)]).with([dimension])
    }

    /// One operand, a dimension of it, and a number up to its length.
    pub fn top(&mut self, make: Make) -> Inputs {
        let mut inputs = self.along(make);
        let length = inputs.tensors[0].data.shape()[inputs.arguments[0]];
        inputs.arguments.push(1 + self.below(length));
        inputs
    }

    /// Two operands, one of which may be broadcast along some dimensions of the other.
    pub fn pair(&mut self, left: Make, right: Make) -> Inputs {
        let shape = self.shape(1, 4);
        let mut shapes = [shape.clone(), shape];
        for dimension in 0..shapes[0].len() {
            if self.chance(4) {
                let side = self.below(2);
                shapes[side][dimension] = 1;
            }
        }
        Inputs::new([left(self, &shapes[0]), right(self, &shapes[1])])
    }

    /// Operands of one shape.
    pub fn same(&mut self, makes: &[Make]) -> Inputs {
        let shape = self.shape(1, 4);
        Inputs::new(makes.iter().map(|make| make(self, &shape)).collect::<Vec<_>>())
    }

    /// Operands, the first of one shape and the others broadcast along some of its dimensions.
    pub fn broadcast(&mut self, makes: &[Make]) -> Inputs {
        let shape = self.shape(1, 4);
        let tensors = makes.iter().enumerate().map(|(index, make)| {
            let mut shape = shape.clone();
            for length in &mut shape {
                if index > 0 && self.chance(4) {
                    *length = 1;
                }
            }
            make(self, &shape)
        });
        let tensors: Vec<_> = tensors.collect();
        Inputs::new(tensors)
    }

    fn floats(&mut self, shape: &[usize], low: f64, high: f64) -> Input {
        // Multiples of 1/64: terms that are put together give the same bits again.
        let steps = ((high - low) * 64.0) as usize;
        let values = (0..shape.iter().product()).map(|_| low + self.below(steps + 1) as f64 / 64.0);
        Input::new(values.collect(), shape)
    }

    fn ints(&mut self, shape: &[usize], low: i64, high: i64) -> Input {
        let values = (0..shape.iter().product()).map(|_| low + self.below((high - low) as usize) as i64);
        Input::new(values.collect(), shape)
    }

    fn picks(&mut self, shape: &[usize], from: &[f64]) -> Input {
        let values = (0..shape.iter().product()).map(|_| self.pick(from));
        Input::new(values.collect(), shape)
    }

    /// Truth values, as `value` draws them.
    pub fn truths(&mut self, shape: &[usize], value: impl Fn(&mut Self) -> bool) -> Input {
        let values = (0..shape.iter().product()).map(|_| value(self));
        Input::new(values.collect(), shape)
    }

    /// Indices below a length.
    pub fn indices(&mut self, shape: &[usize], length: usize) -> Input {
        self.ints(shape, 0, length as i64)
    }
}

/// Numbers of both signs.
pub fn float(draw: &mut Draw, shape: &[usize]) -> Input {
    draw.floats(shape, -4.0, 4.0)
}

/// Numbers from 1/4 to 3.
pub fn positive(draw: &mut Draw, shape: &[usize]) -> Input {
    draw.floats(shape, 0.25, 3.0)
}

/// Numbers from 1 to 4.
pub fn above_one(draw: &mut Draw, shape: &[usize]) -> Input {
    draw.floats(shape, 1.0, 4.0)
}

/// Numbers within -3/4 and 3/4.
pub fn fraction(draw: &mut Draw, shape: &[usize]) -> Input {
    draw.floats(shape, -0.75, 0.75)
}

/// Zeros and ones and halves, so that many are equal and some rows are zero.
pub fn few_values(draw: &mut Draw, shape: &[usize]) -> Input {
    draw.picks(shape, &[0.0, 0.0, 0.0, 0.5, 1.0])
}

/// Halves within -1 and 1.
pub fn halves(draw: &mut Draw, shape: &[usize]) -> Input {
    draw.picks(shape, &[-1.0, -0.5, 0.0, 0.5, 1.0])
}

/// Numbers some of which are not finite.
pub fn not_finite(draw: &mut Draw, shape: &[usize]) -> Input {
    Input {
        has_terms: false,
        ..draw.picks(shape, &[0.0, 1.5, f64::NAN, f64::INFINITY, f64::NEG_INFINITY])
    }
}

/// Integers of both signs.
pub fn int(draw: &mut Draw, shape: &[usize]) -> Input {
    draw.ints(shape, -9, 10)
}

/// Integers from 1 to 5.
pub fn natural(draw: &mut Draw, shape: &[usize]) -> Input {
    draw.ints(shape, 1, 6)
}

/// Zeros and ones.
pub fn bit(draw: &mut Draw, shape: &[usize]) -> Input {
    draw.ints(shape, 0, 2)
}

/// Truth values.
pub fn truth(draw: &mut Draw, shape: &[usize]) -> Input {
    draw.truths(shape, |draw| draw.chance(2))
}
