//! A signature as C reads it.

use crate::tensor::DTYPES;
use runtime::program::{Signature, TensorSpec};
use std::ffi::{CString, c_char};

/// `rc_value`.
#[repr(C)]
pub struct RcValue {
    name: *const c_char,
    shape: *const i64,
    sizes: *const *const c_char,
    rank: i32,
    dtype: i32,
}

/// `rc_symbol`.
#[repr(C)]
pub struct RcSymbol {
    name: *const c_char,
    min: i64,
    max: i64,
    divisor: i64,
}

/// `rc_signature`.
#[repr(C)]
pub struct RcSignature {
    inputs: *const RcValue,
    results: *const RcValue,
    symbols: *const RcSymbol,
    input_count: usize,
    result_count: usize,
    symbol_count: usize,
}

/// A signature, and what its pointers point to. Nothing of it moves or changes once it is made.
pub struct Texts {
    signature: RcSignature,
    _values: [Vec<RcValue>; 2],
    _symbols: Vec<RcSymbol>,
    _names: Vec<CString>,
    _shapes: Vec<Vec<i64>>,
    _sizes: Vec<Vec<*const c_char>>,
}

// SAFETY: the pointers are to what the same value owns, which is only read.
unsafe impl Send for Texts {}
// SAFETY: as above.
unsafe impl Sync for Texts {}

impl Texts {
    pub fn of(signature: &Signature) -> Texts {
        let (mut names, mut shapes, mut sizes) = (Vec::new(), Vec::new(), Vec::new());
        // A text's bytes stay where they are when the list of texts grows.
        let mut text = |of: &dyn ToString| {
            names.push(CString::new(of.to_string().replace('\0', "?")).unwrap_or_default());
            names.last().map_or(std::ptr::null(), |name: &CString| name.as_ptr())
        };
        let mut value = |spec: &TensorSpec| {
            let shape: Vec<i64> = spec.shape.iter().map(|d| d.as_static().unwrap_or(-1)).collect();
            let words: Vec<*const c_char> = spec.shape.iter().map(|d| text(d)).collect();
            let dtype = DTYPES.iter().position(|&dtype| dtype == spec.dtype).map_or(-1, |i| i as i32);
            let value = RcValue {
                name: text(&spec.name),
                shape: shape.as_ptr(),
                sizes: words.as_ptr(),
                rank: shape.len() as i32,
                dtype,
            };
            shapes.push(shape);
            sizes.push(words);
            value
        };
        let inputs: Vec<RcValue> = signature.inputs.iter().map(&mut value).collect();
        let results: Vec<RcValue> = signature.outputs.iter().map(&mut value).collect();
        let symbol = |s: &runtime::program::SymbolDecl| RcSymbol {
            name: text(&s.name),
            min: s.min,
            max: s.max,
            divisor: s.divisor,
        };
        let symbols: Vec<RcSymbol> = signature.symbols.iter().map(symbol).collect();
        let whole = RcSignature {
            inputs: inputs.as_ptr(),
            results: results.as_ptr(),
            symbols: symbols.as_ptr(),
            input_count: inputs.len(),
            result_count: results.len(),
            symbol_count: symbols.len(),
        };
        Texts {
            signature: whole,
            _values: [inputs, results],
            _symbols: symbols,
            _names: names,
            _shapes: shapes,
            _sizes: sizes,
        }
    }

    pub fn signature(&self) -> *const RcSignature {
        &self.signature
    }
}
