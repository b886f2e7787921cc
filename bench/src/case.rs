//! What kernels compute: their arguments, symbols, reference, and amount of work.

use rc_runtime::{DType, Tensor, tensor::Distribution};

/// A function that kernels compute, named by the first word of a file's name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Case {
    /// `z[n] = x[n] + y[n]`, f32.
    Add,
    /// Softmax along the rows of `x[m, n]`, bf16 on CUDA.
    Softmax,
    /// `c[m, n] = a[m, k] b[n, k]^T`, bf16 with f32 accumulators.
    Matmul,
    /// `c[m, n] = a[m, k] b[k, n]`, f32.
    Sgemm,
    /// Causal attention over `q`, `k`, `v` of `[b, s, d]`, bf16; b counts heads too.
    Attention,
}

/// A case at one size, with its inputs.
pub struct Problem {
    pub case: Case,
    /// Values of the symbols, by name.
    pub symbols: Vec<(&'static str, i64)>,
    pub inputs: Vec<Tensor>,
    pub output_dtype: DType,
    pub output_shape: Vec<usize>,
    /// Floating-point operations.
    pub flops: f64,
    /// Bytes read and written, each counted once.
    pub bytes: f64,
    size: Vec<usize>,
}

impl Case {
    pub fn named(name: &str) -> Result<Case, String> {
        Ok(match name {
            "add" => Case::Add,
            "softmax" => Case::Softmax,
            "matmul" => Case::Matmul,
            "sgemm" => Case::Sgemm,
            "attention" => Case::Attention,
            _ => {
                return Err(format!(
                    "'{name}' is not a case: add, softmax, matmul, sgemm, attention (the file's first word)"
                ));
            }
        })
    }

    /// Sizes to measure at, and odd ones to be right at.
    pub fn default_sizes(self) -> Vec<Vec<u64>> {
        let sizes: &[&[u64]] = match self {
            Case::Add => &[&[1], &[1000003], &[1 << 26]],
            Case::Softmax => &[&[127, 1000], &[16384, 8192]],
            Case::Matmul => {
                &[&[127, 136, 128], &[1000, 1000, 1000], &[4096, 4096, 4096], &[8192, 8192, 8192], &[2048, 11008, 4096]]
            }
            Case::Sgemm => &[
                &[1, 1, 1],
                &[127, 129, 131],
                &[512, 512, 512],
                &[1024, 1024, 1024],
                &[2048, 2048, 2048],
                &[128, 3072, 768],
            ],
            Case::Attention => &[&[3, 257, 128], &[64, 4096, 128]],
        };
        sizes.iter().map(|size| size.to_vec()).collect()
    }

    /// Random inputs of a size.
    pub fn problem(self, size: &[u64]) -> Result<Problem, String> {
        let count = match self {
            Case::Add => 1,
            Case::Softmax => 2,
            _ => 3,
        };
        if size.len() != count || size.contains(&0) {
            return Err(format!("{self:?} has {count} extents, all positive, not {size:?}"));
        }
        let n: Vec<usize> = size.iter().map(|&n| n as usize).collect();
        let (names, dtype, shapes, output): (&[&str], _, Vec<Vec<usize>>, Vec<usize>) = match self {
            Case::Add => (&["n"], DType::F32, vec![vec![n[0]]; 2], vec![n[0]]),
            Case::Softmax => (&["m", "n"], DType::Bf16, vec![n.clone()], n.clone()),
            Case::Matmul => (&["m", "n", "k"], DType::Bf16, vec![vec![n[0], n[2]], vec![n[1], n[2]]], vec![n[0], n[1]]),
            Case::Sgemm => (&["m", "n", "k"], DType::F32, vec![vec![n[0], n[2]], vec![n[2], n[1]]], vec![n[0], n[1]]),
            Case::Attention => (&["b", "s", "d"], DType::Bf16, vec![n.clone(); 3], n.clone()),
        };
        let mut inputs = Vec::new();
        for (argument, shape) in shapes.iter().enumerate() {
            let tensor = Tensor::random(dtype, shape, 42, argument as u32, Distribution::Normal(0.0, 1.0));
            inputs.push(tensor.map_err(|error| error.to_string())?);
        }
        let product: f64 = n.iter().map(|&x| x as f64).product();
        let flops = match self {
            Case::Add => product,
            Case::Softmax => 5.0 * product,
            Case::Matmul | Case::Sgemm => 2.0 * product,
            // Half of two products of s x s x d: what the mask leaves.
            Case::Attention => 2.0 * product * n[1] as f64,
        };
        let elements: usize =
            shapes.iter().map(|s| s.iter().product::<usize>()).sum::<usize>() + output.iter().product::<usize>();
        Ok(Problem {
            case: self,
            symbols: names.iter().zip(&n).map(|(&name, &value)| (name, value as i64)).collect(),
            inputs,
            output_dtype: dtype,
            output_shape: output,
            flops,
            bytes: (elements * dtype.size()) as f64,
            size: n,
        })
    }
}

/// An element's value in float64 and how far a right result may be from it, beyond the rounding of the output.
pub struct Expected {
    pub value: f64,
    pub error: f64,
}

/// Unit roundoff of f32.
const F32: f64 = 1.0 / (1u64 << 24) as f64;

impl Problem {
    /// The reference of the element `index` of the output.
    pub fn expected(&self, index: usize) -> Expected {
        let n = &self.size;
        let x = |argument: usize, at: usize| self.inputs[argument].get_f64(at);
        match self.case {
            Case::Add => Expected { value: x(0, index) + x(1, index), error: 0.0 },
            Case::Softmax => {
                let row = index / n[1] * n[1];
                let values: Vec<f64> = (row..row + n[1]).map(|at| x(0, at)).collect();
                let largest = values.iter().copied().fold(f64::NEG_INFINITY, f64::max);
                let sum: f64 = values.iter().map(|v| (v - largest).exp()).sum();
                let value = (values[index - row] - largest).exp() / sum;
                // The exponential's error, its argument's rounding, and the sum's.
                Expected { value, error: value * F32 * (64.0 + (n[1] as f64).sqrt()) }
            }
            Case::Matmul => self.dot(n[2], |k| x(0, index / n[1] * n[2] + k), |k| x(1, index % n[1] * n[2] + k)),
            Case::Sgemm => self.dot(n[2], |k| x(0, index / n[1] * n[2] + k), |k| x(1, k * n[1] + index % n[1])),
            Case::Attention => self.attention(index),
        }
    }

    fn dot(&self, depth: usize, a: impl Fn(usize) -> f64, b: impl Fn(usize) -> f64) -> Expected {
        let (mut value, mut magnitude) = (0.0, 0.0);
        for k in 0..depth {
            let product = a(k) * b(k);
            value += product;
            magnitude += product.abs();
        }
        // Errors of a sum in f32 grow like the root of its length; matrix units drop a few bits more than rounding does.
        Expected { value, error: magnitude * F32 * (8.0 + 2.0 * (depth as f64).sqrt()) }
    }

    /// One element of causal attention.
    fn attention(&self, index: usize) -> Expected {
        let [_, s, d] = [self.size[0], self.size[1], self.size[2]];
        let (head, query, column) = (index / (s * d), index / d % s, index % d);
        let x = |argument: usize, row: usize, at: usize| self.inputs[argument].get_f64((head * s + row) * d + at);
        let scale = 1.0 / (d as f64).sqrt();
        let scores: Vec<f64> =
            (0..=query).map(|key| (0..d).map(|i| x(0, query, i) * x(1, key, i)).sum::<f64>() * scale).collect();
        let largest = scores.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let (mut sum, mut value, mut magnitude) = (0.0, 0.0, 0.0);
        for (key, score) in scores.iter().enumerate() {
            let weight = (score - largest).exp();
            sum += weight;
            value += weight * x(2, key, column);
            magnitude += (weight * x(2, key, column)).abs();
        }
        // The weights are rounded to bf16 before the second product.
        Expected { value: value / sum, error: magnitude / sum * 2f64.powi(-8) }
    }
}
