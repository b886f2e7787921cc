//! Products on the CPU, by blocks that stay in its caches: what is multiplied at a time lies in the program's own memory, in
//! the order in which it is used, the right operand's panel in the first-level cache and the left operand's block in the second.

use super::access::Iter;
use super::attr::{Contract, Kind, Operand, Schedule};
use super::contract::{Problem, limit};
use super::group::Group;
use super::nest::Nest;
use super::roles::Roles;
use super::{Candidate, Cost, Plan};
use rc_dialects::kernel::word_width;
use rc_ir::{Body, Dim, Name, Type};
use rc_machine::{CpuProducts, Matrix, Target, Unit};

/// What a schedule chooses.
#[derive(Clone, Copy, PartialEq, Debug)]
struct Choice {
    /// Elements of m, n and k in a program's block.
    block: [i64; 3],
    /// Whether the left and the right operand are packed.
    pack: [bool; 2],
}

/// The problem as the model sees it.
#[derive(Clone, Copy)]
struct Model<'a> {
    target: &'a Target,
    /// Extents of m, n and k, points of the iterators that are summed over one by one, and of the batch.
    sizes: [i64; 3],
    outer: f64,
    batch: f64,
    /// Elementary functions that each result goes through.
    functions: f64,
    /// The tile of results in registers.
    tile: [i64; 2],
    lanes: f64,
    /// Bytes of an accumulated element.
    bytes: i64,
    /// Whether the left and the right operand lie along k, and whether they must be converted.
    along_k: [bool; 2],
    converts: [bool; 2],
    /// Whether the right operand lies in panels of a tile's columns already.
    panels: bool,
    /// Elements along k that are multiplied at once: sizes and blocks of k count such words.
    word: i64,
    /// The instruction that multiplies: rows, columns and words of one, and its cycles.
    unit: Unit,
    shape: [i64; 3],
    instruction: f64,
    /// Where rows of the left operand are windows: how many elements of k are neighbours.
    run: Option<i64>,
    /// Where a tile's windows are read in place: elements of memory from one to the next. Else they are gathered as they are packed.
    distance: Option<i64>,
}

pub fn plan(body: &Body, group: &Group, p: &Problem, target: &Target) -> Plan {
    let models = models(body, group, p, target);
    let of_model = |model: &Model| model.choices().into_iter().map(|c| (model.cost(&c), c)).collect::<Vec<_>>();
    let mut ranked: Vec<(Cost, Choice, &Model)> =
        models.iter().flat_map(|model| of_model(model).into_iter().map(move |(cost, c)| (cost, c, model))).collect();
    ranked.sort_by(|a, b| a.0.us.total_cmp(&b.0.us));
    let candidate = |(cost, choice, model): &(Cost, Choice, &Model)| {
        let [mr, nr] = model.tile;
        let packed = [Operand::Left, Operand::Right].into_iter().zip(choice.pack).filter(|o| o.1);
        let [m, n, k] = choice.block;
        let own = Contract {
            block: vec![(p.roles.m, m), (p.roles.n, n), (p.roles.k, k * model.word)],
            unit: Some(model.unit),
            pack: packed.map(|o| o.0).collect(),
            ..Contract::default()
        };
        let mut s = Schedule::new(Kind::Contract(own));
        s.tile = vec![(p.roles.m, mr), (p.roles.n, nr), (p.roles.k, model.word)];
        let what = format!(
            "{mr} x {nr} results in registers, {}, {:.0} programs on {} cores",
            model.describe(choice),
            model.programs(choice),
            target.cores
        );
        Candidate { schedules: vec![s], what, cost: Some(*cost) }
    };
    let title = format!("{:.1} us at the peak of arithmetic, ", ranked[0].2.floor());
    Plan::of_model(title, ranked.iter().take(MOST).map(candidate).collect(), "no other block")
}

/// The instruction that multiplies words of the factors, if the machine has one.
fn words<'a>(p: &Problem, target: &'a Target) -> Option<&'a Matrix> {
    let [left, right] = p.factors;
    target.words(left, p.acc).filter(|_| left == right)
}

/// The instruction that multiplies tiles of the factors' words.
fn tiles<'a>(p: &Problem, target: &'a Target) -> Option<&'a Matrix> {
    let [left, right] = p.factors;
    target.tiles(left, p.acc).filter(|_| left == right)
}

/// The columns of a panel whose tiles an instruction multiplies, of an operand of `n` columns.
pub fn tile_columns(instruction: &Matrix, n: i64) -> i64 {
    let one = instruction.shape[1];
    if n <= one { one } else { 2 * one }
}

/// The operand of a product that is its right factor, in panels of words, with the columns of a panel and the elements of a word.
pub fn word_panels(body: &Body, nest: &Nest, roles: &Roles) -> Option<(usize, i64, i64)> {
    let op = body.op_ref(nest.op);
    let entry = op.entry(0)?;
    let factor = body.operand(body.last_op(entry)?, 1 - roles.left);
    let operand = body.block_args(entry).position(|arg| arg == factor)?;
    let (columns, width) = nest.inputs[operand].word_panels(roles.n, roles.k)?;
    Some((operand, columns, width))
}

/// The ways in which the factors may lie and be multiplied.
fn models<'a>(body: &Body, group: &Group, p: &Problem, target: &'a Target) -> Vec<Model<'a>> {
    let nest = &group.nests[0];
    let lanes = target.lanes(p.acc);
    let in_words = word_panels(body, nest, &p.roles).map(|(_, columns, width)| (columns, width));
    let in_words = in_words.filter(|words| words.0 % lanes == 0);
    let given = nest.inputs.iter().find_map(|access| access.panels(p.roles.n)).or(in_words.map(|words| words.0));
    let vectors = given.map(|columns| columns / lanes).filter(|v| VECTORS.contains(v));
    let rows = p.m.extent.as_static();
    let tile = |spare: i64, rows_fit: &dyn Fn(i64) -> bool| {
        let registers = target.registers - spare;
        let [mr, nr] = register_tile(
            [rows, Some(p.sizes[1] as i64)],
            [lanes, registers],
            &target.cpu().products,
            vectors.as_slice(),
            rows_fit,
        )?;
        let (mr, nr) = limit(group, p, mr, nr, target);
        Some([mr, nr])
    };
    let packing = Model {
        target,
        sizes: p.sizes.map(|n| n as i64),
        outer: p.outer,
        batch: p.batch,
        functions: p.functions,
        tile: tile(0, &|_| true).expect("there are tiles of any number of rows"),
        lanes: lanes as f64,
        bytes: p.acc.byte_width().unwrap_or(4) as i64,
        along_k: [p.roles.left, 1 - p.roles.left].map(|which| p.roles.lies_along_k(nest, which)),
        converts: [p.roles.left, 1 - p.roles.left].map(|which| p.factors[which] != p.acc),
        panels: false,
        word: 1,
        unit: Unit::Fma,
        shape: [1, lanes, 1],
        instruction: 0.5,
        run: gathered_run(nest, p.roles.m, p.roles.k, None),
        distance: None,
    };
    let distance = |rows: i64| by_rows(nest, p.roles.m, p.roles.k, rows).map(|windows| windows.distance);
    let in_place = packing.run.and_then(|_| tile(0, &|rows| distance(rows).is_some()));
    let in_place = in_place.and_then(|tile| Some(Model { tile, distance: Some(distance(tile[0])?), ..packing }));
    let [_, _, k] = packing.sizes;
    let in_units = |m: &Matrix, tile: [i64; 2]| {
        let word = word_width(p.factors[0]).filter(|_| tile[1] % 4 == 0)?;
        let sizes = [packing.sizes[0], packing.sizes[1], (k + word - 1) / word];
        let run = packing.run.map(|run| run / word);
        let shape = [m.shape[0], m.shape[1], m.shape[2] / word];
        let (unit, instruction, converts) = (m.unit, m.cycles, [false; 2]);
        Some(Model { tile, sizes, word, run, unit, shape, instruction, converts, ..packing })
    };
    let of_words = words(p, target).and_then(|m| {
        // Sums of unsigned bytes are put right by those of the columns.
        let spare = if m.unit == Unit::Vnni { VECTORS[0] } else { 0 };
        in_units(m, tile(spare, &|_| true)?)
    });
    let of_tiles = tiles(p, target).and_then(|m| {
        let size = |extent: i64, one: i64| if extent <= one { one } else { 2 * one };
        let given = in_words.map(|words| words.0);
        let columns = given.unwrap_or_else(|| tile_columns(m, packing.sizes[1]));
        let tile = [size(rows.unwrap_or(i64::MAX), m.shape[0]), columns];
        let whole = packing.run.is_none() || k % m.shape[2] == 0;
        let fits =
            whole && columns == size(columns, m.shape[1]) && limit(group, p, tile[0], tile[1], target) == tile.into();
        in_units(m, tile).filter(|_| fits)
    });
    let models: Vec<Model> = match in_words {
        Some((_, width)) if [of_words, of_tiles].iter().flatten().any(|model| model.word == width) => {
            [of_words, of_tiles].into_iter().flatten().collect()
        }
        _ => [Some(packing), in_place, of_words, of_tiles].into_iter().flatten().collect(),
    };
    let with_panels = |model: Model<'a>| {
        let fits = in_words.map_or(1, |words| words.1) == model.word;
        Model { panels: fits && given == Some(model.tile[1]), ..model }
    };
    models.into_iter().map(with_panels).collect()
}

/// Bytes of a line of the caches.
pub(super) const LINE: i64 = 64;
/// Candidates that are kept: a bound of the plan's size. Tuning takes the first 8.
const MOST: usize = 64;

impl Model<'_> {
    fn describe(&self, choice: &Choice) -> String {
        let ([m, n, k], windows) = (choice.block, self.distance.is_some());
        let packed = match choice.pack {
            [false, true] if windows => "the right operand packed, windows read in place",
            [false, false] if windows => "windows read in place",
            [true, true] => "both operands packed",
            [true, false] => "the left operand packed",
            [false, true] => "the right operand packed",
            [false, false] => "operands read in place",
        };
        let words = if self.word > 1 { format!(", in words of {}", self.word) } else { String::new() };
        format!("blocks of {m} x {n} x {}, {packed}{words}", k * self.word)
    }
}

/// Parts into which a program's blocks may divide an extent.
const PARTS: &[i64] = &[1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 512, 1024];

impl Model<'_> {
    fn choices(&self) -> Vec<Choice> {
        let [m, n, k] = self.sizes;
        let depth = self.costs().depth;
        let blocks = |extent: i64, tile: i64, parts: &[i64]| {
            let size = |parts: &i64| ((extent + parts - 1) / parts + tile - 1) / tile * tile;
            let mut sizes: Vec<i64> = parts.iter().map(size).chain([tile]).collect();
            sizes.dedup();
            sizes
        };
        // A panel of the right operand fills a quarter or half of the first-level cache, packed or in place.
        let packed = self.tile[1] * self.bytes;
        let in_lines = packed + self.beyond(LINE);
        let depths = [(4, packed), (2, packed), (4, in_lines), (2, in_lines)]
            .map(|(part, row)| (self.target.shared_bytes / part / row).clamp(self.lanes as i64, depth));
        // Panels that no call packs arrive ahead of their use from any cache: what a block costs besides its products is then the largest loss.
        let longest = if self.panels || self.distance.is_some() { 2 * depth } else { depth };
        // Rows that are read in place are read the faster the longer they are.
        let in_place = if self.run.is_none() { self.costs().depth_in_place.max(longest) } else { longest };
        let k_parts: Vec<i64> =
            depths.into_iter().chain([longest, in_place]).map(|depth| (k + depth - 1) / depth).collect();
        let mut out = Vec::new();
        for block_m in blocks(m, self.tile[0], PARTS) {
            for block_n in blocks(n, self.tile[1], PARTS) {
                for block_k in blocks(k, self.run.unwrap_or(1).max(self.lanes as i64), &k_parts) {
                    let block = [block_m, block_n, block_k];
                    let packs = [[true, true], [true, false], [false, true], [false, false]];
                    out.extend(
                        packs.map(|pack| Choice { block, pack }).into_iter().filter(|c| !(self.panels && c.pack[1])),
                    );
                }
            }
        }
        let made_words = |c: &Choice| self.word == 1 || (c.pack[0] && (c.pack[1] || self.panels));
        let whole = |c: &Choice| c.block[2] % self.shape[2] == 0 || c.block[2] >= k;
        let short = |c: &Choice| !c.pack[0] || c.block[2] < longest + self.lanes as i64;
        out.retain(|c| {
            self.memory(c) <= self.costs().memory_bytes && (self.run.is_none() || c.pack[0] != self.distance.is_some())
        });
        out.retain(|c| made_words(c) && whole(c) && short(c));
        out
    }
    fn costs(&self) -> &CpuProducts {
        &self.target.cpu().products
    }
    fn memory(&self, c: &Choice) -> i64 {
        let [m, n, k] = c.block;
        let panels = i64::from(c.pack[0]) * m * k + i64::from(c.pack[1]) * n * k;
        (panels + if self.steps(c) > 1.0 { m * n } else { 0 }) * self.bytes
    }
    /// How often a program goes over its tiles of results.
    fn steps(&self, c: &Choice) -> f64 {
        self.outer * (self.sizes[2] as f64 / c.block[2] as f64).ceil()
    }
    fn parts(&self, c: &Choice) -> [f64; 2] {
        [0, 1].map(|i| (self.sizes[i] as f64 / c.block[i] as f64).ceil())
    }
    fn programs(&self, c: &Choice) -> f64 {
        self.batch * self.parts(c).iter().product::<f64>()
    }
    /// Cycles of a core in a microsecond, by its peak of two multiply-adds a cycle.
    fn cycles(&self) -> f64 {
        let lanes = self.target.lanes(Type::f32()) as f64;
        self.target.flops_f32 * 1e6 / self.target.cores as f64 / (4.0 * lanes)
    }
    /// Bytes that a core reads from memory in a cycle.
    fn rate(&self) -> f64 {
        self.target.bandwidth * 1e3 / self.target.cores as f64 / self.cycles()
    }
    /// Microseconds of the products alone.
    fn floor(&self) -> f64 {
        let products = self.sizes.iter().map(|&n| n as f64).product::<f64>() * self.outer * self.batch;
        let at_once = self.shape.iter().map(|&n| n as f64).product::<f64>();
        products / at_once * self.instruction / self.target.cores as f64 / self.cycles()
    }
    /// Whether the right operand's rows are read where they lie.
    fn right_in_place(&self, c: &Choice) -> bool {
        !c.pack[1] && !self.panels
    }
    /// Bytes by which `length` of a row of the right operand that is read in place lie in one more line, on the average of where a row may start in a
    /// line: rows are at a distance that may be no whole number of lines.
    fn beyond(&self, length: i64) -> i64 {
        let row = self.sizes[1] * self.bytes;
        if self.along_k[1] || row == 0 { 0 } else { (length - (row & -row)).clamp(0, LINE) }
    }
    /// Bytes of the first-level cache that a panel of the right operand takes.
    fn panel_bytes(&self, c: &Choice) -> i64 {
        let row = self.tile[1] * self.bytes;
        c.block[2] * (row + if self.right_in_place(c) { self.beyond(LINE) } else { 0 })
    }
    /// Cycles of a tile's multiply-adds, of loading what they multiply, two vectors a cycle, and of a sum's chain, for each word along k.
    fn step(&self, c: &Choice) -> f64 {
        let [rows, columns, words] = self.shape.map(|n| n as f64);
        let (mr, nr) = (self.tile[0] as f64 / rows, self.tile[1] as f64 / columns);
        let chain = if self.unit == Unit::Amx { 0.0 } else { self.costs().latency };
        // A vector in two lines is loaded twice.
        let vector = (columns as i64 * self.bytes).min(LINE);
        let twice = if self.right_in_place(c) { nr * self.beyond(vector) as f64 / LINE as f64 } else { 0.0 };
        let delay = if self.unit == Unit::Amx { 0.0 } else { delay(self.costs(), [mr, nr]) };
        let loads = (mr + nr + twice) * rows / 2.0;
        ((mr * nr * self.instruction).max(loads) + delay).max(chain) / words
    }

    /// Counted in cycles of instructions on vectors.
    fn cost(&self, c: &Choice) -> Cost {
        let costs = self.costs();
        let [mr, nr] = self.tile.map(|n| n as f64);
        let vectors = nr / self.lanes;
        let tiles = [self.sizes[0] as f64 / mr, self.sizes[1] as f64 / nr].map(f64::ceil);
        let sums = self.sizes[2] as f64 * self.outer;
        let steps = self.steps(c);
        let mut step = self.step(c) + self.reads(c);
        if !self.panels && self.panel_bytes(c) * 4 > self.target.shared_bytes * 3 {
            // The right operand's panel comes from the second-level cache.
            step = (step * costs.right_second).max(vectors / costs.right_rate);
        }
        let products = tiles[0] * tiles[1] * (sums * step + steps * (costs.tile + self.starts(c)));
        let [m_parts, n_parts] = self.parts(c);
        let [left, right] = self.packing(c);
        let packing = sums
            * (if c.pack[0] { left * tiles[0] * n_parts } else { 0.0 }
                + if c.pack[1] { right * tiles[1] * m_parts } else { 0.0 });
        // Panels come from memory for each block of rows.
        let streamed = if self.panels { sums * tiles[1] * nr * m_parts * self.bytes as f64 / self.rate() } else { 0.0 };
        // The first of several blocks only leaves its sums, the last one only takes them.
        let waits = if self.outer > 1.0 { steps + 1.0 } else { steps - 1.0 };
        let far = 2.0 * self.lanes * self.bytes as f64 / costs.third_rate;
        let wait = costs.wait + if 2 * self.memory(c) > self.target.cache_bytes { far } else { 0.0 };
        let waiting = tiles[0] * tiles[1] * waits * wait * mr * vectors;
        let functions = tiles[0] * tiles[1] * mr * vectors * self.functions * costs.function;
        let programs = self.programs(c);
        let again = (self.read_again(c) + self.right_again(c)) / costs.third_rate
            + costs.beyond_last * self.read_from_memory(c) / self.rate();
        let each =
            (products + packing + streamed + waiting + functions) * self.batch / programs + again + costs.program;
        // Cores take programs as they get done, and the last one is waited for.
        let turns = (programs / self.target.cores as f64).ceil();
        let parts = [
            ("arithmetic", products),
            ("packing", packing),
            ("memory", streamed),
            ("operands from beyond the cache", again * programs / self.batch),
            ("sums that wait", waiting),
            ("functions of the results", functions),
            ("starting programs", costs.program * programs / self.batch),
        ];
        let bound = match programs < self.target.cores as f64 {
            true => "idle cores",
            false => Cost::longest(parts).bound,
        };
        Cost { us: each * (turns + costs.last) / self.cycles(), bound }
    }
    /// Bytes of the left operand that a program reads from beyond the second-level cache as it multiplies: of each panel of columns anew, where the
    /// block does not stay in the cache beside what else is used.
    fn read_again(&self, c: &Choice) -> f64 {
        let ([m, n, k], steps) = (c.block, self.steps(c));
        let beside = if self.panels { self.tile[1] * k } else { n * k } + if steps > 1.0 { m * n } else { 0 };
        let stays = |elements: f64| (elements + beside as f64) * self.bytes as f64 <= self.room();
        let panels = (n / self.tile[1]) as f64;
        // Elements of a row that the row before does not have: windows overlap.
        let own = self.distance.map_or(self.sizes[2] as f64 * self.outer, |distance| distance as f64);
        let block = m as f64 * own.min(k as f64);
        let elements = match (c.pack[0], self.distance.is_some()) {
            (true, _) if stays(block) => 0.0,
            (true, _) => block * steps * (panels - 1.0),
            (false, _) if stays(self.sizes[0] as f64 * own) => 0.0,
            (false, true) if stays(m as f64 * own) => m as f64 * own,
            (false, _) if stays(block) => block * steps,
            (false, _) => block * steps * panels,
        };
        elements * self.bytes as f64
    }
    /// Bytes that a program reads from memory, of operands that do not stay in the last-level cache from one program to the next.
    fn read_from_memory(&self, c: &Choice) -> f64 {
        let sums = self.sizes[2] as f64 * self.outer;
        let lengths = [self.distance.map_or(sums, |distance| distance as f64), if self.panels { 0.0 } else { sums }];
        let bytes = |i: usize, count: i64| count as f64 * lengths[i] * self.bytes as f64;
        let read = |i: usize| bytes(i, self.sizes[i]) > self.target.last_bytes as f64;
        (0..2).filter(|&i| read(i)).map(|i| bytes(i, c.block[i])).sum()
    }
    /// Bytes that stay in the second-level cache: pages that are anywhere in memory do not fill all of its sets alike.
    fn room(&self) -> f64 {
        0.75 * self.target.cache_bytes as f64
    }
    /// Bytes of the right operand that a program reads where they lie beyond the second-level cache, counted where its multiply-adds do not hide them.
    fn right_again(&self, c: &Choice) -> f64 {
        let sums = self.sizes[2] as f64 * self.outer;
        let whole = self.sizes[1] as f64 * sums * self.bytes as f64;
        if !self.right_in_place(c) || whole <= self.room() {
            return 0.0;
        }
        self.costs().right_beyond * c.block[1] as f64 * sums * self.bytes as f64
    }
    /// Cycles of a tile until the rows of the left operand that it reads in place arrive ahead of their use: those on pages of their own, from
    /// further away than the second-level cache. A program's first columns find them furthest away.
    fn starts(&self, c: &Choice) -> f64 {
        let apart = self.sizes[2] * self.bytes;
        // Rows at a distance with a large power of two have few sets of the cache.
        let row = (c.block[2] * self.bytes).max(apart & -apart);
        let near = 2 * c.block[0] * row <= self.target.cache_bytes;
        if c.pack[0] || near || self.run.is_some() || !self.along_k[0] {
            return 0.0;
        }
        let pages = apart as f64 / self.target.cpu().page_bytes as f64;
        let columns = (c.block[1] / self.tile[1]) as f64;
        self.costs().left_start * self.tile[0] as f64 * pages.min(1.0) * (1.0 + 1.0 / columns) / 2.0
    }
    /// Cycles that reading operands in place costs more for each step of a tile.
    fn reads(&self, c: &Choice) -> f64 {
        let [mr, nr] = self.tile.map(|n| n as f64);
        let vectors = nr / self.lanes;
        let (costs, mut extra) = (self.costs(), 0.0);
        if !c.pack[0] {
            extra += if self.along_k[0] || self.distance.is_some() { 0.0 } else { costs.left_across * mr };
            extra += self.distance.and(self.run).map_or(0.0, |run| costs.run / run as f64);
            extra += if self.converts[0] { mr } else { 0.0 };
        }
        if self.right_in_place(c) {
            // Every step is in another line, of long rows on another page, unless all of them stay in the first-level cache.
            let row = self.sizes[1] * self.bytes;
            let rows = c.block[2].min(self.sizes[2]);
            let far = row >= costs.right_far_bytes && row * rows > self.target.shared_bytes;
            extra += match (self.along_k[1], far) {
                (true, _) => nr,
                (false, true) => costs.right_far * vectors,
                (false, false) => costs.right_near * vectors,
            };
            extra += if self.converts[1] { vectors } else { 0.0 };
        }
        extra
    }
    /// Cycles of packing a tile's elements of the left and of the right operand, for each place of the sums: elements come from
    /// far away, those of a new row from another page, and go to cache lines of their own panels.
    fn packing(&self, c: &Choice) -> [f64; 2] {
        let costs = self.costs();
        let cycles = |i: usize, turns: bool| {
            let near = c.block[i] * c.block[2] * self.bytes * 2 <= self.target.cache_bytes;
            let row = match (self.along_k[i], self.run.filter(|_| i == 0)) {
                (_, Some(run)) => run,
                (true, None) => c.block[2],
                (false, None) => c.block[i],
            };
            let converted = if self.converts[i] { 1.0 / self.lanes } else { 0.0 };
            let turn = if self.word > 1 { costs.turn_word } else { costs.turn };
            let turned = if turns { turn } else { 0.0 };
            self.tile[i] as f64
                * (if near { costs.near } else { costs.far } + costs.row / row as f64 + turned + converted)
        };
        [cycles(0, !self.along_k[0]), cycles(1, self.along_k[1])]
    }
}

/// Elements of a run that is gathered at once: whole vectors of every machine, then parts of one.
const GATHERED: [i64; 5] = [64, 32, 16, 8, 4];

/// Where the operand with the iterator `own` is no plain tile of `own` and k: the most neighbours that a run along k has, in a block of k of that
/// length.
pub fn gathered_run(nest: &Nest, own: Name, k: Name, block: Option<i64>) -> Option<i64> {
    let access = nest.inputs.iter().find(|a| a.mentions(own) && a.mentions(k))?;
    if access.plain(&[own, k]).is_some() || access.panels(own).is_some() {
        return None;
    }
    let fits = |run: &i64| block.is_none_or(|block| block % run == 0);
    GATHERED.into_iter().filter(fits).find(|&run| access.by_runs(k, run, Dim::symbol(k)).is_some())
}

/// A nest whose rows of windows are in tiles: `own` is `rows * tile + row`.
pub struct Rows {
    pub nest: Nest,
    pub tile: Iter,
    pub row: Iter,
    /// Elements of memory from one row of a tile to the next.
    pub distance: i64,
}

/// The nest with `own` in tiles of so many rows, where the rows of each tile of the operand with `own` and `k` lie at one distance from one another:
/// windows of neighbours along one row of an image.
pub fn by_rows(nest: &Nest, own: Name, k: Name, rows: i64) -> Option<Rows> {
    let iter = nest.iter(own)?;
    let size = Dim::Static(rows);
    let whole = iter.extent.as_static().is_some_and(|extent| extent % rows == 0);
    if rows < 2 || !whole {
        return None;
    }
    let part = |what: &str, extent| Iter { name: Name::new(&format!("{own}_{what}")), extent, ..*iter };
    let (tile, row) = (part("tile", iter.extent.floordiv(size)), part("row", size));
    let mut iters = nest.iters.clone();
    iters.retain(|i| i.name != own);
    iters.extend([tile, row]);
    let nest = nest.substituted(&[(own, Dim::symbol(tile.name) * size + Dim::symbol(row.name))], iters);
    let operand = nest.inputs.iter().position(|a| a.mentions(row.name) && a.mentions(k))?;
    let distance = nest.inputs[operand].distance(row.name).filter(|_| !nest.zero_outside[operand])?;
    Some(Rows { nest, tile, row, distance })
}

/// Vectors of the right operand that a tile of results has, the best ones first where they are equally good; more than `WIDE` where there are registers for
/// at least `ROWS` rows of them: 100 columns are 7 vectors once, and 16 columns 7 times.
const VECTORS: &[i64] = &[2, 3, 1, 4, 5, 6, 7];
const WIDE: i64 = 3;
const ROWS: i64 = 3;

/// Cycles by which a step's loads delay its multiply-adds.
fn delay(costs: &CpuProducts, [rows, vectors]: [f64; 2]) -> f64 {
    costs.element * rows + costs.vector * vectors
}

/// Rows and columns of a tile of results of `m` rows (none: not known) and `n` columns, with a number of rows that `fits` and one of these
/// numbers of `vectors` (none: any): with the right operand's vectors and a repeated element of the left one it fills the vector registers, and
/// the rows and columns past the results are the fewest.
fn register_tile(
    [m, n]: [Option<i64>; 2],
    [lanes, registers]: [i64; 2],
    costs: &CpuProducts,
    vectors: &[i64],
    fits: &dyn Fn(i64) -> bool,
) -> Option<[i64; 2]> {
    let parts = |extent: Option<i64>, tile: i64| {
        extent.map_or(1.0 / tile as f64, |extent| (extent as f64 / tile as f64).ceil())
    };
    let cost = |&[rows, vectors]: &[i64; 2]| {
        let tiles = parts(m, rows) * parts(n, vectors * lanes);
        // Of multiply-adds and of loads there are two a cycle.
        let [rows, vectors] = [rows, vectors].map(|n| n as f64);
        let cycles = (rows * vectors / 2.0).max((rows + vectors) / 2.0) + delay(costs, [rows, vectors]);
        tiles * (cycles.max(costs.latency).max(vectors / costs.right_rate) + costs.step)
    };
    let vectors = if vectors.is_empty() { VECTORS } else { vectors };
    let tiles = vectors.iter().flat_map(|&vectors| {
        let most = ((registers - 1) / vectors - 1).min(costs.rows).min(m.unwrap_or(costs.rows).max(1));
        let least = if vectors > WIDE { ROWS } else { 1 };
        (least..=most.max(1)).rev().filter(|&rows| fits(rows)).map(move |rows| [rows, vectors])
    });
    let [rows, vectors] = tiles.min_by(|a, b| cost(a).total_cmp(&cost(b)))?;
    Some([rows, vectors * lanes])
}

/// The columns of a panel of a packed right operand of `n` columns, for a product of `m` rows (none: not known) that is accumulated in `acc`; none
/// where the product does not go by tiles: a vector, or fewer columns than a vector register has elements.
pub fn panel_columns(m: Option<i64>, n: i64, acc: Type, target: &Target) -> Option<i64> {
    let lanes = target.lanes(acc);
    let by_tiles = m != Some(1) && m != Some(0) && n >= lanes && acc.is_float();
    let tile = by_tiles
        .then(|| register_tile([m, Some(n)], [lanes, target.registers], &target.cpu().products, &[], &|_| true))?;
    tile.map(|tile| tile[1])
}
