//! Sizes: sums of multiples of the symbols `s` and `t` and a number, with the values that they have in a run.

/// `s * S + t * T + c`
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Size {
    pub s: i64,
    pub t: i64,
    pub c: i64,
}

/// What the symbols are in a run.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Symbols {
    pub s: i64,
    pub t: i64,
}

/// The greatest values of the symbols; the least ones are 0 and 1.
pub const MOST: Symbols = Symbols { s: 9, t: 5 };

impl Size {
    pub fn number(c: i64) -> Size {
        Size { s: 0, t: 0, c }
    }
    pub fn at(self, symbols: Symbols) -> i64 {
        self.s * symbols.s + self.t * symbols.t + self.c
    }
    pub fn as_number(self) -> Option<i64> {
        (self.s == 0 && self.t == 0).then_some(self.c)
    }
    pub fn plus(self, other: Size) -> Size {
        Size { s: self.s + other.s, t: self.t + other.t, c: self.c + other.c }
    }
    pub fn times(self, n: i64) -> Size {
        Size { s: self.s * n, t: self.t * n, c: self.c * n }
    }
    /// In an attribute: `2 * s + 3`.
    pub fn text(self) -> String {
        let term = |n: i64, name: &str| match n {
            0 => None,
            1 => Some(name.to_string()),
            n => Some(format!("{n} * {name}")),
        };
        let number = (self.c != 0).then(|| self.c.to_string());
        let terms: Vec<String> = [term(self.s, "s"), term(self.t, "t"), number].into_iter().flatten().collect();
        if terms.is_empty() { "0".into() } else { terms.join(" + ") }
    }
}

/// A list of sizes, in an attribute.
pub fn list(sizes: &[Size]) -> String {
    sizes.iter().map(|d| d.text()).collect::<Vec<_>>().join(", ")
}

/// `tensor<s x 3 x f32>`
pub fn tensor(shape: &[Size], elem: &str) -> String {
    let part = |d: &Size| match (d.as_number(), d.text()) {
        (None, text) if text.contains(' ') => format!("({text}) x "),
        (_, text) => format!("{text} x "),
    };
    format!("tensor<{}{elem}>", shape.iter().map(part).collect::<String>())
}

pub fn elements(shape: &[Size], symbols: Symbols) -> i64 {
    shape.iter().map(|d| d.at(symbols)).product()
}
