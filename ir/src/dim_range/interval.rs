//! Arithmetic on inclusive bounds that are numbers. What is beyond 64 bits stays at their end, which says nothing.

/// From the first to the second, both included.
pub type Interval = (i64, i64);

/// Of a function that is monotonic in each of its arguments: its bounds are at the corners.
pub fn corners(a: Interval, b: Interval, f: impl Fn(i64, i64) -> i64) -> Interval {
    let all = [f(a.0, b.0), f(a.0, b.1), f(a.1, b.0), f(a.1, b.1)];
    all.into_iter().fold((all[0], all[0]), |found, x| hull(found, (x, x)))
}
pub fn add(a: Interval, b: Interval) -> Interval {
    (a.0.saturating_add(b.0), a.1.saturating_add(b.1))
}
pub fn sub(a: Interval, b: Interval) -> Interval {
    (a.0.saturating_sub(b.1), a.1.saturating_sub(b.0))
}
pub fn mul(a: Interval, b: Interval) -> Interval {
    corners(a, b, i64::saturating_mul)
}
pub fn max(a: Interval, b: Interval) -> Interval {
    (a.0.max(b.0), a.1.max(b.1))
}
pub fn min(a: Interval, b: Interval) -> Interval {
    (a.0.min(b.0), a.1.min(b.1))
}
/// What lies in one or the other.
pub fn hull(a: Interval, b: Interval) -> Interval {
    (a.0.min(b.0), a.1.max(b.1))
}
/// Rounded down, by numbers from 1 on.
pub fn floordiv(a: Interval, b: Interval) -> Option<Interval> {
    (b.0 > 0).then(|| corners(a, b, i64::div_euclid))
}
/// What [`floordiv`] leaves.
pub fn modulo(a: Option<Interval>, b: Interval) -> Option<Interval> {
    let most = (b.0 > 0).then(|| b.1 - 1)?;
    Some((0, a.filter(|a| a.0 >= 0).map_or(most, |a| most.min(a.1))))
}
/// Rounded towards zero, by numbers from 1 on.
pub fn div(a: Interval, b: Interval) -> Option<Interval> {
    (b.0 > 0).then(|| corners(a, b, |x, y| x / y))
}
/// What [`div`] leaves: of the dividend's sign.
pub fn rem(a: Interval, b: Interval) -> Option<Interval> {
    let most = (b.0 > 0).then(|| b.1 - 1)?;
    Some(if a.0 >= 0 { (0, a.1.min(most)) } else { (-most, most) })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every operation's bounds hold what it makes of every pair of numbers inside.
    #[test]
    fn bounds_hold_all_results() {
        let ends = [-7, -2, 0, 1, 5];
        let all: Vec<Interval> =
            ends.iter().flat_map(|&a| ends.iter().map(move |&b| (a, b))).filter(|r| r.0 <= r.1).collect();
        for (&a, &b) in all.iter().flat_map(|a| all.iter().map(move |b| (a, b))) {
            for (x, y) in (a.0..=a.1).flat_map(|x| (b.0..=b.1).map(move |y| (x, y))) {
                let holds = |found: Option<Interval>, made: i64, what: &str| {
                    assert!(found.is_none_or(|f| f.0 <= made && made <= f.1), "{what} of {x} in {a:?}, {y} in {b:?}");
                };
                holds(Some(add(a, b)), x + y, "sum");
                holds(Some(sub(a, b)), x - y, "difference");
                holds(Some(mul(a, b)), x * y, "product");
                holds(Some(max(a, b)), x.max(y), "maximum");
                holds(Some(min(a, b)), x.min(y), "minimum");
                if b.0 > 0 {
                    holds(floordiv(a, b), x.div_euclid(y), "quotient");
                    holds(modulo(Some(a), b), x.rem_euclid(y), "remainder");
                    holds(div(a, b), x / y, "division");
                    holds(rem(a, b), x % y, "rest");
                }
            }
        }
        assert_eq!((floordiv((0, 1), (0, 2)), modulo(None, (4, 8))), (None, Some((0, 7))));
    }
}
