//! What is known of a value's numbers: their bound, and how far passes may move them.

/// Element types, as the text has them.
pub const FLOATS: [&str; 4] = ["f32", "f32", "bf16", "f16"];
pub const INTEGERS: [&str; 8] = ["i32", "i64", "i8", "i16", "ui8", "ui16", "ui32", "ui64"];

pub fn is_float(elem: &str) -> bool {
    matches!(elem, "f32" | "f64" | "bf16" | "f16")
}

pub fn is_integer(elem: &str) -> bool {
    elem != "i1" && !is_float(elem)
}

/// Half the distance of neighbours at 1.
pub fn rounding(elem: &str) -> f64 {
    match elem {
        "f64" => 2f64.powi(-53),
        "f32" => 2f64.powi(-24),
        "f16" => 2f64.powi(-11),
        "bf16" => 2f64.powi(-8),
        _ => 0.0,
    }
}

/// Floats of a value: none beyond `bound`, all multiples of 2^-`grid` where that is known, off by at most `error`.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Numbers {
    pub bound: f64,
    pub grid: Option<i32>,
    pub error: f64,
}

impl Numbers {
    pub fn integers() -> Numbers {
        Numbers { bound: 0.0, grid: Some(0), error: 0.0 }
    }
    /// Whether it can be compared and rounded: no pass changes it.
    pub fn is_exact(self) -> bool {
        self.error == 0.0
    }
    /// The result of arithmetic on such numbers, rounded to `elem`: exact where all digits fit.
    pub fn rounded(bound: f64, grid: Option<i32>, error: f64, elem: &str) -> Numbers {
        let fits = |g: &i32| error == 0.0 && (bound + 1.0) * 2f64.powi(*g) <= 1.0 / rounding(elem);
        match grid.filter(fits) {
            Some(g) => Numbers { bound, grid: Some(g), error: 0.0 },
            // Far below 1 results are subnormal, which may be flushed.
            None => Numbers { bound, grid: None, error: error + 4.0 * rounding(elem) * bound.max(1e-3) },
        }
    }
    /// What a function with this bound and this slope at most makes of them.
    pub fn through(self, bound: f64, slope: f64, elem: &str) -> Numbers {
        Numbers::rounded(bound, None, slope * self.error, elem)
    }
    pub fn sum(self, other: Numbers, elem: &str) -> Numbers {
        let grid = self.grid.zip(other.grid).map(|(a, b)| a.max(b));
        Numbers::rounded(self.bound + other.bound, grid, self.error + other.error, elem)
    }
    pub fn product(self, other: Numbers, elem: &str) -> Numbers {
        let grid = self.grid.zip(other.grid).map(|(a, b)| a + b);
        let error = self.error * other.bound + other.error * self.bound + self.error * other.error;
        Numbers::rounded(self.bound * other.bound, grid, error, elem)
    }
    /// The sum of `n` of them.
    pub fn times(self, n: f64, elem: &str) -> Numbers {
        let n = n.max(1.0);
        let exact = Numbers::rounded(self.bound * n, self.grid, n * self.error, elem);
        // Each of n additions rounds.
        Numbers { error: if exact.is_exact() { 0.0 } else { exact.error * (1.0 + n.sqrt()) }, ..exact }
    }
    /// One or the other.
    pub fn either(self, other: Numbers) -> Numbers {
        Numbers {
            bound: self.bound.max(other.bound),
            grid: self.grid.zip(other.grid).map(|(a, b)| a.max(b)),
            error: self.error.max(other.error),
        }
    }
}
