//! Locations. A `Loc` is 4 bytes: unknown, a byte of a source text that was read (the common case,
//! costing nothing more), or an interned location written with `loc(…)` or made by a frontend.

use crate::intern::{Name, interned};
use parking_lot::RwLock;
use std::sync::{Arc, OnceLock};

/// Where an operation comes from.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Loc(u32);

interned!(
    /// An interned, written location.
    LocId, LocData, LOCS
);

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum LocData {
    /// `loc("file":line:col)`.
    File { file: Name, line: u32, col: u32 },
    /// `loc("name"(child))`.
    Named { name: Name, child: Loc },
    /// `loc(fused[…])`.
    Fused(Box<[Loc]>),
    /// `loc(callsite(callee at caller))`.
    CallSite { callee: Loc, caller: Loc },
}

/// A text that was read, with its place among the bytes of all texts.
#[derive(Debug)]
pub struct Source {
    pub name: String,
    pub text: String,
    start: u32,
    /// Byte offset at which each line starts, found when a line is first asked for.
    lines: OnceLock<Vec<u32>>,
}

static SOURCES: RwLock<Vec<Arc<Source>>> = RwLock::new(Vec::new());

const WRITTEN: u32 = 1 << 31;

impl Source {
    /// Registers a text. Sources past 2 GiB in all get no positions (their locations are unknown).
    pub fn register(name: &str, text: String) -> Arc<Source> {
        let mut sources = SOURCES.write();
        let start = sources.last().map_or(1, |s| s.start.saturating_add(s.text.len() as u32).saturating_add(1));
        let source = Arc::new(Source { name: name.to_string(), text, start, lines: OnceLock::new() });
        sources.push(source.clone());
        source
    }
    /// Forgets a text, where it was the last to be registered: an editor's file is read at every key. Locations in it, and what holds such,
    /// must be gone by then; they would be taken for those of the next text.
    pub fn release(self: Arc<Source>) {
        let mut sources = SOURCES.write();
        if sources.last().is_some_and(|last| Arc::ptr_eq(last, &self)) {
            sources.pop();
        }
    }
    /// The location of a byte of this text.
    pub fn loc(&self, offset: usize) -> Loc {
        let at = self.start as usize + offset;
        if at < WRITTEN as usize { Loc(at as u32) } else { Loc::UNKNOWN }
    }
    /// Line and column of a byte offset, both from 1; columns count characters.
    pub fn line_col(&self, offset: usize) -> (u32, u32) {
        let lines = self.lines.get_or_init(|| {
            let ends = self.text.bytes().enumerate().filter(|b| b.1 == b'\n');
            std::iter::once(0).chain(ends.map(|b| b.0 as u32 + 1)).collect()
        });
        let line = lines.partition_point(|&l| l as usize <= offset) - 1;
        let start = lines[line] as usize;
        let end = offset.min(self.text.len());
        let col = self.text.get(start..end).map_or(end - start, |s| s.chars().count());
        (line as u32 + 1, col as u32 + 1)
    }
}

impl Loc {
    pub const UNKNOWN: Loc = Loc(0);

    /// A location in a file that rc did not read, such as a frontend's Python line.
    pub fn file(file: &str, line: u32, col: u32) -> Loc {
        Loc::written(LocData::File { file: Name::new(file), line, col })
    }
    pub fn named(name: &str, child: Loc) -> Loc {
        Loc::written(LocData::Named { name: Name::new(name), child })
    }
    /// Several locations as one; unknown ones drop out.
    pub fn fused(locs: &[Loc]) -> Loc {
        let mut known: Vec<Loc> = Vec::new();
        for &loc in locs {
            if loc != Loc::UNKNOWN && !known.contains(&loc) {
                known.push(loc);
            }
        }
        match known.as_slice() {
            [] => Loc::UNKNOWN,
            [one] => *one,
            _ => Loc::written(LocData::Fused(known.into())),
        }
    }
    pub fn written(data: LocData) -> Loc {
        Loc(LocId::new(data).id() | WRITTEN)
    }
    /// What was written, unless the location is unknown or a byte of a source.
    pub fn data(self) -> Option<&'static LocData> {
        (self.0 & WRITTEN != 0).then(|| LOCS.get(self.0 & !WRITTEN))
    }
    /// The source and byte offset, for a position in a text that was read; that of the first part of a compound location.
    pub fn source(self) -> Option<(Arc<Source>, usize)> {
        if self == Loc::UNKNOWN {
            return None;
        }
        match self.data() {
            None => {
                let sources = SOURCES.read();
                let i = sources.partition_point(|s| s.start <= self.0).checked_sub(1)?;
                Some((sources[i].clone(), (self.0 - sources[i].start) as usize))
            }
            Some(LocData::File { .. }) => None,
            Some(LocData::Named { child, .. }) => child.source(),
            Some(LocData::Fused(parts)) => parts.iter().find_map(|l| l.source()),
            Some(LocData::CallSite { callee, caller }) => callee.source().or_else(|| caller.source()),
        }
    }
}

impl Default for Loc {
    fn default() -> Loc {
        Loc::UNKNOWN
    }
}

impl std::fmt::Display for Loc {
    /// `file:line:col` where there is one.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.data() {
            None => match self.source() {
                Some((source, offset)) => {
                    let (line, col) = source.line_col(offset);
                    write!(f, "{}:{line}:{col}", source.name)
                }
                None => f.write_str("unknown location"),
            },
            Some(LocData::File { file, line, col }) => write!(f, "{file}:{line}:{col}"),
            Some(LocData::Named { name, child }) if *child == Loc::UNKNOWN => write!(f, "{name}"),
            Some(LocData::Named { name, child }) => write!(f, "{child} ({name})"),
            Some(LocData::Fused(parts)) => {
                for (i, part) in parts.iter().enumerate() {
                    write!(f, "{}{part}", if i == 0 { "" } else { ", " })?;
                }
                Ok(())
            }
            Some(LocData::CallSite { callee, caller }) => write!(f, "{callee}, called from {caller}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_released_text_makes_room() {
        // Other tests register texts at the same time; the last of several is released in the end.
        let released = (0..1000).any(|_| {
            let source = Source::register("r.ir", "text".into());
            let loc = source.loc(0);
            let count = SOURCES.read().len();
            source.release();
            SOURCES.read().len() < count && loc != Loc::UNKNOWN
        });
        assert!(released);
    }

    #[test]
    fn positions_in_several_sources() {
        let a = Source::register("a.ir", "one\ntwö x\n".into());
        let b = Source::register("b.ir", "x".into());
        assert_eq!(a.loc(0).to_string(), "a.ir:1:1");
        assert_eq!(a.loc(a.text.find('x').unwrap()).to_string(), "a.ir:2:5");
        assert_eq!(b.loc(0).to_string(), "b.ir:1:1");
        assert_eq!(b.loc(1).to_string(), "b.ir:1:2");
        assert_eq!(Loc::fused(&[Loc::UNKNOWN, Loc::file("m.py", 3, 1)]).to_string(), "m.py:3:1");
        assert_eq!(Loc::UNKNOWN.to_string(), "unknown location");
    }
}
