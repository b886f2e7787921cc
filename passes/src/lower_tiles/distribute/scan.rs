//! `kernel.scan`: the elements of a thread that are neighbours (a piece), then the lanes of a warp by shuffles, then pieces and warps in the order
//! in which their elements lie. The totals of warps meet in shared memory once; every warp scans them for itself.

use super::Distribute;
use crate::lower_tiles::layout::{Digit, Distribution, Holder, WARP};
use rc_dialects::interfaces::Combiner;
use rc_dialects::op;
use rc_ir::{Attr, Dim, OpRef, Result, Type, Value};

/// What is asked of a scan along one dimension.
struct Scan {
    dim: usize,
    combine: &'static str,
    identity: Value,
    reverse: bool,
    /// Neighbouring registers of a thread.
    piece: usize,
    lanes: Option<Digit>,
    warps: Option<Digit>,
}

impl<'s> Distribute<'s> {
    pub(super) fn scan(&mut self, op: OpRef<'s>) -> Result {
        let ty = self.src.ty(op.operand(0));
        let (source, total) = (self.spread(op, ty)?, self.spread(op, op.result_types()[1])?);
        let scan = self.scan_of(op, &source, ty.elem())?;
        let inputs = self.registers(op.operand(0));
        let mut results: Vec<Value> = inputs.to_vec();
        let mut totals = vec![scan.identity; total.registers];
        for (number, line) in lines(&source, &total, &scan).into_iter().enumerate() {
            let (mut pieces, mut befores, mut ends) = (Vec::new(), Vec::new(), Vec::new());
            for piece in line.chunks(scan.piece) {
                let (values, end) = self.in_piece(&source, &scan, piece, &inputs)?;
                let (before, end) = self.over_lanes(&scan, end)?;
                pieces.push(values);
                befores.push(before);
                ends.push(end);
            }
            let (carries, whole) = match scan.warps {
                None => self.over_registers(&scan, &ends)?,
                Some(warps) if scan.lanes.is_some_and(|lanes| lanes.size == WARP) => {
                    self.over_warps(op, &scan, warps, &ends)?
                }
                Some(warps) => self.over_warps_by_lane(&scan, warps, &ends)?,
            };
            for ((piece, before), (values, carry)) in
                line.chunks(scan.piece).zip(befores).zip(pieces.into_iter().zip(carries))
            {
                let first = self.combined(&scan, carry, before)?;
                for (&r, value) in piece.iter().zip(values) {
                    results[r] = self.after(&source, &scan, first, value)?;
                }
            }
            totals[number] = whole;
        }
        self.bind_tile(op.result(0), results);
        self.bind_tile(op.result(1), totals);
        Ok(())
    }

    fn scan_of(&mut self, op: OpRef<'s>, source: &Distribution, elem: Type) -> Result<Scan> {
        let dim = op.int("dim").unwrap_or(0) as usize;
        let kind = op.str("kind").unwrap_or("add");
        let combiner = Combiner::from_kind(kind);
        let found = combiner.and_then(|c| Some((c.core_op()?, c.identity(elem)?)));
        let (combine, identity) =
            found.ok_or_else(|| op.unsupported(format!("with the combiner '{kind}' of {elem}")))?;
        let mut holders = [Holder::Lane, Holder::Warp].map(|h| source.digits(dim, h).map(|d| d.0).collect::<Vec<_>>());
        let [warps, lanes] = [holders[1].pop(), holders[0].pop()];
        let plain = holders.iter().all(|rest| rest.is_empty());
        if !plain || source.vec_dim.is_some_and(|d| d != dim) && (lanes.is_some() || warps.is_some()) {
            return Err(op
                .unsupported("of a tile whose threads do not have its elements in order along the dimension")
                .help(
                    "choose a schedule in which the scanned dimension is that of the vectors, or which has no vectors",
                ));
        }
        // Registers that count before lanes and warps do.
        let piece = source.dims[dim].iter().find(|digit| digit.holder != Holder::Vec);
        let piece = piece.filter(|digit| digit.holder == Holder::Reg).map_or(1, |digit| digit.size as usize);
        let identity = self.emit.constant(identity)?;
        Ok(Scan { dim, combine, identity, reverse: op.bool("reverse"), piece, lanes, warps })
    }

    /// The elements of a piece's registers combined with those before them in the piece, and all of them together.
    fn in_piece(
        &mut self,
        source: &Distribution,
        scan: &Scan,
        piece: &[usize],
        inputs: &[Value],
    ) -> Result<(Vec<Value>, Value)> {
        let (mut values, mut sum) = (Vec::new(), None);
        for &r in piece {
            let (value, end) = self.in_register(source, scan, inputs[r])?;
            values.push(self.after(source, scan, sum, value)?);
            sum = self.combined(scan, sum, Some(end))?;
        }
        Ok((values, sum.expect("a piece has registers")))
    }
    /// A register's elements combined with what comes before all of them.
    fn after(&mut self, source: &Distribution, scan: &Scan, before: Option<Value>, value: Value) -> Result<Value> {
        let Some(before) = before else { return Ok(value) };
        let before = if source.vec_dim == Some(scan.dim) { self.emit.splat(before, source.vec)? } else { before };
        self.emit.core(scan.combine, &[before, value])
    }

    /// A register's elements combined with those before them, and all of them together.
    fn in_register(&mut self, source: &Distribution, scan: &Scan, value: Value) -> Result<(Value, Value)> {
        if source.vec_dim != Some(scan.dim) {
            return Ok((value, value));
        }
        if !self.cuda {
            return self.by_doubling(scan, value, source.vec);
        }
        let mut order: Vec<i64> = (0..source.vec).collect();
        if scan.reverse {
            order.reverse();
        }
        let mut parts = vec![value; order.len()];
        let mut sum = None;
        for lane in order {
            let element = self.emit.extract(value, lane)?;
            let next = match sum {
                None => element,
                Some(sum) => self.emit.core(scan.combine, &[sum, element])?,
            };
            parts[lane as usize] = next;
            sum = Some(next);
        }
        Ok((self.emit.concat(&parts)?, sum.expect("a vector has elements")))
    }

    /// The same on a CPU, by Sklansky's network (1960): of each 2 lanes, then each 4, 8, …, those of the second half take in the last of the first half, which stands
    /// for all of it by then. All take from one lane, so that fewer permutations cross the parts of a register than where each looks 1, 2, 4, … lanes back.
    fn by_doubling(&mut self, scan: &Scan, mut value: Value, lanes: i64) -> Result<(Value, Value)> {
        let none = self.emit.splat(scan.identity, lanes)?;
        let mut distance = 1;
        while distance < lanes {
            let mirrored = |lane: i64| if scan.reverse { lanes - 1 - lane } else { lane };
            let first_half = |at: i64| at / distance % 2 == 0;
            let chosen = |lane: i64| match mirrored(lane) {
                at if first_half(at) => lanes + lane,
                at => mirrored(at / distance * distance - 1),
            };
            let before = self.emit.permute([value, none], &(0..lanes).map(chosen).collect::<Vec<_>>())?;
            value = self.emit.core(scan.combine, &[before, value])?;
            distance *= 2;
        }
        let all = self.emit.extract(value, if scan.reverse { 0 } else { lanes - 1 })?;
        Ok((value, all))
    }

    /// Of a number in each lane: those of the lanes before it together, and those of all lanes.
    fn over_lanes(&mut self, scan: &Scan, value: Value) -> Result<(Option<Value>, Value)> {
        let Some(digit) = scan.lanes else { return Ok((None, value)) };
        let at = self.place_in(scan, digit, true)?;
        let included = self.prefix(scan, digit, at, value)?;
        let before = self.shift(scan, digit.stride, included)?;
        let first = self.emit.index(0)?;
        let is_first = self.emit.compare("eq", at, first)?;
        let before = self.emit.core(op::core::SELECT, &[is_first, scan.identity, before])?;
        let all = self.last_value(scan, digit, included)?;
        Ok((Some(before), all))
    }
    /// Where this thread is along the scan, among those that the digit counts.
    fn place_in(&mut self, scan: &Scan, digit: Digit, lane: bool) -> Result<Value> {
        let at = self.digit(digit.stride, digit.size, lane)?;
        if !scan.reverse {
            return Ok(at);
        }
        let last = self.emit.index(digit.size - 1)?;
        self.emit.core(op::core::SUB, &[last, at])
    }
    /// The number of each lane with those of the lanes before it.
    fn prefix(&mut self, scan: &Scan, digit: Digit, at: Value, mut value: Value) -> Result<Value> {
        let mut distance = 1;
        while distance < digit.size {
            let other = self.shift(scan, distance * digit.stride, value)?;
            let sum = self.emit.core(scan.combine, &[other, value])?;
            let reach = self.emit.index(distance)?;
            let has = self.emit.compare("ge", at, reach)?;
            value = self.emit.core(op::core::SELECT, &[has, sum, value])?;
            distance *= 2;
        }
        Ok(value)
    }
    fn shift(&mut self, scan: &Scan, by: i64, value: Value) -> Result<Value> {
        let attrs = [("mode", Attr::str(if scan.reverse { "down" } else { "up" })), ("by", Attr::i64(by))];
        let ty = [self.emit.ty(value)];
        let op = self.emit.op(op::kernel::SHUFFLE, &[&[value], &[]], &attrs, Some(&ty))?;
        Ok(self.emit.body.result(op, 0))
    }
    fn lane_value(&mut self, lane: Value, value: Value) -> Result<Value> {
        let ty = [self.emit.ty(value)];
        let op = self.emit.op(op::kernel::SHUFFLE, &[&[value], &[lane]], &[("mode", Attr::str("index"))], Some(&ty))?;
        Ok(self.emit.body.result(op, 0))
    }
    /// The value of the lane that comes last along the scan.
    fn last_value(&mut self, scan: &Scan, digit: Digit, value: Value) -> Result<Value> {
        let last = if scan.reverse { 0 } else { digit.size - 1 };
        if digit.size == WARP {
            let lane = self.emit.index(last)?;
            return self.lane_value(lane, value);
        }
        let (lane, own) = (self.digit(1, WARP, true)?, self.digit(digit.stride, digit.size, true)?);
        let last = self.emit.index(last)?;
        let ahead = self.emit.core(op::core::SUB, &[last, own])?;
        let stride = self.emit.index(digit.stride)?;
        let ahead = self.emit.core(op::core::MUL, &[ahead, stride])?;
        let lane = self.emit.core(op::core::ADD, &[lane, ahead])?;
        self.lane_value(lane, value)
    }

    /// What comes before each of a line's registers, in the scan's order, and all together.
    fn over_registers(&mut self, scan: &Scan, ends: &[Value]) -> Result<(Vec<Option<Value>>, Value)> {
        let (mut carries, mut sum) = (Vec::new(), None);
        for &end in ends {
            carries.push(sum);
            sum = self.combined(scan, sum, Some(end))?;
        }
        Ok((carries, sum.unwrap_or(scan.identity)))
    }
    fn combined(&mut self, scan: &Scan, a: Option<Value>, b: Option<Value>) -> Result<Option<Value>> {
        match (a, b) {
            (Some(a), Some(b)) => self.emit.core(scan.combine, &[a, b]).map(Some),
            (a, b) => Ok(a.or(b)),
        }
    }

    /// As [`Self::over_registers`], where each register number stands for neighbouring pieces of all warps. A lane takes `each`
    /// of their totals, which are fewer than there are warps.
    fn over_warps(
        &mut self,
        op: OpRef<'s>,
        scan: &Scan,
        warps: Digit,
        ends: &[Value],
    ) -> Result<(Vec<Option<Value>>, Value)> {
        let pieces = ends.len() as i64 * warps.size;
        let each = (pieces + WARP - 1) / WARP;
        if each > warps.size || warps.size % each != 0 {
            return Err(op
                .unsupported("of a tile with more than 32 registers along the dimension")
                .help("take smaller tiles"));
        }
        let elem = self.emit.ty(ends[0]);
        let sizes = [ends.len() as i64, self.warps].map(Dim::Static);
        let memory = self.shared(Type::memref(&sizes, elem, 3))?;
        if self.loops > 0 {
            self.barrier()?;
        }
        let (lane, warp) = (self.digit(1, WARP, true)?, self.digit(1, self.warps, false)?);
        let zero = self.emit.index(0)?;
        let writes = self.emit.compare("eq", lane, zero)?;
        for (i, &end) in ends.iter().enumerate() {
            let at = [self.emit.index(i as i64)?, warp];
            self.emit.op(op::kernel::WRITE, &[&[end], &[memory], &at, &[writes], &[]], &[], None)?;
        }
        self.barrier()?;
        let lanes = Digit { holder: Holder::Lane, size: WARP, stride: 1 };
        let forward = Scan { lanes: Some(lanes), warps: None, reverse: false, ..*scan };
        let mut included = Vec::new();
        for m in 0..each {
            let total = self.total(scan, warps, memory, (lane, warp), each, m, pieces)?;
            included.push(match included.last() {
                None => total,
                Some(&before) => self.emit.core(scan.combine, &[before, total])?,
            });
        }
        let (before, whole) = self.over_lanes(&forward, *included.last().expect("a lane has a total"))?;
        let before = before.expect("a warp has lanes");
        // Of the pieces of one register's number this warp's is at `place`: in a lane's number `place mod each`.
        let place = self.place_in(scan, warps, false)?;
        let (count, each_ix) = (self.emit.index(each)?, self.emit.index(warps.size / each)?);
        let (start, which) = match each {
            1 => (place, zero),
            _ => (self.emit.core(op::core::DIV, &[place, count])?, self.emit.core(op::core::REM, &[place, count])?),
        };
        let mut chosen = before;
        for (m, &sum) in included.iter().enumerate().take(each as usize - 1) {
            let next = self.emit.core(scan.combine, &[before, sum])?;
            let m = self.emit.index(m as i64 + 1)?;
            let is = self.emit.compare("eq", which, m)?;
            chosen = self.emit.core(op::core::SELECT, &[is, next, chosen])?;
        }
        let mut carries = Vec::new();
        for i in 0..ends.len() as i64 {
            let i = self.emit.index(i)?;
            let first = self.emit.core(op::core::MUL, &[i, each_ix])?;
            let lane = self.emit.core(op::core::ADD, &[first, start])?;
            carries.push(Some(self.lane_value(lane, chosen)?));
        }
        Ok((carries, whole))
    }

    /// As [`Self::over_warps`], where lanes have lines of their own: each reads the totals of its line, of one piece after the other.
    fn over_warps_by_lane(&mut self, scan: &Scan, warps: Digit, ends: &[Value]) -> Result<(Vec<Option<Value>>, Value)> {
        let elem = self.emit.ty(ends[0]);
        let sizes = [ends.len() as i64, self.warps, WARP].map(Dim::Static);
        let memory = self.shared(Type::memref(&sizes, elem, 3))?;
        if self.loops > 0 {
            self.barrier()?;
        }
        let (lane, warp) = (self.digit(1, WARP, true)?, self.digit(1, self.warps, false)?);
        for (i, &end) in ends.iter().enumerate() {
            let at = [self.emit.index(i as i64)?, warp, lane];
            self.emit.op(op::kernel::WRITE, &[&[end], &[memory], &at, &[], &[]], &[], None)?;
        }
        self.barrier()?;
        let (own, place) = (self.digit(warps.stride, warps.size, false)?, self.place_in(scan, warps, false)?);
        let stride = self.emit.index(warps.stride)?;
        let own = self.emit.core(op::core::MUL, &[own, stride])?;
        let first = self.emit.core(op::core::SUB, &[warp, own])?;
        let (mut carries, mut sum) = (Vec::new(), None);
        for i in 0..ends.len() as i64 {
            let piece = self.emit.index(i)?;
            let mut carry = sum.unwrap_or(scan.identity);
            for w in 0..warps.size {
                let w_here = if scan.reverse { warps.size - 1 - w } else { w };
                let ahead = self.emit.index(w_here * warps.stride)?;
                let from = self.emit.core(op::core::ADD, &[first, ahead])?;
                let op =
                    self.emit.op(op::kernel::READ, &[&[memory], &[piece, from, lane], &[], &[]], &[], Some(&[elem]))?;
                sum = self.combined(scan, sum, Some(self.emit.body.result(op, 0)))?;
                let next = self.emit.index(w + 1)?;
                let is_next = self.emit.compare("eq", place, next)?;
                carry = self.emit.core(op::core::SELECT, &[is_next, sum.expect("one was read"), carry])?;
            }
            carries.push(Some(carry));
        }
        Ok((carries, sum.unwrap_or(scan.identity)))
    }

    /// Total number `lane * each + m` along the scan; past the last, what changes nothing.
    #[expect(clippy::too_many_arguments)]
    fn total(
        &mut self,
        scan: &Scan,
        warps: Digit,
        memory: Value,
        (lane, warp): (Value, Value),
        each: i64,
        m: i64,
        pieces: i64,
    ) -> Result<Value> {
        let (count, m, all) = (self.emit.index(each)?, self.emit.index(m)?, self.emit.index(pieces)?);
        let number = self.emit.core(op::core::MUL, &[lane, count])?;
        let number = self.emit.core(op::core::ADD, &[number, m])?;
        let inside = self.emit.compare("lt", number, all)?;
        let size = self.emit.index(warps.size)?;
        let register = self.emit.core(op::core::DIV, &[number, size])?;
        let mut place = self.emit.core(op::core::REM, &[number, size])?;
        if scan.reverse {
            let last = self.emit.index(warps.size - 1)?;
            place = self.emit.core(op::core::SUB, &[last, place])?;
        }
        let own = self.digit(warps.stride, warps.size, false)?;
        let stride = self.emit.index(warps.stride)?;
        let ahead = self.emit.core(op::core::SUB, &[place, own])?;
        let ahead = self.emit.core(op::core::MUL, &[ahead, stride])?;
        let from = self.emit.core(op::core::ADD, &[warp, ahead])?;
        let ty = [self.emit.ty(memory).elem()];
        let op = self.emit.op(op::kernel::READ, &[&[memory], &[register, from], &[inside], &[]], &[], Some(&ty))?;
        let read = self.emit.body.result(op, 0);
        self.emit.core(op::core::SELECT, &[inside, read, scan.identity])
    }
}

/// The registers of each line along the scanned dimension, in the scan's order; a line for each register of the totals.
fn lines(source: &Distribution, total: &Distribution, scan: &Scan) -> Vec<Vec<usize>> {
    let mut lines: Vec<Vec<usize>> = vec![Vec::new(); total.registers];
    for r in 0..source.registers {
        let mut coords = source.coords(r);
        coords[scan.dim] = 0;
        lines[total.locate(&coords).0].push(r);
    }
    for line in &mut lines {
        line.sort_by_key(|&r| source.coords(r)[scan.dim]);
        if scan.reverse {
            line.reverse();
        }
    }
    lines
}
