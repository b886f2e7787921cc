//! Allocations, views, loads, stores, atomics.

use super::{
    Lowering,
    value::{Parts, lanes_of},
};
use crate::backend::Processor;
use crate::emit::{
    Access, AtomicOp, ICmp, Ordering, Space, Type, Value,
    ptx::{LoadCache, StoreCache},
};
use rc_dialects::constraints::memory_space;
use rc_ir::{self as ir, OpRef, Result};
use smallvec::smallvec;

/// Lanes of which one comparison makes a mask.
const MASKED: usize = 16;

/// The threads of a warp that are here meet.
const MEET: &str = "{ .reg .b32 m; activemask.b32 m; bar.warp.sync m; }";

/// One access: where, how many lanes of what, and which of them.
struct Place<'m> {
    address: Value<'m>,
    lanes: usize,
    /// Whether the lanes are those of a vector, be it of one.
    vector: bool,
    /// The element's type in memory.
    element: Type<'m>,
    align: u32,
    pred: Option<Value<'m>>,
    /// In `i32`.
    valid: Option<Value<'m>>,
    /// In `i32`.
    skip: Option<Value<'m>>,
    cache: &'static str,
    global: bool,
}

impl<'a, 'm> Lowering<'a, 'm> {
    pub fn view(&mut self, op: OpRef) -> Result {
        let address = self.address(op, op.operand(0), &op.group("indices"))?;
        self.values.set(op.result(0), address);
        Ok(())
    }

    /// An address out of the table of arguments, or one of a few tensor maps and addresses.
    pub fn choose(&mut self, op: OpRef) -> Result {
        if self.table.is_none() {
            let number = self.index_cast(self.values.one(op.operand(0)), self.b.ty.i64, true);
            let all: Vec<_> = op.operands().skip(1).map(|buffer| self.values.one(buffer)).collect();
            let numbered = all.iter().enumerate().skip(1);
            let chosen = numbered.fold(all[0], |chosen, (i, &other)| {
                let is = self.b.icmp(ICmp::Eq, number, self.b.i64(i as i64));
                self.b.select(is, other, chosen)
            });
            self.values.set(op.result(0), chosen);
            return Ok(());
        }
        let args: Vec<ir::Value> =
            self.body.entry().into_iter().flat_map(|entry| self.body.block_args(entry)).collect();
        let buffers: Vec<ir::Value> = op.operands().skip(1).collect();
        let first = args.iter().position(|&arg| arg == buffers[0]);
        let found = first.filter(|&first| args[first..].starts_with(&buffers)).zip(self.table);
        let Some((first, table)) = found else {
            let error = op.unsupported("of buffers that are not arguments of the kernel, one after the other");
            return Err(error.help("order the kernel's arguments so"));
        };
        let b = self.b;
        let number = self.index_cast(self.values.one(op.operand(0)), b.ty.i64, true);
        let place = b.gep(b.ty.i64, b.gep_const(b.ty.i64, table, first as i32), number);
        let address = b.load(self.address_type(), place, Access::invariant(8));
        self.values.set(op.result(0), address);
        Ok(())
    }

    /// The type of an argument's address.
    pub fn address_type(&self) -> Type<'m> {
        if self.gpu { self.b.ty.ptr_in(Space::Global) } else { self.b.ty.ptr }
    }

    pub fn read(&mut self, op: OpRef) -> Result {
        let result = op.result(0);
        let ty = self.body.ty(result);
        let place = self.place_of(op, op.operand(0), ty)?;
        // Loaded under the condition, taken apart after it: several loads are then under way at once.
        let types = self.raw_types(&place);
        let partial = place.lanes > 1 && (place.valid.is_some() || place.skip.is_some());
        let raw = match partial {
            true => self.guarded(place.pred, &types, |l| l.load_some(&place)),
            false => {
                let pred = self.scalar_guard(&place);
                let raw = self.guarded(pred, &types, |l| l.load_all(&place));
                match pred {
                    Some(_) if self.gpu => raw.into_iter().map(|part| self.bound(part)).collect(),
                    _ => raw,
                }
            }
        };
        let mut parts = match self.words(&place) {
            Some(_) => self.unpack(&raw, ty.elem(), place.element),
            None => raw.into_iter().map(|part| self.bit(part, ty.elem())).collect(),
        };
        if ty.elem().is_float() {
            let to = self.part_types(op, result)?;
            parts = parts.into_iter().zip(to).map(|(part, to)| self.b.bitcast(part, to)).collect();
        }
        if ty.elem().is_index() {
            let to = self.index_type(result);
            parts = parts.into_iter().map(|part| self.index_cast(part, to, false)).collect();
        }
        self.values.set_parts(result, parts);
        Ok(())
    }

    /// A hint for a CPU; on a GPU nothing.
    pub fn prefetch(&mut self, op: OpRef) -> Result {
        let address = self.address(op, op.operand(0), &op.group("indices"))?;
        if !self.gpu {
            self.b.prefetch(address);
        }
        Ok(())
    }

    pub fn write(&mut self, op: OpRef) -> Result {
        let value = op.operand(0);
        let ty = self.body.ty(value);
        let place = self.place_of(op, op.operand(1), ty)?;
        let mut parts = self.values.parts(value);
        if ty.elem().is_index() {
            let wide = self.b.ty.i64;
            parts = parts.into_iter().map(|p| self.index_cast(p, wide, self.ranges.non_negative(value))).collect();
        } else if ty.elem() == ir::Type::i1() {
            parts =
                parts.into_iter().map(|p| self.b.zext(p, crate::emit::same_shape(type_of(p), self.b.ty.i8))).collect();
        }
        match (place.valid, place.pred) {
            (Some(valid), pred) if place.lanes > 1 => {
                self.guarded(pred, &[], |l| {
                    l.store_some(&place, valid, &parts);
                    Parts::new()
                });
            }
            _ => {
                let pred = self.scalar_guard(&place);
                self.guarded(pred, &[], |l| {
                    l.store_all(&place, &parts);
                    Parts::new()
                });
            }
        }
        Ok(())
    }

    fn place_of(&mut self, op: OpRef, memref: ir::Value, value: ir::Type) -> Result<Place<'m>> {
        let ty = self.body.ty(memref);
        let address = self.shared_address(op, memref, &op.group("indices"))?;
        let bytes = value.elem().byte_width().unwrap_or(1);
        let first = |group: &str| op.group(group).first().copied();
        Ok(Place {
            address,
            lanes: lanes_of(value),
            vector: value.is_vector(),
            element: self.memory_type(op, value.elem())?,
            align: op.int("align").map_or(bytes, |align| (align as u64).max(bytes)) as u32,
            pred: first("pred").map(|pred| self.values.one(pred)),
            valid: first("valid").map(|valid| self.clamped(valid)),
            skip: first("skip").map(|skip| self.clamped(skip)),
            cache: op.str("cache").unwrap_or("default"),
            global: memory_space(ty) == 0,
        })
    }

    /// A number of lanes as an `i32`: what is beyond its range is so in the same direction.
    fn clamped(&self, valid: ir::Value) -> Value<'m> {
        let b = self.b;
        let value = self.values.one(valid);
        if self.ranges.is_narrow(valid) {
            return value;
        }
        let inside = if self.ranges.fits_32_bits(valid) {
            value
        } else {
            b.smin(b.smax(value, b.i64(0)), b.i64(i32::MAX.into()))
        };
        b.trunc(inside, b.ty.i32)
    }

    /// For one lane, `valid` and `skip` are conditions like `pred`.
    fn scalar_guard(&self, place: &Place<'m>) -> Option<Value<'m>> {
        let b = self.b;
        let valid = place.valid.map(|valid| b.icmp(ICmp::Sgt, valid, b.i32(0)));
        let kept = place.skip.map(|skip| b.icmp(ICmp::Sle, skip, b.i32(0)));
        [valid, kept, place.pred].into_iter().flatten().reduce(|x, y| b.and(x, y))
    }

    /// What `build` gives where the condition holds, zeros elsewhere.
    fn guarded(
        &mut self,
        condition: Option<Value<'m>>,
        types: &[Type<'m>],
        build: impl FnOnce(&Self) -> Parts<'m>,
    ) -> Parts<'m> {
        let b = self.b;
        let Some(condition) = condition else { return build(self) };
        let zeros = || types.iter().map(|&ty| b.zero(ty)).collect();
        Parts::from_vec(b.if_else(condition, types, || build(self).into_vec(), zeros))
    }

    // ---- Loads

    /// What a load gives before it is taken apart: on a GPU 32-bit words where lanes fill them, so that no instruction
    /// takes a register apart before it must, or lanes; on the CPU one vector or scalar.
    fn raw_types(&self, place: &Place<'m>) -> Vec<Type<'m>> {
        match (self.gpu, self.words(place)) {
            (true, Some(words)) => vec![self.b.ty.i32; words],
            (true, None) => vec![place.element; place.lanes],
            (false, _) => vec![self.memory_vector(place)],
        }
    }

    fn memory_vector(&self, place: &Place<'m>) -> Type<'m> {
        if place.vector { self.b.ty.vector(place.lanes, place.element) } else { place.element }
    }

    fn load_all(&self, place: &Place<'m>) -> Parts<'m> {
        let b = self.b;
        if !self.gpu {
            let access = Access { nontemporal: place.cache == "streaming", ..Access::aligned(place.align) };
            return smallvec![b.load(self.memory_vector(place), place.address, access)];
        }
        if let Some(words) = self.words(place) {
            return Parts::from_vec(self.load_words(place, words));
        }
        let access = Access { invariant: place.cache == "nc" && place.global, ..Access::aligned(place.align) };
        if place.lanes == 1 {
            let loaded = b.load(place.element, place.address, access);
            return smallvec![if place.cache == "early" { self.kept_here(place, loaded) } else { loaded }];
        }
        Parts::from_vec(b.scalars(b.load(b.ty.vector(place.lanes, place.element), place.address, access)))
    }

    /// The value, of which LLVM does not know that it is loaded or zero: it would move a conversion into the branch of the load, and each load would wait
    /// for the one before.
    fn bound(&self, value: Value<'m>) -> Value<'m> {
        let b = self.b;
        let ty = type_of(value);
        match self.element_bytes(ty) {
            2 => {
                let same = b.inline_asm("", "=h,0", &[b.bitcast(value, b.ty.i16)], &[b.ty.i16], false)[0];
                b.bitcast(same, ty)
            }
            _ => value,
        }
    }

    /// A number of 16 or 32 bits, as it is where a warp's threads meet: neither LLVM nor the assembler moves its load behind that, nearer to its use.
    fn kept_here(&self, place: &Place<'m>, value: Value<'m>) -> Value<'m> {
        let b = self.b;
        let (ty, constraints) = match self.element_bytes(place.element) {
            2 => (b.ty.i16, "=h,0"),
            4 => (b.ty.i32, "=r,0"),
            _ => return value,
        };
        let kept = b.inline_asm(MEET, constraints, &[b.bitcast(value, ty)], &[ty], true)[0];
        b.bitcast(kept, place.element)
    }

    /// How many 32-bit words the lanes fill, where they fill words and the address allows for it.
    fn words(&self, place: &Place<'m>) -> Option<usize> {
        let width = self.element_bytes(place.element);
        let bytes = place.lanes * width;
        (self.gpu && place.lanes > 1 && bytes.is_multiple_of(4) && place.align >= 4 && width <= 4).then_some(bytes / 4)
    }

    fn load_words(&self, place: &Place<'m>, words: usize) -> Vec<Value<'m>> {
        let b = self.b;
        let cache = match place.cache {
            "streaming" => Some(LoadCache::Streaming),
            "no_allocate" => Some(LoadCache::NoL1),
            _ => None,
        };
        if let (Some(cache), true) = (cache, place.global) {
            let each = words_at_once(place, words);
            let chunk =
                |i: usize| b.ptx().load_words(b.gep_const(b.ty.i32, place.address, (i * each) as i32), each, cache);
            return (0..words / each).flat_map(chunk).collect();
        }
        let access = Access { invariant: place.cache == "nc" && place.global, ..Access::aligned(place.align) };
        if words == 1 {
            return vec![b.load(b.ty.i32, place.address, access)];
        }
        b.scalars(b.load(b.ty.vector(words, b.ty.i32), place.address, access))
    }

    /// The first `valid` lanes without the first `skip`, the others zero.
    fn load_some(&self, place: &Place<'m>) -> Parts<'m> {
        let b = self.b;
        let some = || {
            if self.gpu {
                let lanes: Vec<Value<'m>> = (0..place.lanes).map(|lane| self.load_one(place, lane)).collect();
                return if self.words(place).is_some() { self.pack(&lanes) } else { lanes };
            }
            let (integer, mask) = (self.mask_type(place), self.lane_mask(place));
            let loaded = b.masked_load(place.address, mask, b.zero(integer), place.align);
            vec![b.bitcast(loaded, self.memory_vector(place))]
        };
        // A branch in a loop costs registers, a mask that is the same at each step nothing.
        if self.has_masks(place) {
            return Parts::from_vec(some());
        }
        let ends = place.valid.map(|valid| b.icmp(ICmp::Sge, valid, b.i32(place.lanes as i32)));
        let starts = place.skip.map(|skip| b.icmp(ICmp::Sle, skip, b.i32(0)));
        let full = ends.into_iter().chain(starts).reduce(|x, y| b.and(x, y)).expect("a partial load");
        Parts::from_vec(b.if_else(full, &self.raw_types(place), || self.load_all(place).into_vec(), some))
    }

    /// Whether the CPU loads and stores some lanes of a vector in one instruction, by a mask.
    fn has_masks(&self, place: &Place<'m>) -> bool {
        matches!(self.target, Processor::Cpu(cpu) if cpu.masks) && place.lanes <= MASKED
    }

    fn load_one(&self, place: &Place<'m>, lane: usize) -> Value<'m> {
        let b = self.b;
        let inside = self.inside(place, b.i32(lane as i32), &|count| count);
        let align = self.element_bytes(place.element) as u32;
        let load = || {
            let address = b.gep_const(place.element, place.address, lane as i32);
            vec![b.load(place.element, address, Access::aligned(align))]
        };
        b.if_else(inside, &[place.element], load, || vec![b.zero(place.element)])[0]
    }

    /// An `i1` is a byte in memory.
    fn bit(&self, value: Value<'m>, elem: ir::Type) -> Value<'m> {
        if elem != ir::Type::i1() {
            return value;
        }
        self.b.icmp(ICmp::Ne, value, self.b.int(type_of(value), 0))
    }

    // ---- Stores

    fn store_all(&self, place: &Place<'m>, parts: &[Value<'m>]) {
        let b = self.b;
        let access = Access { nontemporal: place.cache == "streaming" && !self.gpu, ..Access::aligned(place.align) };
        match (parts, self.words(place)) {
            (&[value], _) => b.store(value, place.address, access),
            (lanes, Some(count)) => {
                let words = self.pack(lanes);
                if place.cache == "streaming" && place.global {
                    let each = words_at_once(place, count);
                    for (i, chunk) in words.chunks(each).enumerate() {
                        b.ptx().store_words(
                            b.gep_const(b.ty.i32, place.address, (i * each) as i32),
                            chunk,
                            StoreCache::Streaming,
                        );
                    }
                } else {
                    let value = if count == 1 { words[0] } else { b.vector(&words) };
                    b.store(value, place.address, access);
                }
            }
            (lanes, None) => b.store(b.vector(lanes), place.address, access),
        }
    }

    fn store_some(&self, place: &Place<'m>, valid: Value<'m>, parts: &[Value<'m>]) {
        let b = self.b;
        // Branches would have the computation of each vector wait for the one before.
        if self.has_masks(place) {
            self.store_masked(place, parts[0], valid);
            return;
        }
        let full = b.icmp(ICmp::Sge, valid, b.i32(place.lanes as i32));
        let rest = || {
            if self.gpu {
                for (lane, &value) in parts.iter().enumerate() {
                    b.if_then(b.icmp(ICmp::Sgt, valid, b.i32(lane as i32)), || {
                        let address = b.gep_const(place.element, place.address, lane as i32);
                        b.store(value, address, Access::aligned(self.element_bytes(place.element) as u32));
                    });
                }
            } else {
                self.store_masked(place, parts[0], valid);
            }
            vec![]
        };
        let whole = || {
            self.store_all(place, parts);
            vec![]
        };
        b.if_else(full, &[], whole, rest);
    }

    /// Stores the first `valid` lanes of a vector.
    fn store_masked(&self, place: &Place<'m>, value: Value<'m>, valid: Value<'m>) {
        let b = self.b;
        let masked = || {
            let (integer, mask) = (self.mask_type(place), self.lane_mask(place));
            b.masked_store(b.bitcast(value, integer), place.address, mask, place.align);
            vec![]
        };
        let bytes = self.element_bytes(place.element) as u32;
        if bytes >= 4 {
            masked();
            return;
        }
        // With AVX-512, LLVM up to 22 stores all 32 bits of a narrowed element where the mask has one lane (llvm-project#179489).
        let one = || {
            b.store(b.extract(value, 0), place.address, Access::aligned(bytes));
            vec![]
        };
        b.if_else(b.icmp(ICmp::Eq, valid, b.i32(1)), &[], one, masked);
    }

    // ---- Parts of accesses

    /// The vector type under which lanes are masked: integers, which every instruction set handles.
    fn mask_type(&self, place: &Place<'m>) -> Type<'m> {
        let t = &self.b.ty;
        let integer = match self.element_bytes(place.element) {
            1 => t.i8,
            2 => t.i16,
            4 => t.i32,
            _ => t.i64,
        };
        t.vector(place.lanes, integer)
    }

    fn lane_mask(&self, place: &Place<'m>) -> Value<'m> {
        let b = self.b;
        self.inside(place, b.lane_numbers(place.lanes, b.ty.i32), &|count| b.splat(count, place.lanes))
    }

    /// Whether lanes of these numbers are accessed, `spread` being a count as their type.
    fn inside(&self, place: &Place<'m>, lanes: Value<'m>, spread: &dyn Fn(Value<'m>) -> Value<'m>) -> Value<'m> {
        let b = self.b;
        let before = place.valid.map(|valid| b.icmp(ICmp::Slt, lanes, spread(valid)));
        let after = place.skip.map(|skip| b.icmp(ICmp::Sge, lanes, spread(skip)));
        before.into_iter().chain(after).reduce(|x, y| b.and(x, y)).expect("a partial access")
    }

    pub fn element_bytes(&self, ty: Type<'m>) -> usize {
        let t = &self.b.ty;
        match ty {
            _ if ty == t.i8 => 1,
            _ if ty == t.i16 => 2,
            _ if ty == t.i32 || ty == t.f32 => 4,
            _ => 8,
        }
    }

    pub fn atomic(&mut self, op: OpRef) -> Result {
        let value = op.operand(0);
        let (ty, memory) = (self.body.ty(value), self.body.ty(op.operand(1)));
        let kind = op.str("kind").unwrap_or("add");
        let atomic = match (kind, ty.elem().is_float(), ty.elem().is_unsigned()) {
            ("add", true, _) => AtomicOp::FAdd,
            ("add", false, _) => AtomicOp::Add,
            ("max", false, false) => AtomicOp::SMax,
            ("min", false, false) => AtomicOp::SMin,
            ("max", false, true) => AtomicOp::UMax,
            ("min", false, true) => AtomicOp::UMin,
            ("exchange", false, _) => AtomicOp::Exchange,
            _ => return Err(op.unsupported(format!("of kind {kind} on {ty}"))),
        };
        if ty.elem() == ir::Type::i1() || ty.elem().byte_width().is_some_and(|bytes| bytes < 4) {
            return Err(op.unsupported(format!("on {ty}")).help("atomics work on 32 and 64 bits"));
        }
        if ty.is_vector() && !self.gpu {
            return Err(op.unsupported("on a vector, on the CPU").help("combine its elements one by one"));
        }
        let address = self.address(op, op.operand(1), &op.group("indices"))?;
        let pred = op.group("pred").first().map(|&pred| self.values.one(pred));
        let mut parts = self.values.parts(value);
        if ty.elem().is_index() {
            parts = parts.into_iter().map(|_| self.index(value, self.b.ty.i64)).collect();
        }
        let global = memory_space(memory) == 0;
        if let Some(width) = self.reduced_at_once(op, global) {
            self.guarded(pred, &[], |l| {
                for (i, chunk) in parts.chunks(width).enumerate() {
                    l.b.ptx().reduce_add_f32(l.b.gep_const(l.b.ty.f32, address, (i * width) as i32), chunk);
                }
                Parts::new()
            });
            let zero = self.b.zero(self.b.ty.f32);
            self.values.set_parts(op.result(0), parts.iter().map(|_| zero).collect());
            return Ok(());
        }
        let scope = match (self.gpu, global) {
            (true, false) => "block",
            (true, true) => "device",
            _ => "",
        };
        let types: Vec<Type<'m>> = parts.iter().map(|&part| type_of(part)).collect();
        let olds = self.guarded(pred, &types, |l| {
            let combine = |(lane, &part): (usize, &Value<'m>)| {
                let at = if lane == 0 { address } else { l.b.gep_const(types[lane], address, lane as i32) };
                l.b.atomic(atomic, at, part, Ordering::Relaxed, scope)
            };
            parts.iter().enumerate().map(combine).collect()
        });
        let index = ty.elem().is_index().then(|| self.index_type(op.result(0)));
        let olds = olds.into_iter().map(|old| index.map_or(old, |to| self.index_cast(old, to, false))).collect();
        self.values.set_parts(op.result(0), olds);
        Ok(())
    }

    /// How many lanes of an atomic sum of f32, whose old values nothing uses, one instruction of a GPU takes.
    fn reduced_at_once(&self, op: OpRef, global: bool) -> Option<usize> {
        let ty = self.body.ty(op.operand(0));
        let hopper = matches!(self.target, Processor::Cuda(cuda) if cuda.has_tma());
        let able = hopper && global && ty.is_vector() && ty.elem() == ir::Type::f32();
        let unused = self.body.uses(op.result(0)).next().is_none();
        let align = op.int("align").unwrap_or(4) as usize;
        let fits = |width: &usize| lanes_of(ty).is_multiple_of(*width) && align >= 4 * width;
        (able && unused && op.str("kind") == Some("add")).then(|| [4, 2].into_iter().find(fits)).flatten()
    }
}

/// The widest access that divides the words and that the address is aligned to.
fn words_at_once(place: &Place<'_>, words: usize) -> usize {
    [4, 2, 1].into_iter().find(|n| words.is_multiple_of(*n) && place.align as usize >= 4 * n).unwrap_or(1)
}

fn type_of<'m>(value: Value<'m>) -> Type<'m> {
    melior::ir::ValueLike::r#type(&value)
}
