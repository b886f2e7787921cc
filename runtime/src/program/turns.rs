//! What a caller does between a program's steps, where it gives memory for as long as steps use it: results and slabs of the arena are made, arguments and slabs let go.

/// What happens before a step.
#[derive(Clone, Default, PartialEq, Debug)]
pub struct Turn {
    /// Results that are made.
    pub makes: Vec<usize>,
    /// Arguments that are let go.
    pub leaves: Vec<usize>,
    /// Slabs of the arena that are made, and that are let go.
    pub begins: Vec<usize>,
    pub ends: Vec<usize>,
}

impl Turn {
    pub fn is_empty(&self) -> bool {
        [&self.makes, &self.leaves, &self.begins, &self.ends].iter().all(|list| list.is_empty())
    }
}

/// Turns that come together before few steps, so that launches between them are one CUDA graph.
pub struct Joined {
    pub turns: Vec<Turn>,
    /// These steps.
    pub stops: Vec<usize>,
}

/// Of all memory that a call lets go of, what may be held for longer than steps use it, beyond the most that they use at once, is one in so many parts: there are no more stops
/// than parts.
const PARTS: usize = 64;

/// Memory that is worth a stop, in bytes.
const WORTH: usize = 1 << 20;

/// Where many results are made before the first stop's launches, these are divided, so that the device begins early: the first of them come after one in so many parts of what is made,
/// the next after one in fewer.
const EARLY: [usize; 2] = [16, 4];
const MANY: usize = 32;

/// Joins turns; `freed` says how many bytes it frees to let go of an argument, `results` and `slabs` how many each of them has. What is made between two stops is made at the first,
/// and what is let go waits for the second: there is a stop where more would be held than at the busiest step otherwise.
pub fn join(turns: &[Turn], freed: impl Fn(usize) -> usize, results: &[usize], slabs: &[usize]) -> Joined {
    let sum = |of: &[usize], bytes: &[usize]| of.iter().map(|&i| bytes.get(i).copied().unwrap_or(0)).sum::<usize>();
    let left = |turn: &Turn| turn.leaves.iter().map(|&arg| freed(arg)).sum::<usize>() + sum(&turn.ends, slabs);
    let made = |turn: &Turn| sum(&turn.makes, results) + sum(&turn.begins, slabs);
    // Bytes that are held, beyond those at the call's start.
    let sizes: Vec<(i64, i64)> = turns.iter().map(|turn| (left(turn) as i64, made(turn) as i64)).collect();
    let held = sizes.iter().scan(0, |held, (left, made)| {
        *held += made - left;
        Some(*held)
    });
    let all = sizes.iter().map(|(left, _)| *left as usize).sum::<usize>();
    let most = held.max().unwrap_or(0) + (all / PARTS).max(WORTH) as i64;
    let (mut stops, mut held, mut waiting) = (vec![0], 0, 0);
    for (step, (left, made)) in sizes.iter().enumerate() {
        (held, waiting) = (held + made, waiting + left);
        if step == 0 || *made > 0 && held > most {
            stops.extend((step > 0).then_some(step));
            (held, waiting) = (held - waiting, 0);
        }
    }
    stops.splice(1..1, early(turns, stops.get(1).copied()));
    let mut joined = vec![Turn::default(); turns.len()];
    for (step, turn) in turns.iter().enumerate() {
        let before = stops.partition_point(|&stop| stop <= step) - 1;
        joined[stops[before]].makes.extend(&turn.makes);
        joined[stops[before]].begins.extend(&turn.begins);
        let after = if stops[before] == step { Some(&step) } else { stops.get(before + 1) };
        let after = after.copied().unwrap_or(turns.len() - 1);
        joined[after].leaves.extend(&turn.leaves);
        joined[after].ends.extend(&turn.ends);
    }
    Joined { turns: joined, stops }
}

/// Stops before `end` that let the device begin while the host makes the rest.
fn early(turns: &[Turn], end: Option<usize>) -> Vec<usize> {
    let turns = &turns[..end.unwrap_or(turns.len() - 1)];
    let made: Vec<usize> = turns.iter().map(|turn| turn.makes.len() + turn.begins.len()).collect();
    let all = made.iter().sum::<usize>();
    let after = |parts: &usize| {
        let mut so_far = 0;
        made.iter().position(|made| {
            so_far += made;
            so_far > all / parts
        })
    };
    let mut stops: Vec<usize> =
        EARLY.iter().filter(|_| all >= MANY).filter_map(after).filter(|&step| step > 0).collect();
    stops.dedup();
    stops
}

#[cfg(test)]
mod tests {
    use super::*;

    fn turn(makes: &[usize], leaves: &[usize]) -> Turn {
        Turn { makes: makes.to_vec(), leaves: leaves.to_vec(), ..Turn::default() }
    }

    #[test]
    fn turns_that_free_nothing_are_one_stop() {
        let turns = [turn(&[0], &[]), turn(&[1], &[5]), turn(&[], &[]), turn(&[2], &[6]), turn(&[], &[7])];
        let joined = join(&turns, |_| 0, &[WORTH; 3], &[]);
        assert_eq!(joined.stops, [0]);
        assert_eq!(joined.turns[0], turn(&[0, 1, 2], &[]));
        assert_eq!(joined.turns[4], turn(&[], &[5, 6, 7]));
        assert!(joined.turns[1..4].iter().all(|turn| *turn == Turn::default()));
    }

    #[test]
    fn results_lie_where_arguments_were() {
        let turns =
            [turn(&[0], &[4]), turn(&[], &[5]), turn(&[1], &[6]), turn(&[2], &[]), turn(&[3], &[7]), turn(&[], &[8])];
        let results = [WORTH; 4];
        let joined = join(&turns, |arg| if arg == 8 { 0 } else { WORTH }, &results, &[]);
        assert_eq!(joined.stops, [0, 3], "one result more than at the start may be held");
        assert_eq!(joined.turns[0], turn(&[0, 1], &[4]));
        assert_eq!(joined.turns[3], turn(&[2, 3], &[5, 6]));
        assert_eq!(joined.turns[5], turn(&[], &[7, 8]));
        assert_eq!(join(&turns, |_| WORTH / 8, &results, &[]).stops, [0], "too little");
    }

    #[test]
    fn the_device_begins_early() {
        let turns: Vec<Turn> = (0..65).map(|i| turn(if i < 64 { &[7] } else { &[] }, &[])).collect();
        assert_eq!(join(&turns, |_| 0, &[], &[]).stops, [0, 4, 16]);
        assert_eq!(join(&turns[40..], |_| 0, &[], &[]).stops, [0], "few are made");
        let at_once = [turn(&[3; 40], &[]), turn(&[1], &[]), Turn::default()];
        assert_eq!(join(&at_once, |_| 0, &[], &[]).stops, [0]);
    }

    #[test]
    fn stops_are_where_most_is_held() {
        // Much is let go at first, and the most is held in the end.
        let turns = [turn(&[], &[0, 1]), turn(&[0], &[2]), turn(&[1], &[3]), turn(&[2], &[4]), turn(&[3], &[])];
        assert_eq!(join(&turns, |_| 2 * WORTH, &[WORTH, WORTH, WORTH, 16 * WORTH], &[]).stops, [0, 4]);
        assert_eq!(join(&turns, |_| 2 * WORTH, &[WORTH, WORTH, WORTH, 4 * WORTH], &[]).stops, [0, 3]);
    }

    #[test]
    fn slabs_lie_where_arguments_and_slabs_were() {
        let mut turns = vec![Turn::default(); 6];
        (turns[0].begins, turns[2].ends, turns[3].begins, turns[5].ends) = (vec![0], vec![0], vec![1], vec![1]);
        let joined = join(&turns, |_| 0, &[], &[2 * WORTH, 3 * WORTH]);
        assert_eq!(joined.stops, [0, 3]);
        assert_eq!((&joined.turns[3].ends, &joined.turns[3].begins), (&vec![0], &vec![1]));
        assert_eq!(joined.turns[5].ends, [1]);
        assert_eq!(join(&turns, |_| 0, &[], &[1, 1]).turns[0].begins, [0, 1], "too little for a stop");
    }

    #[test]
    fn there_are_few_stops() {
        let turns: Vec<Turn> = (0..500).map(|i| turn(&[i], &[i])).collect();
        let joined = join(&turns, |_| 4 * WORTH, &[4 * WORTH; 500], &[]);
        assert!((PARTS / 2..=PARTS + 1).contains(&joined.stops.len()), "{:?}", joined.stops);
        let all = |of: fn(&Turn) -> &Vec<usize>| joined.turns.iter().flat_map(of).copied().collect::<Vec<_>>();
        assert!(all(|turn| &turn.makes).into_iter().eq(0..500) && all(|turn| &turn.leaves).into_iter().eq(0..500));
    }
}
