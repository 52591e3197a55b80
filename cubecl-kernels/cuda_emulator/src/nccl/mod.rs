//! NCCL: what `libnccl.so` exports, as far as an engine of collectives calls it.
//!
//! The ranks of a communicator are connected by sockets, each with each ([`rendezvous`]), and a thread for each of them
//! receives ([`communicator`]). An operation waits in its stream until all whom it concerns have come to theirs
//! ([`operation`]): a call that does not match the others' never ends, unless by `ncclCommAbort`.

mod calls;
mod communicator;
mod error;
mod group;
mod lifetime;
mod operation;
mod reduce;
mod rendezvous;
mod wire;
