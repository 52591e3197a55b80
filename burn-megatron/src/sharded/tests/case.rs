//! [`Case`]: an operation, with how its inputs are drawn and how it is called on any backend.

use std::collections::VecDeque;

use burn_backend::Backend;
use burn_backend::tensor::{BoolTensor, FloatTensor, IntTensor};
use burn_flex::Flex;

use super::super::Sharded;
use super::draw::{Draw, Inputs};

/// An operation under test.
#[derive(Clone, Copy)]
pub struct Case {
    /// burn's name of the operation; words after it say what is special.
    pub name: &'static str,
    /// Draws operands and arguments.
    pub inputs: fn(&mut Draw) -> Inputs,
    /// Calls the operation on the inner backend.
    pub plain: Run<Flex>,
    /// Calls it on the sharded one.
    pub sharded: Run<Sharded<Flex>>,
}

/// Calls an operation: from its other arguments and its operands to its results.
pub type Run<B> = fn(&[usize], Values<B>) -> Vec<Value<B>>;

/// A tensor of any kind.
pub enum Value<B: Backend> {
    Float(FloatTensor<B>),
    Int(IntTensor<B>),
    Bool(BoolTensor<B>),
}

/// The operands, in order.
pub struct Values<B: Backend>(pub VecDeque<Value<B>>);

impl<B: Backend> Values<B> {
    pub fn float(&mut self) -> FloatTensor<B> {
        match self.0.pop_front() {
            Some(Value::Float(tensor)) => tensor,
            _ => panic!("the case has no float tensor here"),
        }
    }

    pub fn int(&mut self) -> IntTensor<B> {
        match self.0.pop_front() {
            Some(Value::Int(tensor)) => tensor,
            _ => panic!("the case has no int tensor here"),
        }
    }

    pub fn bool(&mut self) -> BoolTensor<B> {
        match self.0.pop_front() {
            Some(Value::Bool(tensor)) => tensor,
            _ => panic!("the case has no bool tensor here"),
        }
    }

    pub fn some_float(&mut self) -> Option<FloatTensor<B>> {
        Some(self.float())
    }

    pub fn some_bool(&mut self) -> Option<BoolTensor<B>> {
        Some(self.bool())
    }

    /// An operand that is missing.
    pub fn none<T>(&mut self) -> Option<T> {
        None
    }
}

/// A case that is called in its own way: `case!(name, inputs, |arguments, values| results)`.
macro_rules! case {
    ($name:expr, $inputs:expr, |$arguments:pat_param, $values:ident| $results:expr) => {{
        fn run<B: burn_backend::Backend>(
            $arguments: &[usize],
            mut $values: $crate::sharded::tests::case::Values<B>,
        ) -> Vec<$crate::sharded::tests::case::Value<B>> {
            $results.into()
        }
        $crate::sharded::tests::case::Case {
            name: $name,
            inputs: $inputs,
            plain: run::<burn_flex::Flex>,
            sharded: run::<$crate::sharded::Sharded<burn_flex::Flex>>,
        }
    }};
}

/// Cases of one line each: `name "what is special": inputs => result(operands; other arguments);`, where `a` names the
/// drawn arguments.
macro_rules! cases {
    (|$a:ident| $(
        $name:ident $( $special:literal )? :
            $inputs:expr => $result:ident ( $( $kind:ident ),* $( ; $( $argument:expr ),+ )? );
    )*) => {
        vec![$(
            $crate::sharded::tests::case::case!(concat!(stringify!($name) $( , " ", $special )?), $inputs, |
                $a,
                values
            | {
                let _ = $a;
                $crate::sharded::tests::case::results!(
                    $result, B::$name($( values.$kind(), )* $( $( $argument ),+ )?)
                )
            })
        ),*]
    };
}

/// The results of a call, by their kind.
macro_rules! results {
    (float, $call:expr) => {
        [$crate::sharded::tests::case::Value::Float($call)]
    };
    (int, $call:expr) => {
        [$crate::sharded::tests::case::Value::Int($call)]
    };
    (bool, $call:expr) => {
        [$crate::sharded::tests::case::Value::Bool($call)]
    };
    (float_int, $call:expr) => {{
        let (first, second) = $call;
        [
            $crate::sharded::tests::case::Value::Float(first),
            $crate::sharded::tests::case::Value::Int(second),
        ]
    }};
    (int_int, $call:expr) => {{
        let (first, second) = $call;
        [
            $crate::sharded::tests::case::Value::Int(first),
            $crate::sharded::tests::case::Value::Int(second),
        ]
    }};
    (float_float, $call:expr) => {{
        let (first, second) = $call;
        [
            $crate::sharded::tests::case::Value::Float(first),
            $crate::sharded::tests::case::Value::Float(second),
        ]
    }};
}

pub(super) use {case, cases, results};
