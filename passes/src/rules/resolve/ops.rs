//! Operations of patterns and replacements: by their declarations.

use super::Resolver;
use super::exprs::as_number;
use crate::rules::code::Code;
use crate::rules::rule::{AttrPattern, ELEMENTWISE, NewOp, OpPattern, Operands, Part, Slot, Test, TypePattern};
use crate::rules::val::{Kind, Val, encode};
use rc_ir::op_def::{Arity, AttrDef, AttrKind, GroupSyntax, OpDef, Regions, registered, resolve_pretty};
use rc_ir::suggest::did_you_mean;
use rc_ir::{Attr, Dim, Effects, Name, OpName, Traits};
use rc_parser::rules::ast::{At, AttrEntry, Expr, OpNode, OpWord, Operand, Rule, Statement, What};

impl<'s> Resolver<'_, 's> {
    /// The declaration of an operation that rules may speak of.
    pub fn declared(&mut self, name: &At<&str>) -> Option<(OpName, &'static OpDef)> {
        let op = resolve_pretty(name.node);
        let Some(def) = op.def() else {
            let names: Vec<&str> = registered().iter().map(|d| OpName::new(d.name).pretty()).collect();
            let hint = did_you_mean(name.node, names);
            self.error_help(
                &name.span,
                format!("there is no operation '{}'{hint}", name.node),
                "rc-opt --list-ops shows them",
            );
            return None;
        };
        let (what, help) = if def.regions != Regions::Exactly(0) {
            ("with regions", "write a pass in Rust: docs/adding-a-pass.md")
        } else if def.effects != Effects::Pure {
            (
                "that do more than compute results",
                "rules replace and drop what they match, which only pure operations allow",
            )
        } else {
            return Some((op, def));
        };
        self.error_help(
            &name.span,
            format!("not supported: operations {what} in rules, such as '{}'", name.node),
            help,
        );
        None
    }

    pub fn op_pattern(&mut self, statement: &Statement<'s>, node: &OpNode<'s>) -> Option<OpPattern> {
        let (name, def, any) = match &node.name {
            OpWord::Any(var, class) => {
                (OpName::new(ELEMENTWISE.name), self.class(class)?, Some(self.bind_var(var.node, Kind::Op, &var.span)))
            }
            OpWord::Same(var) => {
                self.error_help(
                    &var.span,
                    "a pattern says which operations fit",
                    format!("write ${}: elementwise", var.node),
                );
                return None;
            }
            OpWord::Is(name) => self.declared(name).map(|(name, def)| (name, def, None))?,
        };
        self.check_results(statement, node, def);
        let groups = self.groups(node, def, false);
        let attrs: Vec<AttrPattern> =
            node.attrs.iter().filter_map(|entry| self.attr_pattern(node, def, entry)).collect();
        let types: Vec<TypePattern> = node.types.iter().map(|ty| self.type_pattern(ty)).collect();
        self.check_types(node, statement.results.len());
        let results = statement.results.iter().map(|r| self.names[r.node]).collect();
        let single = |group: &Vec<Slot>| matches!(group[..], [Slot { many: false, .. }]);
        let commutes =
            def.has(Traits::COMMUTATIVE) && groups.len() == 2 && groups.iter().all(single) && groups[0] != groups[1];
        let operands = Operands { groups, segments: def.has_segments() };
        Some(OpPattern { name, def, any, operands, commutes, attrs, results, types, through: 0 })
    }

    /// The declaration that stands for those of a class of operations.
    fn class(&mut self, word: &At<&'s str>) -> Option<&'static OpDef> {
        if word.node == ELEMENTWISE.name {
            return Some(&ELEMENTWISE);
        }
        let hint = did_you_mean(word.node, [ELEMENTWISE.name]);
        let message = format!("there is no class of operations '{}'{hint}", word.node);
        self.error_help(&word.span, message, "write $op: elementwise, or the name of an operation");
        None
    }

    fn check_results(&mut self, statement: &Statement<'s>, node: &OpNode<'s>, def: &OpDef) {
        let fixed = def.results.iter().all(|r| r.arity == Arity::One);
        if fixed && statement.results.len() != def.results.len() {
            let (has, names) = (def.results.len(), statement.results.len());
            let message = format!("'{}' has {has} results, and {names} are named", node.name.word().node);
            self.error(&statement.results[0].span, message);
        }
    }

    fn check_types(&mut self, node: &OpNode<'s>, results: usize) {
        if !node.types.is_empty() && node.types.len() != results {
            let span = node.types[0].span.start..node.types[node.types.len() - 1].span.end;
            let message = format!("{} types are given for {results} results", node.types.len());
            self.error_help(&span, message, "give one for each, or none");
        }
    }

    /// The operands of each declared group, in the order of the declaration.
    fn groups(&mut self, node: &OpNode<'s>, def: &OpDef, new: bool) -> Vec<Vec<Slot>> {
        let mut out: Vec<Vec<Slot>> = vec![Vec::new(); def.operands.len()];
        let plain: Vec<usize> =
            (0..def.operands.len()).filter(|&i| def.operands[i].syntax != GroupSyntax::Named).collect();
        let fixed = plain.iter().filter(|&&i| def.operands[i].arity == Arity::One).count();
        let spare = node.operands.len().checked_sub(fixed);
        let open = plain.iter().any(|&i| def.operands[i].arity != Arity::One);
        let many = node.operands.iter().any(|o| o.many);
        if spare.is_none_or(|n| n > 0 && !open) || (many && !open) {
            let wanted = if open { format!("at least {fixed}") } else { fixed.to_string() };
            let message =
                format!("'{}' takes {wanted} operands, and has {}", node.name.word().node, node.operands.len());
            let names: Vec<&str> = def.operands.iter().map(|o| o.name).collect();
            self.error_help(&node.name.word().span, message, format!("they are {}", names.join(", ")));
            return out;
        }
        let mut operands = node.operands.iter();
        for &i in &plain {
            let size = if def.operands[i].arity == Arity::One { 1 } else { spare.unwrap_or(0) };
            for operand in operands.by_ref().take(size) {
                out[i].extend(self.slot(operand, new));
            }
        }
        for (name, operands) in &node.groups {
            let at = def.operands.iter().position(|o| o.name == name.node && o.syntax == GroupSyntax::Named);
            let Some(at) = at else {
                let names = def.operands.iter().filter(|o| o.syntax == GroupSyntax::Named).map(|o| o.name);
                let hint = did_you_mean(name.node, names);
                self.error(
                    &name.span,
                    format!("'{}' has no operands named '{}'{hint}", node.name.word().node, name.node),
                );
                continue;
            };
            for operand in operands {
                out[at].extend(self.slot(operand, new));
            }
        }
        for (group, declared) in out.iter().zip(def.operands).filter(|_| !new) {
            let lists = group.iter().filter(|s| s.many).count();
            if lists > 2 || group.windows(2).any(|pair| pair[0].many && pair[1].many) {
                let message =
                    format!("lists of any length beside one another, or three, among the operands '{}'", declared.name);
                self.error_help(
                    &node.name.word().span,
                    message,
                    "how long each is cannot be said: put an operand between two, or name the operands of one",
                );
            }
        }
        out
    }

    pub fn slot(&mut self, operand: &Operand<'s>, new: bool) -> Option<Slot> {
        let made = new.then(|| self.made.get(operand.name.node).copied()).flatten();
        let Some(value) = made.or_else(|| self.names.get(operand.name.node).copied()) else {
            let hint = did_you_mean(operand.name.node, self.names.keys().chain(self.made.keys()).copied());
            let help = format!("declare it as a hole, rule name(%{}), or define it before", operand.name.node);
            self.error_help(&operand.name.span, format!("nothing defines '%{}'{hint}", operand.name.node), help);
            return None;
        };
        if self.values[value].many != operand.many {
            let (message, help) = if operand.many {
                ("is one value", "write it without '...'")
            } else {
                ("is any number of values", "write it with '...' after its name")
            };
            self.error_help(&operand.name.span, format!("'%{}' {message}", operand.name.node), help);
        }
        Some(Slot { value, many: operand.many })
    }

    fn attr_def(&mut self, node: &OpNode<'s>, def: &'static OpDef, name: &At<&'s str>) -> Option<AttrDef> {
        if let Some(found) = def.attr_def(name.node) {
            return Some(*found);
        }
        if name.node.contains('.') {
            return Some(rc_ir::op_def::attr("", AttrKind::Any, "").optional());
        }
        let names: Vec<&str> = def.attrs.iter().map(|a| a.name).collect();
        let hint = did_you_mean(name.node, names.iter().copied());
        let help = if names.is_empty() { "it has none".into() } else { format!("it has {}", names.join(", ")) };
        self.error_help(
            &name.span,
            format!("'{}' has no attribute '{}'{hint}", node.name.word().node, name.node),
            help,
        );
        None
    }

    fn attr_pattern(&mut self, node: &OpNode<'s>, def: &'static OpDef, entry: &AttrEntry<'s>) -> Option<AttrPattern> {
        let AttrEntry::Named { name, value, or_else } = entry else {
            let AttrEntry::Of(at) = entry else { return None };
            self.error_help(
                &at.span,
                "'..' copies attributes in a replacement",
                "attributes that a pattern does not mention may be anything",
            );
            return None;
        };
        let declared = self.attr_def(node, def, name)?;
        let default = def.default_of(name.node);
        let or_else = match or_else {
            Some(expr) => Some(self.expr(expr)?),
            None => None,
        };
        let kind = Kind::of_attr(declared.kind);
        let test = match &value.node {
            Expr::None => Test::Absent,
            Expr::Var(var) => {
                let var = self.bind_var(var, kind, &value.span);
                if let (Some((_, other)), Some(expr)) = (&or_else, entry_else(entry))
                    && *other != kind
                    && !(kind == Kind::Ints && *other == Kind::Int)
                {
                    let message = format!("the attribute holds {}, and this is {}", kind.describe(), other.describe());
                    self.error(&expr.span, message);
                }
                Test::Bind { var, or_else: or_else.map(|o| o.0) }
            }
            Expr::List(items) if kind == Kind::Ints => self.list_test(declared.kind, items),
            _ => match self.attr_code(&declared, value)? {
                Code::Is(Val::Number(number)) if declared.kind == AttrKind::Elements => Test::Number(number),
                Code::Is(val) => Test::Is(encode(declared.kind, &val, None)?),
                code => Test::Bind { var: self.later(code, kind), or_else: None },
            },
        };
        Some(AttrPattern { name: Name::new(name.node), kind: declared.kind, default, test })
    }

    fn list_test(&mut self, kind: AttrKind, items: &[rc_parser::rules::ast::Item<'s>]) -> Test {
        let parts: Vec<(bool, Part)> = (items.iter())
            .map(|item| {
                let wanted = if item.all { Kind::Ints } else { Kind::Int };
                let part = match &item.expr.node {
                    Expr::Var(name) => Part::Var(self.bind_var(name, wanted, &item.expr.span)),
                    _ => self.known(&item.expr, wanted),
                };
                (item.all, part)
            })
            .collect();
        self.one_list(items.iter().filter(|i| i.all).map(|i| &i.expr));
        let fixed: Option<Vec<Dim>> = (parts.iter())
            .map(|(all, part)| match part {
                Part::Is(Code::Is(Val::Int(n))) if !all => Some(*n),
                _ => None,
            })
            .collect();
        match fixed.and_then(|list| encode(kind, &Val::Ints(list.into_iter().collect()), None)) {
            Some(attr) => Test::Is(attr),
            None => Test::List(parts),
        }
    }

    /// The expression of an attribute, of the kind that it is declared to have.
    fn attr_code(&mut self, declared: &AttrDef, value: &At<Expr<'s>>) -> Option<Code> {
        let kind = Kind::of_attr(declared.kind);
        if let (AttrKind::Enum(words), Expr::Word(word) | Expr::Str(word)) = (declared.kind, &value.node) {
            if !words.contains(word) {
                let hint = did_you_mean(word, words.iter().copied());
                let help = format!("it is one of {}", words.join(", "));
                self.error_help(&value.span, format!("'{}' cannot be '{word}'{hint}", declared.name), help);
                return None;
            }
            return Some(Code::Is(Val::Word(Name::new(word).as_str())));
        }
        let (code, found) = self.expr(value)?;
        match (kind, found) {
            (Kind::Number, Kind::Int) => as_number(code),
            (Kind::Attr, Kind::Int) if declared.kind == AttrKind::Elements => as_number(code),
            (Kind::Attr, Kind::Number) if declared.kind == AttrKind::Elements => Some(code),
            (Kind::Attr, Kind::Int) if declared.kind == AttrKind::Any => match code {
                Code::Is(Val::Int(Dim::Static(n))) => Some(Code::Is(Val::Attr(Attr::i64(n)))),
                _ => None,
            },
            (wanted, found) if wanted == found => Some(code),
            (_, found) => {
                let message =
                    format!("'{}' holds {}, and this is {}", declared.name, declared.kind.desc(), found.describe());
                self.error(&value.span, message);
                None
            }
        }
    }

    /// The operations of the replacement.
    ///
    /// `root`: the values to make.
    pub fn replacement(&mut self, rule: &Rule<'s>, root: &[&'s str]) -> Vec<NewOp> {
        let mut out = Vec::new();
        for statement in &rule.replacement {
            let made = match &statement.what {
                What::Value(name) => self.alias(statement, name),
                What::Op(node) => self.new_op(statement, node),
            };
            for (i, result) in statement.results.iter().enumerate() {
                if self.names.contains_key(result.node) && !root.contains(&result.node) {
                    let help = format!("only %{} is replaced; give this value another name", root.join(", %"));
                    self.error_help(&result.span, format!("'%{}' is a value of the pattern", result.node), help);
                }
                let number = match &made {
                    Some(Made::Value(value)) => *value,
                    Some(Made::Op(op)) => op.results[i],
                    None => 0,
                };
                if self.made.insert(result.node, number).is_some() {
                    self.error_help(
                        &result.span,
                        format!("'%{}' is defined twice", result.node),
                        "give one of them another name",
                    );
                }
            }
            if let Some(Made::Op(op)) = made {
                out.push(op);
            }
        }
        out
    }

    fn alias(&mut self, statement: &Statement<'s>, name: &At<&'s str>) -> Option<Made> {
        if let Some(second) = statement.results.get(1) {
            self.error(&second.span, "one value has one name");
        }
        let slot = self.slot(&Operand { name: name.clone(), many: false }, true)?;
        let root = !self.in_form && self.maker.get(&slot.value) == Some(&0);
        if root {
            self.error_help(
                &name.span,
                format!("'%{}' is what is replaced", name.node),
                "use a hole, or a result of another operation of the pattern",
            );
            return None;
        }
        Some(Made::Value(slot.value))
    }

    fn new_op(&mut self, statement: &Statement<'s>, node: &OpNode<'s>) -> Option<Made> {
        let (name, def, any) = match &node.name {
            OpWord::Any(var, class) => {
                self.error_help(&class.span, "the class is for the pattern", format!("write ${} alone", var.node));
                return None;
            }
            OpWord::Same(var) => {
                let (code, _) = self.of_kind(&At { node: Expr::Var(var.node), span: var.span.clone() }, &[Kind::Op])?;
                let Code::Var(var) = code else { return None };
                (OpName::new(ELEMENTWISE.name), &ELEMENTWISE, Some(var))
            }
            OpWord::Is(name) => self.declared(name).map(|(name, def)| (name, def, None))?,
        };
        self.check_results(statement, node, def);
        let operands = self.groups(node, def, true);
        for slot in operands.iter().flatten() {
            if self.maker.get(&slot.value) == Some(&0) && !self.in_form {
                let message = format!("the replacement reads '%{}', which it replaces", self.values[slot.value].name);
                self.error_help(
                    &node.name.word().span,
                    message,
                    "use a hole, or a result of another operation of the pattern",
                );
            }
        }
        let mut base = None;
        let mut attrs = Vec::new();
        for entry in &node.attrs {
            match entry {
                AttrEntry::Of(value) => base = self.base(value),
                AttrEntry::Named { name, value, or_else } => {
                    if let Some(other) = or_else {
                        self.error_help(
                            &other.span,
                            "'else' is for attributes of the pattern",
                            "say what the attribute is",
                        );
                    }
                    if let Some(declared) = self.attr_def(node, def, name) {
                        let code = match &value.node {
                            Expr::None => Some(Code::Is(Val::Absent)),
                            _ => self.attr_code(&declared, value),
                        };
                        attrs.extend(code.map(|code| (Name::new(name.node), declared.kind, code)));
                    }
                }
            }
        }
        let copied = node.attrs.iter().any(|a| matches!(a, AttrEntry::Of(_)));
        for required in def.attrs.iter().filter(|a| a.default == rc_ir::op_def::AttrDefault::Required && !copied) {
            let given =
                node.attrs.iter().any(|a| matches!(a, AttrEntry::Named { name, .. } if name.node == required.name));
            if !given {
                let message = format!("'{}' needs the attribute '{}'", node.name.word().node, required.name);
                self.error_help(&node.name.word().span, message, format!("it is {}", required.kind.desc()));
            }
        }
        let types: Vec<Code> = node.types.iter().filter_map(|ty| self.new_type(ty)).collect();
        self.check_types(node, statement.results.len());
        let results: Vec<usize> = (statement.results.iter())
            .map(|result| {
                let info =
                    crate::rules::rule::ValueInfo { name: result.node.into(), many: false, ty: TypePattern::Any };
                self.values.push(info);
                self.values.len() - 1
            })
            .collect();
        let (loc, span) = (self.source.loc(node.name.word().span.start), node.name.word().span.clone());
        let new = NewOp { name, def, any, operands, attrs, base, types, results, loc, span };
        // A constant's type says what its number is.
        let number =
            new.attrs.iter().any(|(_, kind, code)| *kind == AttrKind::Elements && !matches!(code, Code::Var(_)));
        if new.types.is_empty() && node.types.is_empty() && (number || !new.is_inferred()) {
            let message = format!("the type of '{}' does not follow from its operands", node.name.word().node);
            self.error_help(&node.name.word().span, message, "write it, as in : type(%y)");
        }
        Some(Made::Op(new))
    }

    /// The operation of the pattern that makes a value.
    fn base(&mut self, value: &At<&'s str>) -> Option<usize> {
        let number = self.matched(value.node, &value.span)?;
        let found = self.maker.get(&number).copied();
        if found.is_none() {
            let help = "name a result of an operation of the pattern";
            self.error_help(&value.span, format!("'%{}' is a hole, and has no attributes", value.node), help);
        }
        found
    }
}

/// What a statement of a replacement gives.
enum Made {
    Value(usize),
    Op(NewOp),
}

fn entry_else<'e, 's>(entry: &'e AttrEntry<'s>) -> Option<&'e At<Expr<'s>>> {
    if let AttrEntry::Named { or_else, .. } = entry { or_else.as_ref() } else { None }
}
