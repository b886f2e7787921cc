//! No text makes the parser panic, overflow the stack or take long.

use crate::common::*;
use rc_parser::{parse_bytes, parse_module_with};
use std::time::{Duration, Instant};

const SAMPLE: &str = include_str!("sample.ir");

/// Parses, and prints what parses: neither may panic.
fn survive(bytes: &[u8]) {
    let (module, diagnostics) = parse_bytes("hostile.ir", bytes.to_vec(), &ANY_OP);
    assert_eq!(module.is_none(), !diagnostics.is_empty());
    for diagnostic in diagnostics.iter().take(3) {
        assert!(!diagnostic.render().is_empty());
    }
    if let Some(module) = module {
        check_text_survives(&module);
    }
}
fn check_text_survives(module: &rc_ir::Module) {
    let text = pretty(module);
    let (again, diagnostics) = parse_module_with("again.ir", text.clone(), &ANY_OP);
    let messages: String = diagnostics.iter().map(|d| d.render()).collect();
    let again = again.unwrap_or_else(|| panic!("{messages}\nin\n{text}"));
    assert_same(&pretty(&again), &text, "what a broken text stands for");
}

#[test]
fn the_sample_is_whole() {
    check_round_trip(&parse(SAMPLE));
}

/// What an editor has: the functions without errors are there, at every stage of typing.
#[test]
fn half_written_files_keep_what_is_whole() {
    register();
    let whole = "func.func @a() {\n  func.return\n}\n";
    let text = format!("{whole}func.func @b(%x: f32) {{\n  %y = t.add %x, \n}}\n{}", whole.replace("@a", "@c"));
    let source = rc_ir::loc::Source::register("half.ir", text);
    let (module, diagnostics) = rc_parser::parse_readable(&source, &ANY_OP);
    let names: Vec<_> = module.bodies.iter().filter_map(|b| b.symbol()).collect();
    assert_eq!((names.len(), diagnostics.len()), (2, 1), "{names:?} {diagnostics:?}");
    assert_eq!(rc_parser::tokens("%x = \"a\" // no").len(), 3);
}

#[test]
fn truncated_at_every_byte() {
    register();
    for end in 0..SAMPLE.len() {
        if SAMPLE.is_char_boundary(end) {
            survive(&SAMPLE.as_bytes()[..end]);
        }
    }
}

#[test]
fn flipped_and_swapped_bytes() {
    register();
    let mut random = Random(0x9e37_79b9_7f4a_7c15);
    for _ in 0..4000 {
        let mut bytes = SAMPLE.as_bytes().to_vec();
        for _ in 0..1 + random.below(4) {
            let at = random.below(bytes.len());
            match random.below(5) {
                0 => bytes[at] ^= 1 << random.below(8),
                1 => bytes[at] = b"(){}[]<>\"%^@#!:,=-x0 \n"[random.below(22)],
                2 => drop(bytes.remove(at)),
                3 => bytes.swap(at, (at + 1) % SAMPLE.len().min(1000)),
                _ => {
                    let end = (at + random.below(60)).min(bytes.len());
                    let piece = bytes[at..end].to_vec();
                    let to = random.below(bytes.len());
                    bytes.splice(to..to, piece);
                }
            }
        }
        survive(&bytes);
    }
}

#[test]
fn garbage() {
    register();
    let mut random = Random(42);
    for _ in 0..500 {
        let bytes: Vec<u8> = (0..random.below(200)).map(|_| random.below(256) as u8).collect();
        survive(&bytes);
        let words = [
            "func.func",
            "@f",
            "(",
            ")",
            "{",
            "}",
            "%x",
            ":",
            "f32",
            "tensor<4x",
            ">",
            "=",
            "\"a.b\"",
            "^b",
            ",",
            "->",
            "[",
            "]",
            "#rc.x<",
            "dense<",
            "loc(",
            "module",
            "iter(",
            "1",
            "-",
            "{-#",
            "#-}",
            "\n",
        ];
        let text: Vec<&str> = (0..random.below(60)).map(|_| words[random.below(words.len())]).collect();
        survive(text.join(" ").as_bytes());
    }
    survive(b"");
    survive(b"\0");
    survive(b"\xef\xbb\xbf");
    survive("// only a comment".as_bytes());
}

#[test]
fn deep_nesting() {
    register();
    let cases = [
        ("foo.op ({", "})", ""),
        ("\"foo.op\"() ({", "}) : () -> ()", ""),
        ("foo.op {a = [", "]}", "1"),
        ("(", ")", "1"),
        ("{", "}", ""),
        ("[", "]", ""),
        ("<", ">", ""),
    ];
    for (i, (open, close, inner)) in cases.into_iter().enumerate() {
        for depth in [100, 900, 100_000] {
            let text = match i {
                2 => format!("foo.op {{a = {}{inner}{}}}", "[".repeat(depth), "]".repeat(depth)),
                3 => format!("foo.op {{a = #rc.shape<[{}s{}]>}}", "(".repeat(depth), ")".repeat(depth)),
                4 => format!("foo.op {{a = {}{}}}", "{a = ".repeat(depth), "}".repeat(depth)),
                5 => format!("foo.op {{a = #foo.bar<{}{}>}}", "[".repeat(depth), "]".repeat(depth)),
                6 => format!("foo.op {{a = {}f32{}}}", "tuple<".repeat(depth), ">".repeat(depth)),
                _ => format!("{}{}", open.repeat(depth), close.repeat(depth)),
            };
            let start = Instant::now();
            survive(text.as_bytes());
            assert!(start.elapsed() < Duration::from_secs(20), "{open} {depth} takes {:?}", start.elapsed());
            // Not closed, too.
            survive(&text.as_bytes()[..text.len() / 2]);
        }
    }
}

#[test]
fn huge_numbers_and_expressions() {
    register();
    let sum: Vec<String> = (0..12).map(|i| format!("s{i}")).collect();
    let power = vec![format!("({})", sum.join(" + ")); 30].join(" * ");
    for attr in [
        format!("#rc.shape<[{power}]>"),
        format!("#rc.shape<[{}]>", "9223372036854775807 * ".repeat(50) + "s"),
        "#rc.shape<[-9223372036854775807 - s, 0 floordiv 0, s mod 0, 5 floordiv 0]>".to_string(),
        "9".repeat(10_000),
        format!("1.{}", "0".repeat(10_000)),
        format!("1.0e{}", "9".repeat(1000)),
        "0x".to_string() + &"F".repeat(1000),
        "dense<[]> : tensor<0xf32>".to_string(),
        "dense<[[], []]> : tensor<2x0xf32>".to_string(),
        "i99999999999".to_string(),
        "i16777215".to_string(),
        "1 : i16777215".to_string(),
        "dense<1> : tensor<1xi16777215>".to_string(),
        "array<i16777215: 1>".to_string(),
    ] {
        survive(format!("foo.op {{a = {attr}}}").as_bytes());
    }
    let many = vec!["f32"; 70_000].join(", ");
    survive(format!("foo.op ({{ a.b : {many} }})").as_bytes());
    survive(format!("foo.op ({{ %r:70000 = a.b : {many} }})").as_bytes());
    survive(b"foo.op ({ %r:99999999999 = a.b : f32 })");
    survive(b"foo.op ({ %r:0 = a.b })");
    survive(b"foo.op ({ a.b %99999999999, %0000, %r#99999999999 })");
}

#[test]
fn many_equal_names() {
    register();
    let mut text = String::from("foo.op ({\n");
    for i in 0..20_000 {
        text += &format!("foo.in ({{ %x = a.b : f32 \n a.c %x, %later{} }})\n", i % 100);
    }
    for i in 0..100 {
        text += &format!("%later{i} = a.b : f32\n");
    }
    text += "})";
    let start = Instant::now();
    let module = parse(&text);
    let body = &module.bodies[0];
    let mut named = body.clone();
    for op in body.walk() {
        for result in body.results(op).collect::<Vec<_>>() {
            named.set_value_name(result, "same".into());
        }
    }
    named.to_string();
    assert!(start.elapsed() < Duration::from_secs(20), "{:?}", start.elapsed());
}

/// Xorshift: the same sequence in every run.
struct Random(u64);
impl Random {
    fn below(&mut self, n: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) as usize % n
    }
}
