//! Instructions of NVIDIA's GPUs that CubeCL has no operation for, for kernels that run on CUDA alone.
//!
//! CubeCL writes the text of a comment into the CUDA source as it is: a comment that ends itself and begins another one
//! leaves its text between the two in the source. So these instructions are part of a kernel like any other: they need
//! no launch of their own, and as the kernel's definition has them, its identity for caches does not change. SPIR-V has
//! no comments and would lose them.
//!
//! The emulator's compiler reads the same source. It knows the copies' instructions; in place of `ex2` it takes the
//! branch that is not for NVIDIA's compilers.
//!
//! # Reference
//! PTX ISA, `cp.async.commit_group`, `cp.async.wait_group`, `ex2`.

use cubecl::ir::{Instruction, NonSemantic, Operation, Scope, Variable, VariableKind};
use cubecl::prelude::barrier::Barrier;
use cubecl::prelude::*;

/// To be called in a kernel that copies asynchronously and has no barrier: CubeCL includes the header that these copies
/// need where there is one. This one is only declared.
#[cube]
pub fn include_copies() {
    let _header = Barrier::shared_uninit();
}

/// Makes a group of this unit's asynchronous copies that are in no group yet.
#[cube]
pub fn commit_copies() {
    intrinsic!(|scope| {
        write_source(scope, "asm volatile(\"cp.async.commit_group;\" ::: \"memory\");");
    })
}

/// Waits until no more than `pending` of this unit's last groups of copies are not done.
#[cube]
#[allow(unused_variables)]
pub fn wait_for_copies(#[comptime] pending: u32) {
    intrinsic!(|scope| {
        let text = format!("asm volatile(\"cp.async.wait_group {pending};\" ::: \"memory\");");
        write_source(scope, &text);
    })
}

/// `2^x` in one instruction: results below the normal numbers are 0.
///
/// `__powf` and `__expf` keep these results, for which each of them takes three instructions more.
#[cube]
#[allow(unused_variables)]
pub fn exp2_approximate(exponent: f32) -> f32 {
    intrinsic!(|scope| {
        let from = scope.create_local_mut(f32::as_type(scope));
        scope.register(Instruction::new(Operation::Copy(*exponent.expand), *from));
        let to = scope.create_local_mut(f32::as_type(scope));
        let (input, result) = (name(*from), name(*to));
        let text = format!(
            "#ifdef __CUDACC__\n\
             asm(\"ex2.approx.ftz.f32 %0, %1;\" : \"=f\"({result}) : \"f\"({input}));\n\
             #else\n\
             {result} = exp2f({input});\n\
             #endif"
        );
        write_source(scope, &text);
        to.into()
    })
}

/// The same number, of which the compiler does not know that it is: places that depend on it are computed where they
/// are needed, and hold no registers from an earlier place on.
#[cube]
#[allow(unused_variables)]
pub fn opaque(number: u32) -> u32 {
    intrinsic!(|scope| {
        let result = scope.create_local_mut(u32::as_type(scope));
        scope.register(Instruction::new(Operation::Copy(*number.expand), *result));
        let name = name(*result);
        let text = format!("#ifdef __CUDACC__\nasm volatile(\"\" : \"+r\"({name}));\n#endif");
        write_source(scope, &text);
        result.into()
    })
}

/// Writes a line of CUDA into the kernel's source.
fn write_source(scope: &mut Scope, text: &str) {
    let content = format!("\n*/\n{text}\n/*\n");
    scope.register(NonSemantic::Comment { content });
}

/// Returns the name that a mutable variable has in the source.
fn name(variable: Variable) -> String {
    match variable.kind {
        VariableKind::LocalMut { id } => format!("l_mut_{id}"),
        other => unreachable!("a mutable variable was made, not {other:?}"),
    }
}
