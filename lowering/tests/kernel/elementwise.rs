//! Every elementwise operation on every type, as scalars and as vectors, against the dialect's own evaluation.

use super::{compile, parse, run};
use rc_dialects::core::scalar::{Scalar, eval};
use rc_ir::{Attr, Name, OpName, Type};
use rc_lowering::backend::Processor;

const INTS: &[&str] = &["i8", "i16", "i32", "i64", "ui8", "ui32", "ui64"];
const FLOATS: &[&str] = &["f32", "f64", "bf16", "f16"];

fn type_of(name: &str) -> Type {
    match name {
        "f32" => Type::f32(),
        "f64" => Type::f64(),
        "bf16" => Type::bf16(),
        "f16" => Type::f16(),
        "index" => Type::index(),
        _ => match name.strip_prefix('u') {
            Some(rest) => Type::unsigned(rest[1..].parse().unwrap()),
            None => Type::int(name[1..].parse().unwrap()),
        },
    }
}

/// A generator of bits: reproducible, different for each test.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }
}

/// Numbers of a type: special ones, small ones, and any bits.
fn operand(ty: Type, random: &mut Random) -> Scalar {
    let bits = random.next();
    let pick = (bits >> 32) % 24;
    if ty.is_float() {
        let special = [0.0, -0.0, 1.0, -1.0, f64::INFINITY, f64::NEG_INFINITY, f64::NAN, 0.5, 2.5, -2.5, 1e9, 3e38];
        let value = special.get(pick as usize).copied().unwrap_or((bits % 20011) as f64 / 97.0 - 100.0);
        let value = if pick == 23 { return Scalar::from_bits(bits, ty).unwrap() } else { value };
        return Scalar::Float(value).convert(ty).unwrap();
    }
    let small = [0, 1, -1, 2, 7, 8, 31, 63, 64, -5];
    match small.get(pick as usize) {
        Some(&n) => Scalar::from_bits(n as u64, ty).unwrap(),
        None => Scalar::from_bits(bits, ty).unwrap(),
    }
}

const COUNT: usize = 521;

/// One op, from a vector's lanes or scalars, on `COUNT` elements.
fn check(op: &str, attrs: &str, dict: Attr, inputs: &[&str], result: &str) {
    for vector in [false, true] {
        check_form(op, attrs, dict, inputs, result, vector);
    }
}

fn check_form(op: &str, attrs: &str, dict: Attr, inputs: &[&str], result: &str, vector: bool) {
    let lanes = if vector { 8 } else { 1 };
    let form = |ty: &str| if vector { format!("vector<8x{ty}>") } else { ty.to_owned() };
    let mut text = String::from("kernel.func @f(");
    for (i, ty) in inputs.iter().enumerate() {
        text += &format!("%m{i}: memref<{COUNT}x{ty}>, ");
    }
    let grid = COUNT.div_ceil(lanes);
    text += &format!(
        "%out: memref<{COUNT}x{result}>) attributes {{phase = thread, target = cpu, grid = [{grid}]}} {{
  %p = kernel.program_id {{axis = 0}} : index
  %l = core.constant {{value = {lanes} : index}} : index
  %c = core.constant {{value = {COUNT} : index}} : index
  %i = core.mul %p, %l : index
  %rest = core.sub %c, %i : index\n"
    );
    for (i, ty) in inputs.iter().enumerate() {
        text += &format!("  %x{i} = kernel.read %m{i}[%i] valid(%rest) : {}\n", form(ty));
    }
    let operands: Vec<String> = (0..inputs.len()).map(|i| format!("%x{i}")).collect();
    text += &format!("  %y = core.{op} {}{attrs} : {}\n", operands.join(", "), form(result));
    text += "  kernel.write %y, %out[%i] valid(%rest)\n  kernel.return\n}\n";
    let module = parse(&format!("{op}.ir"), &text);
    let kernel = compile(&module, &Processor::host().unwrap());

    let types: Vec<Type> = inputs.iter().map(|ty| type_of(ty)).collect();
    let out = type_of(result);
    let mut random = Random(0x9e37_79b9_7f4a_7c15 ^ text.len() as u64);
    let columns: Vec<Vec<Scalar>> =
        types.iter().map(|&ty| (0..COUNT).map(|_| operand(ty, &mut random)).collect()).collect();
    let bytes = |ty: Type| ty.byte_width().unwrap() as usize;
    let data: Vec<Vec<u8>> = types
        .iter()
        .zip(&columns)
        .map(|(&ty, column)| {
            column.iter().flat_map(|x| x.to_bits(ty).unwrap().to_le_bytes()[..bytes(ty)].to_vec()).collect()
        })
        .collect();
    let mut output = vec![0xa5u8; COUNT * bytes(out)];
    let mut pointers: Vec<*const u8> = data.iter().map(|d| d.as_ptr()).collect();
    pointers.push(output.as_mut_ptr());
    run(&kernel, &pointers, &[]);
    let def = OpName::new(&format!("rc.core.{op}")).def().unwrap();
    for i in 0..COUNT {
        let args: Vec<Scalar> = columns.iter().map(|column| column[i]).collect();
        let Some(expected) = eval(def, dict, *types.last().unwrap(), out, &args) else { continue };
        let mut word = [0; 8];
        word[..bytes(out)].copy_from_slice(&output[i * bytes(out)..(i + 1) * bytes(out)]);
        let got = Scalar::from_bits(u64::from_le_bytes(word), out).unwrap();
        let same = match (got, expected) {
            (Scalar::Float(x), Scalar::Float(y)) => x.to_bits() == y.to_bits() || x.is_nan() && y.is_nan(),
            (x, y) => x == y,
        };
        assert!(same, "core.{op} {inputs:?} of {args:?} is {got:?}, not {expected:?} (vector: {vector})");
    }
}

#[test]
fn floats() {
    for ty in FLOATS {
        for op in ["add", "sub", "mul", "div", "max", "min"] {
            check(op, "", Attr::empty_dict(), &[ty, ty], ty);
        }
        for op in ["neg", "abs", "sqrt", "floor", "ceil", "round", "sign"] {
            check(op, "", Attr::empty_dict(), &[ty], ty);
        }
        for op in ["is_nan", "is_finite"] {
            check(op, "", Attr::empty_dict(), &[ty], "i1");
        }
        check("clamp", "", Attr::empty_dict(), &[ty, ty, ty], ty);
        check("select", "", Attr::empty_dict(), &["i1", ty, ty], ty);
    }
    for ty in ["f32", "f64"] {
        check("fma", "", Attr::empty_dict(), &[ty, ty, ty], ty);
    }
}

#[test]
fn integers() {
    for ty in INTS {
        for op in ["add", "sub", "mul", "div", "rem", "max", "min", "and", "or", "xor", "shl", "shr"] {
            check(op, "", Attr::empty_dict(), &[ty, ty], ty);
        }
        for op in ["neg", "abs", "sign", "not"] {
            check(op, "", Attr::empty_dict(), &[ty], ty);
        }
    }
    for op in ["and", "or", "xor"] {
        check(op, "", Attr::empty_dict(), &["i1", "i1"], "i1");
    }
    for op in ["add", "sub", "mul", "div", "rem", "max", "min"] {
        check(op, "", Attr::empty_dict(), &["index", "index"], "index");
    }
}

#[test]
fn comparisons() {
    for kind in ["eq", "ne", "lt", "le", "gt", "ge"] {
        let dict = Attr::dict([(Name::new("kind"), Attr::str(kind))]);
        for ty in ["f32", "bf16", "i32", "ui8", "i64", "index"] {
            check("compare", &format!(" {{kind = {kind}}}"), dict, &[ty, ty], "i1");
        }
    }
}

#[test]
fn conversions() {
    let all = ["i1", "i8", "i32", "i64", "ui8", "ui64", "index", "f32", "f64", "bf16", "f16"];
    for from in all {
        for to in all.into_iter().filter(|&to| to != from) {
            check("convert", "", Attr::empty_dict(), &[from], to);
        }
    }
    for (from, to) in [("f32", "i32"), ("i64", "f64"), ("bf16", "i16"), ("f16", "bf16")] {
        check("bitcast", "", Attr::empty_dict(), &[from], to);
    }
}
