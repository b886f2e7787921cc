//! Arguments whose memory a function writes to, and results that are left there.

use super::initializer::{CONSTANT, args_with, mark_args};
use super::ops::res_dicts;
use rc_ir::{Attr, Body, Name, OpRef, Result, Type};

/// Of an argument: the function may write to its memory.
pub const DONATED: &str = "rc.donated";
/// Of a result: the number of the donated argument whose memory it is left in.
pub const UPDATES: &str = "rc.updates";

/// The numbers of the arguments whose memory a function may write to, after it has read them last.
pub fn donated_args(body: &Body) -> Vec<usize> {
    args_with(body, DONATED)
}
/// Declares that a function may write to the memory of these arguments.
pub fn set_donated_args(body: &mut Body, args: impl IntoIterator<Item = usize>) {
    mark_args(body, args, DONATED);
}

/// For each result the argument whose memory it is left in, where it has no memory of its own.
pub fn updated_args(body: &Body) -> Vec<Option<usize>> {
    let number = |dict: &Attr| usize::try_from(dict.get(UPDATES)?.as_int()?).ok();
    res_dicts(body).iter().map(number).collect()
}
/// Declares that results are left in the memory of arguments: (result, argument), which are donated with it.
pub fn set_updates(body: &mut Body, pairs: &[(usize, usize)]) {
    if pairs.is_empty() {
        return;
    }
    set_donated_args(body, pairs.iter().map(|pair| pair.1));
    let mut dicts = res_dicts(body);
    for &(result, arg) in pairs {
        if let Some(dict) = dicts.get_mut(result) {
            *dict = dict.with(Name::new(UPDATES), Some(Attr::i64(arg as i64)));
        }
    }
    body.set_attr(body.root(), "res_attrs", Attr::array(&dicts));
}

/// Each result updates a donated argument of its type, and no two the same.
pub fn verify_updates(op: OpRef, inputs: &[Type], results: &[Type]) -> Result {
    let list = |name: &str| op.attr(name).and_then(Attr::as_array).unwrap_or_default();
    let (args, dicts) = (list("arg_attrs"), list("res_attrs"));
    let flag = |arg: usize, name: &str| args.get(arg).and_then(|dict| dict.get(name)?.as_bool()) == Some(true);
    if let Some(arg) = (0..inputs.len()).find(|&arg| flag(arg, DONATED) && flag(arg, CONSTANT)) {
        return Err(op.error(format!("has a constant argument {arg} that is donated: it is the same at every call")));
    }
    let mut taken: Vec<Option<usize>> = vec![None; inputs.len()];
    for (result, number) in dicts.iter().enumerate().filter_map(|(i, dict)| Some((i, dict.get(UPDATES)?))) {
        let Some(number) = number.as_int() else {
            let error = op.error(format!("expects the number of an argument in '{UPDATES}' of result {result}"));
            return Err(error.help("write {rc.updates = 0}"));
        };
        let arg = usize::try_from(number).ok().filter(|&arg| arg < inputs.len());
        let Some(arg) = arg else {
            let count = inputs.len();
            return Err(
                op.error(format!("has a result {result} that updates argument {number}, and {count} arguments"))
            );
        };
        if let Some(other) = taken[arg].replace(result) {
            return Err(op.error(format!("has two results that update argument {arg}: {other} and {result}")));
        }
        if inputs[arg] != results[result] {
            let (from, to) = (inputs[arg], results[result]);
            return Err(op.error(format!("updates argument {arg} of type {from} by result {result} of type {to}")));
        }
        if !flag(arg, DONATED) {
            let error = op.error(format!("has a result {result} that updates argument {arg}, which is not donated"));
            return Err(error.help("write {rc.donated = true} after the argument"));
        }
    }
    Ok(())
}
