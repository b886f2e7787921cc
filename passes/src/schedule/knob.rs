//! What a schedule chooses, from declarations: the text of each choice and the reference page follow from its type.

use rc_ir::{Attr, Name};

/// A choice as it is documented.
pub struct Knob {
    pub name: &'static str,
    /// What its value is, in words.
    pub form: &'static str,
    pub doc: &'static str,
}

/// A type of values.
pub trait Choice: Sized {
    /// What a value is, in words.
    const FORM: &'static str;
    /// `None` where the attribute is no such value.
    fn of(attr: Attr) -> Option<Self>;
    /// `None` where there is nothing to write.
    fn attr(&self) -> Option<Attr>;
}

/// Values that are words.
pub trait Word: Copy + PartialEq + 'static {
    const WORDS: &'static [(Self, &'static str)];
    const FORM: &'static str;
    fn word(self) -> &'static str {
        Self::WORDS.iter().find(|w| w.0 == self).expect("every value has a word").1
    }
    fn named(word: &str) -> Option<Self> {
        Self::WORDS.iter().find(|w| w.1 == word).map(|w| w.0)
    }
}

impl Choice for i64 {
    const FORM: &'static str = "a number";
    fn of(attr: Attr) -> Option<i64> {
        attr.as_int().filter(|&n| n >= 0)
    }
    fn attr(&self) -> Option<Attr> {
        Some(Attr::i64(*self))
    }
}
impl Choice for Option<i64> {
    const FORM: &'static str = "a number of at least 1";
    fn of(attr: Attr) -> Option<Self> {
        attr.as_int().filter(|&n| n > 0).map(Some)
    }
    fn attr(&self) -> Option<Attr> {
        self.map(Attr::i64)
    }
}
impl Choice for bool {
    const FORM: &'static str = "true or false";
    fn of(attr: Attr) -> Option<bool> {
        attr.as_bool()
    }
    fn attr(&self) -> Option<Attr> {
        self.then(|| Attr::bool(true))
    }
}
impl Choice for Option<Name> {
    const FORM: &'static str = "an iterator";
    fn of(attr: Attr) -> Option<Self> {
        attr.as_str().map(|text| Some(Name::new(text)))
    }
    fn attr(&self) -> Option<Attr> {
        self.map(|name| Attr::str(name.as_str()))
    }
}
impl Choice for Vec<Name> {
    const FORM: &'static str = "a list of iterators";
    fn of(attr: Attr) -> Option<Self> {
        attr.as_array()?.iter().map(|n| n.as_str().map(Name::new)).collect()
    }
    fn attr(&self) -> Option<Attr> {
        Some(words(self))
    }
}
impl Choice for [Name; 2] {
    const FORM: &'static str = "two iterators, or `_`";
    fn of(attr: Attr) -> Option<Self> {
        <Vec<Name>>::of(attr)?.try_into().ok()
    }
    fn attr(&self) -> Option<Attr> {
        Some(words(self))
    }
}
impl Choice for Vec<[Name; 2]> {
    const FORM: &'static str = "a list of pairs of iterators";
    fn of(attr: Attr) -> Option<Self> {
        attr.as_array()?.iter().map(|&pair| <[Name; 2]>::of(pair)).collect()
    }
    fn attr(&self) -> Option<Attr> {
        let pairs: Vec<Attr> = self.iter().map(|pair| words(pair)).collect();
        (!pairs.is_empty()).then(|| Attr::array(&pairs))
    }
}
/// `{i = 6, j = 16}`.
impl Choice for Vec<(Name, i64)> {
    const FORM: &'static str = "a number of at least 1 for each iterator, in braces";
    fn of(attr: Attr) -> Option<Self> {
        attr.as_dict()?.iter().map(|e| Some((e.0, e.1.as_int().filter(|&n| n > 0)?))).collect()
    }
    fn attr(&self) -> Option<Attr> {
        (!self.is_empty()).then(|| Attr::dict(self.iter().map(|&(name, size)| (name, Attr::i64(size)))))
    }
}
impl<W: Word> Choice for Option<W> {
    const FORM: &'static str = W::FORM;
    fn of(attr: Attr) -> Option<Self> {
        W::named(attr.as_str()?).map(Some)
    }
    fn attr(&self) -> Option<Attr> {
        self.map(|word| Attr::str(word.word()))
    }
}
impl<W: Word> Choice for Vec<W> {
    const FORM: &'static str = W::FORM;
    fn of(attr: Attr) -> Option<Self> {
        attr.as_array()?.iter().map(|a| W::named(a.as_str()?)).collect()
    }
    fn attr(&self) -> Option<Attr> {
        let words: Vec<Attr> = self.iter().map(|word| Attr::str(word.word())).collect();
        (!words.is_empty()).then(|| Attr::array(&words))
    }
}

fn words(names: &[Name]) -> Attr {
    Attr::array(&names.iter().map(|n| Attr::str(n.as_str())).collect::<Vec<_>>())
}

/// Declares structs of choices with their texts.
macro_rules! knobs {
    ($($(#[$about:meta])* pub struct $name:ident { $($(#[doc = $doc:literal])* pub $field:ident: $ty:ty,)* })*) => {$(
        $(#[$about])*
        #[derive(Clone, PartialEq, Debug)]
        pub struct $name { $($(#[doc = $doc])* pub $field: $ty,)* }

        impl $name {
            pub const KNOBS: &'static [Knob] = &[$(Knob { name: stringify!($field), form: <$ty as Choice>::FORM, doc: concat!($($doc),*) }),*];

            /// Sets the choice called `key`; false where there is none or the value is no such value.
            fn set(&mut self, key: &str, value: Attr) -> bool {
                match key {
                    $(stringify!($field) => <$ty as Choice>::of(value).map(|value| self.$field = value).is_some(),)*
                    _ => false,
                }
            }
            /// What was chosen.
            fn params(&self) -> Vec<(&'static str, Attr)> {
                let all = [$((stringify!($field), Choice::attr(&self.$field))),*];
                all.into_iter().filter_map(|(key, value)| Some((key, value?))).collect()
            }
        }
    )*};
}
pub(super) use knobs;
