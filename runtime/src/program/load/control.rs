//! Calls and control flow: the callee's steps, in memory that the caller names and an arena behind the caller's.

use super::{DEEPEST, Loader, Scope, planned};
use crate::program::{Loop, Memory, Place, Step, Until};
use rc_dialects::func::bindings;
use rc_dialects::host::{FOR, FUNC, IF, WHILE};
use rc_ir::{Dim, Name, OpRef, Result, Type, Value};
use rustc_hash::FxHashMap;

impl<'a> Loader<'a> {
    pub(super) fn control(&mut self, scope: &Scope<'a>, op: OpRef<'a>) -> Result<Vec<Step>> {
        let places = |group: &str| op.group(group).iter().map(|&v| scope.place(v)).collect::<Vec<Place>>();
        let (args, results) = (places("args"), places("results"));
        match op.name() {
            n if n == &IF => {
                let condition = scope.place(op.operand(0));
                let branches = [
                    self.callee(scope, op, "then", &args, &results)?,
                    self.callee(scope, op, "else", &args, &results)?,
                ];
                Ok(vec![Step::If { condition, branches }])
            }
            n if n == &WHILE || n == &FOR => self.turns(&Scope::within(scope), op, &args, &results),
            _ => self.callee(scope, op, "callee", &args, &results),
        }
    }

    fn turns(&mut self, scope: &Scope<'a>, op: OpRef<'a>, args: &[Place], results: &[Place]) -> Result<Vec<Step>> {
        let places = |group: &str| op.group(group).iter().map(|&v| scope.place(v)).collect::<Vec<Place>>();
        let slices = sliced(scope, op, "slices", places("slices"));
        let results = sliced(scope, op, "results", results.to_vec());
        let values = [places("carried"), places("next")];
        let mut turn = |from: usize| {
            let inputs = [&values[from], &slices[..], args].concat();
            self.callee(scope, op, "body", &inputs, &[&values[1 - from], &results[..]].concat())
        };
        let body = [turn(0)?, turn(1)?];
        let until = if op.name() == &FOR {
            let times = op.attr("times").and_then(|a| a.as_shape()).and_then(|s| s.first().copied());
            Until::Times(scope.dim(times.ok_or_else(|| op.error("expects one expression in 'times'"))?))
        } else {
            let [flag] = &places("flag")[..] else { return Err(op.error("expects one flag")) };
            let mut test = |from: usize| {
                self.callee(scope, op, "condition", &[&values[from], args].concat(), std::slice::from_ref(flag))
            };
            Until::False { test: [test(0)?, test(1)?], flag: flag.clone() }
        };
        let types = op.group("carried").into_iter().map(|v| op.body.ty(v));
        let back = types.zip(&values[1]).zip(&values[0]);
        let back =
            back.map(|((ty, from), to)| Step::Copy { from: from.clone(), to: to.clone(), bytes: scope.bytes(ty) });
        Ok(vec![Step::Loop(Box::new(Loop { until, body, back: back.collect() }))])
    }

    /// The steps of the function that an attribute names.
    fn callee(
        &mut self,
        scope: &Scope<'a>,
        op: OpRef<'a>,
        attr: &str,
        args: &[Place],
        results: &[Place],
    ) -> Result<Vec<Step>> {
        let name = Name::new(op.str(attr).ok_or_else(|| op.error(format!("expects '{attr}'")))?);
        let found = self.module.symbol(name).filter(|b| b.name(b.root()) == &FUNC);
        let missing =
            || op.error(format!("calls @{name}, which is no planned function")).help("run plan-buffers first");
        let body = found.ok_or_else(missing)?;
        let (params, inputs, arena) = planned(body)?;
        if inputs != args.len() || params.len() != args.len() + results.len() + 1 {
            return Err(op.error(format!(
                "passes {} buffers and takes {} of @{name}, which has others",
                args.len(),
                results.len()
            )));
        }
        if scope.calls >= DEEPEST {
            return Err(op
                .unsupported(format!("calls nested deeper than {DEEPEST}"))
                .help("a function must not call itself"));
        }
        let bound: FxHashMap<Name, Dim> = bindings(op).into_iter().map(|(name, dim)| (name, scope.dim(dim))).collect();
        let start = Place::start(Memory::Arena(0)).plus(scope.end);
        let places = args.iter().chain(results).chain([&start]).cloned();
        let places: FxHashMap<Value, Place> = params.iter().copied().zip(places).collect();
        let mut inner =
            Scope { body, places, bound: Some(bound), end: scope.end, depth: scope.depth, calls: scope.calls + 1 };
        inner.end = scope.end + inner.dim(arena);
        self.program.arena = self.program.arena.max(inner.end);
        self.steps(inner)
    }
}

impl<'a> Scope<'a> {
    /// The same function inside of one more loop.
    fn within(outer: &Scope<'a>) -> Scope<'a> {
        Scope {
            body: outer.body,
            places: outer.places.clone(),
            bound: outer.bound.clone(),
            end: outer.end,
            depth: outer.depth + 1,
            calls: outer.calls,
        }
    }
}

/// Places that move on by a slice along the first dimension with each turn of the loop.
fn sliced(scope: &Scope, op: OpRef, group: &str, places: Vec<Place>) -> Vec<Place> {
    let slice = |ty: Type| {
        let shape: Vec<Dim> = ty.shape().iter().skip(1).copied().collect();
        scope.bytes(Type::memref(&shape, ty.elem(), 0))
    };
    let types = op.group(group).into_iter().map(|v| op.body.ty(v));
    let moved = places.into_iter().zip(types).map(|(mut place, ty)| {
        place.turns.push((scope.depth - 1, slice(ty)));
        place.guarded = None;
        place
    });
    moved.collect()
}
