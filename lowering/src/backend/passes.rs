//! The LLVM passes that run before code generation.

use super::Processor;

/// How a module is compiled.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Options {
    /// The LLVM passes.
    pub pipeline: Pipeline,
}

/// Which LLVM passes run.
///
/// Kernels arrive tiled, vectorized and scheduled; LLVM only has to clean up, hoist and simplify addresses. The
/// standard pipelines spend most of their time on inlining and vectorizing, which have nothing to do here.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub enum Pipeline {
    /// No pass; the code generator's own alone.
    None,
    /// Cleaning up, loop-invariant code motion, redundancy elimination, unrolling where a loop asks for it.
    #[default]
    Light,
    /// LLVM's `default<O2>`.
    O2,
    /// LLVM's `default<O3>`.
    O3,
    /// A pipeline in the text form of LLVM's `opt -passes=`.
    Text(String),
}

impl Pipeline {
    /// The pipeline in the text form of `opt -passes=`; empty for none.
    pub fn text(&self, target: &Processor) -> String {
        match self {
            Self::None => String::new(),
            Self::Light => light(target),
            Self::O2 => "default<O2>".into(),
            Self::O3 => "default<O3>".into(),
            Self::Text(text) => text.clone(),
        }
    }
}

fn light(target: &Processor) -> String {
    // Generic pointers become global or shared ones where that can be seen, before anything reasons about aliasing. A CPU's loads under the same
    // condition become one branch.
    let (spaces, branches) = match target {
        Processor::Cuda(_) => ("infer-address-spaces,", ""),
        Processor::Cpu(_) => ("", "jump-threading,"),
    };
    format!(
        "always-inline,function(sroa,{spaces}early-cse<memssa>,simplifycfg,instcombine<no-verify-fixpoint>,\
         loop-mssa(loop-rotate,licm),loop-unroll<O2;no-runtime;no-partial;no-upperbound;no-peeling>,\
         instcombine<no-verify-fixpoint>,gvn<no-pre>,{branches}loop-mssa(licm),simplifycfg,adce)"
    )
}
