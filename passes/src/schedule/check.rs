//! What a schedule may not say: values that contradict one another, and what is beyond the machine.

use super::attr::{Kind, Schedule};
use super::direct::PART_ROW;
use super::warpgroup::{WARPGROUP, box_bytes};
use crate::lower_tiles::layout::WARP;
use rc_dialects::loop_;
use rc_ir::{Diagnostic, Loc, OpRef, Result};
use rc_machine::{Target, Unit};

/// Blocks of a cluster at most, as every such machine has them.
const CLUSTER: i64 = 8;

/// Where a schedule stands.
#[derive(Clone, Copy)]
pub struct Place<'a>(pub OpRef<'a>);

impl Place<'_> {
    /// An error with the caret at a word of the schedule where its text is known, else at the nest.
    pub fn error(&self, word: &str, what: impl std::fmt::Display) -> Box<Diagnostic> {
        match self.find(word) {
            Some(loc) => Diagnostic::error(loc, format!("'{}': {what}", self.0.name())).with_len(word.len()),
            None => self.0.error(what.to_string()),
        }
    }
    /// The word's place in the nest's `schedule = …`, be it an alias of an attribute that stands before.
    fn find(&self, word: &str) -> Option<Loc> {
        let (source, start) = self.0.loc().source()?;
        let text = source.text.as_str();
        let statement = &text[start..];
        let own = statement.find("schedule = ")? + "schedule = ".len();
        let alias: String =
            statement[own..].chars().take_while(|c| !c.is_whitespace() && !",}<".contains(*c)).collect();
        let from = match alias.as_str() {
            "#rc.schedule" | "" => start + own,
            alias => text.find(&format!("{alias} = "))?,
        };
        let end = text[from..].find('\n').map_or(text.len(), |n| from + n);
        let is_word = |c: char| c.is_alphanumeric() || c == '_';
        let found = text[from..end].match_indices(word).find(|(at, _)| {
            let (before, after) =
                (text[..from + at].chars().next_back(), text[from + at + word.len()..].chars().next());
            !before.is_some_and(is_word) && !after.is_some_and(is_word)
        });
        found.map(|(at, _)| source.loc(from + at))
    }
}

/// Whether a nest is the product. One that only follows it has no operands that wait in stages.
fn multiplies(op: OpRef) -> bool {
    loop_::Nest::read(op).is_some_and(|nest| nest.combiners.contains(&"contract"))
}

impl Schedule {
    /// What its values cannot be, on any machine.
    pub(super) fn check_values(&self, place: &Place) -> Result {
        if let Some(parts) = self.split().filter(|parts| parts.count_ones() != 1) {
            return Err(
                place.error("split", format!("has a schedule with 'split' = {parts}, which is no power of two"))
            );
        }
        if self.threads < 1 {
            return Err(place.error("threads", "has a schedule without threads"));
        }
        if matches!(self.kind, Kind::Attention(_)) && self.programs().is_some() && self.split().is_some() {
            let what = "has a schedule with 'programs' and 'split': keys are split where programs are too few";
            return Err(place.error("programs", what));
        }
        if let Some((name, block)) = self.block().iter().find(|(name, block)| block % self.tile_of(*name) != 0) {
            let tile = self.tile_of(*name);
            let what =
                format!("has a schedule with blocks of {block} elements of {name}, no multiple of its tiles of {tile}");
            return Err(place.error("block", what));
        }
        if self.axes[0] == self.axes[1] && self.axes[0] != super::NONE {
            return Err(place.error("axes", format!("has a schedule with '{}' along both dimensions", self.axes[0])));
        }
        Ok(())
    }

    /// What is beyond the machine, or is for another.
    ///
    /// # Errors
    /// The first such choice, with the figure that it does not fit.
    pub fn check_on(&self, op: OpRef, target: &Target) -> Result {
        let place = Place(op);
        let machine = format!("{} ({})", target.name, target.arch);
        let most = if target.is_cpu() { 1 } else { target.block_threads - self.helpers() };
        if self.threads > most {
            let what = format!("has a schedule with {} threads, and {machine} runs {most} in a program", self.threads);
            return Err(place.error("threads", what));
        }
        if let Some(unit) = self.unit().filter(|&unit| !target.has_unit(unit) && unit != Unit::Fma) {
            let what = format!("has a schedule with unit = {}, which {machine} does not have", unit.word());
            return Err(place.error("unit", what));
        }
        for (key, set, cpu) in [
            ("block", !self.block().is_empty(), true),
            ("pack", self.contract().is_some_and(|own| !own.pack.is_empty()), true),
            ("gather", self.contract().is_some_and(|own| !own.gather.is_empty()), false),
            ("stages", self.stages().is_some(), false),
            ("programs", self.programs().is_some(), false),
            ("cluster", self.cluster().is_some(), false),
            ("parts", self.contract().is_some_and(|own| own.parts.is_some()), false),
            ("turns", self.contract().is_some_and(|own| own.turns.is_some()), false),
            ("epilogue_stages", self.contract().is_some_and(|own| own.epilogue_stages.is_some()), false),
            ("resident", self.resident().is_some(), false),
        ] {
            if set && cpu != target.is_cpu() {
                let other = if cpu { "CPU" } else { "GPU" };
                return Err(place.error(key, format!("has a schedule with '{key}', which is for a {other}")));
            }
        }
        if let Some(resident) = self.resident().filter(|n| n.saturating_mul(self.threads) > target.threads) {
            let what = format!(
                "has a schedule with {resident} resident programs of {} threads, and {machine} holds {} threads",
                self.threads, target.threads
            );
            return Err(place.error("resident", what));
        }
        match &self.kind {
            Kind::Contract(_) if !target.is_cpu() && multiplies(op) => self.check_product(&place, target, &machine),
            _ => Ok(()),
        }
    }

    /// Clusters are of programs that go from tile to tile, along rows or columns of these.
    fn check_cluster(&self, place: &Place, machine: &str) -> Result {
        let Some(own) = self.contract().filter(|own| !own.cluster.is_empty()) else { return Ok(()) };
        let wrong = |what: String| Err(place.error("cluster", format!("has a schedule with {what}")));
        let &[(name, count)] = own.cluster.as_slice() else {
            return wrong(format!("clusters along {} iterators; it takes one", own.cluster.len()));
        };
        if own.unit != Some(Unit::Wgmma) || own.programs.is_none_or(|programs| programs < count) {
            return wrong(format!("clusters of {count}, which take unit = wgmma and as many programs"));
        }
        if !self.axes.contains(&name) || !self.grid.contains(&name) {
            return wrong(format!("clusters along '{name}', which is no iterator of its tiles of results"));
        }
        match count.count_ones() == 1 && count <= CLUSTER {
            true => Ok(()),
            false => wrong(format!("clusters of {count}, and {machine} has those of a power of two up to {CLUSTER}")),
        }
    }

    /// Two warpgroups take turns: more would have too few registers.
    fn check_turns(&self, place: &Place) -> Result {
        let Some((own, turns)) = self.contract().and_then(|own| own.turns.map(|turns| (own, turns))) else {
            return Ok(());
        };
        let fits =
            own.unit == Some(Unit::Wgmma) && own.programs.is_some() && own.split.is_none() && own.gather.is_empty();
        match turns == 2 && self.threads == 128 && fits {
            true => Ok(()),
            false => Err(place.error(
                "turns",
                format!("has a schedule with turns = {turns}: it takes 2, with unit = wgmma, threads = 128 and programs, without split or gather"),
            )),
        }
    }

    /// What the epilogue reads comes ahead of it in programs of warpgroups that go from tile to tile, and whose producer gathers nothing.
    fn check_epilogue(&self, place: &Place) -> Result {
        let Some(own) = self.contract().filter(|own| own.epilogue_stages.is_some()) else { return Ok(()) };
        match own.unit == Some(Unit::Wgmma) && own.programs.is_some() && own.gather.is_empty() {
            true => Ok(()),
            false => Err(place.error(
                "epilogue_stages",
                "has a schedule with epilogue_stages: it takes unit = wgmma and programs, without gather",
            )),
        }
    }

    /// Warps that divide the sums bring what they multiply to registers: nothing waits in stages, and each has whole rows of lanes.
    fn check_parts(&self, place: &Place) -> Result {
        let Some((own, parts)) = self.contract().and_then(|own| own.parts.map(|parts| (own, parts))) else {
            return Ok(());
        };
        let [m, n] = self.axes.map(|name| self.tile_of(name));
        let k = own.inner.map_or(1, |name| self.tile_of(name));
        let fits = m % 16 == 0 && n % 8 == 0 && k % (PART_ROW * parts) == 0 && self.threads == WARP * parts;
        match own.unit == Some(Unit::Mma) && own.stages.is_none() && own.gather.is_empty() && fits {
            true => Ok(()),
            false => Err(place.error(
                "parts",
                format!(
                    "has a schedule with parts = {parts}: it takes unit = mma, threads = {} and tiles of multiples of 16 rows, 8 columns and {} of the sums, without stages or gather",
                    WARP * parts,
                    PART_ROW * parts
                ),
            )),
        }
    }

    /// Bytes of the boxes that the epilogue reads in shared memory.
    fn epilogue_bytes(&self) -> i64 {
        let Some((own, stages)) = self.contract().and_then(|own| Some((own, own.epilogue_stages?))) else { return 0 };
        box_bytes(self.threads / WARPGROUP * own.turns.unwrap_or(1), stages)
    }

    /// Threads of a program besides those that compute.
    fn helpers(&self) -> i64 {
        let turns = self.contract().and_then(|own| own.turns).unwrap_or(1);
        if self.unit() == Some(Unit::Wgmma) { 128 + (turns - 1) * self.threads } else { 0 }
    }

    /// Tiles of operands in shared memory, sums in registers.
    fn check_product(&self, place: &Place, target: &Target, machine: &str) -> Result {
        let stages = self.stages().unwrap_or(1);
        if self.unit() == Some(Unit::Wgmma) && stages < 2 {
            return Err(place.error("stages", "has a schedule with unit = wgmma and one stage: it takes two at least"));
        }
        self.check_cluster(place, machine)?;
        self.check_turns(place)?;
        self.check_epilogue(place)?;
        self.check_parts(place)?;
        let [m, n] = self.axes.map(|name| self.tile_of(name));
        let k = self.contract().and_then(|own| own.inner).map_or(1, |name| self.tile_of(name));
        let width = place.0.operand_types().iter().filter_map(|t| t.elem().byte_width()).min().unwrap_or(1) as i64;
        let parts = self.contract().and_then(|own| own.parts);
        let bytes = if parts.is_some() { 0 } else { stages * (m + n) * k * width };
        if bytes > target.shared_bytes {
            let what = format!(
                "has a schedule with {stages} stages of {} bytes: {bytes} of shared memory, and {machine} has {}",
                bytes / stages,
                target.shared_bytes
            );
            return Err(place.error("stages", what));
        }
        let boxes = self.epilogue_bytes();
        if boxes > target.shared_bytes - bytes {
            let what = format!(
                "has a schedule with {boxes} bytes of what its epilogue reads, beside {bytes} of operands in shared memory, and {machine} has {}",
                target.shared_bytes
            );
            return Err(place.error("epilogue_stages", what));
        }
        let sums = m * n * parts.unwrap_or(1) / self.threads;
        if sums > target.thread_registers {
            let what = format!(
                "has a schedule with {sums} sums in each thread, and {machine} has {} registers",
                target.thread_registers
            );
            return Err(place.error("tile", what));
        }
        Ok(())
    }
}
