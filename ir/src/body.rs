//! A body: the arena of one top-level operation and everything nested in it.
//!
//! Handles ([`Op`], [`Value`], [`Block`], [`Region`]) are 4-byte indices into the arena. A body is `Send`
//! and owns all it refers to, so passes run over bodies in parallel. Slots are not reused: an erased
//! op stays erased, and [`Body::compact`] makes a dense copy. In debug builds a handle knows its body,
//! and using it with another one panics.

use crate::attr::Attr;
use crate::intern::Name;
use crate::loc::Loc;
use crate::op_def::{OpDef, OpName, Traits};
use crate::types::Type;
use smallvec::SmallVec;

mod check;
mod op_ref;

pub use op_ref::OpRef;

macro_rules! handle {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub struct $name {
            index: u32,
            #[cfg(debug_assertions)]
            body: u32,
        }
        impl $name {
            /// A dense id for side tables, unique within the body.
            #[inline]
            pub fn index(self) -> usize {
                self.index as usize
            }
        }
        impl std::fmt::Debug for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                write!(f, concat!(stringify!($name), "{}"), self.index)
            }
        }
    };
}
handle!(/// An operation of a body.
    Op);
handle!(/// The result of an operation or the argument of a block.
    Value);
handle!(/// A block: arguments and a list of operations.
    Block);
handle!(/// A region: a list of blocks.
    Region);

const NIL: u32 = u32::MAX;
/// In `ValueData::def_index`: the value is a block's argument.
const ARGUMENT: u32 = 1 << 31;

#[derive(Clone)]
struct OpData {
    name: OpName,
    loc: Loc,
    attrs: Attr,
    block: u32,
    prev: u32,
    next: u32,
    operands: u32,
    results: u32,
    /// Index into `Body::extras`: regions, successors, properties. `NIL` for most ops.
    extra: u32,
    operand_count: u16,
    result_count: u16,
}

#[derive(Clone)]
struct Use {
    value: u32,
    owner: u32,
    prev: u32,
    next: u32,
}

#[derive(Clone)]
struct ValueData {
    ty: Type,
    /// The op or the block.
    def: u32,
    def_index: u32,
    first_use: u32,
}

/// What few ops have.
#[derive(Clone, Default)]
struct Extra {
    regions: SmallVec<[u32; 1]>,
    successors: SmallVec<[u32; 2]>,
    /// `<{…}>` of an unregistered op, kept apart from its attributes.
    props: Option<Attr>,
}

#[derive(Clone)]
struct BlockData {
    region: u32,
    first: u32,
    last: u32,
    args: SmallVec<[u32; 4]>,
    /// Its label in the source, for printing.
    label: Name,
}

#[derive(Clone)]
struct RegionData {
    owner: u32,
    blocks: SmallVec<[u32; 1]>,
}

// A binary op with one result: its header, two uses, one value and that value's name.
const _: () = assert!(size_of::<OpData>() + 2 * size_of::<Use>() + size_of::<ValueData>() + size_of::<Name>() <= 100);

/// The arena of one top-level operation. Op 0 is that operation, the root.
#[derive(Clone)]
pub struct Body {
    ops: Vec<OpData>,
    uses: Vec<Use>,
    values: Vec<ValueData>,
    names: Vec<Name>,
    blocks: Vec<BlockData>,
    regions: Vec<RegionData>,
    extras: Vec<Extra>,
    #[cfg(debug_assertions)]
    id: u32,
}

/// What a new operation is made of.
#[derive(Clone, Debug)]
pub struct OpState {
    pub name: OpName,
    pub loc: Loc,
    pub operands: SmallVec<[Value; 4]>,
    pub results: SmallVec<[Type; 2]>,
    /// A dictionary.
    pub attrs: Attr,
    pub props: Option<Attr>,
    pub successors: SmallVec<[Block; 2]>,
    /// Empty regions to make.
    pub regions: usize,
}

impl OpState {
    pub fn new(name: impl Into<OpName>, loc: Loc) -> OpState {
        OpState {
            name: name.into(),
            loc,
            operands: SmallVec::new(),
            results: SmallVec::new(),
            attrs: Attr::empty_dict(),
            props: None,
            successors: SmallVec::new(),
            regions: 0,
        }
    }
}
impl From<&str> for OpName {
    fn from(text: &str) -> OpName {
        OpName::new(text)
    }
}
impl From<&OpDef> for OpName {
    fn from(def: &OpDef) -> OpName {
        OpName::new(def.name)
    }
}

/// Where a value comes from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ValueDef {
    Result(Op, usize),
    Argument(Block, usize),
}

macro_rules! handles {
    ($($make:ident $check:ident $handle:ident;)*) => {
        $(
            #[inline]
            fn $make(&self, index: u32) -> $handle {
                $handle { index, #[cfg(debug_assertions)] body: self.id }
            }
            #[inline]
            #[track_caller]
            fn $check(&self, handle: $handle) -> usize {
                #[cfg(debug_assertions)]
                assert_eq!(handle.body, self.id, concat!("a ", stringify!($handle), " of another body"));
                handle.index as usize
            }
        )*
    };
}

impl Body {
    handles! {
        op_handle op_at Op;
        value_handle value_at Value;
        block_handle block_at Block;
        region_handle region_at Region;
    }

    /// A body whose root is the operation `state` describes. The root has no operands.
    pub fn new(state: OpState) -> Body {
        #[cfg(debug_assertions)]
        static NEXT: std::sync::atomic::AtomicU32 = std::sync::atomic::AtomicU32::new(0);
        let mut body = Body {
            ops: Vec::new(),
            uses: Vec::new(),
            values: Vec::new(),
            names: Vec::new(),
            blocks: Vec::new(),
            regions: Vec::new(),
            extras: Vec::new(),
            #[cfg(debug_assertions)]
            id: NEXT.fetch_add(1, std::sync::atomic::Ordering::Relaxed),
        };
        assert!(state.operands.is_empty(), "a top-level operation has no operands");
        body.create(state);
        body
    }

    /// The top-level operation.
    #[inline]
    pub fn root(&self) -> Op {
        self.op_handle(0)
    }
    /// The root's `sym_name`.
    pub fn symbol(&self) -> Option<Name> {
        self.attr(self.root(), "sym_name").and_then(|a| a.as_str()).map(Name::new)
    }
    /// Whether only this module may refer to the root symbol.
    pub fn is_private(&self) -> bool {
        self.attr(self.root(), "sym_visibility").and_then(|a| a.as_str()) == Some("private")
    }
    /// The entry block of the root's first region.
    pub fn entry(&self) -> Option<Block> {
        self.op_ref(self.root()).region(0).and_then(|r| self.first_block(r))
    }
    /// Number of operation slots, erased ones included: the bound of [`Op::index`].
    pub fn op_capacity(&self) -> usize {
        self.ops.len()
    }
    /// The operations made since [`Body::op_capacity`] was `capacity`, in the order of their making.
    pub fn ops_since(&self, capacity: usize) -> impl Iterator<Item = Op> + '_ {
        (capacity as u32..self.ops.len() as u32).map(|i| self.op_handle(i)).filter(|&op| !self.is_erased(op))
    }
    /// Number of values: the bound of [`Value::index`].
    pub fn value_capacity(&self) -> usize {
        self.values.len()
    }
    /// Makes room for as much as another body has.
    pub fn reserve_as(&mut self, other: &Body) {
        self.ops.reserve(other.ops.len());
        self.uses.reserve(other.uses.len());
        self.values.reserve(other.values.len());
        self.names.reserve(other.names.len());
        self.blocks.reserve(other.blocks.len());
        self.regions.reserve(other.regions.len());
        self.extras.reserve(other.extras.len());
    }
    /// Gives back memory that growth left unused.
    pub fn shrink(&mut self) {
        self.ops.shrink_to_fit();
        self.uses.shrink_to_fit();
        self.values.shrink_to_fit();
        self.names.shrink_to_fit();
        self.blocks.shrink_to_fit();
        self.regions.shrink_to_fit();
        self.extras.shrink_to_fit();
    }

    // ---- operations ----

    /// Makes an operation that is in no block yet.
    pub fn create(&mut self, state: OpState) -> Op {
        let id = self.ops.len() as u32;
        let extra = if state.regions > 0 || !state.successors.is_empty() || state.props.is_some() {
            let successors = state.successors.iter().map(|&b| self.block_at(b) as u32).collect();
            self.extras.push(Extra { regions: SmallVec::new(), successors, props: state.props });
            self.extras.len() as u32 - 1
        } else {
            NIL
        };
        self.ops.push(OpData {
            name: state.name,
            loc: state.loc,
            attrs: state.attrs,
            block: NIL,
            prev: NIL,
            next: NIL,
            operands: self.uses.len() as u32,
            results: self.values.len() as u32,
            extra,
            operand_count: u16::try_from(state.operands.len()).expect("at most 65535 operands"),
            result_count: u16::try_from(state.results.len()).expect("at most 65535 results"),
        });
        for &value in &state.operands {
            self.push_use(id, value);
        }
        for (i, &ty) in state.results.iter().enumerate() {
            self.push_value(ty, id, i as u32);
        }
        for _ in 0..state.regions {
            let region = self.regions.len() as u32;
            self.regions.push(RegionData { owner: id, blocks: SmallVec::new() });
            self.extras[extra as usize].regions.push(region);
        }
        self.op_handle(id)
    }

    /// The description from which an equal, detached operation with empty regions can be made.
    pub fn state(&self, op: Op) -> OpState {
        let data = &self.ops[self.op_at(op)];
        OpState {
            name: data.name,
            loc: data.loc,
            operands: self.operands(op).collect(),
            results: self.results(op).map(|r| self.ty(r)).collect(),
            attrs: data.attrs,
            props: self.props(op),
            successors: self.successors(op),
            regions: self.regions(op).len(),
        }
    }

    #[inline]
    pub fn op_ref(&self, op: Op) -> OpRef<'_> {
        OpRef { body: self, op }
    }
    #[inline]
    pub fn name(&self, op: Op) -> OpName {
        self.ops[self.op_at(op)].name
    }
    pub fn set_name_of_op(&mut self, op: Op, name: OpName) {
        let at = self.op_at(op);
        self.ops[at].name = name;
    }
    #[inline]
    pub fn loc(&self, op: Op) -> Loc {
        self.ops[self.op_at(op)].loc
    }
    pub fn set_loc(&mut self, op: Op, loc: Loc) {
        let at = self.op_at(op);
        self.ops[at].loc = loc;
    }
    /// The dictionary of attributes.
    #[inline]
    pub fn attrs(&self, op: Op) -> Attr {
        self.ops[self.op_at(op)].attrs
    }
    pub fn set_attrs(&mut self, op: Op, dict: Attr) {
        let at = self.op_at(op);
        self.ops[at].attrs = dict;
    }
    /// The `<{…}>` of an unregistered op.
    pub fn props(&self, op: Op) -> Option<Attr> {
        self.extra(op).and_then(|e| e.props)
    }
    pub fn set_props(&mut self, op: Op, props: Option<Attr>) {
        let at = self.extra_at(op);
        self.extras[at].props = props;
    }
    /// An attribute as written, in the attributes or an unregistered op's properties.
    pub fn attr(&self, op: Op, name: &str) -> Option<Attr> {
        self.attrs(op).get(name).or_else(|| self.props(op)?.get(name))
    }
    pub fn set_attr(&mut self, op: Op, name: &str, value: Attr) {
        let dict = self.attrs(op).with(Name::new(name), Some(value));
        self.set_attrs(op, dict);
    }
    pub fn remove_attr(&mut self, op: Op, name: &str) {
        let dict = self.attrs(op).with(Name::new(name), None);
        self.set_attrs(op, dict);
    }
    /// Whether the op may have regions, successors or properties.
    #[inline]
    pub(crate) fn has_extra(&self, op: Op) -> bool {
        self.ops[self.op_at(op)].extra != NIL
    }
    fn extra(&self, op: Op) -> Option<&Extra> {
        let extra = self.ops[self.op_at(op)].extra;
        (extra != NIL).then(|| &self.extras[extra as usize])
    }

    // ---- operands and uses ----

    fn push_use(&mut self, owner: u32, value: Value) {
        let id = self.uses.len() as u32;
        self.uses.push(Use { value: NIL, owner, prev: NIL, next: NIL });
        self.link_use(id, value);
    }
    fn link_use(&mut self, id: u32, value: Value) {
        let v = self.value_at(value);
        let head = self.values[v].first_use;
        let entry = &mut self.uses[id as usize];
        (entry.value, entry.prev, entry.next) = (v as u32, NIL, head);
        if head != NIL {
            self.uses[head as usize].prev = id;
        }
        self.values[v].first_use = id;
    }
    fn unlink_use(&mut self, id: u32) {
        let Use { value, prev, next, .. } = self.uses[id as usize];
        if value == NIL {
            return;
        }
        if prev != NIL {
            self.uses[prev as usize].next = next;
        } else {
            self.values[value as usize].first_use = next;
        }
        if next != NIL {
            self.uses[next as usize].prev = prev;
        }
        self.uses[id as usize].value = NIL;
    }
    fn use_range(&self, op: Op) -> std::ops::Range<usize> {
        let data = &self.ops[self.op_at(op)];
        data.operands as usize..data.operands as usize + usize::from(data.operand_count)
    }
    #[inline]
    pub fn operand_count(&self, op: Op) -> usize {
        usize::from(self.ops[self.op_at(op)].operand_count)
    }
    pub fn operands(&self, op: Op) -> impl ExactSizeIterator<Item = Value> + DoubleEndedIterator + Clone + '_ {
        self.uses[self.use_range(op)].iter().map(|u| self.value_handle(u.value))
    }
    #[inline]
    #[track_caller]
    pub fn operand(&self, op: Op, i: usize) -> Value {
        self.value_handle(self.uses[self.use_range(op)][i].value)
    }
    pub fn set_operand(&mut self, op: Op, i: usize, value: Value) {
        let id = (self.use_range(op).start + i) as u32;
        assert!(i < self.operand_count(op), "operand {i} of {}", self.name(op));
        self.unlink_use(id);
        self.link_use(id, value);
    }
    /// Replaces the whole operand list.
    pub fn set_operands(&mut self, op: Op, values: &[Value]) {
        for id in self.use_range(op) {
            self.unlink_use(id as u32);
        }
        let at = self.op_at(op);
        if values.len() > usize::from(self.ops[at].operand_count) {
            self.ops[at].operands = self.uses.len() as u32;
            self.uses
                .resize(self.uses.len() + values.len(), Use { value: NIL, owner: at as u32, prev: NIL, next: NIL });
        }
        self.ops[at].operand_count = u16::try_from(values.len()).expect("at most 65535 operands");
        let start = self.ops[at].operands;
        for (i, &value) in values.iter().enumerate() {
            self.link_use(start + i as u32, value);
        }
    }
    /// The uses of a value as (user, operand number), the latest linked first.
    pub fn uses(&self, value: Value) -> impl Iterator<Item = (Op, usize)> + '_ {
        let mut next = self.values[self.value_at(value)].first_use;
        std::iter::from_fn(move || {
            let id = next;
            let entry = self.uses.get(id as usize)?;
            next = entry.next;
            Some((self.op_handle(entry.owner), (id - self.ops[entry.owner as usize].operands) as usize))
        })
    }
    pub fn has_uses(&self, value: Value) -> bool {
        self.values[self.value_at(value)].first_use != NIL
    }
    pub fn has_one_use(&self, value: Value) -> bool {
        self.uses(value).take(2).count() == 1
    }
    pub fn replace_all_uses(&mut self, old: Value, new: Value) {
        if old == new {
            return;
        }
        let (old, new) = (self.value_at(old), self.value_at(new));
        let mut id = self.values[old].first_use;
        if id == NIL {
            return;
        }
        let first = id;
        let last = loop {
            self.uses[id as usize].value = new as u32;
            match self.uses[id as usize].next {
                NIL => break id,
                next => id = next,
            }
        };
        let head = std::mem::replace(&mut self.values[new].first_use, first);
        self.uses[last as usize].next = head;
        if head != NIL {
            self.uses[head as usize].prev = last;
        }
        self.values[old].first_use = NIL;
    }

    // ---- values ----

    fn push_value(&mut self, ty: Type, def: u32, def_index: u32) -> u32 {
        self.values.push(ValueData { ty, def, def_index, first_use: NIL });
        self.values.len() as u32 - 1
    }
    #[inline]
    pub fn ty(&self, value: Value) -> Type {
        self.values[self.value_at(value)].ty
    }
    pub fn set_ty(&mut self, value: Value, ty: Type) {
        let at = self.value_at(value);
        self.values[at].ty = ty;
    }
    pub fn def(&self, value: Value) -> ValueDef {
        let data = &self.values[self.value_at(value)];
        if data.def_index & ARGUMENT != 0 {
            ValueDef::Argument(self.block_handle(data.def), (data.def_index & !ARGUMENT) as usize)
        } else {
            ValueDef::Result(self.op_handle(data.def), data.def_index as usize)
        }
    }
    /// The op whose result the value is; `None` for a block argument.
    pub fn defining_op(&self, value: Value) -> Option<Op> {
        if let ValueDef::Result(op, _) = self.def(value) { Some(op) } else { None }
    }
    /// The block in which a value is defined; `None` if its op is detached.
    pub fn defining_block(&self, value: Value) -> Option<Block> {
        match self.def(value) {
            ValueDef::Result(op, _) => self.parent(op),
            ValueDef::Argument(block, _) => Some(block),
        }
    }
    #[inline]
    pub fn result_count(&self, op: Op) -> usize {
        usize::from(self.ops[self.op_at(op)].result_count)
    }
    pub fn results(&self, op: Op) -> impl ExactSizeIterator<Item = Value> + DoubleEndedIterator + Clone + '_ {
        let data = &self.ops[self.op_at(op)];
        (data.results..data.results + u32::from(data.result_count)).map(|i| self.value_handle(i))
    }
    #[inline]
    #[track_caller]
    pub fn result(&self, op: Op, i: usize) -> Value {
        let data = &self.ops[self.op_at(op)];
        assert!(i < usize::from(data.result_count), "result {i} of {}", data.name);
        self.value_handle(data.results + i as u32)
    }
    /// The value's name in the source or as a frontend gave it; empty if none.
    pub fn value_name(&self, value: Value) -> Name {
        self.names.get(self.value_at(value)).copied().unwrap_or(Name::EMPTY)
    }
    /// A hint for printing; the printer makes names unique.
    pub fn set_value_name(&mut self, value: Value, name: Name) {
        let at = self.value_at(value);
        if self.names.len() <= at {
            self.names.resize(at + 1, Name::EMPTY);
        }
        self.names[at] = name;
    }

    // ---- regions and blocks ----

    pub fn regions(&self, op: Op) -> SmallVec<[Region; 2]> {
        self.extra(op).map_or(SmallVec::new(), |e| e.regions.iter().map(|&r| self.region_handle(r)).collect())
    }
    pub fn successors(&self, op: Op) -> SmallVec<[Block; 2]> {
        self.extra(op).map_or(SmallVec::new(), |e| e.successors.iter().map(|&b| self.block_handle(b)).collect())
    }
    pub fn set_successor(&mut self, op: Op, i: usize, block: Block) {
        let block = self.block_at(block) as u32;
        let extra = self.ops[self.op_at(op)].extra as usize;
        self.extras[extra].successors[i] = block;
    }
    /// Gives results to an operation that has none: a parser knows their types after the regions.
    pub fn add_results(&mut self, op: Op, types: &[Type]) {
        let at = self.op_at(op);
        assert_eq!(self.ops[at].result_count, 0, "{} has results already", self.ops[at].name);
        self.ops[at].results = self.values.len() as u32;
        self.ops[at].result_count = u16::try_from(types.len()).expect("at most 65535 results");
        for (i, &ty) in types.iter().enumerate() {
            self.push_value(ty, at as u32, i as u32);
        }
    }
    fn extra_at(&mut self, op: Op) -> usize {
        let at = self.op_at(op);
        if self.ops[at].extra == NIL {
            self.ops[at].extra = self.extras.len() as u32;
            self.extras.push(Extra::default());
        }
        self.ops[at].extra as usize
    }
    /// Adds an empty region to an operation.
    pub fn add_region(&mut self, op: Op) -> Region {
        let extra = self.extra_at(op);
        let at = self.op_at(op);
        let region = self.regions.len() as u32;
        self.regions.push(RegionData { owner: at as u32, blocks: SmallVec::new() });
        self.extras[extra].regions.push(region);
        self.region_handle(region)
    }
    pub fn region_owner(&self, region: Region) -> Op {
        self.op_handle(self.regions[self.region_at(region)].owner)
    }
    pub fn blocks(&self, region: Region) -> impl ExactSizeIterator<Item = Block> + DoubleEndedIterator + Clone + '_ {
        self.regions[self.region_at(region)].blocks.iter().map(|&b| self.block_handle(b))
    }
    pub fn first_block(&self, region: Region) -> Option<Block> {
        self.blocks(region).next()
    }
    /// Appends a block with arguments of these types.
    pub fn add_block(&mut self, region: Region, args: &[Type]) -> Block {
        let block = self.detached_block();
        self.attach_block(region, block);
        for &ty in args {
            self.add_block_arg(block, ty);
        }
        block
    }
    /// A block that is in no region yet: a successor named before it appears.
    pub fn detached_block(&mut self) -> Block {
        self.blocks.push(BlockData { region: NIL, first: NIL, last: NIL, args: SmallVec::new(), label: Name::EMPTY });
        self.block_handle(self.blocks.len() as u32 - 1)
    }
    /// Appends a detached block to a region.
    pub fn attach_block(&mut self, region: Region, block: Block) {
        let (r, b) = (self.region_at(region), self.block_at(block));
        assert_eq!(self.blocks[b].region, NIL, "the block is in a region already");
        self.blocks[b].region = r as u32;
        self.regions[r].blocks.push(b as u32);
    }
    pub fn add_block_arg(&mut self, block: Block, ty: Type) -> Value {
        let at = self.block_at(block);
        let index = self.blocks[at].args.len() as u32;
        let value = self.push_value(ty, at as u32, index | ARGUMENT);
        self.blocks[at].args.push(value);
        self.value_handle(value)
    }
    /// Removes an argument that has no uses; those after it move down.
    pub fn erase_block_arg(&mut self, block: Block, i: usize) {
        let at = self.block_at(block);
        let value = self.blocks[at].args[i];
        assert_eq!(self.values[value as usize].first_use, NIL, "the argument has uses");
        self.blocks[at].args.remove(i);
        for (j, &arg) in self.blocks[at].args.iter().enumerate().skip(i) {
            self.values[arg as usize].def_index = j as u32 | ARGUMENT;
        }
    }
    pub fn block_args(&self, block: Block) -> impl ExactSizeIterator<Item = Value> + DoubleEndedIterator + Clone + '_ {
        self.blocks[self.block_at(block)].args.iter().map(|&v| self.value_handle(v))
    }
    #[track_caller]
    pub fn block_arg(&self, block: Block, i: usize) -> Value {
        self.value_handle(self.blocks[self.block_at(block)].args[i])
    }
    pub fn block_label(&self, block: Block) -> Name {
        self.blocks[self.block_at(block)].label
    }
    pub fn set_block_label(&mut self, block: Block, label: Name) {
        let at = self.block_at(block);
        self.blocks[at].label = label;
    }
    pub fn block_region(&self, block: Block) -> Option<Region> {
        let region = self.blocks[self.block_at(block)].region;
        (region != NIL).then(|| self.region_handle(region))
    }
    /// The op in whose region the block is.
    pub fn block_owner(&self, block: Block) -> Option<Op> {
        self.block_region(block).map(|r| self.region_owner(r))
    }
    /// The block that holds an op; `None` for the root and for detached ops.
    pub fn parent(&self, op: Op) -> Option<Block> {
        let block = self.ops[self.op_at(op)].block;
        (block != NIL).then(|| self.block_handle(block))
    }
    /// The op in whose region an op is.
    pub fn parent_op(&self, op: Op) -> Option<Op> {
        self.parent(op).and_then(|b| self.block_owner(b))
    }
    /// The ops of a block, in order. Collect them before changing the block.
    pub fn ops(&self, block: Block) -> impl DoubleEndedIterator<Item = Op> + '_ {
        let data = &self.blocks[self.block_at(block)];
        OpIter { body: self, front: data.first, back: data.last }
    }
    pub fn first_op(&self, block: Block) -> Option<Op> {
        self.ops(block).next()
    }
    pub fn last_op(&self, block: Block) -> Option<Op> {
        self.ops(block).next_back()
    }
    /// The last op, where it is declared a terminator.
    pub fn terminator(&self, block: Block) -> Option<Op> {
        self.last_op(block).filter(|&op| self.op_ref(op).has(Traits::TERMINATOR))
    }
    pub fn next_op(&self, op: Op) -> Option<Op> {
        let next = self.ops[self.op_at(op)].next;
        (next != NIL).then(|| self.op_handle(next))
    }
    pub fn prev_op(&self, op: Op) -> Option<Op> {
        let prev = self.ops[self.op_at(op)].prev;
        (prev != NIL).then(|| self.op_handle(prev))
    }

    // ---- placing ----

    fn link(&mut self, op: Op, block: u32, prev: u32, next: u32) {
        let at = self.op_at(op);
        assert_eq!(self.ops[at].block, NIL, "{} is in a block already", self.ops[at].name);
        let data = &mut self.ops[at];
        (data.block, data.prev, data.next) = (block, prev, next);
        let id = at as u32;
        match prev {
            NIL => self.blocks[block as usize].first = id,
            _ => self.ops[prev as usize].next = id,
        }
        match next {
            NIL => self.blocks[block as usize].last = id,
            _ => self.ops[next as usize].prev = id,
        }
    }
    pub fn append(&mut self, block: Block, op: Op) {
        let at = self.block_at(block) as u32;
        self.link(op, at, self.blocks[at as usize].last, NIL);
    }
    pub fn prepend(&mut self, block: Block, op: Op) {
        let at = self.block_at(block) as u32;
        self.link(op, at, NIL, self.blocks[at as usize].first);
    }
    pub fn insert_before(&mut self, before: Op, op: Op) {
        let at = self.op_at(before);
        self.link(op, self.ops[at].block, self.ops[at].prev, at as u32);
    }
    pub fn insert_after(&mut self, after: Op, op: Op) {
        let at = self.op_at(after);
        self.link(op, self.ops[at].block, at as u32, self.ops[at].next);
    }
    /// Takes an op out of its block; it keeps operands, results and regions.
    pub fn detach(&mut self, op: Op) {
        let OpData { block, prev, next, .. } = self.ops[self.op_at(op)];
        if block == NIL {
            return;
        }
        match prev {
            NIL => self.blocks[block as usize].first = next,
            _ => self.ops[prev as usize].next = next,
        }
        match next {
            NIL => self.blocks[block as usize].last = prev,
            _ => self.ops[next as usize].prev = prev,
        }
        let data = &mut self.ops[op.index as usize];
        (data.block, data.prev, data.next) = (NIL, NIL, NIL);
    }
    pub fn move_before(&mut self, before: Op, op: Op) {
        self.detach(op);
        self.insert_before(before, op);
    }
    pub fn move_to_end(&mut self, block: Block, op: Op) {
        self.detach(op);
        self.append(block, op);
    }

    /// Erases an op and all in its regions. Its results must have no uses left.
    pub fn erase(&mut self, op: Op) {
        self.drop_uses_inside(op);
        debug_assert!(self.results(op).all(|r| !self.has_uses(r)), "results of {} are used", self.name(op));
        self.detach(op);
        self.ops[op.index as usize].result_count = 0;
        self.ops[op.index as usize].name = erased();
    }
    /// Unlinks the operands of the op and of all ops nested in it, and erases the nested ones.
    fn drop_uses_inside(&mut self, op: Op) {
        for id in self.use_range(op) {
            self.unlink_use(id as u32);
        }
        let at = self.op_at(op);
        self.ops[at].operand_count = 0;
        let regions = self.regions(op);
        for &region in &regions {
            let blocks: Vec<Block> = self.blocks(region).collect();
            for &block in &blocks {
                let nested: Vec<Op> = self.ops(block).collect();
                nested.iter().for_each(|&o| self.drop_uses_inside(o));
            }
            for &block in &blocks {
                let nested: Vec<Op> = self.ops(block).collect();
                for o in nested {
                    self.detach(o);
                    self.ops[o.index as usize].name = erased();
                }
            }
            self.regions[region.index as usize].blocks.clear();
        }
    }
    /// Whether the op was erased.
    pub fn is_erased(&self, op: Op) -> bool {
        self.name(op) == erased()
    }
    /// Replaces the op's results by `values` and erases it.
    pub fn replace_op(&mut self, op: Op, values: &[Value]) {
        assert_eq!(values.len(), self.result_count(op), "a value for each result of {}", self.name(op));
        let results: SmallVec<[Value; 4]> = self.results(op).collect();
        for (&old, &new) in results.iter().zip(values) {
            if self.value_name(new).is_empty() && !self.value_name(old).is_empty() && self.defining_op(new).is_some() {
                self.set_value_name(new, self.value_name(old));
            }
            self.replace_all_uses(old, new);
        }
        self.erase(op);
    }

    // ---- walking ----

    /// All ops under `op`, itself first, each before those in its regions.
    pub fn walk_from(&self, op: Op) -> Vec<Op> {
        let mut out = Vec::new();
        let mut stack = vec![op];
        while let Some(op) = stack.pop() {
            out.push(op);
            let at = stack.len();
            for region in self.regions(op) {
                for block in self.blocks(region) {
                    stack.extend(self.ops(block));
                }
            }
            stack[at..].reverse();
        }
        out
    }
    /// All ops of the body, the root first.
    pub fn walk(&self) -> Vec<Op> {
        self.walk_from(self.root())
    }
    /// Whether `inner` is `outer` or inside it.
    pub fn is_ancestor(&self, outer: Op, inner: Op) -> bool {
        std::iter::successors(Some(inner), |&op| self.parent_op(op)).any(|op| op == outer)
    }
}

fn erased() -> OpName {
    static NAME: std::sync::LazyLock<OpName> = std::sync::LazyLock::new(|| OpName::new("<erased>"));
    *NAME
}

struct OpIter<'a> {
    body: &'a Body,
    front: u32,
    back: u32,
}
impl Iterator for OpIter<'_> {
    type Item = Op;
    fn next(&mut self) -> Option<Op> {
        if self.front == NIL {
            return None;
        }
        let op = self.front;
        if op == self.back {
            (self.front, self.back) = (NIL, NIL);
        } else {
            self.front = self.body.ops[op as usize].next;
        }
        Some(self.body.op_handle(op))
    }
}
impl DoubleEndedIterator for OpIter<'_> {
    fn next_back(&mut self) -> Option<Op> {
        if self.back == NIL {
            return None;
        }
        let op = self.back;
        if op == self.front {
            (self.front, self.back) = (NIL, NIL);
        } else {
            self.back = self.body.ops[op as usize].prev;
        }
        Some(self.body.op_handle(op))
    }
}
