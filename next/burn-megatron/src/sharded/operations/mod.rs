//! burn's operations on placed tensors: a table for each of its traits, and the operations that a table's line cannot
//! say.
//!
//! A line is `name(tensors; other arguments) -> result = rule`: the operation of the inner backend runs on the parts
//! that the rule asks for. What is written out has arguments that depend on the placement, such as the shape of a part.

mod activation;
mod boolean;
mod creation;
mod float;
mod indexing;
mod integer;
mod listing;
mod module;
mod movement;
mod quantized;
mod rows;

pub use listing::{OperationRule, operation_rules};

/// Implements one of burn's traits of operations, and lists each operation with its rule.
macro_rules! operations {
    (
        $trait:ident, $listing:ident;
        $(
            $name:ident ( $( $tensor:ident : $kind:tt ),+ $( ; $( $argument:ident : $type:ty ),+ )? ) -> $result:tt
                = $rule:expr;
        )*
        ; written { $( $written:ident = $how:literal; )* }
        $( $item:item )*
    ) => {
        impl<B: $crate::collectives::CollectiveBackend> $trait<$crate::sharded::Sharded<B>>
            for $crate::sharded::Sharded<B>
        {
            $(
                fn $name(
                    $( $tensor: $crate::sharded::operations::input_type!(B, $kind), )+
                    $( $( $argument: $type ),+ )?
                ) -> $crate::sharded::operations::result_type!(B, $result) {
                    $crate::sharded::apply::apply(
                        stringify!($name),
                        ($( $tensor, )+),
                        || Box::new($rule),
                        |($( $tensor, )+), _| B::$name($( $tensor, )+ $( $( $argument ),+ )?),
                    )
                }
            )*
            $( $item )*
        }

        /// The operations of the trait, each with its rule.
        pub(super) const $listing: &[(&str, &str)] = &[
            $( (stringify!($name), stringify!($rule)), )*
            $( (stringify!($written), $how), )*
        ];
    };
}

/// `Float`, or `[Float]` for a tensor that may be missing.
macro_rules! input_type {
    ($backend:ident, [$kind:ident]) => { Option<$crate::sharded::ShardedTensor<$backend, $kind>> };
    ($backend:ident, $kind:ident) => { $crate::sharded::ShardedTensor<$backend, $kind> };
}

/// `Float`, or `(Float, Int)` for two results.
macro_rules! result_type {
    ($backend:ident, ($first:ident, $second:ident)) => {
        ($crate::sharded::ShardedTensor<$backend, $first>, $crate::sharded::ShardedTensor<$backend, $second>)
    };
    ($backend:ident, $kind:ident) => { $crate::sharded::ShardedTensor<$backend, $kind> };
}

use input_type;
use operations;
use result_type;
