//! Names and kinds: from what is written to a [`Rule`], or what is wrong with it.

mod exprs;
mod ops;

use super::code::Code;
use super::gate::gates;
use super::rule::{Assuming, Condition, OpPattern, Rule, TypePattern, ValueInfo, VarInfo};
use super::val::Kind;
use rc_dialects::core::scalar::Scalar;
use rc_ir::loc::Source;
use rc_ir::suggest::did_you_mean;
use rc_ir::{Diagnostic, Name};
use rc_parser::rules::ast::{self, At, Span, What};
use rustc_hash::FxHashMap;

/// Operations of a pattern whose operands commute, at most: every order of each is tried.
const COMMUTING: usize = 8;

/// The rule, if nothing is wrong with it.
pub fn resolve(source: &Source, rule: &ast::Rule, errors: &mut Vec<Diagnostic>) -> Option<Rule> {
    let before = errors.len();
    let mut resolver = Resolver {
        source,
        errors,
        values: Vec::new(),
        names: FxHashMap::default(),
        made: FxHashMap::default(),
        vars: Vec::new(),
        var_names: FxHashMap::default(),
        late: Vec::new(),
        numbers: Vec::new(),
        holes: rule.holes.len(),
        maker: FxHashMap::default(),
    };
    let resolved = resolver.rule(rule);
    resolved.filter(|_| errors.len() == before)
}

struct Resolver<'r, 's> {
    source: &'r Source,
    errors: &'r mut Vec<Diagnostic>,
    values: Vec<ValueInfo>,
    /// The pattern's values.
    names: FxHashMap<&'s str, usize>,
    /// The replacement's values.
    made: FxHashMap<&'s str, usize>,
    vars: Vec<VarInfo>,
    var_names: FxHashMap<&'s str, usize>,
    /// Tests that are made when all variables are bound.
    late: Vec<Condition>,
    numbers: Vec<Scalar>,
    holes: usize,
    /// By value of the pattern: the operation that makes it.
    maker: FxHashMap<usize, usize>,
}

impl<'s> Resolver<'_, 's> {
    fn error(&mut self, span: &Span, message: impl Into<String>) -> &mut Diagnostic {
        let error = Diagnostic::error(self.source.loc(span.start), message).with_len(span.len());
        self.errors.push(*error);
        self.errors.last_mut().expect("just pushed")
    }
    fn error_help(&mut self, span: &Span, message: impl Into<String>, help: impl Into<String>) {
        self.error(span, message).help = Some(help.into());
    }

    fn rule(&mut self, rule: &ast::Rule<'s>) -> Option<Rule> {
        let assuming = self.assuming(&rule.assuming);
        for hole in &rule.holes {
            self.name_value(&hole.name, hole.many);
        }
        let Some(root) = rule.pattern.last() else {
            self.error_help(
                &rule.name.span,
                "the pattern is empty",
                "write the operations to match between the braces",
            );
            return None;
        };
        // Names first: an operation may be written before its operands' types say what they are.
        for statement in &rule.pattern {
            self.name_results(statement);
        }
        let mut ops: Vec<OpPattern> = Vec::new();
        let mut spans = Vec::new();
        for statement in &rule.pattern {
            let What::Op(node) = &statement.what else {
                let help = "write the value's own name where this one is used";
                self.error_help(&statement.span, "a pattern has operations, and no other names for values", help);
                continue;
            };
            if let Some(op) = self.op_pattern(statement, node) {
                for &value in &op.results {
                    self.maker.insert(value, ops.len());
                }
                spans.push(statement.span.clone());
                ops.push(op);
            }
        }
        for (at, hole) in rule.holes.iter().enumerate() {
            if let Some(ty) = &hole.ty {
                self.values[at].ty = self.type_pattern(ty);
            }
        }
        if ops.len() < rule.pattern.len() {
            return None;
        }
        self.check_use(rule, &ops);
        let ops = self.ordered(ops, &spans)?;
        // Before the replacement's values get numbers, for whoever makes an example of the pattern.
        let mut conditions: Vec<Condition> = Vec::new();
        let written: Vec<Condition> = rule.conditions.iter().filter_map(|c| self.condition(c)).collect();
        conditions.append(&mut self.late);
        conditions.extend(written);
        let makes = self.replacement(rule);
        let results: Vec<usize> = (root.results.iter())
            .filter_map(|result| {
                let found = self.made.get(result.node).copied();
                if found.is_none() {
                    let help = format!("end it with %{} = …", result.node);
                    self.error_help(
                        &rule.replaced_at,
                        format!("the replacement does not make '%{}'", result.node),
                        help,
                    );
                }
                found
            })
            .collect();
        let mut resolved = Rule {
            name: Name::new(rule.name.node).as_str(),
            statistic: Name::new(&format!("rule {}", rule.name.node)).as_str(),
            loc: self.source.loc(rule.name.span.start),
            assuming,
            values: std::mem::take(&mut self.values),
            holes: self.holes,
            vars: std::mem::take(&mut self.vars),
            ops,
            gates: Vec::new(),
            conditions,
            makes,
            results,
            numbers: std::mem::take(&mut self.numbers),
        };
        resolved.gates = gates(&resolved);
        Some(resolved)
    }

    fn assuming(&mut self, words: &[At<&'s str>]) -> Assuming {
        let mut out = Assuming::default();
        for word in words {
            match word.node {
                "finite" => out.finite = true,
                "unsigned-zeros" => out.unsigned_zeros = true,
                "rounding" => out.rounding = true,
                other => {
                    let hint = did_you_mean(other, ["finite", "unsigned-zeros", "rounding"]);
                    let message = format!("no rule can assume '{other}'{hint}");
                    self.error_help(&word.span, message, "the words are finite, unsigned-zeros and rounding");
                }
            }
        }
        out
    }

    fn name_value(&mut self, name: &At<&'s str>, many: bool) {
        let number = self.values.len();
        self.values.push(ValueInfo { name: name.node.into(), many, ty: TypePattern::Any });
        if self.names.insert(name.node, number).is_some() {
            let help = "every value of a pattern has a name of its own";
            self.error_help(&name.span, format!("'%{}' is defined twice", name.node), help);
        }
    }

    fn name_results(&mut self, statement: &ast::Statement<'s>) {
        for result in &statement.results {
            self.name_value(result, false);
        }
    }

    /// Every hole is used, and every operation but the last.
    fn check_use(&mut self, rule: &ast::Rule<'s>, ops: &[OpPattern]) {
        let used = |value: usize| ops.iter().any(|op| op.operands.groups.iter().flatten().any(|s| s.value == value));
        for (at, hole) in rule.holes.iter().enumerate() {
            if !used(at) {
                let message = format!("the hole '%{}' is not used by the pattern", hole.name.node);
                self.error_help(&hole.name.span, message, "take it out, or write the operation that reads it");
            }
        }
        let commuting = ops.iter().filter(|op| op.commutes).count();
        if commuting > COMMUTING {
            let message = format!("not supported: {commuting} operations of a pattern whose operands commute");
            let help = format!("{COMMUTING} at most, for both orders of each are tried; split the rule into two");
            self.error_help(&rule.name.span, message, help);
        }
    }

    /// The root first, and each operation after one that reads a result of it.
    fn ordered(&mut self, ops: Vec<OpPattern>, spans: &[Span]) -> Option<Vec<OpPattern>> {
        let root = ops.len() - 1;
        let (mut order, mut through) = (vec![root], vec![0; ops.len()]);
        let mut at = 0;
        while let Some(&op) = order.get(at) {
            for slot in ops[op].operands.groups.iter().flatten() {
                if let Some(&maker) = self.maker.get(&slot.value)
                    && !order.contains(&maker)
                {
                    through[maker] = ops[maker].results.iter().position(|&r| r == slot.value).unwrap_or(0);
                    order.push(maker);
                }
            }
            at += 1;
        }
        if let Some(lost) = (0..ops.len()).find(|op| !order.contains(op)) {
            let message = "the last operation of the pattern does not depend on this one";
            self.error_help(
                &spans[lost],
                message,
                "a pattern is found from its last operation up: write one rule for each",
            );
            return None;
        }
        let mut number = vec![0; ops.len()];
        order.iter().enumerate().for_each(|(new, &old)| number[old] = new);
        self.maker.values_mut().for_each(|op| *op = number[*op]);
        let mut ops: Vec<Option<OpPattern>> = ops.into_iter().map(Some).collect();
        Some(order.iter().map(|&old| OpPattern { through: through[old], ..ops[old].take().expect("once") }).collect())
    }

    fn condition(&mut self, condition: &ast::Condition<'s>) -> Option<Condition> {
        match condition {
            ast::Condition::Holds(expr) => {
                let (code, kind) = self.expr(expr)?;
                if kind != Kind::Bool {
                    let help = "compare it, as in $n == 1, or ask a function such as static($n)";
                    self.error_help(
                        &expr.span,
                        format!("a condition is true or false, and this is {}", kind.describe()),
                        help,
                    );
                    return None;
                }
                Some(Condition::Holds(code))
            }
            ast::Condition::Let(name, expr) => {
                let (code, kind) = self.expr(expr)?;
                if self.var_names.contains_key(name.node) {
                    let help = "use '==' to compare, or another name";
                    self.error_help(&name.span, format!("'${}' stands for something already", name.node), help);
                    return None;
                }
                Some(Condition::Let(self.new_var(name.node, kind), code))
            }
        }
    }

    fn new_var(&mut self, name: &'s str, kind: Kind) -> usize {
        self.vars.push(VarInfo { name: name.into(), kind });
        self.var_names.insert(name, self.vars.len() - 1);
        self.vars.len() - 1
    }

    /// A place where a variable is bound, or compared with what it was bound to before.
    fn bind_var(&mut self, name: &'s str, kind: Kind, span: &Span) -> usize {
        let Some(&var) = self.var_names.get(name) else { return self.new_var(name, kind) };
        let before = self.vars[var].kind;
        if before != kind {
            let message = format!("'${name}' is {} here, and {} elsewhere", kind.describe(), before.describe());
            self.error_help(span, message, "give one of them another name");
        }
        var
    }

    /// A test that is made when all variables are bound: that a variable, bound here, is what an expression says.
    fn later(&mut self, code: Code, kind: Kind) -> usize {
        self.vars.push(VarInfo { name: String::new(), kind });
        let var = self.vars.len() - 1;
        let same = Code::Binary(ast::Binary::Eq, Box::new(Code::Var(var)), Box::new(code));
        self.late.push(Condition::Holds(same));
        var
    }
}
