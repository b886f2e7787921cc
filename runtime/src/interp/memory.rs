//! Memory of kernels and of the host program: buffers of elements, with what is known of each element: whether it
//! was written, and by whom and when it was accessed, so that races are found.

use std::sync::Arc;

use rc_ir::{Diagnostic, Loc, Result, Type};

use super::shape::strides;
use super::value::{Array, Format, Value};

/// Elements of a buffer.
#[derive(Clone, Debug)]
pub(crate) struct MemRef {
    pub buffer: usize,
    /// The first element.
    pub start: usize,
    pub shape: Arc<[usize]>,
    /// How many elements apart neighbours along each dimension lie; `None`: in row-major order.
    pub strides: Option<Arc<[usize]>>,
    /// Bytes of an element.
    pub width: usize,
}

impl MemRef {
    pub fn len(&self) -> usize {
        self.shape.iter().product()
    }
    /// How many elements apart neighbours along each dimension lie.
    pub fn steps(&self) -> Vec<usize> {
        self.strides.as_ref().map_or_else(|| strides(&self.shape), |strides| strides.to_vec())
    }
    /// The buffer's element at an index.
    pub fn at(&self, index: &[i64]) -> usize {
        index.iter().zip(self.steps()).fold(self.start, |at, (&i, step)| at + i as usize * step)
    }
}

/// The strides of a memref that are not row-major ones.
pub(crate) fn steps_of(ty: Type) -> Option<Arc<[usize]>> {
    let strides = ty.strides().filter(|_| !ty.is_row_major())?;
    strides.iter().map(|stride| usize::try_from(stride.as_static()?).ok()).collect()
}

/// What a thread has seen of the others: everything that thread u did before its time `seen[u]`.
#[derive(Clone, Debug)]
pub(crate) struct Clock {
    /// Advances whenever others may get to see what this thread did.
    pub own: u32,
    pub seen: Arc<Vec<u32>>,
}

impl Clock {
    pub fn new(threads: usize) -> Clock {
        Clock { own: 1, seen: Arc::new(vec![0; threads]) }
    }
    /// Takes over what `other` has seen.
    pub fn join(&mut self, other: &Arc<Vec<u32>>) {
        if !Arc::ptr_eq(&self.seen, other) {
            Arc::make_mut(&mut self.seen).iter_mut().zip(other.iter()).for_each(|(a, b)| *a = (*a).max(*b));
        }
    }
}

/// Who accesses memory, and where in the text.
#[derive(Clone, Copy)]
pub(crate) struct Agent<'c> {
    pub program: u32,
    pub thread: u32,
    pub time: u32,
    pub seen: &'c [u32],
    pub loc: Loc,
    /// Part of a `kernel.atomic`: in no race with others of its kind.
    pub atomic: bool,
}

/// One access of an element, or none.
#[derive(Clone, Copy)]
struct Access {
    program: u32,
    time: u32,
    loc: Loc,
    thread: u16,
    atomic: bool,
}

const NEVER: Access = Access { program: u32::MAX, time: 0, loc: Loc::UNKNOWN, thread: 0, atomic: false };

/// The accesses that races are looked for among, for each element: the last write, and reads by two threads. There is
/// memory for reads only where elements are read at all.
struct History {
    writes: Vec<Access>,
    reads: Vec<[Access; 2]>,
}

impl Access {
    fn of(agent: &Agent) -> Access {
        let thread = agent.thread as u16;
        Access { program: agent.program, time: agent.time, loc: agent.loc, thread, atomic: agent.atomic }
    }
    /// Whether this happened and may happen after the agent's next access too.
    fn races(&self, agent: &Agent) -> bool {
        let seen = || agent.seen.get(usize::from(self.thread)).is_some_and(|&t| t >= self.time);
        let before = self.program == agent.program && (u32::from(self.thread) == agent.thread || seen());
        self.program != NEVER.program && !before && !(self.atomic && agent.atomic)
    }
}

impl History {
    fn new(len: usize) -> History {
        History { writes: vec![NEVER; len], reads: Vec::new() }
    }
    fn read(&mut self, at: usize, agent: &Agent) {
        if self.reads.is_empty() {
            self.reads = vec![[NEVER; 2]; self.writes.len()];
        }
        let new = Access::of(agent);
        let reads = &mut self.reads[at];
        let own = reads[0].program == NEVER.program || (reads[0].program, reads[0].thread) == (new.program, new.thread);
        reads[usize::from(!own)] = new;
    }
    fn written(&mut self, at: usize, agent: &Agent) {
        self.writes[at] = Access::of(agent);
        if let Some(reads) = self.reads.get_mut(at) {
            *reads = [NEVER; 2];
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    Unwritten,
    Float,
    Int,
    /// An asynchronous copy is on its way here.
    InFlight,
}

enum Cells {
    /// Elements that nobody has written, as they were given.
    Given(Array),
    Own {
        bits: Vec<u64>,
        state: Vec<State>,
    },
}

pub(crate) struct Buffer {
    /// For messages: "the arena", "shared memory".
    what: String,
    cells: Cells,
    history: Option<History>,
    /// Buffers that start at the same place, and whether this is the one that holds values.
    overlay: Option<(String, bool)>,
}

/// All buffers. Those of a program are dropped when it ends.
#[derive(Default)]
pub(crate) struct Memory {
    buffers: Vec<Buffer>,
}

impl Memory {
    /// A buffer that holds an array's elements.
    pub fn given(&mut self, what: String, array: Array, width: usize) -> MemRef {
        let (shape, len) = (array.shape.clone(), array.len());
        self.add(what, Cells::Given(array), len, shape, width)
    }
    /// A buffer that holds nothing yet.
    pub fn unwritten(&mut self, what: String, shape: Vec<usize>, width: usize) -> MemRef {
        let len = shape.iter().product();
        let cells = Cells::Own { bits: vec![0; len], state: vec![State::Unwritten; len] };
        self.add(what, cells, len, shape, width)
    }
    fn add(&mut self, what: String, cells: Cells, _len: usize, shape: Vec<usize>, width: usize) -> MemRef {
        self.buffers.push(Buffer { what, cells, history: None, overlay: None });
        MemRef { buffer: self.buffers.len() - 1, start: 0, shape: shape.into(), strides: None, width }
    }
    pub fn count(&self) -> usize {
        self.buffers.len()
    }
    /// Drops all but the first `count` buffers.
    pub fn truncate(&mut self, count: usize) {
        self.buffers.truncate(count);
    }
    pub fn set_overlay(&mut self, buffer: usize, name: &str) {
        self.buffers[buffer].overlay = Some((name.to_string(), false));
    }
    /// From now on looks for races on a buffer; what was done before is forgotten.
    pub fn watch(&mut self, buffer: usize) {
        let len = self.len(buffer);
        self.buffers[buffer].history = Some(History::new(len));
    }
    pub fn unwatch(&mut self, buffer: usize) {
        self.buffers[buffer].history = None;
    }
    fn len(&self, buffer: usize) -> usize {
        match &self.buffers[buffer].cells {
            Cells::Given(array) => array.len(),
            Cells::Own { bits, .. } => bits.len(),
        }
    }
    /// Forgets the elements of a range: their memory is used for something else.
    pub fn forget(&mut self, buffer: usize, range: std::ops::Range<usize>) {
        let (_, state) = self.own(buffer);
        state[range].fill(State::Unwritten);
    }

    /// The element's value. An error where it was never written, is still on its way, or is raced for.
    #[inline]
    pub fn read(&mut self, buffer: usize, at: usize, agent: &Agent) -> Result<Value> {
        let entry = &mut self.buffers[buffer];
        if let Some(history) = &mut entry.history {
            let write = history.writes[at];
            if write.races(agent) {
                return Err(race(&entry.what, at, "reads", "writes", agent, &write));
            }
            history.read(at, agent);
        }
        match &entry.cells {
            Cells::Given(array) => Ok(array.element(at)),
            Cells::Own { bits, state } => match state[at] {
                State::Float => Ok(Value::Float(f64::from_bits(bits[at]))),
                State::Int => Ok(Value::Int(bits[at] as i64)),
                State::Unwritten => {
                    let what = format!("reads element {at} of {}, which nothing has written", entry.what);
                    Err(Diagnostic::error(agent.loc, what))
                }
                State::InFlight => {
                    let what = format!("reads element {at} of {} before the copy to it is waited for", entry.what);
                    Err(Diagnostic::error(agent.loc, what))
                }
            },
        }
    }

    /// Sets the element. An error where another thread's access is not ordered before.
    #[inline]
    pub fn write(&mut self, buffer: usize, at: usize, value: &Value, agent: &Agent) -> Result {
        if matches!(self.buffers[buffer].overlay, Some((_, false))) {
            self.take_overlay(buffer);
        }
        let (word, new) = match value {
            Value::Float(x) => (x.to_bits(), State::Float),
            Value::Int(n) => (*n as u64, State::Int),
            _ => return Err(Diagnostic::error(agent.loc, "writes something that is no scalar")),
        };
        self.record_write(buffer, at, Some((word, new)), agent)?;
        let (bits, state) = self.own(buffer);
        if state[at] == State::InFlight {
            let what =
                format!("writes element {at} of {} before the copy to it is waited for", self.buffers[buffer].what);
            return Err(Diagnostic::error(agent.loc, what));
        }
        (bits[at], state[at]) = (word, new);
        Ok(())
    }

    /// Marks the element as the target of a copy that has started.
    pub fn start_copy(&mut self, buffer: usize, at: usize, agent: &Agent) -> Result {
        if matches!(self.buffers[buffer].overlay, Some((_, false))) {
            self.take_overlay(buffer);
        }
        self.record_write(buffer, at, None, agent)?;
        self.own(buffer).1[at] = State::InFlight;
        Ok(())
    }
    /// Ends a copy: the element holds `value`, as if `agent` had written it.
    pub fn finish_copy(&mut self, buffer: usize, at: usize, value: &Value, agent: &Agent) -> Result {
        if let Some(history) = &mut self.buffers[buffer].history {
            history.written(at, agent);
        }
        let (word, new) = match value {
            Value::Float(x) => (x.to_bits(), State::Float),
            Value::Int(n) => (*n as u64, State::Int),
            _ => return Err(Diagnostic::error(agent.loc, "copies something that is no scalar")),
        };
        let (bits, state) = self.own(buffer);
        (bits[at], state[at]) = (word, new);
        Ok(())
    }

    /// Thread, time and place of the last write to a watched element.
    pub fn last_write(&self, buffer: usize, at: usize) -> Option<(usize, u32, Loc)> {
        let write = *self.buffers[buffer].history.as_ref()?.writes.get(at)?;
        (write.program != NEVER.program).then_some((usize::from(write.thread), write.time, write.loc))
    }

    fn record_write(&mut self, buffer: usize, at: usize, new: Option<(u64, State)>, agent: &Agent) -> Result {
        let entry = &mut self.buffers[buffer];
        let Some(history) = &mut entry.history else { return Ok(()) };
        let same = match (&entry.cells, new) {
            (Cells::Own { bits, state }, Some((word, class))) => bits[at] == word && state[at] == class,
            _ => false,
        };
        let write = history.writes[at];
        if !same && write.races(agent) {
            return Err(race(&entry.what, at, "writes", "writes another value", agent, &write));
        }
        if let Some(read) = history.reads.get(at).and_then(|r| r.iter().find(|r| r.races(agent))) {
            return Err(race(&entry.what, at, "writes", "reads", agent, read));
        }
        history.written(at, agent);
        Ok(())
    }

    /// The other buffers of an overlay lose what they hold.
    fn take_overlay(&mut self, buffer: usize) {
        let Some((name, _)) = self.buffers[buffer].overlay.clone() else { return };
        for other in 0..self.buffers.len() {
            let of_overlay = |o: &(String, bool)| o.0 == name;
            if self.buffers[other].overlay.as_ref().is_some_and(of_overlay) {
                self.buffers[other].overlay = Some((name.clone(), other == buffer));
                if other != buffer {
                    let len = self.len(other);
                    self.forget(other, 0..len);
                }
            }
        }
    }

    /// The elements to change; given ones are copied first.
    fn own(&mut self, buffer: usize) -> (&mut Vec<u64>, &mut Vec<State>) {
        let cells = &mut self.buffers[buffer].cells;
        if let Cells::Given(array) = cells {
            let (bits, class) = if array.is_float() {
                (array.as_floats().iter().map(|x| x.to_bits()).collect::<Vec<_>>(), State::Float)
            } else {
                (array.as_ints().iter().map(|&n| n as u64).collect(), State::Int)
            };
            let state = vec![class; bits.len()];
            *cells = Cells::Own { bits, state };
        }
        match cells {
            Cells::Own { bits, state } => (bits, state),
            Cells::Given(_) => unreachable!("made above"),
        }
    }

    /// The elements of a memref as an array; an error says which one is missing.
    pub fn array(&self, memref: &MemRef, float: bool) -> std::result::Result<Array, String> {
        let range = memref.start..memref.start + memref.len();
        let shape = memref.shape.to_vec();
        let entry = &self.buffers[memref.buffer];
        match &entry.cells {
            Cells::Given(array) if range.len() == array.len() => Ok(array.clone().with_shape(shape)),
            Cells::Given(array) => Ok(array.pick(shape, &range.collect::<Vec<_>>())),
            Cells::Own { bits, state } => {
                let wanted = if float { State::Float } else { State::Int };
                if let Some(at) = range.clone().find(|&at| state[at] != wanted) {
                    return Err(format!("element {} of {} was never written", at - memref.start, entry.what));
                }
                let bits = &bits[range];
                Ok(if float {
                    Array::floats(shape, bits.iter().map(|&b| f64::from_bits(b)).collect())
                } else {
                    Array::ints(shape, bits.iter().map(|&b| b as i64).collect())
                })
            }
        }
    }

    /// Sets all elements of a memref, on behalf of the host.
    pub fn fill(&mut self, memref: &MemRef, array: &Array) {
        let (start, float) = (memref.start, array.is_float());
        let words: Vec<u64> = if float {
            array.as_floats().iter().map(|x| x.to_bits()).collect()
        } else {
            array.as_ints().iter().map(|&n| n as u64).collect()
        };
        let (bits, state) = self.own(memref.buffer);
        state[start..start + words.len()].fill(if float { State::Float } else { State::Int });
        bits[start..start + words.len()].copy_from_slice(&words);
    }
}

fn race(what: &str, at: usize, does: &str, did: &str, agent: &Agent, other: &Access) -> Box<Diagnostic> {
    let who = |program: u32, thread: u32| format!("thread {thread} of program {program}");
    let (this, that) = (who(agent.program, agent.thread), who(other.program, u32::from(other.thread)));
    let message = format!("race: {this} {does} element {at} of {what}, which {that} {did}, and nothing orders the two");
    let help = if agent.program == other.program {
        "a barrier between them is missing"
    } else {
        "programs of a launch run in any order"
    };
    Diagnostic::error(agent.loc, message).note(other.loc, format!("here {that} accesses it")).help(help)
}

/// Bytes of an element in memory, and the format of its value.
pub(crate) fn width_of(ty: Type) -> usize {
    ty.elem().byte_width().unwrap_or(1) as usize
}

/// Reinterprets a value as one of a format's class; scalars of the other class are an error of the program.
pub(crate) fn check_class(value: &Value, format: Format, loc: Loc) -> Result {
    match (value, format.is_float()) {
        (Value::Float(_), true) | (Value::Int(_), false) => Ok(()),
        _ => Err(Diagnostic::error(loc, format!("reads memory as {} that was written as another type", format.ty))),
    }
}
