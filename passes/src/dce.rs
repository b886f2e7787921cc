//! `dce`: erases operations without effects and uses, and private symbols and resources that nothing refers to.

use rc_ir::attr::{Attr, AttrData};
use rc_ir::body::{Body, Op};
use rc_ir::diag::Result;
use rc_ir::effects::is_dead;
use rc_ir::intern::Name;
use rc_ir::module::Module;
use rc_ir::pass::{PassContext, PassDef, PassKind, SymbolContext, run_on_symbols};
use rc_ir::types::{Type, TypeData};
use rustc_hash::{FxHashMap, FxHashSet};

pub static DCE: PassDef = PassDef {
    summary: "Erases what has no effect and no use.",
    doc: "Erases operations whose results are unused and which write nothing, then the private top-level symbols that \
          no live operation refers to (as a symbol, or by name in a string), then the resources that no attribute names.",
    ..PassDef::new("dce", |_| Ok(PassKind::module(run)))
};

fn run(module: &mut Module, cx: &mut PassContext) -> Result {
    run_on_symbols(module, None, cx, &erase_dead).map_err(|mut errors| Box::new(errors.swap_remove(0)))?;
    erase_symbols(module, cx);
    erase_resources(module, cx);
    Ok(())
}

fn erase_dead(body: &mut Body, cx: &mut SymbolContext) -> Result {
    cx.count("operations erased", erase_unused(body));
    Ok(())
}

/// Erases the operations of a function that have no effects and no uses; gives their number. Users come after what they use, but for
/// loops between blocks, for which another round is made.
pub fn erase_unused(body: &mut Body) -> u64 {
    let mut sum = 0;
    loop {
        let dead_now = |body: &Body, op: Op| !body.is_erased(op) && is_dead(body, op);
        let mut erased = 0;
        for op in body.walk().into_iter().rev() {
            if dead_now(body, op) {
                body.erase(op);
                erased += 1;
            }
        }
        sum += erased;
        if erased == 0 {
            return sum;
        }
    }
}

/// Keeps what public symbols reach.
fn erase_symbols(module: &mut Module, cx: &mut PassContext) {
    let by_name: FxHashMap<Name, usize> =
        module.bodies.iter().enumerate().filter_map(|(i, b)| Some((b.symbol()?, i))).collect();
    let mut live: Vec<bool> = module.bodies.iter().map(|b| !b.is_private()).collect();
    let mut work: Vec<usize> = (0..live.len()).filter(|&i| live[i]).collect();
    let mut mentioned = Mentions::default();
    mentioned.attr(module.attrs);
    let reach = |mentioned: &mut Mentions, live: &mut Vec<bool>, work: &mut Vec<usize>| {
        for name in mentioned.fresh.drain(..) {
            if let Some(&i) = by_name.get(&name)
                && !std::mem::replace(&mut live[i], true)
            {
                work.push(i);
            }
        }
    };
    reach(&mut mentioned, &mut live, &mut work);
    while let Some(i) = work.pop() {
        mentioned.body(&module.bodies[i]);
        reach(&mut mentioned, &mut live, &mut work);
    }
    let mut keep = live.iter();
    module.bodies.retain(|body| {
        let keep = *keep.next().unwrap_or(&true);
        if !keep {
            let name = body.symbol().unwrap_or_default();
            cx.remark(body.loc(body.root()), format!("erased the private symbol '@{name}': nothing refers to it"));
            cx.count("symbols erased", 1);
        }
        keep
    });
}

fn erase_resources(module: &mut Module, cx: &mut PassContext) {
    if module.resources.is_empty() {
        return;
    }
    let mut mentioned = Mentions::default();
    mentioned.attr(module.attrs);
    module.bodies.iter().for_each(|body| mentioned.body(body));
    let before = module.resources.len();
    module
        .resources
        .retain(|name, _| mentioned.names.contains(name) || mentioned.opaque.iter().any(|t| t.contains(name.as_str())));
    cx.count("resources erased", (before - module.resources.len()) as u64);
}

/// The names that attributes and types mention: as symbols, resources or strings.
#[derive(Default)]
struct Mentions {
    names: FxHashSet<Name>,
    /// Names since they were last taken.
    fresh: Vec<Name>,
    /// Texts that are not understood, which may hold names.
    opaque: Vec<&'static str>,
    attrs: FxHashSet<Attr>,
    types: FxHashSet<Type>,
}

impl Mentions {
    fn body(&mut self, body: &Body) {
        let own = body.symbol();
        for op in body.walk() {
            let is_root = op == body.root();
            for &(key, value) in body.attrs(op).as_dict().unwrap_or_default() {
                // A symbol's name is no reference to it.
                if !(is_root && key == "sym_name" && own.is_some()) {
                    self.attr(value);
                }
            }
            body.props(op).into_iter().for_each(|p| self.attr(p));
            body.results(op).for_each(|r| self.ty(body.ty(r)));
        }
    }
    fn name(&mut self, name: Name) {
        if self.names.insert(name) {
            self.fresh.push(name);
        }
    }
    fn attr(&mut self, attr: Attr) {
        if !self.attrs.insert(attr) {
            return;
        }
        match attr.data() {
            AttrData::String(text) => self.name(Name::new(text)),
            AttrData::Symbol { root, nested } => {
                self.name(*root);
                nested.iter().for_each(|&n| self.name(n));
            }
            AttrData::Resource { name, .. } => self.name(*name),
            AttrData::Array(items) => items.iter().for_each(|&a| self.attr(a)),
            AttrData::Dict(entries) | AttrData::Dialect { params: entries, .. } => {
                entries.iter().for_each(|e| self.attr(e.1))
            }
            AttrData::Type(ty) => self.ty(*ty),
            AttrData::Opaque(text) => self.opaque_text(text.as_str()),
            _ => {}
        }
    }
    fn ty(&mut self, ty: Type) {
        if !self.types.insert(ty) {
            return;
        }
        match ty.data() {
            TypeData::Dialect { params, .. } => params.iter().for_each(|&a| self.attr(a)),
            TypeData::Opaque(text) => self.opaque_text(text.as_str()),
            TypeData::Tensor { encoding: Some(a), .. } | TypeData::Tile { layout: Some(a), .. } => self.attr(*a),
            _ => {}
        }
    }
    /// Words after `@`, and quoted ones.
    fn opaque_text(&mut self, text: &'static str) {
        self.opaque.push(text);
        let word = |c: char| c.is_alphanumeric() || "_$.-".contains(c);
        for part in text.split('@').skip(1) {
            let part = part.trim_start_matches('"');
            let end = part.find(|c| !word(c)).unwrap_or(part.len());
            self.name(Name::new(&part[..end]));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_ops::*;
    use rc_ir::module::Blob;
    use rc_ir::pass::{PassInstance, PassManager};

    #[test]
    fn chains_and_regions() {
        let mut f = func("f", 1);
        let x = f.args[0];
        let mut b = f.builder();
        let s = binary(&mut b, "rc.ptest.add", x, x);
        let t = binary(&mut b, "rc.ptest.add", s, x);
        binary(&mut b, "rc.ptest.add", t, s);
        read(&mut b, x);
        region(&mut b, "rc.ptest.loop", |b| {
            let u = binary(b, "rc.ptest.add", x, x);
            read(b, u);
        });
        region(&mut b, "rc.ptest.loop", |b| {
            let u = binary(b, "rc.ptest.add", x, x);
            binary(b, "rc.ptest.add", u, x);
            keep(b, &[u]);
        });
        f.run(&[&DCE]);
        assert_eq!(f.text(), "loop { %1 = add %0 %0; keep %1 }");
    }

    #[test]
    fn private_symbols_and_resources() {
        let mut m = Module::new();
        let blob = |n: u8| Blob::new(vec![n; 4]);
        let (used, _) = (m.add_resource("used", Type::f32(), blob(1)), m.add_resource("unused", Type::f32(), blob(2)));
        // main -> a (a string) -> b (a symbol); c <-> d refer to each other alone.
        for (name, refers, private) in [
            ("main", Attr::str("a"), false),
            ("a", Attr::symbol("b"), true),
            ("b", used, true),
            ("c", Attr::str("d"), true),
            ("d", Attr::symbol("c"), true),
        ] {
            let mut f = func(name, 0);
            let mut b = f.builder();
            let op = b.op("rc.ptest.keep").operands(&[]).attr("my.ref", refers).build();
            assert!(f.body.parent(op).is_some());
            if private {
                let root = f.body.root();
                f.body.set_attr(root, "sym_visibility", Attr::str("private"));
            }
            m.push(f.body);
        }
        let report = PassManager::new(vec![PassInstance::new(&DCE).unwrap()]).run(&mut m);
        assert!(report.succeeded(), "{:?}", report.errors);
        let left: Vec<&str> = m.bodies.iter().map(|b| b.symbol().unwrap().as_str()).collect();
        assert_eq!(left, ["main", "a", "b"]);
        assert!(m.resources.len() == 1 && m.resources[0] == blob(1));
        assert!(report.diagnostics[0].message.contains("erased the private symbol '@c'"));
    }
}
