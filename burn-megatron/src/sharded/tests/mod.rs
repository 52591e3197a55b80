//! Tests of the sharded backend: placement changes cost, never meaning.
//!
//! `operations` runs every operation of burn's with random placements of its operands and compares the result with the
//! inner backend's: a table of cases, one for each operation that has a rule. The other files have what a rule, a
//! redistribution and a random tensor claim.
//!
//! The random choices are the same in every run. `SHARDED_SEED` gives others, `SHARDED_ROUNDS` more of them, and
//! `SHARDED_CASE` those of one operation alone.

mod case;
mod draw;
mod operations;
mod place;
mod random;
mod ranks;
mod redistribute;
mod rules;
