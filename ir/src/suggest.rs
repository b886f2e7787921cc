//! Suggestions for misspelt words.

/// The candidate closest to `word`, if one is close enough to be meant; of equally close ones, one that goes on
/// where the word stops.
pub fn suggest<'a>(word: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let limit = (word.chars().count() / 3).max(1);
    let distance = |c: &'a str| (strsim::osa_distance(word, c), !c.starts_with(word), c);
    candidates.into_iter().map(distance).filter(|d| d.0 <= limit).min().map(|d| d.2)
}

/// `; did you mean 'fuse'?`, or nothing: the tail of a message about an unknown word.
pub fn did_you_mean<'a>(word: &str, candidates: impl IntoIterator<Item = &'a str>) -> String {
    suggest(word, candidates).map_or(String::new(), |c| format!("; did you mean '{c}'?"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn suggests_near_words_only() {
        let words = ["canonicalize", "cse", "dce", "fuse"];
        assert_eq!(suggest("canonicalise", words), Some("canonicalize"));
        assert_eq!(suggest("fsue", words), Some("fuse"));
        assert_eq!(suggest("ces", words), Some("cse"));
        assert_eq!(suggest("sm_90", ["sm_80", "sm_90a"]), Some("sm_90a"));
        assert_eq!(suggest("lower", words), None);
        assert_eq!(did_you_mean("ucse", words), "; did you mean 'cse'?");
    }
}
