//! Modules out of random choices: functions of `core` ops on small tensors, of fixed and of symbolic size.

use std::fmt::Write;

/// What one operation of a generated function is made of. Any numbers make a valid function: they are taken modulo
/// what there is to choose from, so that a failing case shrinks by dropping steps.
#[derive(Clone, Debug)]
pub struct Step {
    pub kind: u8,
    pub a: u8,
    pub b: u8,
    pub dim: u8,
}

/// Rows are the symbol `s`, from 1 to [`MAX_ROWS`].
pub const MAX_ROWS: i64 = 16;
const COLUMNS: [i64; 3] = [1, 5, 8];

const UNARY: [&str; 8] = ["neg", "abs", "exp", "tanh", "floor", "logistic", "sign", "sqrt"];
const BINARY: [&str; 5] = ["add", "sub", "mul", "max", "min"];

/// A function `@main(%x0: tensor<s x c x f32>, %x1: …) -> …` that returns the results of the last steps. `columns` chooses c.
pub fn function(steps: &[Step], columns: u8) -> String {
    let columns = COLUMNS[columns as usize % COLUMNS.len()];
    let full = format!("tensor<s x {columns} x f32>");
    let mut values: Vec<String> = vec!["%x0".into(), "%x1".into()];
    let mut body = String::new();
    for (i, step) in steps.iter().enumerate() {
        let operand = |n: u8| values[values.len() - 1 - n as usize % values.len().min(6)].clone();
        let (a, b, r) = (operand(step.a), operand(step.b), format!("%v{i}"));
        let choice = step.dim as usize;
        let _ = match step.kind % 6 {
            0 => writeln!(body, "  {r} = core.{} {a} : {full}", UNARY[choice % UNARY.len()]),
            1 => writeln!(body, "  {r} = core.{} {a}, {b} : {full}", BINARY[choice % BINARY.len()]),
            2 => {
                let kind = ["add", "max", "min"][choice % 3];
                let (dim, kept, vector) =
                    if step.b % 2 == 0 { (1, 0, "s".to_string()) } else { (0, 1, columns.to_string()) };
                let _ = writeln!(
                    body,
                    "  {r}r = core.reduce {a} {{dims = [{dim}], kind = {kind}}} : tensor<{vector} x f32>"
                );
                writeln!(body, "  {r} = core.broadcast {r}r {{dims = [{kept}]}} : {full}")
            }
            3 => {
                let _ = writeln!(body, "  {r}t = core.transpose {a} {{perm = [1, 0]}} : tensor<{columns} x s x f32>");
                writeln!(body, "  {r} = core.transpose {r}t {{perm = [1, 0]}} : {full}")
            }
            4 => {
                let kind = ["lt", "ge", "eq", "ne"][choice % 4];
                let _ = writeln!(body, "  {r}c = core.compare {a}, {b} {{kind = {kind}}} : tensor<s x {columns} x i1>");
                writeln!(body, "  {r} = core.select {r}c, {a}, {b} : {full}")
            }
            _ => {
                let _ = writeln!(
                    body,
                    "  {r}d = core.dot {a}, {b} {{lhs_contract = [0], rhs_contract = [0]}} : tensor<{columns}x{columns}xf32>"
                );
                writeln!(body, "  {r} = core.dot {a}, {r}d {{lhs_contract = [1], rhs_contract = [0]}} : {full}")
            }
        };
        values.push(r);
    }
    let results: Vec<&str> = values.iter().rev().take(2).map(String::as_str).collect();
    format!(
        "func.func @main(%x0: {full}, %x1: {full}) -> ({full}, {full}) attributes {{rc.symbols = #rc.symbols<s = [1, {MAX_ROWS}, 1]>}} {{\n{body}  func.return {}\n}}\n",
        results.join(", ")
    )
}
