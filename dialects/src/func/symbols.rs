//! The symbols over which a function's sizes are expressions.

use rc_ir::{Attr, Body, Diagnostic, Dim, Name, OpRef, Result};

/// The function's attribute that declares symbols: `rc.symbols = #rc.symbols<s = [1, 1024, 1]>`,
/// for each its least and greatest value and a divisor.
pub const SYMBOLS: &str = "rc.symbols";

/// A symbol: a size that is known when the function is called.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SymbolDecl {
    pub name: Name,
    pub min: i64,
    /// `i64::MAX` where there is no bound.
    pub max: i64,
    /// Every value is a multiple of it.
    pub divisor: i64,
}

impl SymbolDecl {
    pub fn new(name: &str, min: i64, max: i64) -> SymbolDecl {
        SymbolDecl { name: Name::new(name), min, max, divisor: 1 }
    }
    pub fn multiple_of(self, divisor: i64) -> SymbolDecl {
        SymbolDecl { divisor, ..self }
    }
    /// The dimension that is this symbol.
    pub fn dim(self) -> Dim {
        Dim::symbol(self.name)
    }
    /// Whether the symbol may have this value.
    pub fn allows(self, value: i64) -> bool {
        (self.min..=self.max).contains(&value) && value % self.divisor == 0
    }
    /// Says that a value is not one of the symbol's.
    pub fn refuse(self, value: i64) -> String {
        format!("the symbol '{}' is {value}, outside of its range {}", self.name, self.range())
    }
    /// Its values, in words: `1 to 1024, multiples of 4`.
    pub fn range(self) -> String {
        let most = if self.max == i64::MAX { "any size".to_string() } else { self.max.to_string() };
        let multiples = if self.divisor > 1 { format!(", multiples of {}", self.divisor) } else { String::new() };
        format!("{} to {most}{multiples}", self.min)
    }
}

/// `#rc.symbols<…>` of these declarations.
pub fn symbols_attr(decls: &[SymbolDecl]) -> Attr {
    let params: Vec<(&str, Attr)> =
        decls.iter().map(|d| (d.name.as_str(), Attr::i64s(&[d.min, d.max, d.divisor]))).collect();
    Attr::dialect("symbols", &params)
}

/// Declares a function's symbols, instead of those it had.
pub fn set_symbols(body: &mut Body, decls: &[SymbolDecl]) {
    let attr = symbols_attr(decls);
    body.set_attr(body.root(), SYMBOLS, attr);
}

/// The symbols that a function declares, in its order; those of a malformed attribute, which the verifier reports, are left out.
pub fn symbols(body: &Body) -> Vec<SymbolDecl> {
    symbols_of(body.op_ref(body.root())).unwrap_or_default()
}

/// The symbols that the function `op` declares, or what is wrong with the declaration.
pub fn symbols_of(op: OpRef) -> Result<Vec<SymbolDecl>> {
    let Some(attr) = op.body.attr(op.op, SYMBOLS) else { return Ok(Vec::new()) };
    let Some(params) = attr.as_dialect("symbols") else {
        return Err(malformed(op, "'rc.symbols' is not of the form #rc.symbols<…>"));
    };
    let mut decls: Vec<SymbolDecl> = Vec::with_capacity(params.len());
    for &(name, value) in params {
        let ints = value.as_ints().unwrap_or_default();
        let &[min, max, divisor] = ints.as_slice() else {
            return Err(malformed(op, &format!("the symbol '{name}' is declared without three integers")));
        };
        if min < 0 || max < min || divisor < 1 {
            return Err(malformed(
                op,
                &format!("the symbol '{name}' has the range {min} to {max} and the divisor {divisor}"),
            ));
        }
        if max / divisor * divisor < min {
            let what = format!("the symbol '{name}' has no value: no multiple of {divisor} is from {min} to {max}");
            return Err(malformed(op, &what));
        }
        if name.is_empty() || decls.iter().any(|d| d.name == name) {
            return Err(malformed(op, &format!("the symbol '{name}' is declared twice or has no name")));
        }
        decls.push(SymbolDecl { name, min, max, divisor });
    }
    Ok(decls)
}

fn malformed(op: OpRef, what: &str) -> Box<Diagnostic> {
    op.error(what).help(
        "declare symbols as rc.symbols = #rc.symbols<s = [min, max, divisor], …> with 0 <= min <= max and divisor >= 1",
    )
}

/// `#rc.bind<s = #rc.shape<[t + 1]>>`: what the callee's symbols are over the caller's, for `core.call`, `loop.launch` and `host.launch`.
pub fn bindings_attr(bindings: &[(Name, Dim)]) -> Attr {
    let params: Vec<(&str, Attr)> = bindings.iter().map(|&(name, dim)| (name.as_str(), Attr::shape(&[dim]))).collect();
    Attr::dialect("bind", &params)
}

/// What the attribute `bind` of a call or launch binds the callee's symbols to.
pub fn bindings(call: OpRef) -> Vec<(Name, Dim)> {
    let entries = call.attr("bind").and_then(|a| a.as_dialect("bind")).unwrap_or_default();
    entries.iter().filter_map(|&(name, attr)| Some((name, *attr.as_shape()?.first()?))).collect()
}

/// The verifier of an op with the attribute `bind`, as far as can be seen without the callee.
pub fn verify_bindings(op: OpRef) -> Result {
    let Some(bind) = op.attr("bind") else { return Ok(()) };
    let params = bind.as_dialect("bind").unwrap_or(&[]);
    match params.iter().find(|(_, v)| v.as_shape().is_none_or(|s| s.len() != 1)) {
        Some((name, _)) => Err(op
            .error(format!("binds the symbol '{name}' to something that is not one dimension"))
            .help("write #rc.bind<s = [t + 1]>, as #rc.shape<[…]> in the generic form")),
        None => Ok(()),
    }
}
