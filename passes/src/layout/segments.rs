//! How the dimensions of two shapes with as many elements correspond.

use rc_ir::Dim;
use std::ops::Range;

/// Two shapes cut into the shortest runs of dimensions with as many elements, pairwise: `[4, 1, 64, 3136]` and `[4, 64, 56, 56]`
/// into `4 = 4`, `1 * 64 = 64` and `3136 = 56 * 56`.
pub struct Segments {
    to: Vec<Dim>,
    pairs: Vec<[Range<usize>; 2]>,
}

impl Segments {
    /// `None` where the shapes' products are not seen to agree, as of some symbolic ones.
    pub fn between(to: &[Dim], from: &[Dim]) -> Option<Segments> {
        let one = |d: &Dim| *d == Dim::Static(1);
        let (mut i, mut j) = (0, 0);
        let mut pairs: Vec<[Range<usize>; 2]> = Vec::new();
        while i < to.len() && j < from.len() {
            let start = [i, j];
            let (mut a, mut b) = (to[i], from[j]);
            (i, j) = (i + 1, j + 1);
            while a != b {
                let grow = match (a.as_static(), b.as_static()) {
                    (Some(1), _) => true,
                    (_, Some(1)) => false,
                    (Some(a), Some(b)) => a < b,
                    _ => i - start[0] < j - start[1],
                };
                if grow {
                    a = a * *to.get(i)?;
                    i += 1;
                } else {
                    b = b * *from.get(j)?;
                    j += 1;
                }
            }
            pairs.push([start[0]..i, start[1]..j]);
        }
        // What is left has one element.
        let rest = to[i..].iter().chain(&from[j..]).all(one);
        rest.then(|| Segments { to: to.to_vec(), pairs })
    }
    /// For each dimension of the second shape, `from`, which one it is of the first; -1 where it is in a run with others, or has one element.
    pub fn places(&self, from: &[Dim]) -> Vec<i64> {
        let mut places = vec![-1; from.len()];
        let many = |shape: &[Dim], range: &Range<usize>| -> Vec<usize> {
            range.clone().filter(|&d| shape[d] != Dim::Static(1)).collect()
        };
        for [to, run] in &self.pairs {
            if let ([at], [d]) = (&many(&self.to, to)[..], &many(from, run)[..]) {
                places[*d] = *at as i64;
            }
        }
        places
    }
    /// For each dimension of the second shape, `from`, which one of the first it is or is part of; -1 where it has one element. `None` where one is split.
    pub fn parts(&self, from: &[Dim]) -> Option<Vec<i64>> {
        let mut parts = vec![-1; from.len()];
        for [to, run] in &self.pairs {
            let mut many = to.clone().filter(|&d| self.to[d] != Dim::Static(1));
            let (part, None) = (many.next(), many.next()) else { return None };
            for d in run.clone().filter(|&d| from[d] != Dim::Static(1)) {
                parts[d] = part? as i64;
            }
        }
        Some(parts)
    }
    /// The first shape's dimensions that are those `dims` of the second, `from`; `None` where a run has dimensions of both kinds, but for such of one element.
    pub fn reduced(&self, from: &[Dim], dims: &[i64]) -> Option<Vec<i64>> {
        let mut reduced = Vec::new();
        for [to, run] in &self.pairs {
            let many: Vec<usize> = run.clone().filter(|&d| from[d] != Dim::Static(1)).collect();
            let counted = if many.is_empty() { run.clone().collect() } else { many };
            let count = counted.iter().filter(|&&d| dims.contains(&(d as i64))).count();
            if count == counted.len() {
                reduced.extend(to.clone().map(|d| d as i64));
            } else if count > 0 && counted.iter().any(|&d| from[d] != Dim::Static(1)) {
                return None;
            }
        }
        let covered = self.pairs.last().map_or(0, |p| p[1].end);
        (dims.iter().all(|&d| (d as usize) < covered)).then_some(reduced)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rc_ir::Name;

    fn pairs(to: &[i64], from: &[i64]) -> Option<Vec<[Range<usize>; 2]>> {
        let dims = |sizes: &[i64]| sizes.iter().map(|&n| Dim::Static(n)).collect::<Vec<_>>();
        Segments::between(&dims(to), &dims(from)).map(|s| s.pairs)
    }

    #[test]
    fn runs_are_the_shortest() {
        assert_eq!(pairs(&[4, 1, 64, 3136], &[4, 64, 56, 56]), Some(vec![[0..1, 0..1], [1..3, 1..2], [3..4, 2..4]]));
        assert_eq!(pairs(&[6, 4], &[2, 12]), Some(vec![[0..2, 0..2]]));
        assert_eq!(pairs(&[5], &[5, 1, 1]), Some(vec![[0..1, 0..1]]));
        assert_eq!(pairs(&[6], &[4]), None);
        assert_eq!(pairs(&[6, 2], &[6, 4]), None);
    }

    #[test]
    fn parts_are_of_one_dimension() {
        let parts = |to: &[i64], from: &[i64]| {
            let [to, from] = [to, from].map(|sizes| sizes.iter().map(|&n| Dim::Static(n)).collect::<Vec<_>>());
            Segments::between(&to, &from)?.parts(&from)
        };
        assert_eq!(parts(&[4, 12, 64], &[4, 3, 4, 64, 1]), Some(vec![0, 1, 1, 2, -1]));
        assert_eq!(parts(&[1, 12], &[3, 1, 4]), Some(vec![1, -1, 1]));
        assert_eq!(parts(&[4, 6], &[8, 3]), None);
        assert_eq!(parts(&[2, 6], &[12]), None);
    }

    #[test]
    fn runs_are_reduced_as_a_whole_but_for_units() {
        let reduced = |to: &[i64], from: &[i64], dims: &[i64]| {
            let [to, from] = [to, from].map(|sizes| sizes.iter().map(|&n| Dim::Static(n)).collect::<Vec<_>>());
            Segments::between(&to, &from)?.reduced(&from, dims)
        };
        assert_eq!(reduced(&[1, 40], &[1, 1, 40], &[2]), Some(vec![1]));
        assert_eq!(reduced(&[7, 40], &[7, 1, 40], &[0]), Some(vec![0]));
        assert_eq!(reduced(&[6, 4], &[2, 3, 4], &[1]), None);
        assert_eq!(reduced(&[6, 4], &[2, 3, 4], &[0, 1]), Some(vec![0]));
    }

    #[test]
    fn symbolic_sizes_match_as_expressions() {
        let (n, s) = (Dim::symbol(Name::new("n")), Dim::symbol(Name::new("s")));
        let four = Dim::Static(4);
        let found = Segments::between(&[n * s, four], &[n, s, four]).map(|s| s.pairs);
        assert_eq!(found, Some(vec![[0..1, 0..2], [1..2, 2..3]]));
        assert!(Segments::between(&[n, four], &[s, four]).is_none());
    }
}
