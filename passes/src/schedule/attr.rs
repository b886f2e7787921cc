//! `#rc.schedule<…>`: a nest's schedule as one reads it.
//!
//! ```text
//! #rc.schedule<kind = row, group = 0, collapse = [[b, s]], grid = [b_s], tile = {b_s = 1, j = 1024}, axes = [b_s, j], threads = 128>
//! ```
//!
//! The types say what there is to choose; text, checks and the reference page (`schedule.md`) follow from them.

use super::check::Place;
use super::knob::{Choice, Knob, Word, knobs};
use rc_ir::suggest::did_you_mean;
use rc_ir::{Attr, Name, OpRef, Result};
use rc_machine::Unit;

/// How a group of nests is run, with what is particular to it.
#[derive(Clone, PartialEq, Debug)]
pub enum Kind {
    /// Every element for itself.
    Pointwise,
    /// Reductions and scans along what is contiguous in memory, and all that shares their rows.
    Row(Row),
    /// Reductions across what is contiguous in memory.
    Column(Column),
    /// A matrix product and its epilogue.
    Contract(Contract),
    /// Attention: a program takes a block of queries of one head and walks over the keys.
    Attention(Attention),
    /// Updates of places that indices name.
    Scatter(Scatter),
    /// Rows in order.
    Sort,
    /// Any nest: one tile of results after another.
    General,
}

knobs! {
    /// What every schedule has.
    pub struct Common {
        /// Nests of one group, one after another, become one kernel.
        pub group: i64,
        /// Pairs of iterators that are run as one, in order; the pair `[i, j]` is called `i_j` from then on.
        pub collapse: Vec<[Name; 2]>,
        /// Parallel iterators that programs are spread over, the slowest first.
        pub grid: Vec<Name>,
        /// Elements of an iterator that are handled at once; 1 for those not named.
        pub tile: Vec<(Name, i64)>,
        /// Iterators that run along a tile's two dimensions (`_`: none does).
        pub axes: [Name; 2],
        /// Threads of a program; 1 on a CPU.
        pub threads: i64,
    }

    /// Of rows.
    #[derive(Default)]
    pub struct Row {
        /// Into how many parts, a power of two, what is reduced is cut. Each goes to a program of its own, and a second kernel combines them.
        pub split: Option<i64>,
        /// On a CPU: the nest's result, which others of its group read, is kept in memory of the program's own.
        pub keep: bool,
        /// On a GPU: programs that a multiprocessor holds at once, which bounds the registers of their threads.
        pub resident: Option<i64>,
    }

    /// Of columns.
    #[derive(Default)]
    pub struct Column {
        /// Into how many parts, a power of two, what is reduced is cut. Each goes to a program of its own, and a second kernel combines them.
        pub split: Option<i64>,
    }

    /// Of products.
    #[derive(Default)]
    pub struct Contract {
        /// On a CPU: how many elements of an iterator a program handles, one tile after another; of the iterator `inner`, how many at a time.
        pub block: Vec<(Name, i64)>,
        /// The reduce iterator that runs along the inner dimension of the product.
        pub inner: Option<Name>,
        /// Into how many parts, a power of two, the sums are cut. Each goes to a program of its own, and a second kernel combines them.
        pub split: Option<i64>,
        /// What multiplies: `wgmma` has one more warpgroup bring tiles to shared memory, while the others multiply.
        pub unit: Option<Unit>,
        /// On a GPU: tiles of operands in flight.
        pub stages: Option<i64>,
        /// Programs that are started at most; each handles one tile of results after another.
        pub programs: Option<i64>,
        /// On a GPU, with `wgmma`: how many programs are a cluster, with tiles that are neighbours along an iterator. What they read alike, each of them
        /// copies a part of for all.
        pub cluster: Vec<(Name, i64)>,
        /// On a GPU, with `wgmma`: how many times `threads` threads compute, each with tiles of their own, in turns: the epilogue of some runs beside the products
        /// of others.
        pub turns: Option<i64>,
        /// On a GPU, with `wgmma` and `programs`: how many boxes of 64 rows and columns that the epilogue reads each warpgroup has in shared memory at once, brought
        /// there ahead of it.
        pub epilogue_stages: Option<i64>,
        /// On a GPU, with `mma`: among how many warps of a program the sums are divided. Each brings what it multiplies from memory straight to its registers.
        pub parts: Option<i64>,
        /// On a CPU: the operands whose blocks are copied into memory of the program's own first, in the order in which they are used.
        pub pack: Vec<Operand>,
        /// On a GPU: the operands whose tiles are gathered into shared memory run by run, not copied as boxes of what lies in memory.
        pub gather: Vec<Operand>,
    }

    /// Of scatters.
    #[derive(Default)]
    pub struct Scatter {
        /// On a GPU: programs among which the updates of a slice are divided. Each combines its own in shared memory, and what comes of them with the result.
        pub programs: Option<i64>,
    }

    /// Of attention.
    #[derive(Default)]
    pub struct Attention {
        /// On a CPU: how many queries a program handles, one tile after another.
        pub block: Vec<(Name, i64)>,
        /// Among how many programs, a power of two, the keys of a query are split. A second kernel combines them.
        pub split: Option<i64>,
        /// On a GPU: what multiplies.
        pub unit: Option<Unit>,
        /// On a GPU: tiles of keys and values in flight.
        pub stages: Option<i64>,
        /// On a GPU: whether tiles of a bias come to shared memory with those of the keys.
        pub staged_bias: bool,
        /// On a GPU, with `wgmma`: programs that are started at most; each handles one block of queries after another.
        pub programs: Option<i64>,
    }
}

/// An operand of a product.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Operand {
    Left,
    Right,
}

impl Word for Operand {
    const WORDS: &'static [(Operand, &'static str)] = &[(Operand::Left, "left"), (Operand::Right, "right")];
    const FORM: &'static str = "a list of `left`, `right`";
}
impl Word for Unit {
    const WORDS: &'static [(Unit, &'static str)] = Unit::WORDS;
    const FORM: &'static str = "`fma`, `mma` or `wgmma`, or another unit of the machine's matrix instructions";
}

const PLAIN: &[&str] = &["pointwise", "row", "column", "contract", "attention", "scatter", "sort", "general"];

impl Kind {
    /// The names of all kinds.
    pub const WORDS: &'static [&'static str] = PLAIN;

    pub fn word(&self) -> &'static str {
        PLAIN[match self {
            Kind::Pointwise => 0,
            Kind::Row(_) => 1,
            Kind::Column(_) => 2,
            Kind::Contract(_) => 3,
            Kind::Attention(_) => 4,
            Kind::Scatter(_) => 5,
            Kind::Sort => 6,
            Kind::General => 7,
        }]
    }
    /// The kind of this name, with nothing chosen.
    pub fn named(word: &str) -> Option<Kind> {
        let all = [
            Kind::Pointwise,
            Kind::Row(Row::default()),
            Kind::Column(Column::default()),
            Kind::Contract(Contract::default()),
            Kind::Attention(Attention::default()),
            Kind::Scatter(Scatter::default()),
            Kind::Sort,
            Kind::General,
        ];
        all.into_iter().find(|kind| kind.word() == word)
    }
    /// What is particular to it.
    pub fn knobs(&self) -> &'static [Knob] {
        match self {
            Kind::Pointwise | Kind::Sort | Kind::General => &[],
            Kind::Row(_) => Row::KNOBS,
            Kind::Column(_) => Column::KNOBS,
            Kind::Contract(_) => Contract::KNOBS,
            Kind::Attention(_) => Attention::KNOBS,
            Kind::Scatter(_) => Scatter::KNOBS,
        }
    }
    fn set(&mut self, key: &str, value: Attr) -> bool {
        match self {
            Kind::Pointwise | Kind::Sort | Kind::General => false,
            Kind::Row(own) => own.set(key, value),
            Kind::Column(own) => own.set(key, value),
            Kind::Contract(own) => own.set(key, value),
            Kind::Attention(own) => own.set(key, value),
            Kind::Scatter(own) => own.set(key, value),
        }
    }
    fn params(&self) -> Vec<(&'static str, Attr)> {
        match self {
            Kind::Pointwise | Kind::Sort | Kind::General => Vec::new(),
            Kind::Row(own) => own.params(),
            Kind::Column(own) => own.params(),
            Kind::Contract(own) => own.params(),
            Kind::Attention(own) => own.params(),
            Kind::Scatter(own) => own.params(),
        }
    }
}

/// A nest's schedule. Nests of one `group` become one kernel.
#[derive(Clone, PartialEq, Debug)]
pub struct Schedule {
    pub kind: Kind,
    pub common: Common,
}

impl std::ops::Deref for Schedule {
    type Target = Common;
    fn deref(&self) -> &Common {
        &self.common
    }
}
impl std::ops::DerefMut for Schedule {
    fn deref_mut(&mut self) -> &mut Common {
        &mut self.common
    }
}

/// The word for "no iterator" in `axes`.
pub const NONE: &str = "_";

impl Schedule {
    pub fn new(kind: Kind) -> Schedule {
        let (none, tile) = ([Name::new(NONE); 2], Vec::new());
        let common = Common { group: 0, collapse: Vec::new(), grid: Vec::new(), tile, axes: none, threads: 1 };
        Schedule { kind, common }
    }
    pub fn tile_of(&self, name: Name) -> i64 {
        self.tile.iter().find(|t| t.0 == name).map_or(1, |t| t.1)
    }
    pub fn set_tile(&mut self, name: Name, size: i64) {
        self.tile.retain(|t| t.0 != name);
        self.tile.push((name, size));
    }
    /// The tile dimension along which the iterator runs.
    pub fn axis_of(&self, name: Name) -> Option<usize> {
        self.axes.iter().position(|&a| a == name)
    }
    /// The choices of a product.
    pub fn contract(&self) -> Option<&Contract> {
        if let Kind::Contract(own) = &self.kind { Some(own) } else { None }
    }
    /// Elements that a program handles of iterators, one tile after another.
    pub fn block(&self) -> &[(Name, i64)] {
        match &self.kind {
            Kind::Contract(own) => &own.block,
            Kind::Attention(own) => &own.block,
            _ => &[],
        }
    }
    /// The program's elements of an iterator, where it has a block.
    pub fn block_of(&self, name: Name) -> Option<i64> {
        self.block().iter().find(|b| b.0 == name).map(|b| b.1)
    }
    /// The parts into which what is reduced is cut.
    pub fn split(&self) -> Option<i64> {
        match &self.kind {
            Kind::Row(own) => own.split,
            Kind::Column(own) => own.split,
            Kind::Contract(own) => own.split,
            Kind::Attention(own) => own.split,
            _ => None,
        }
    }
    /// Programs that are started at most, each of which handles one tile after another.
    pub fn programs(&self) -> Option<i64> {
        match &self.kind {
            Kind::Contract(own) => own.programs,
            Kind::Attention(own) => own.programs,
            _ => None,
        }
    }
    /// Programs among which a scatter's updates are divided that combine their own in shared memory.
    pub fn scatter_programs(&self) -> Option<i64> {
        if let Kind::Scatter(own) = &self.kind { own.programs } else { None }
    }
    /// Programs that a multiprocessor holds at once.
    pub fn resident(&self) -> Option<i64> {
        if let Kind::Row(own) = &self.kind { own.resident } else { None }
    }
    /// What multiplies.
    pub fn unit(&self) -> Option<Unit> {
        match &self.kind {
            Kind::Contract(own) => own.unit,
            Kind::Attention(own) => own.unit,
            _ => None,
        }
    }
    /// Tiles of operands in flight.
    pub fn stages(&self) -> Option<i64> {
        match &self.kind {
            Kind::Contract(own) => own.stages,
            Kind::Attention(own) => own.stages,
            _ => None,
        }
    }
    /// Whether tiles of attention's bias come to shared memory.
    pub fn stages_bias(&self) -> bool {
        matches!(&self.kind, Kind::Attention(Attention { staged_bias: true, .. }))
    }
    /// The iterator along which a cluster's programs have tiles, and how many these are.
    pub fn cluster(&self) -> Option<(Name, i64)> {
        self.contract().and_then(|own| own.cluster.first().copied())
    }
    /// How many programs of a cluster have tiles that are neighbours along the iterator.
    pub fn cluster_along(&self, iter: Name) -> i64 {
        self.cluster().filter(|c| c.0 == iter).map_or(1, |c| c.1)
    }
    /// Whether a product packs its left or right operand.
    pub fn packs(&self, operand: Operand) -> bool {
        self.contract().is_some_and(|own| own.pack.contains(&operand))
    }
    /// Whether a product gathers its left or right operand.
    pub fn gathers(&self, operand: Operand) -> bool {
        self.contract().is_some_and(|own| own.gather.contains(&operand))
    }
    /// Whether the result stays in memory of the program's own.
    pub fn keeps(&self) -> bool {
        matches!(&self.kind, Kind::Row(Row { keep: true, .. }))
    }

    pub fn to_attr(&self) -> Attr {
        let mut params = vec![("kind", Attr::str(self.kind.word()))];
        params.extend(self.common.params());
        params.extend(self.kind.params());
        if self.tile.is_empty() {
            params.push(("tile", Attr::empty_dict()));
        }
        let order = |key: &str| ORDER.iter().position(|&o| o == key).unwrap_or(ORDER.len());
        params.sort_by_key(|p| order(p.0));
        Attr::dialect("schedule", &params)
    }

    /// Reads the schedule of a nest, as the schedule pass or a person wrote it.
    ///
    /// # Errors
    /// If there is none; what in it is unknown or malformed, with the caret there.
    pub fn read(op: OpRef) -> Result<Schedule> {
        let Some(attr) = op.attr("schedule") else {
            return Err(op.error("has no schedule").help("run the schedule pass before"));
        };
        let place = Place(op);
        let kinds = PLAIN.join(", ");
        let Some(params) = attr.as_dialect("schedule") else {
            return Err(op.error("expects its schedule to be #rc.schedule<…>").help(EXAMPLE));
        };
        let word = attr.get("kind").and_then(|k| k.as_str());
        let Some(kind) = word.and_then(Kind::named) else {
            let what = word.map_or("has a schedule without a kind".to_string(), |word| {
                format!("there is no schedule of the kind '{word}'{}", did_you_mean(word, PLAIN.iter().copied()))
            });
            return Err(place.error(word.unwrap_or("schedule"), what).help(format!("kinds: {kinds}")));
        };
        let mut out = Schedule::new(kind);
        for (key, value) in params.iter().filter(|p| p.0 != "kind") {
            let key = key.as_str();
            let all = || Common::KNOBS.iter().chain(out.kind.knobs());
            let Some(knob) = all().find(|knob| knob.name == key) else {
                let names: Vec<&str> = all().map(|knob| knob.name).collect();
                let near = did_you_mean(key, names.iter().copied());
                let what = format!("a schedule of the kind '{}' has no '{key}'{near}", out.kind.word());
                return Err(place.error(key, what).help(format!("it has {}", names.join(", "))));
            };
            let form = knob.form;
            if !out.common.set(key, *value) && !out.kind.set(key, *value) {
                return Err(place.error(key, format!("'{key}' of a schedule is {form}")).help(EXAMPLE));
            }
        }
        for key in ["grid", "tile", "axes"] {
            if attr.get(key).is_none() {
                return Err(place.error("schedule", format!("has a schedule without '{key}'")).help(EXAMPLE));
            }
        }
        out.check_values(&place)?;
        Ok(out)
    }
}

const EXAMPLE: &str =
    "as in #rc.schedule<kind = row, group = 0, grid = [i], tile = {i = 1, j = 1024}, axes = [i, j], threads = 128>";

/// In which order a reader wants them.
const ORDER: &[&str] = &[
    "kind",
    "group",
    "collapse",
    "grid",
    "tile",
    "axes",
    "block",
    "inner",
    "threads",
    "split",
    "unit",
    "stages",
    "staged_bias",
    "programs",
    "cluster",
    "turns",
    "epilogue_stages",
    "pack",
    "gather",
    "keep",
    "resident",
];

/// The reference page of schedules.
pub fn reference() -> String {
    let mut out = String::from(
        "# Schedules\n\nA nest's `schedule` attribute says how it is run; `schedule` writes it, and one that is there is applied as it is written.\n\n",
    );
    let mut table = |title: &str, doc: &str, knobs: &[Knob]| {
        out.push_str(&format!("## {title}\n\n{doc}\n\n"));
        if !knobs.is_empty() {
            out.push_str("| | is | |\n|---|---|---|\n");
            knobs.iter().for_each(|k| out.push_str(&format!("| `{}` | {} | {} |\n", k.name, k.form, k.doc.trim())));
            out.push('\n');
        }
    };
    table("All kinds", "`kind` names the kind; `grid`, `tile` and `axes` must be there.", Common::KNOBS);
    for (word, doc) in PLAIN.iter().zip(DOCS) {
        table(&format!("`{word}`"), doc, Kind::named(word).expect("all are named").knobs());
    }
    out.truncate(out.trim_end().len());
    out + "\n"
}

const DOCS: [&str; 7] = [
    "Every element for itself.",
    "Reductions and scans along what is contiguous in memory, and all that shares their rows.",
    "Reductions across what is contiguous in memory.",
    "A matrix product and its epilogue.",
    "A program takes a block of queries of one head and walks over the keys.",
    "Updates of places that indices name.",
    "Any nest: one tile of results after another.",
];
