//! Schedules of attention: a program takes a block of queries of one head and walks over the keys.

use super::access::{Access, Iter, has_index};
use super::attr::{Attention, Kind, Schedule};
use super::nest::extent_of;
use super::target::Target;
use super::{Candidate, Plan, nest};
use rc_dialects::loop_::IterKind;
use rc_ir::dim_range::Ranges;
use rc_ir::{Attr, Body, Dim, Name, Op, Type, Value};

pub(super) mod cpu;
pub(super) mod gpu;

/// The iterators of `loop.attention`, by role.
pub fn iters(body: &Body, op: Op) -> Option<([Name; 6], [Dim; 6])> {
    let op = body.op_ref(op);
    let names: Vec<Name> =
        op.attr("iters")?.as_array()?.iter().map(|a| a.as_str().map(Name::new)).collect::<Option<_>>()?;
    let extents = op.attr("extents")?.as_shape()?;
    Some((names.try_into().ok()?, extents.try_into().ok()?))
}

/// Roles of the iterators.
pub const M: usize = 2;
pub const N: usize = 3;
pub const D: usize = 4;
pub const E: usize = 5;

/// Where the operands and results of a `loop.attention` lie, with a dimension for each iterator along which tiles of them run. A bias or a
/// mask may have fewer.
pub struct Accesses {
    pub inputs: Vec<Access>,
    pub outputs: Vec<Access>,
}

/// `None` if an attribute is missing.
pub fn accesses(body: &Body, op: Op, ranges: &Ranges, iters: &[Iter; 6]) -> Option<Accesses> {
    let at = body.op_ref(op);
    let mut ranges = ranges.clone();
    iters.iter().for_each(|i| ranges.set_iterator(i.name, i.extent));
    let read = |name: &str, values: Vec<Value>, roles: &[&[usize]]| {
        let maps = at.attr(name)?.as_array().filter(|maps| maps.len() == values.len())?;
        let one = |(i, (&value, map)): (usize, (&Value, &Attr))| {
            let access = Access::new(&body.ty(value).shape(), map.as_shape()?).normalized(&ranges, iters);
            Some(roles[i].iter().fold(access, |access, &role| with_dimension(access, &iters[role])))
        };
        values.iter().zip(maps).enumerate().map(one).collect::<Option<Vec<Access>>>()
    };
    Some(Accesses {
        inputs: read("maps", at.operands().collect(), &[&[M, D], &[N, D], &[N, E], &[], &[]])?,
        outputs: read("out_maps", at.results().collect(), &[&[M, E], &[M]])?,
    })
}

/// The access with a dimension of one element for an iterator that runs over one, where its map says nothing of it.
fn with_dimension(mut access: Access, iter: &Iter) -> Access {
    if access.mentions(iter.name) || iter.extent != Dim::Static(1) {
        return access;
    }
    let one = |d: &usize| access.shape[*d] == Dim::Static(1) && access.exprs[*d] == Dim::Static(0);
    match (0..access.shape.len()).rev().find(one) {
        Some(d) => access.exprs[d] = Dim::symbol(iter.name),
        None => {
            access.shape.push(Dim::Static(1));
            access.exprs.push(Dim::symbol(iter.name));
        }
    }
    access
}

/// `None` if the op does not have the six iterators b, h, m, n, d, e.
pub fn plan(body: &Body, op: Op, target: &Target) -> Option<Plan> {
    let ([b, h, m, n, d, e], extents) = iters(body, op)?;
    let ranges = nest::symbol_ranges(&rc_dialects::func::symbols(body));
    let size = |i: usize| extent_of(&ranges, extents[i]);
    let mut s = Schedule::new(Kind::Attention(Attention::default()));
    s.grid = vec![b, h, m];
    s.axes = [m, n];
    if target.is_cpu() {
        let problem = cpu::Problem {
            heads: size(0) * size(1),
            queries: size(M),
            keys: size(N),
            widths: [size(D), size(E)],
            causal: body.op_ref(op).bool("causal"),
        };
        let candidate = |choice: cpu::Choice| {
            let mut s = s.clone();
            s.tile = vec![(m, choice.rows), (n, choice.keys)];
            s.kind = Kind::Attention(Attention { block: vec![(m, choice.block)], ..Attention::default() });
            Candidate { schedules: vec![s], what: choice.text(&problem), cost: Some(choice.cost) }
        };
        let candidates = problem.ranked(target).into_iter().map(candidate).collect();
        return Some(Plan::of_model("attention: ".into(), candidates, "one query and few keys have one tile"));
    }
    let elem = body.op_ref(op).operand_types()[0].elem();
    let all = parallel([b, h, m, n, d, e], extents);
    // A mask that is the same for all queries is read once a step.
    let fourth = accesses(body, op, &ranges, &all)?.inputs.into_iter().nth(3);
    let masked = fourth.is_some();
    let own = fourth.filter(|mask| mask.mentions(m));
    let warpgroups = fits_warpgroups(body, op, target);
    let mask = match &own {
        None => gpu::Mask { read: gpu::Read::Not, bytes: 0, sharing: 1 },
        Some(access) => gpu::Mask {
            read: match warpgroups && is_staged(body, op, access, &all) {
                true => gpu::Read::Staged,
                false => gpu::Read::Direct,
            },
            bytes: body.ty(body.operand(op, 3)).elem().byte_width().unwrap_or(1) as i64,
            sharing: [(b, 0), (h, 1)]
                .into_iter()
                .filter(|&(name, _)| !access.mentions(name))
                .map(|(_, i)| size(i))
                .product(),
        },
    };
    let problem = gpu::Problem {
        programs: size(0) * size(1),
        queries: size(M),
        // Without keys a tile has one that is hidden.
        keys: size(N).max(1),
        widths: [size(D), size(E)],
        bytes: elem.byte_width().unwrap_or(4) as i64,
        causal: body.op_ref(op).bool("causal"),
        mask,
        masked,
        warpgroups,
    };
    if problem.causal {
        let walked = walked_bytes(body, op, [1, 2], problem.programs * problem.keys * (size(D) + size(E)));
        s.grid = longest_first([b, h, m], size(0), walked, target);
    } else if let Some(access) =
        own.filter(|_| 2 * mask.bytes * size(M) * size(N) * problem.programs / mask.sharing > target.cache_bytes)
    {
        // Programs beside one another read the same part of a mask that the cache does not hold.
        s.grid.sort_by_key(|&name| !access.mentions(name));
    }
    let staged_bias = mask.read == gpu::Read::Staged;
    let candidate = |choice: gpu::Choice| {
        let [rows, keys, depth, width] = choice.tile;
        let mut s = s.clone();
        s.tile = vec![(m, rows), (n, keys), (d, depth), (e, width)];
        s.threads = choice.threads;
        let split = (choice.parts > 1).then_some(choice.parts);
        s.kind = Kind::Attention(Attention {
            unit: Some(choice.unit),
            stages: choice.stages,
            split,
            staged_bias,
            programs: choice.at_once,
            block: Vec::new(),
        });
        Candidate { schedules: vec![s], what: choice.text(), cost: Some(choice.cost) }
    };
    let candidates = problem.ranked(target).into_iter().map(candidate).collect();
    Some(Plan::of_model("attention: ".into(), candidates, "none fits"))
}

/// The grid of programs under a causal mask, the slowest iterator first: those with the longest rows begin, of all heads if the second-level cache holds what their programs
/// walk over, `walked` bytes in all; else of one of so many batches after the other, or of one head, as each block of rows would bring it from memory again.
pub fn longest_first([b, h, rows]: [Name; 3], batches: i64, walked: i64, target: &Target) -> Vec<Name> {
    let fits = |bytes: i64| 4 * bytes <= 3 * target.cache_bytes;
    if fits(walked) {
        vec![rows, b, h]
    } else if fits(walked / batches.max(1)) {
        vec![b, rows, h]
    } else {
        vec![b, h, rows]
    }
}

/// The bytes of operands: as they lie in memory, where heads share them, or `most` elements, where they are parts of something larger.
pub fn walked_bytes(body: &Body, op: Op, operands: [usize; 2], most: i64) -> i64 {
    let types = operands.map(|i| body.ty(body.operand(op, i)));
    let elements = types.iter().map(|t| t.num_elements().as_static().unwrap_or(most)).fold(0, i64::saturating_add);
    elements.min(most).saturating_mul(types[0].elem().byte_width().unwrap_or(4) as i64)
}

pub fn parallel(names: [Name; 6], extents: [Dim; 6]) -> [Iter; 6] {
    std::array::from_fn(|i| Iter { name: names[i], extent: extents[i], kind: IterKind::Parallel })
}

/// Whether Hopper's copy engine can bring tiles of q, k and v, and its warpgroups multiply them.
fn fits_warpgroups(body: &Body, op: Op, target: &Target) -> bool {
    let Some((names, extents)) = iters(body, op) else { return false };
    let all = parallel(names, extents);
    let ranges = nest::symbol_ranges(&rc_dialects::func::symbols(body));
    let Some(accesses) = accesses(body, op, &ranges, &all) else { return false };
    let operands = [[M, D], [N, D], [N, E]];
    on_warpgroups(body, op, target, &all)
        && accesses.inputs.iter().zip(operands).all(|(access, [row, column])| {
            copied_by_boxes(access, &all, [row, column]) && (column == D || access.clips(&all[row]))
        })
}

/// Whether the copy engine can bring tiles of a bias: its rows are keys of two bytes.
fn is_staged(body: &Body, op: Op, access: &Access, iters: &[Iter; 6]) -> bool {
    let elem = body.ty(body.operand(op, 3)).elem();
    let own = body.ty(body.operand(op, 0)).elem();
    elem == own && copied_by_boxes(access, iters, [M, N])
}

/// Whether warpgroups multiply rows as wide as these.
pub fn on_warpgroups(body: &Body, op: Op, target: &Target, iters: &[Iter; 6]) -> bool {
    let half = |v: Value| [Type::bf16(), Type::f16()].contains(&body.ty(v).elem());
    let fits = |i: usize| iters[i].extent.as_static().is_some_and(|n| (1..=256).contains(&n) && n % 8 == 0);
    target.has_warpgroups() && body.op_ref(op).operands().take(3).all(half) && fits(D) && fits(E)
}

/// Whether the copy engine brings tiles of an operand along its rows and columns.
pub fn copied_by_boxes(access: &Access, iters: &[Iter; 6], [row, column]: [usize; 2]) -> bool {
    let along = access.plain(&[iters[row].name, iters[column].name]).unwrap_or_default();
    // Past the end of a row there are zeros where the memory's row ends there.
    let whole = iters[column].extent.modulo(Dim::Static(16)) == Dim::Static(0) || access.clips(&iters[column]);
    along.last() == Some(&Some(iters[column].name))
        && along.contains(&Some(iters[row].name))
        && whole
        && super::warpgroup::boxes_fit(access, iters[column].name, Type::bf16())
        && !access.exprs.iter().any(|&e| has_index(e))
}
