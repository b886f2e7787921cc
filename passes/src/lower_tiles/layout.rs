//! Layouts: where the elements of a tile lie among the warps, lanes and registers of a program's threads.
//!
//! A [`Layout`] is the attribute on a placed tile's type, meant for any shape. For one shape it gives a
//! [`Distribution`]: for each dimension the mixed-radix digits of the coordinate, from the least significant,
//! each digit held by a lane number, a warp number, a register number or a place in a register's vector.
//! A dimension of size 1 has no digits: every thread along it holds the element.

use crate::schedule::PART;
use rc_ir::{Attr, Type, TypeData};

/// Threads of a warp.
pub const WARP: i64 = 32;

/// How elements of tiles are spread over threads.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Layout {
    /// `#rc.blocked<vec = V, dim = D, lanes = […], warps = […]>`: the coordinate along dimension d is
    /// `((reg * warps[d] + warp) * lanes[d] + lane) * (V where d = D) + v`. Lanes and warps are numbered with the
    /// last dimension fastest. With `own = [S, E]` E neighbours along dimension S lie in registers of one thread.
    Blocked { vec: i64, dim: usize, own: Option<(usize, i64)>, lanes: Vec<i64>, warps: Vec<i64> },
    /// `#rc.mma<warps = [m, n]>`: the accumulators of `mma.sync` m16n8: lane t holds columns 2(t % 4) and
    /// 2(t % 4) + 1 of rows t / 4 and t / 4 + 8. Each warp has consecutive columns, and 16 rows of every 16 m, as a warpgroup's warps have of `wgmma`'s 64.
    Mma { warps: [i64; 2] },
    /// `#rc.once<warps = [m, n]>`: of one row, whose columns lie in `#rc.mma<warps = [m, n]>` eight times in a warp. Here one lane has each, as far as lanes go:
    /// lane t holds column 2(t % 4) + t / 4 % 2 of eight, and t / 8 says which of four eights.
    Once { warps: [i64; 2] },
    /// `#rc.parts<warps = P>`: sums in parts. Each of P warps has a part of every sum, where `#rc.mma` has the sums of one warp.
    Parts { warps: i64 },
    /// `#rc.shared<stages = S>`: the tile is in shared memory, as a tensor map with a swizzle of 128 bytes writes it, in one of
    /// S places that take turns. The tile of a load that the copy engine carries out, read by products of warpgroups.
    Shared { stages: i64 },
}

impl Layout {
    /// One thread, with vectors of up to `vec` elements along dimension `dim`.
    pub fn single(rank: usize, vec: i64, dim: usize) -> Layout {
        Layout::Blocked { vec, dim, own: None, lanes: vec![1; rank], warps: vec![1; rank] }
    }
    /// Of an operand whose k, the last dimension, warps divide: each lane has neighbours along k, and four lanes those of a row.
    pub fn divided(warps: i64) -> Layout {
        Layout::Blocked { vec: PART, dim: 1, own: None, lanes: vec![8, 4], warps: vec![1, warps] }
    }
    pub fn to_attr(&self) -> Attr {
        match self {
            Layout::Blocked { vec, dim, own, lanes, warps } => {
                let own = own.map(|(dim, elements)| ("own", Attr::i64s(&[dim as i64, elements])));
                let first = [("vec", Attr::i64(*vec)), ("dim", Attr::i64(*dim as i64))];
                let last = [("lanes", Attr::i64s(lanes)), ("warps", Attr::i64s(warps))];
                Attr::dialect("blocked", &first.into_iter().chain(own).chain(last).collect::<Vec<_>>())
            }
            Layout::Mma { warps } => Attr::dialect("mma", &[("warps", Attr::i64s(warps))]),
            Layout::Once { warps } => Attr::dialect("once", &[("warps", Attr::i64s(warps))]),
            Layout::Parts { warps } => Attr::dialect("parts", &[("warps", Attr::i64(*warps))]),
            Layout::Shared { stages } => Attr::dialect("shared", &[("stages", Attr::i64(*stages))]),
        }
    }
    /// The layout that an attribute states, for tiles of `rank` dimensions.
    pub fn from_attr(attr: Attr, rank: usize) -> Option<Layout> {
        let ints = |key: &str| attr.get(key)?.as_ints().filter(|v| v.len() == rank && v.iter().all(|&n| n > 0));
        if attr.as_dialect("mma").is_some() {
            return Some(Layout::Mma { warps: ints("warps")?.try_into().ok()? });
        }
        if attr.as_dialect("once").is_some() {
            return Some(Layout::Once { warps: ints("warps")?.try_into().ok()? });
        }
        if attr.as_dialect("parts").is_some() {
            return Some(Layout::Parts { warps: attr.get("warps")?.as_int().filter(|w| *w > 0)? });
        }
        if attr.as_dialect("shared").is_some() {
            return Some(Layout::Shared { stages: attr.get("stages")?.as_int().filter(|s| *s > 0)? });
        }
        attr.as_dialect("blocked")?;
        let vec = attr.get("vec")?.as_int().filter(|v| *v > 0)?;
        let dim = match attr.get("dim") {
            Some(d) => usize::try_from(d.as_int()?).ok()?,
            None => rank.saturating_sub(1),
        };
        (dim < rank.max(1)).then_some(())?;
        let own = match attr.get("own") {
            None => None,
            Some(own) => match own.as_ints()?[..] {
                [d, n] if n > 0 && d != dim as i64 => Some((usize::try_from(d).ok().filter(|d| *d < rank)?, n)),
                _ => return None,
            },
        };
        Some(Layout::Blocked { vec, dim, own, lanes: ints("lanes")?, warps: ints("warps")? })
    }
    /// The layout of a tile type.
    pub fn of(ty: Type) -> Option<Layout> {
        match ty.data() {
            TypeData::Tile { layout: Some(attr), .. } => Layout::from_attr(*attr, ty.rank()),
            _ => None,
        }
    }
    /// The spread of a tile of this shape; `None` where the shape does not divide.
    pub fn distribute(&self, shape: &[i64]) -> Option<Distribution> {
        let mut dims = match self {
            Layout::Blocked { vec, dim, own, lanes, warps } => blocked_digits(shape, (*vec, *dim), *own, lanes, warps),
            Layout::Mma { warps } => mma_digits(shape, *warps)?,
            Layout::Once { warps } => once_digits(mma_digits(shape, *warps)?)?,
            Layout::Parts { .. } => mma_digits(shape, [1; 2])?,
            Layout::Shared { .. } => return None,
        };
        number_registers(&mut dims);
        let covers = dims.iter().zip(shape).all(|(digits, &n)| digits.iter().map(|d| d.size).product::<i64>() == n);
        covers.then(|| Distribution::new(shape, dims))
    }
}

/// What a digit of a coordinate is a digit of.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Holder {
    /// The place in a register's vector.
    Vec,
    Lane,
    Warp,
    /// The register's number.
    Reg,
}

/// `(holder / stride) % size`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Digit {
    pub holder: Holder,
    pub size: i64,
    pub stride: i64,
}

fn gcd(a: i64, b: i64) -> i64 {
    if b == 0 { a } else { gcd(b, a % b) }
}

/// Sizes that do not divide the dimension are cut to what does; the threads beyond hold copies.
fn blocked_digits(
    shape: &[i64],
    (vec, vec_dim): (i64, usize),
    own: Option<(usize, i64)>,
    lanes: &[i64],
    warps: &[i64],
) -> Vec<Vec<Digit>> {
    let stride = |of: &[i64], d: usize| of[d + 1..].iter().product::<i64>();
    let digits = |(d, &n): (usize, &i64)| {
        let mut rest = n;
        let mut digits = Vec::new();
        let mut push = |holder, size: i64, stride| {
            let size = gcd(rest, size);
            rest /= size;
            if size > 1 {
                digits.push(Digit { holder, size, stride });
            }
        };
        if d == vec_dim {
            push(Holder::Vec, vec, 1);
        }
        if let Some((_, elements)) = own.filter(|own| own.0 == d) {
            push(Holder::Reg, elements, 0);
        }
        push(Holder::Lane, lanes[d], stride(lanes, d));
        push(Holder::Warp, warps[d], stride(warps, d));
        push(Holder::Reg, n, 0);
        digits
    };
    shape.iter().enumerate().map(digits).collect()
}

fn mma_digits(shape: &[i64], warps: [i64; 2]) -> Option<Vec<Vec<Digit>>> {
    let &[m, n] = shape else { return None };
    let digit = |holder, size, stride| Digit { holder, size, stride };
    let mut rows = vec![];
    if m > 1 {
        (m % (16 * warps[0]) == 0).then_some(())?;
        rows = vec![
            digit(Holder::Lane, 8, 4),
            digit(Holder::Reg, 2, 0),
            digit(Holder::Warp, warps[0], warps[1]),
            digit(Holder::Reg, m / 16 / warps[0], 0),
        ];
    }
    let mut columns = vec![];
    if n > 1 {
        (n % (8 * warps[1]) == 0).then_some(())?;
        columns = vec![
            digit(Holder::Vec, 2, 1),
            digit(Holder::Lane, 4, 1),
            digit(Holder::Reg, n / 8 / warps[1], 0),
            digit(Holder::Warp, warps[1], 1),
        ];
    }
    let used = |digits: Vec<Digit>| digits.into_iter().filter(|d| d.size > 1).collect();
    Some(vec![used(rows), used(columns)])
}

/// A row's columns, with lanes for what eight lanes hold alike.
fn once_digits(dims: Vec<Vec<Digit>>) -> Option<Vec<Vec<Digit>>> {
    let [rows, columns] = <[_; 2]>::try_from(dims).ok().filter(|dims: &[Vec<Digit>; 2]| dims[0].is_empty())?;
    let mut out = Vec::new();
    for digit in columns {
        match digit.holder {
            Holder::Vec => out.push(Digit { holder: Holder::Lane, size: 2, stride: 4 }),
            Holder::Reg => {
                let lanes = gcd(digit.size, 4);
                out.push(Digit { holder: Holder::Lane, size: lanes, stride: 8 });
                out.push(Digit { size: digit.size / lanes, ..digit });
            }
            _ => out.push(digit),
        }
    }
    out.retain(|digit| digit.size > 1);
    Some(vec![rows, out])
}

/// Registers are numbered row-major: low digits of the last dimension first.
fn number_registers(dims: &mut [Vec<Digit>]) {
    let mut stride = 1;
    for digit in dims.iter_mut().rev().flatten().filter(|d| d.holder == Holder::Reg) {
        digit.stride = stride;
        stride *= digit.size;
    }
}

/// How one tile is spread: see the module's documentation.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Distribution {
    pub shape: Vec<i64>,
    /// The digits of each dimension's coordinate, least significant first.
    pub dims: Vec<Vec<Digit>>,
    /// Elements of a register and the dimension that they run along.
    pub vec: i64,
    pub vec_dim: Option<usize>,
    pub registers: usize,
}

impl Distribution {
    fn new(shape: &[i64], dims: Vec<Vec<Digit>>) -> Distribution {
        let vec_of = |d: &Vec<Digit>| d.iter().find(|g| g.holder == Holder::Vec).map(|g| g.size);
        let vec_dim = dims.iter().position(|d| vec_of(d).is_some());
        let vec = vec_dim.and_then(|d| vec_of(&dims[d])).unwrap_or(1);
        let registers = dims.iter().flatten().filter(|g| g.holder == Holder::Reg).map(|g| g.size as usize).product();
        Distribution { shape: shape.to_vec(), dims, vec, vec_dim, registers }
    }
    /// What the digits held by a lane or a warp (`holder`) or a register contribute to the coordinate along `d`, as
    /// (digit, weight).
    pub fn digits(&self, d: usize, holder: Holder) -> impl Iterator<Item = (Digit, i64)> + '_ {
        let mut weight = 1;
        let weighted = self.dims[d].iter().map(move |&g| {
            let this = weight;
            weight *= g.size;
            (g, this)
        });
        weighted.filter(move |(g, _)| g.holder == holder)
    }
    /// The part of a register's coordinate that is the same in all threads: of its first element in lane 0 of warp 0.
    pub fn coords(&self, register: usize) -> Vec<i64> {
        let part = |(g, weight): (Digit, i64)| (register as i64 / g.stride) % g.size * weight;
        (0..self.dims.len()).map(|d| self.digits(d, Holder::Reg).map(part).sum()).collect()
    }
    /// The register and the place in it of the element that this thread holds at `coords`, less the thread's part:
    /// digits of lanes and warps are ignored.
    pub fn locate(&self, coords: &[i64]) -> (usize, i64) {
        let (mut register, mut place) = (0, 0);
        for (d, &c) in coords.iter().enumerate() {
            for (g, weight) in self.digits(d, Holder::Reg) {
                register += c / weight % g.size * g.stride;
            }
            for (g, weight) in self.digits(d, Holder::Vec) {
                place += c / weight % g.size;
            }
        }
        (register as usize, place)
    }
    /// The register type: a vector, or a scalar where it has one element.
    pub fn register_type(&self, elem: Type) -> Type {
        if self.vec > 1 { Type::vector(&[self.vec], elem) } else { elem }
    }
    /// Whether the digits held by threads are the same, dimension by dimension after `perm` (dimension d here is
    /// `perm[d]` of `other`): then elements only move within threads.
    pub fn same_threads(&self, other: &Distribution, perm: &[usize]) -> bool {
        let of = |dist: &Distribution, d: usize| -> Vec<(Digit, i64)> {
            let mut all: Vec<_> = dist.digits(d, Holder::Lane).chain(dist.digits(d, Holder::Warp)).collect();
            all.sort_by_key(|(g, weight)| (*weight, g.stride));
            all
        };
        (0..self.dims.len()).all(|d| of(self, d) == of(other, perm[d]))
    }
    /// Lanes (or warps) that no digit reads hold copies: the strides and sizes of the gaps in the number of
    /// `total` lanes or warps.
    pub fn copies(&self, holder: Holder, total: i64) -> Vec<(i64, i64)> {
        let mut used: Vec<(i64, i64)> =
            self.dims.iter().flatten().filter(|g| g.holder == holder).map(|g| (g.stride, g.size)).collect();
        used.sort();
        let mut gaps = Vec::new();
        let mut at = 1;
        for (stride, size) in used {
            if stride > at {
                gaps.push((at, stride / at));
            }
            at = stride * size;
        }
        if total > at {
            gaps.push((at, total / at));
        }
        gaps
    }
}

/// The swizzle, in bytes, with which tiles lie in shared memory, from the memref's type alone: rows of 32, 64 or at least
/// 128 bytes swizzle so that eight rows' chunks of 16 bytes fall into different banks.
pub fn shared_swizzle(memref: Type) -> i64 {
    let (Some(shape), Some(width)) = (memref.static_shape(), memref.elem().byte_width()) else { return 0 };
    let [_, .., row] = shape.as_slice() else { return 0 };
    match row * width as i64 {
        32 => 32,
        64 => 64,
        bytes if bytes > 0 && bytes % 128 == 0 => 128,
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every element of every shape is held by some thread exactly where `locate` says.
    fn check(layout: &Layout, shape: &[i64], lanes: i64, warps: i64) {
        let dist = layout.distribute(shape).expect("the shape divides");
        let total: i64 = shape.iter().product();
        let mut seen = vec![0; total as usize];
        for warp in 0..warps {
            for lane in 0..lanes {
                for register in 0..dist.registers {
                    for v in 0..dist.vec {
                        let mut coords = dist.coords(register);
                        for (d, coord) in coords.iter_mut().enumerate() {
                            for (holder, number) in [(Holder::Lane, lane), (Holder::Warp, warp)] {
                                *coord +=
                                    dist.digits(d, holder).map(|(g, w)| number / g.stride % g.size * w).sum::<i64>();
                            }
                        }
                        if let Some(d) = dist.vec_dim {
                            coords[d] += v;
                        }
                        assert_eq!(dist.locate(&coords), (register, v), "{layout:?} {shape:?} {coords:?}");
                        let at = coords.iter().zip(shape).fold(0, |at, (c, n)| at * n + c);
                        seen[at as usize] += 1;
                    }
                }
            }
        }
        let threads = lanes * warps;
        let copies = dist.registers as i64 * dist.vec * threads / total;
        assert!(seen.iter().all(|&n| n == copies), "{layout:?} {shape:?}: {seen:?}");
    }

    #[test]
    fn every_element_has_a_place() {
        let blocked = Layout::Blocked { vec: 4, dim: 1, own: None, lanes: vec![2, 16], warps: vec![2, 2] };
        let neighbours = Layout::Blocked { vec: 2, dim: 1, own: Some((0, 4)), lanes: vec![2, 16], warps: vec![2, 2] };
        for shape in [[16, 64], [32, 128], [8, 8], [1, 64], [2, 1]] {
            check(&neighbours, &shape, 32, 4);
        }
        assert_eq!(neighbours.distribute(&[16, 64]).expect("it divides").coords(1), [1, 0]);
        for shape in [[16, 256], [4, 128], [1, 64], [8, 1], [1, 1], [2, 2], [6, 96]] {
            check(&blocked, &shape, 32, 4);
        }
        for shape in [[6, 16], [1, 7], [5, 1], [3, 24]] {
            check(&Layout::single(2, 8, 1), &shape, 1, 1);
        }
        let mma = Layout::Mma { warps: [2, 2] };
        for shape in [[32, 16], [128, 128], [1, 64], [64, 1]] {
            check(&mma, &shape, 32, 4);
        }
        for columns in [8, 16, 24, 48, 64, 96] {
            check(&Layout::Once { warps: [4, 1] }, &[1, columns], 32, 4);
        }
        assert_eq!(Layout::Once { warps: [4, 1] }.distribute(&[16, 64]), None);
        assert_eq!(mma.distribute(&[64, 16]).expect("it divides").coords(2), [32, 0]);
    }

    #[test]
    fn attributes_round_trip() {
        let neighbours = Layout::Blocked { vec: 2, dim: 1, own: Some((0, 4)), lanes: vec![2, 16], warps: vec![2, 2] };
        assert_eq!(Layout::from_attr(neighbours.to_attr(), 2), Some(neighbours));
        let others = [Layout::Once { warps: [4, 1] }, Layout::Parts { warps: 8 }, Layout::Shared { stages: 4 }];
        for layout in [Layout::single(3, 8, 2), Layout::Mma { warps: [4, 1] }].into_iter().chain(others) {
            let rank = if matches!(layout, Layout::Mma { .. } | Layout::Once { .. }) { 2 } else { 3 };
            assert_eq!(Layout::from_attr(layout.to_attr(), rank), Some(layout));
        }
        assert_eq!(Layout::from_attr(Attr::i64(3), 2), None);
    }

    #[test]
    fn mma_fragments_are_those_of_ptx() {
        let dist = Layout::Mma { warps: [1, 1] }.distribute(&[16, 8]).expect("one fragment");
        assert_eq!((dist.vec, dist.registers), (2, 2));
        assert_eq!(dist.coords(1), [8, 0]);
    }

    #[test]
    fn copies_are_the_unused_lane_bits() {
        let blocked = Layout::Blocked { vec: 1, dim: 1, own: None, lanes: vec![4, 8], warps: vec![1, 4] };
        let dist = blocked.distribute(&[4, 1]).expect("divides");
        assert_eq!(dist.copies(Holder::Lane, 32), [(1, 8)]);
        assert_eq!(dist.copies(Holder::Warp, 4), [(1, 4)]);
    }
}
