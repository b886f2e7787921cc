//! `#rc.schedule<…>`: a nest's schedule as one reads it.
//!
//! ```text
//! #rc.schedule<kind = row, group = 0, collapse = [[b, s]], grid = [b_s], tile = {b_s = 1, j = 1024}, axes = [b_s, j], threads = 128>
//! ```

use rc_ir::{Attr, Name, OpRef, Result};

/// How a group of nests is run.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// Every element for itself.
    Pointwise,
    /// Reductions along what is contiguous in memory, and all that shares their rows.
    Row,
    /// Reductions across it.
    Column,
    /// A matrix product and its epilogue.
    Contract,
    Attention,
    Scatter,
    /// Any nest: one tile of results after another.
    General,
}

const KINDS: &[(Kind, &str)] = &[
    (Kind::Pointwise, "pointwise"),
    (Kind::Row, "row"),
    (Kind::Column, "column"),
    (Kind::Contract, "contract"),
    (Kind::Attention, "attention"),
    (Kind::Scatter, "scatter"),
    (Kind::General, "general"),
];

impl Kind {
    pub fn word(self) -> &'static str {
        KINDS.iter().find(|k| k.0 == self).expect("every kind has a word").1
    }
}

/// A nest's schedule. Nests of one `group` become one kernel.
#[derive(Clone, PartialEq, Debug)]
pub struct Schedule {
    pub kind: Kind,
    pub group: i64,
    /// Pairs of iterators that are run as one, in order; the pair `[i, j]` is called `i_j` from then on.
    pub collapse: Vec<[Name; 2]>,
    /// Parallel iterators that programs are spread over, the slowest first.
    pub grid: Vec<Name>,
    /// Elements of an iterator that are handled at once; 1 for those not named.
    pub tile: Vec<(Name, i64)>,
    /// Iterators that run along a tile's two dimensions (`_`: none does).
    pub axes: [Name; 2],
    /// Contraction and attention on the CPU: how many elements of an iterator a program handles, one tile after another; of the
    /// iterator `inner`, how many at a time.
    pub block: Vec<(Name, i64)>,
    /// Contraction: the reduce iterator that runs along the inner dimension of the product.
    pub inner: Option<Name>,
    pub threads: i64,
    /// Reductions: into how many parts, a power of two, what is reduced is cut. Each goes to a program of its own, and
    /// a second kernel combines them.
    pub split: Option<i64>,
    /// Contraction: `fma`, `mma` or `wgmma`.
    pub unit: Option<&'static str>,
    /// Contraction: tiles of operands in flight.
    pub stages: Option<i64>,
    /// Contraction: programs that are started at most; each handles one tile of results after another.
    pub programs: Option<i64>,
    /// Contraction on the CPU: the operands (`left`, `right`) whose blocks are copied into memory of the program's own first, in
    /// the order in which they are used.
    pub pack: Vec<&'static str>,
    /// Contraction on a GPU: the operands (`left`, `right`) whose tiles are gathered into shared memory run by run, not copied as
    /// boxes of what lies in memory.
    pub gather: Vec<&'static str>,
    /// Rows on the CPU: whether the nest's result, which others of its group read, is kept in memory of the program's own.
    pub keep: bool,
}

/// The operands that a product may pack or gather.
const OPERANDS: [&str; 2] = ["left", "right"];

/// The word for "no iterator" in `axes`.
pub const NONE: &str = "_";

impl Schedule {
    pub fn new(kind: Kind) -> Schedule {
        Schedule {
            kind,
            group: 0,
            collapse: Vec::new(),
            grid: Vec::new(),
            tile: Vec::new(),
            axes: [Name::new(NONE); 2],
            block: Vec::new(),
            inner: None,
            threads: 1,
            split: None,
            unit: None,
            stages: None,
            programs: None,
            pack: Vec::new(),
            gather: Vec::new(),
            keep: false,
        }
    }
    pub fn tile_of(&self, name: Name) -> i64 {
        self.tile.iter().find(|t| t.0 == name).map_or(1, |t| t.1)
    }
    pub fn set_tile(&mut self, name: Name, size: i64) {
        self.tile.retain(|t| t.0 != name);
        self.tile.push((name, size));
    }
    /// The program's elements of an iterator, where it has a block.
    pub fn block_of(&self, name: Name) -> Option<i64> {
        self.block.iter().find(|b| b.0 == name).map(|b| b.1)
    }
    /// Whether a product packs its `left` or `right` operand.
    pub fn packs(&self, operand: &str) -> bool {
        self.pack.contains(&operand)
    }
    /// Whether a product gathers its `left` or `right` operand.
    pub fn gathers(&self, operand: &str) -> bool {
        self.gather.contains(&operand)
    }
    /// The tile dimension along which the iterator runs.
    pub fn axis_of(&self, name: Name) -> Option<usize> {
        self.axes.iter().position(|&a| a == name)
    }

    pub fn to_attr(&self) -> Attr {
        let words = |names: &[Name]| Attr::array(&names.iter().map(|n| Attr::str(n.as_str())).collect::<Vec<_>>());
        let mut params = vec![("kind", Attr::str(self.kind.word())), ("group", Attr::i64(self.group))];
        if !self.collapse.is_empty() {
            params.push(("collapse", Attr::array(&self.collapse.iter().map(|p| words(p)).collect::<Vec<_>>())));
        }
        params.push(("grid", words(&self.grid)));
        params.push(("tile", sizes(&self.tile)));
        params.push(("axes", words(&self.axes)));
        if !self.block.is_empty() {
            params.push(("block", sizes(&self.block)));
        }
        params.extend(self.inner.map(|n| ("inner", Attr::str(n.as_str()))));
        params.push(("threads", Attr::i64(self.threads)));
        params.extend(self.split.map(|n| ("split", Attr::i64(n))));
        params.extend(self.unit.map(|u| ("unit", Attr::str(u))));
        params.extend(self.stages.map(|n| ("stages", Attr::i64(n))));
        params.extend(self.programs.map(|n| ("programs", Attr::i64(n))));
        for (name, operands) in [("pack", &self.pack), ("gather", &self.gather)] {
            if !operands.is_empty() {
                params.push((name, Attr::array(&operands.iter().map(|&w| Attr::str(w)).collect::<Vec<_>>())));
            }
        }
        params.extend(self.keep.then(|| ("keep", Attr::bool(true))));
        Attr::dialect("schedule", &params)
    }

    /// Reads the schedule of a nest, as the schedule pass or a person wrote it.
    ///
    /// # Errors
    /// If there is none, or if it has an unknown kind or a malformed field.
    pub fn read(op: OpRef) -> Result<Schedule> {
        let Some(attr) = op.attr("schedule") else {
            return Err(op.error("has no schedule").help("run the schedule pass before"));
        };
        parse(attr).ok_or_else(|| {
            let kinds: Vec<&str> = KINDS.iter().map(|k| k.1).collect();
            op.error("has a malformed schedule").help(format!(
                "as in #rc.schedule<kind = row, group = 0, grid = [i], tile = {{i = 1, j = 1024}}, axes = [i, j], threads = 128>; kinds: {}",
                kinds.join(", ")
            ))
        })
    }
}

fn parse(attr: Attr) -> Option<Schedule> {
    let word = attr.get("kind")?.as_str()?;
    let mut out = Schedule::new(KINDS.iter().find(|k| k.1 == word)?.0);
    let names = |a: Attr| -> Option<Vec<Name>> { a.as_array()?.iter().map(|n| n.as_str().map(Name::new)).collect() };
    let int = |key: &str| attr.get(key).map(|a| a.as_int().filter(|&n| n >= 0));
    out.group = int("group").unwrap_or(Some(0))?;
    if let Some(pairs) = attr.get("collapse") {
        let pairs = pairs.as_array()?.iter().map(|&p| names(p)?.try_into().ok());
        out.collapse = pairs.collect::<Option<Vec<[Name; 2]>>>()?;
    }
    out.grid = names(attr.get("grid")?)?;
    out.tile = parse_sizes(attr.get("tile")?)?;
    out.axes = names(attr.get("axes")?)?.try_into().ok()?;
    out.threads = int("threads").unwrap_or(Some(1))?;
    out.block = attr.get("block").map_or(Some(Vec::new()), parse_sizes)?;
    out.stages = int("stages").map_or(Some(None), |n| n.map(Some))?;
    out.programs = int("programs").map_or(Some(None), |n| n.map(Some))?;
    out.split = int("split").map_or(Some(None), |n| n.filter(|n| n.count_ones() == 1).map(Some))?;
    let operand = |a: &Attr| OPERANDS.into_iter().find(|o| Some(*o) == a.as_str());
    let operands = |key: &str| attr.get(key).map_or(Some(Vec::new()), |a| a.as_array()?.iter().map(operand).collect());
    (out.pack, out.gather) = (operands("pack")?, operands("gather")?);
    out.keep = attr.get("keep").map_or(Some(false), |a| a.as_bool())?;
    out.inner = attr.get("inner").map(|a| a.as_str().map(Name::new)).map_or(Some(None), |n| n.map(Some))?;
    out.unit = attr.get("unit").map(|a| a.as_str()).map_or(Some(None), |n| n.map(Some))?;
    Some(out)
}

/// `{i = 6, j = 16}`.
fn sizes(list: &[(Name, i64)]) -> Attr {
    Attr::dict(list.iter().map(|&(name, size)| (name, Attr::i64(size))))
}
fn parse_sizes(attr: Attr) -> Option<Vec<(Name, i64)>> {
    attr.as_dict()?.iter().map(|e| Some((e.0, e.1.as_int().filter(|&n| n > 0)?))).collect()
}
