//! Names and kinds: from what is written to a [`Rule`], or what is wrong with it.

mod exprs;
mod ops;

use self::exprs::counted;
use super::code::Code;
use super::gate::gates;
use super::rule::{Assuming, Condition, Form, OpPattern, Remark, Rule, TypePattern, Use, ValueInfo, VarInfo};
use super::val::{KIND_WORDS, Kind};
use rc_dialects::core::scalar::Scalar;
use rc_ir::loc::Source;
use rc_ir::suggest::did_you_mean;
use rc_ir::{Diagnostic, Name};
use rc_parser::rules::ast::{self, At, Span, What};
use rustc_hash::FxHashMap;
use std::sync::Arc;

/// Operations of a pattern whose operands commute, at most: every order of each is tried.
const COMMUTING: usize = 8;

/// The rule, if nothing is wrong with it. It may use the forms.
pub fn resolve(source: &Source, rule: &ast::Rule, forms: &[Arc<Form>], errors: &mut Vec<Diagnostic>) -> Option<Rule> {
    let before = errors.len();
    let resolved = Resolver::new(source, forms, errors).rule(rule, None);
    resolved.filter(|_| errors.len() == before)
}

/// The form, if nothing is wrong with it. It may use those before it.
pub fn form(source: &Source, form: &ast::Form, forms: &[Arc<Form>], errors: &mut Vec<Diagnostic>) -> Option<Form> {
    let before = errors.len();
    let mut cases = Vec::new();
    let mut kinds = [Vec::new(), Vec::new()];
    for case in &form.cases {
        let mut resolver = Resolver::new(source, forms, errors);
        kinds = resolver.header(form, cases.is_empty());
        cases.extend(resolver.rule(case, Some(form)));
    }
    let mut resolver = Resolver::new(source, forms, errors);
    if form.cases.is_empty() {
        let help = "write one as name(%x) { %v = core.neg %x } => { %w = %x }";
        resolver.error_help(&form.name.span, "the form has no cases", help);
    }
    if forms.iter().any(|other| other.name == form.name.node) {
        resolver.error(&form.name.span, format!("two forms are named '{}'", form.name.node));
    }
    let [takes, gives] = kinds;
    let resolved = Form { name: Name::new(form.name.node).as_str(), takes, gives, cases };
    (errors.len() == before).then_some(resolved)
}

struct Resolver<'r, 's> {
    source: &'r Source,
    errors: &'r mut Vec<Diagnostic>,
    forms: &'r [Arc<Form>],
    /// Whether this is a case of a form, whose root is the form's value and may be read.
    in_form: bool,
    /// Whether all of the pattern's operations are resolved, which are matched before the types of holes.
    in_holes: bool,
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

impl<'r, 's> Resolver<'r, 's> {
    fn new(source: &'r Source, forms: &'r [Arc<Form>], errors: &'r mut Vec<Diagnostic>) -> Resolver<'r, 's> {
        Resolver {
            source,
            errors,
            forms,
            in_form: false,
            in_holes: false,
            values: Vec::new(),
            names: FxHashMap::default(),
            made: FxHashMap::default(),
            vars: Vec::new(),
            var_names: FxHashMap::default(),
            late: Vec::new(),
            numbers: Vec::new(),
            holes: 0,
            maker: FxHashMap::default(),
        }
    }

    fn error(&mut self, span: &Span, message: impl Into<String>) -> &mut Diagnostic {
        let error = Diagnostic::error(self.source.loc(span.start), message).with_len(span.len());
        self.errors.push(*error);
        self.errors.last_mut().expect("just pushed")
    }
    fn error_help(&mut self, span: &Span, message: impl Into<String>, help: impl Into<String>) {
        self.error(span, message).help = Some(help.into());
    }

    /// A rule, or a form's case.
    fn rule(&mut self, rule: &ast::Rule<'s>, form: Option<&ast::Form<'s>>) -> Option<Rule> {
        let assuming = self.assuming(&rule.assuming);
        if let Some(form) = form {
            self.in_form = true;
            self.name_value(&form.value.name, false);
            for take in &form.takes {
                if let ast::Take::Value(name) = take {
                    self.name_value(name, false);
                }
            }
        }
        let first = self.values.len();
        self.holes = first + rule.holes.len();
        for hole in &rule.holes {
            self.name_value(&hole.name, hole.many);
        }
        if rule.pattern.is_empty() && form.is_none() {
            self.error_help(
                &rule.name.span,
                "the pattern is empty",
                "write the operations to match between the braces",
            );
            return None;
        }
        // Names first: an operation may be written before its operands' types say what they are.
        for (at, statement) in rule.pattern.iter().enumerate() {
            let root = at + 1 == rule.pattern.len();
            self.name_results(statement, form.filter(|_| root));
        }
        let (ops, spans) = self.op_patterns(rule);
        self.in_holes = true;
        let holes = (first..).zip(&rule.holes);
        for (at, hole) in form.iter().map(|form| (0, &form.value)).chain(holes) {
            if let Some(ty) = &hole.ty {
                self.values[at].ty = self.type_pattern(ty);
            }
        }
        if ops.len() < rule.pattern.len() {
            return None;
        }
        self.check_use(rule, first, &ops);
        let ops = if ops.is_empty() { ops } else { self.ordered(ops, &spans)? };
        // Before the replacement's values get numbers, for whoever makes an example of the pattern.
        let mut conditions: Vec<Condition> = Vec::new();
        let written: Vec<Condition> = rule.conditions.iter().filter_map(|c| self.condition(c)).collect();
        conditions.append(&mut self.late);
        conditions.extend(written);
        let remark = rule.remark.as_ref().and_then(|remark| self.remark(remark));
        let wanted: Vec<&'s str> = match form {
            Some(form) => std::iter::once(form.makes.node).chain(form.gives.iter().filter_map(value_name)).collect(),
            None => rule.pattern.last().map(|root| root.results.iter().map(|r| r.node).collect()).unwrap_or_default(),
        };
        let makes = self.replacement(rule, &wanted);
        let results = wanted.iter().filter_map(|name| self.result(rule, name)).collect();
        let gives = form.iter().flat_map(|form| &form.gives).filter_map(|given| self.given(rule, given)).collect();
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
            chooses: conditions.iter().any(|c| matches!(c, Condition::Holds(Code::Chosen(_), _))),
            conditions,
            makes,
            results,
            gives,
            remark,
            numbers: std::mem::take(&mut self.numbers),
        };
        resolved.gates = gates(&resolved);
        Some(resolved)
    }

    /// What a form takes and gives; the variables that it takes are bound. Mistakes are said once.
    fn header(&mut self, form: &ast::Form<'s>, say: bool) -> [Vec<Kind>; 2] {
        let before = self.errors.len();
        let takes: Vec<Kind> = form.takes.iter().map(|take| self.kind_of(take)).collect();
        for (take, &kind) in form.takes.iter().zip(&takes) {
            if let ast::Take::Var(typed) = take {
                self.new_var(typed.name.node, kind);
            }
        }
        let gives = form.gives.iter().map(|give| self.kind_of(give)).collect();
        if form.value.many {
            let help = "a form is asked of each of several values";
            self.error_help(&form.value.name.span, "a form is of one value", help);
        }
        if !say {
            self.errors.truncate(before);
        }
        [takes, gives]
    }

    fn kind_of(&mut self, take: &ast::Take<'s>) -> Kind {
        match take {
            ast::Take::Value(_) => Kind::Value,
            ast::Take::Var(typed) => self.kind_word(&typed.kind),
        }
    }

    fn kind_word(&mut self, word: &At<&'s str>) -> Kind {
        if let Some((_, kind)) = KIND_WORDS.iter().find(|(name, _)| *name == word.node) {
            return *kind;
        }
        let names = KIND_WORDS.map(|k| k.0);
        let hint = did_you_mean(word.node, names);
        self.error_help(
            &word.span,
            format!("nothing is of the kind '{}'{hint}", word.node),
            format!("the kinds are {}", names.join(", ")),
        );
        Kind::Int
    }

    fn op_patterns(&mut self, rule: &ast::Rule<'s>) -> (Vec<OpPattern>, Vec<Span>) {
        let (mut ops, mut spans) = (Vec::<OpPattern>::new(), Vec::new());
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
        (ops, spans)
    }

    /// The value that takes the place of one of the root's results, or is a form's.
    fn result(&mut self, rule: &ast::Rule<'s>, name: &str) -> Option<usize> {
        let found = self.made.get(name).copied();
        if found.is_none() {
            let message = format!("the replacement does not make '%{name}'");
            self.error_help(&rule.replaced_at, message, format!("end it with %{name} = …"));
        }
        found
    }

    /// A variable that a form gives.
    fn given(&mut self, case: &ast::Rule<'s>, given: &ast::Take<'s>) -> Option<usize> {
        let ast::Take::Var(given) = given else { return None };
        let wanted = self.kind_word(&given.kind);
        let name = given.name.node;
        let Some(&var) = self.var_names.get(name) else {
            let help = format!("bind it in the pattern, or with 'let ${name} = …'");
            self.error_help(&case.name.span, format!("the case does not give '${name}'"), help);
            return None;
        };
        let kind = self.vars[var].kind;
        if kind != wanted {
            let message =
                format!("the case gives {} as '${name}', and the form {}", kind.describe(), wanted.describe());
            self.error(&case.name.span, message);
        }
        Some(var)
    }

    fn remark(&mut self, remark: &ast::Remark<'s>) -> Option<Remark> {
        let at = self.matched(remark.at.node, &remark.at.span)?;
        Some(Remark { at, text: self.text(&remark.text) })
    }

    fn text(&mut self, parts: &[At<ast::Expr<'s>>]) -> Vec<Code> {
        parts.iter().filter_map(|part| self.expr(part)).map(|part| part.0).collect()
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

    /// `form`: of the root of a case, which makes the form's value.
    fn name_results(&mut self, statement: &ast::Statement<'s>, form: Option<&ast::Form<'s>>) {
        let value = form.map(|form| form.value.name.node);
        for result in statement.results.iter().filter(|result| Some(result.node) != value) {
            self.name_value(result, false);
        }
        if let Some(value) = value.filter(|value| statement.results.iter().all(|result| result.node != *value)) {
            let help = "end the pattern with the operation that makes it, or leave the pattern empty";
            self.error_help(
                &statement.results[0].span,
                format!("the pattern of a case does not make '%{value}'"),
                help,
            );
        }
    }

    /// Every hole is used, and every operation but the last.
    fn check_use(&mut self, rule: &ast::Rule<'s>, first: usize, ops: &[OpPattern]) {
        let used = |value: usize| ops.iter().any(|op| op.operands.groups.iter().flatten().any(|s| s.value == value));
        for (at, hole) in rule.holes.iter().enumerate() {
            if !used(first + at) {
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
            ast::Condition::Holds(expr, said) => {
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
                Some(Condition::Holds(code, self.text(said)))
            }
            ast::Condition::Form(asked) => self.form_use(asked).map(Condition::Form),
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

    /// A form that is asked for: what it makes and gives is bound.
    fn form_use(&mut self, asked: &ast::Use<'s>) -> Option<Use> {
        let forms = self.forms;
        let Some(form) = forms.iter().find(|form| form.name == asked.form.node) else {
            let hint = did_you_mean(asked.form.node, forms.iter().map(|form| form.name));
            let help = "forms stand before what uses them: form name(%v) -> %w { case(%x) { %v = core.neg %x } => { %w = %x } }";
            self.error_help(&asked.form.span, format!("there is no form '{}'{hint}", asked.form.node), help);
            return None;
        };
        let value = self.slot(&asked.value, false)?;
        if asked.args.len() != form.takes.len() || asked.gives.len() != form.gives.len() {
            let message = format!(
                "'{}' takes a value and {}, and gives one and {}",
                form.name,
                counted(form.takes.len()),
                counted(form.gives.len())
            );
            self.error(&asked.form.span, message);
            return None;
        }
        let (mut values, mut args) = (Vec::new(), Vec::new());
        for (arg, &kind) in asked.args.iter().zip(&form.takes) {
            match self.of_kind(arg, &[kind])?.0 {
                Code::Value(number) if kind == Kind::Value => values.push(number),
                code => args.push(code),
            }
        }
        if asked.makes.many != value.many || asked.makes.many && !asked.gives.is_empty() {
            let help = "of one value a form makes one and gives what it gives; of several, as let %w... = form(%v...), as many and nothing else";
            self.error_help(&asked.makes.name.span, "one value and several do not go together here", help);
            return None;
        }
        let (mut makes, mut gives) = (vec![self.values.len()], Vec::new());
        self.name_value(&asked.makes.name, asked.makes.many);
        for (give, &kind) in asked.gives.iter().zip(&form.gives) {
            match (&give.node, kind) {
                (ast::Expr::Value(name), Kind::Value) => {
                    makes.push(self.values.len());
                    self.name_value(&At::new(*name, give.span.start, give.span.end), false);
                }
                (ast::Expr::Var(name), kind) if kind != Kind::Value => {
                    gives.push(self.bind_var(name, kind, &give.span))
                }
                _ => {
                    self.error(&give.span, format!("the form gives {} here", kind.describe()));
                }
            }
        }
        Some(Use { form: form.clone(), value, values, args, makes, gives })
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
        self.late.push(Condition::Holds(same, Vec::new()));
        var
    }
}

fn value_name<'s>(give: &ast::Take<'s>) -> Option<&'s str> {
    if let ast::Take::Value(name) = give { Some(name.node) } else { None }
}
