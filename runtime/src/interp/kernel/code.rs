//! A kernel's body as a flat list of instructions over registers, so that a thread can stop anywhere and go on later.

use rc_dialects::op;
use std::ops::Range;

use rc_ir::{Block, OpRef, Result, Traits, Value as Name};

use super::block::Run;
use super::ops::{Meeting, kind_of};
use crate::interp::Mode;
use crate::interp::elementwise::Elementwise;
use crate::interp::exec::Frame;
use crate::interp::value::{Format, Value};

pub(crate) struct Code<'a> {
    pub insts: Vec<Inst<'a>>,
    /// How many there are, and which hold the kernel's arguments at the start.
    pub registers: usize,
    pub arguments: Vec<usize>,
}

pub(crate) struct Inst<'a> {
    pub op: OpRef<'a>,
    pub kind: Kind,
    /// Registers of the operands, and of the results.
    pub args: Vec<usize>,
    pub outs: Vec<usize>,
    /// The operands' numbers by declared group.
    pub groups: Vec<Range<usize>>,
    /// Of the first result, and read once because a kernel runs its instructions many times: shape, element format, the
    /// attributes `dims` and `other`.
    pub shape: Vec<usize>,
    format: Option<Format>,
    pub dims: Vec<i64>,
    pub other: f64,
}

pub(crate) enum Kind {
    Elementwise(Elementwise),
    Constant(Value),
    /// Copies all args to the outs, at once.
    Copy,
    Jump(usize),
    /// Goes on at the target unless the condition (arg 0) holds.
    Unless(usize),
    /// Goes on at the target unless arg 0 < arg 1.
    UnlessBelow(usize),
    /// out 0 = arg 0 + arg 1, a positive step.
    Step,
    Return,
    Run(Run),
    /// Work that threads do together.
    Meet(Meeting),
}

impl Inst<'_> {
    /// The format of the first result's elements.
    pub fn format(&self) -> Result<Format> {
        self.format.ok_or_else(|| self.op.unsupported("on elements of this type"))
    }
    /// The registers of a declared operand group.
    pub fn group(&self, i: usize) -> &[usize] {
        self.groups.get(i).map_or(&[], |g| &self.args[g.clone()])
    }
}

struct Compiler<'a, 'f> {
    frame: &'f Frame<'a>,
    insts: Vec<Inst<'a>>,
}

/// Compiles the body of `frame`, a `kernel.func`.
pub(crate) fn compile<'a>(frame: &Frame<'a>) -> Result<Code<'a>> {
    let body = frame.body;
    let root = body.op_ref(body.root());
    let entry = body.entry().ok_or_else(|| root.error("has no body"))?;
    let mut compiler = Compiler { frame, insts: Vec::new() };
    compiler.block(entry, &[])?;
    compiler.push(root, Kind::Return, vec![], vec![]);
    let (mut insts, names) = (compiler.insts, values(body.block_args(entry)));
    let (arguments, registers) = super::registers::assign(&mut insts, &names, body.value_capacity());
    Ok(Code { insts, registers, arguments })
}

/// Whether the op sees a float as an integer or the other way round, which says nothing about a value kept as f64.
fn uses_bits(op: OpRef) -> bool {
    let float = |v| op.body.ty(v).elem().is_float();
    let casts = op.name().pretty().ends_with(".bitcast") || op.is(op::kernel::PACK);
    casts && op.operands().zip(op.results()).any(|(a, b)| float(a) != float(b))
}

/// Values by number, until they have registers.
fn values(values: impl Iterator<Item = Name>) -> Vec<usize> {
    values.map(|v| v.index()).collect()
}

impl<'a> Compiler<'a, '_> {
    fn push(&mut self, op: OpRef<'a>, kind: Kind, args: Vec<usize>, outs: Vec<usize>) -> usize {
        self.insts.push(Inst {
            op,
            kind,
            args,
            outs,
            groups: Vec::new(),
            shape: Vec::new(),
            format: None,
            dims: Vec::new(),
            other: 0.0,
        });
        self.insts.len() - 1
    }

    /// The block's ops; what its terminator yields goes to the registers `outs`.
    fn block(&mut self, block: Block, outs: &[usize]) -> Result {
        let body = self.frame.body;
        for op in body.ops(block) {
            let op = body.op_ref(op);
            if op.has(Traits::TERMINATOR) {
                match op.name().as_str() {
                    op::kernel::YIELD => self.push(op, Kind::Copy, values(op.operands()), outs.to_vec()),
                    _ => self.push(op, Kind::Return, vec![], vec![]),
                };
                continue;
            }
            match op.name().as_str() {
                op::kernel::FOR => self.counted(op)?,
                op::kernel::IF => self.choice(op)?,
                _ => self.plain(op)?,
            }
        }
        Ok(())
    }

    fn plain(&mut self, op: OpRef<'a>) -> Result {
        let (args, outs) = (values(op.operands()), values(op.results()));
        if self.frame.mode() == Mode::Float64 && uses_bits(op) {
            return Err(op
                .unsupported("in float64 mode: it works on the bits of a narrower float")
                .help("take the reference from an earlier stage, before elementary functions are expanded"));
        }
        let kind = match op.name().as_str() {
            op::core::CONSTANT => {
                let value = op.attr("value").ok_or_else(|| op.error("needs 'value'"))?;
                Kind::Constant(self.frame.constant(op, value, op.body.ty(op.result(0)))?)
            }
            _ if op.has(Traits::ELEMENTWISE) => Kind::Elementwise(Elementwise::of(op, self.frame.mode())?),
            _ => kind_of(op, self.frame.body)?,
        };
        let segments = op.ints("operandSegmentSizes");
        let groups = op.def().and_then(|d| d.operand_groups(args.len(), segments.as_deref()));
        let at = self.push(op, kind, args, outs);
        let inst = &mut self.insts[at];
        inst.groups = groups.unwrap_or_default();
        inst.dims = op.ints("dims").unwrap_or_default();
        inst.other = op.attr("other").and_then(|a| a.as_float()).unwrap_or(0.0);
        if op.results().len() > 0 {
            let ty = op.body.ty(op.result(0));
            inst.shape = self.frame.shape_of(op, ty)?;
            inst.format = Format::of(ty.elem(), self.frame.mode());
        }
        Ok(())
    }

    fn counted(&mut self, op: OpRef<'a>) -> Result {
        let body = self.frame.body;
        let block = op.entry(0).ok_or_else(|| op.error("has no body"))?;
        let args = values(body.block_args(block));
        let operands = values(op.operands());
        let (&[lower, upper, step], init) = operands.split_at_checked(3).ok_or_else(|| op.error("needs its bounds"))?
        else {
            return Err(op.error("needs its bounds"));
        };
        let (&counter, carried) = args.split_first().ok_or_else(|| op.error("has no counter"))?;
        self.push(op, Kind::Copy, [&[lower], init].concat(), args.clone());
        let head = self.push(op, Kind::UnlessBelow(0), vec![counter, upper], vec![]);
        self.block(block, carried)?;
        self.push(op, Kind::Step, vec![counter, step], vec![counter]);
        self.push(op, Kind::Jump(head), vec![], vec![]);
        let end = self.push(op, Kind::Copy, carried.to_vec(), values(op.results()));
        self.insts[head].kind = Kind::UnlessBelow(end);
        Ok(())
    }

    fn choice(&mut self, op: OpRef<'a>) -> Result {
        let outs = values(op.results());
        let test = self.push(op, Kind::Unless(0), values(op.operands()), vec![]);
        if let Some(block) = op.entry(0) {
            self.block(block, &outs)?;
        }
        let skip = self.push(op, Kind::Jump(0), vec![], vec![]);
        self.insts[test].kind = Kind::Unless(self.insts.len());
        if let Some(block) = op.entry(1) {
            self.block(block, &outs)?;
        }
        self.insts[skip].kind = Kind::Jump(self.insts.len());
        Ok(())
    }
}
