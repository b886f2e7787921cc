//! Conditions of `REQUIRES:`, `UNSUPPORTED:` and `XFAIL:` lines: `gpu && !(avx512 || ptxas)`, as LLVM's lit has them.

/// Whether a condition holds, of features that `has` knows.
///
/// # Errors
/// A condition that is none, or what `has` says of a feature.
pub fn holds(text: &str, has: &dyn Fn(&str) -> Result<bool, String>) -> Result<bool, String> {
    let mut reader = Reader { text, rest: text.trim(), has };
    let value = reader.any()?;
    if reader.rest.is_empty() { Ok(value) } else { Err(reader.unexpected()) }
}

struct Reader<'a> {
    text: &'a str,
    rest: &'a str,
    has: &'a dyn Fn(&str) -> Result<bool, String>,
}

impl Reader<'_> {
    fn take(&mut self, token: &str) -> bool {
        let after = self.rest.strip_prefix(token);
        self.rest = after.unwrap_or(self.rest).trim_start();
        after.is_some()
    }
    fn unexpected(&self) -> String {
        let found = if self.rest.is_empty() { "its end" } else { self.rest };
        format!("the condition '{}' is malformed at {found}", self.text)
    }
    fn any(&mut self) -> Result<bool, String> {
        let mut value = self.all()?;
        while self.take("||") {
            value |= self.all()?;
        }
        Ok(value)
    }
    fn all(&mut self) -> Result<bool, String> {
        let mut value = self.one()?;
        while self.take("&&") {
            value &= self.one()?;
        }
        Ok(value)
    }
    fn one(&mut self) -> Result<bool, String> {
        if self.take("!") {
            return self.one().map(|value| !value);
        }
        if self.take("(") {
            let value = self.any()?;
            return if self.take(")") { Ok(value) } else { Err(self.unexpected()) };
        }
        let is_word = |c: char| c.is_alphanumeric() || "-_.+=".contains(c);
        let (word, rest) = self.rest.split_at(self.rest.find(|c| !is_word(c)).unwrap_or(self.rest.len()));
        if word.is_empty() {
            return Err(self.unexpected());
        }
        self.rest = rest.trim_start();
        match word {
            "true" => Ok(true),
            "false" => Ok(false),
            name => (self.has)(name),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn conditions() {
        let has = |name: &str| match name {
            "yes" => Ok(true),
            "no" => Ok(false),
            other => Err(format!("'{other}' is not known")),
        };
        let is = |text: &str| holds(text, &has);
        for text in ["yes", "!no", "no || yes", "yes && !(no || false)", "true", "yes||no&&no"] {
            assert_eq!(is(text), Ok(true), "{text}");
        }
        assert_eq!(is("yes && no"), Ok(false));
        for (text, why) in [
            ("yes &&", "malformed at its end"),
            ("(yes", "malformed"),
            ("yes no", "malformed at no"),
            ("maybe", "not known"),
        ] {
            assert!(is(text).unwrap_err().contains(why), "{text}");
        }
    }
}
