//! Every error says where, what was expected, what was found, and where it can, what to do.

use crate::common::register;
use rc_parser::{ParseOptions, parse_bytes, parse_module, parse_module_with};

/// The text fails with one error at `line:column` that says `message`, with the parts `hints` around it.
#[track_caller]
fn fails(text: &str, place: &str, message: &str, hints: &[&str]) {
    register();
    let (module, diagnostics) = parse_module("e.ir", text);
    let rendered: String = diagnostics.iter().map(|d| d.render()).collect();
    assert!(module.is_none() && diagnostics.len() == 1, "{} diagnostics\n{rendered}", diagnostics.len());
    assert_eq!(diagnostics[0].message, message);
    assert_eq!(diagnostics[0].loc.to_string(), format!("e.ir:{place}"), "{rendered}");
    for hint in hints {
        assert!(rendered.contains(hint), "{hint:?} in\n{rendered}");
    }
}
/// As [`fails`], for a line in a function of `%x: f32` and `%i: index`, in its line 2.
#[track_caller]
fn fails_inside(line: &str, column: u32, message: &str, hints: &[&str]) {
    let text = format!("func.func @f(%x: f32, %i: index) {{\n{line}\nfunc.return\n}}\n");
    fails(&text, &format!("2:{column}"), message, hints);
}

#[test]
fn values() {
    fails_inside("%y = t.add %x, %xx : f32", 16, "use of the undefined value '%xx'", &["^^^", "did you mean '%x'?"]);
    fails_inside("%x = t.add %x, %x : f32", 1, "redefinition of the value '%x'", &["1 │", "first defined here"]);
    fails_inside("%a, %b = t.add %x, %x : f32", 1, "this operation has 1 result, but 2 named", &[]);
    fails_inside(
        "%a:2 = t.launch %x : f32, f32 t.kinds {any = 1} t.add %a, %x : f32",
        55,
        "'%a' is 2 values",
        &["%a#0"],
    );
    fails_inside(
        "%a:2 = t.launch %x : f32, f32 t.add %a#2, %x : f32",
        37,
        "'%a' has 2 values, so no '#2'",
        &["defined here"],
    );
    fails_inside(
        "\"rc.t.add\"(%x, %i) : (f32, f32) -> f32",
        16,
        "'%i' is used as f32, but is index",
        &["defined here"],
    );
    fails_inside("\"rc.t.add\"(%x, %i) : (f32) -> f32", 22, "2 operands, but 1 operand types", &[]);
    fails_inside(
        "%y = t.add %later, %x : f32 \"rc.t.launch\"(%z) : (i1) -> () %z = t.add %x, %x : f32",
        43,
        "'%z' is used as i1, but is f32",
        &[],
    );
    fails_inside(
        "t.isolated ({ t.kinds t.launch %x })",
        32,
        "use of the undefined value '%x'",
        &["not visible from there", "1 │"],
    );
    fails_inside(
        "t.for %i, %i iter(%a = %later) ({ t.yield %a }) %later = t.add %x, %x",
        24,
        "a loop-carried value starts as a value defined before the loop",
        &[],
    );
    fails_inside(
        "%y = \"rc.t.add\"(%x#a) : (f32) -> f32",
        19,
        "expected the number of a result after '#', found '#a'",
        &[],
    );
}

#[test]
fn blocks() {
    fails_inside("t.br ^nowhere", 6, "the region has no block '^nowhere'", &["a block of the same region"]);
    fails("t.isolated ({\n t.br ^a\n^a: t.br ^a\n^a: t.br ^a })", "4:1", "redefinition of the block '^a'", &["3 │"]);
    fails("t.br ^a", "1:6", "a top-level operation has no successors", &[]);
    fails_inside("t.br [^a(%x)]", 9, "a successor takes no arguments in the generic form", &["operands of the branch"]);
    fails("t.isolated ({ ^a(%x): t.br ^a })", "1:20", "expected ':' and the argument's type, found ')'", &[]);
}

#[test]
fn operations() {
    fails_inside("%y = t.ad %x, %x : f32", 6, "unknown operation 't.ad'", &["did you mean 't.add'?"]);
    fails_inside("%y = t.divide %x, %x : f32", 6, "unknown operation 't.divide'", &["has no such operation"]);
    fails_inside("%y = foo.bar %x : f32", 6, "unknown operation 'foo.bar'", &["--allow-unregistered-dialect"]);
    fails_inside("\"t.add\"(%x, %x) : (f32, f32) -> f32", 1, "unknown operation 't.add'", &["\"rc.t.add\""]);
    fails_inside("%y = add %x : f32", 6, "unknown operation 'add'", &["dialect.name"]);
    fails_inside("%y = 3", 6, "expected an operation, found '3'", &[]);
    fails_inside("\"\"() : () -> ()", 1, "the name of an operation is empty", &[]);
    fails_inside("%y = t.add %x : f32", 6, "'t.add' needs the operand 'rhs'", &["^^^^^"]);
    fails_inside("%y = t.add %x %x : f32", 14, "expected ',' between two operands", &[]);
    fails_inside("%y = t.add %x, %x, %x : f32", 20, "'t.add' takes 2 plain operands; this is one too many", &[]);
    fails_inside("t.launch %x gird(%i)", 13, "this operation has no operands called 'gird'; did you mean 'grid'?", &[]);
    fails_inside("t.launch %x grid(%i) grid(%i)", 22, "the operands 'grid' are given twice", &[]);
    fails_inside("t.launch %x stream(%x, %x)", 1, "'t.launch' takes one operand 'stream', found 2", &[]);
    fails_inside("%y = t.add %x[%i], %x : f32", 14, "no indices are expected here", &[]);
    fails_inside(
        "%y = t.nest %x[m], %x ({ t.yield }) : f32",
        20,
        "this operand has no index map, but others have",
        &["%a[i, j]"],
    );
    fails(
        "t.isolated ({\n %y = t.constant {value = 1}\n t.kinds })",
        "3:2",
        "expected ':' and the types of the results, found 't.kinds'",
        &[],
    );
    fails_inside("t.kinds @name", 9, "this operation does not define a symbol", &["callee = @name"]);
    fails_inside("\"rc.t.add\"(%x, %x) (f32, f32) -> f32", 21, "expected '{' and a region, found 'f32'", &[]);
    fails("%r = t.constant {value = 1 : i64} : i64\nt.launch %s\n", "2:10", "use of the undefined value '%s'", &[]);
    fails("t.launch %r\n", "1:10", "use of the undefined value '%r'", &[]);
    fails(
        "func.func @f(%x: f32) {\n func.return\n",
        "3:1",
        "expected '}' at the end of a region, found the end of the file",
        &["opened here", "1 │"],
    );
    fails("func.func @f(f32) { func.return }", "1:19", "a function with a body names its arguments", &["%name: type"]);
    fails("func.func f() { }", "1:11", "expected a symbol name, @name, found 'f'", &[]);
    fails("}", "1:1", "expected an operation, an alias or resources, found '}'", &[]);
}

#[test]
fn attributes() {
    fails_inside(
        "t.kinds {dimz = [1]}",
        10,
        "'t.kinds' has no attribute 'dimz'; did you mean 'dims'?",
        &["^^^^", "my.note"],
    );
    fails_inside(
        "\"rc.t.kinds\"() <{dimz = 1}> : () -> ()",
        17,
        "'t.kinds' has no attribute 'dimz'; did you mean 'dims'?",
        &[],
    );
    fails_inside("t.kinds {mode = ad}", 17, "expected one of add, mul, f32, found 'ad'; did you mean 'add'?", &[]);
    fails_inside("t.kinds {n = \"x\"}", 14, "the attribute 'n' of 't.kinds' is a 64-bit integer, not \"x\"", &[]);
    fails_inside("t.kinds {eps = 1}", 16, "a number of type f32 is written with a dot: 1.0", &[]);
    fails_inside("t.kinds {n = 1, n = 2}", 9, "the attribute 'n' is given twice", &[]);
    fails_inside("t.kinds {any = word}", 16, "expected an attribute, found the word 'word'", &["\"word\""]);
    fails_inside("t.kinds {any = 300 : i8}", 16, "300 is out of the range of i8", &[]);
    fails_inside("t.kinds {any = -1 : ui8}", 16, "-1 is out of the range of ui8", &[]);
    fails_inside("t.kinds {any = 1.0 : i8}", 16, "a float cannot be of type i8", &[]);
    fails_inside("t.kinds {any = 0x1FFFF : f16}", 16, "these bits do not fit f16, which has 16", &[]);
    fails_inside("t.kinds {any = #nope}", 16, "undefined attribute alias '#nope'", &["before its use"]);
    fails_inside("t.kinds {any = \"a\\qb\"}", 18, "unknown escape", &["two hex digits"]);
    fails_inside(
        "t.kinds {any = \"abc}",
        16,
        "expected an attribute, found a string that does not end on its line",
        &[],
    );
    fails_inside("t.kinds {any = [1, 2}", 21, "expected ']' or ',' in an array, found '}'", &[]);
    fails_inside("t.kinds {any = #foo.bar<(]>}", 26, "']' closes nothing", &["opened here"]);
    fails_inside("t.kinds {any = #foo.bar<(}", 26, "'}' closes nothing", &[]);
    fails("#a = 1\n#a = 2", "2:1", "redefinition of the alias '#a'", &[]);
    fails("module attributes {a = 1} {\n}\nmodule {}", "3:1", "a file holds one module", &["--split-input-file"]);
}

#[test]
fn types() {
    fails_inside("%y = t.add %x, %x : tensr<4xf32>", 21, "unknown type 'tensr'; did you mean 'tensor'?", &[]);
    fails_inside("%y = t.add %x, %x : tensor<4x>", 30, "expected a type, found '>'", &[]);
    fails_inside("%y = t.add %x, %x : tensor<4 f32>", 30, "expected 'x' after a dimension, found 'f32'", &[]);
    fails_inside("%y = t.add %x, %x : tensor<99999999999999999999xf32>", 28, "this size does not fit 64 bits", &[]);
    fails_inside("%y = t.add %x, %x : tensor<. x f32>", 28, "expected a type, found the character '.'", &[]);
    fails_inside("%y = t.add %x, %x : !nope", 21, "undefined type alias '!nope'", &[]);
    fails_inside("%y = t.add %x, %x : vector<?xf32>", 28, "a vector has fixed sizes", &[]);
    fails_inside(
        "%y = t.add %x, %x : tensor<4x4xf32, #rc.shape<[s, 4]>>",
        35,
        "the dimensions in #rc.shape are not those of the type",
        &["where the type has '?'"],
    );
    fails_inside(
        "%y = t.add %x, %x : tensor<(s +) x f32>",
        32,
        "expected a dimension: an integer, a symbol, '?' or an expression, found ')'",
        &[],
    );
}

#[test]
fn constants() {
    let cases = [
        ("dense<[1.0, 2.0]> : tensor<3xf32>", 7, "dimension 0 of the type is 3, but 2 elements are given"),
        ("dense<[[1], [2, 3]]> : tensor<2x1xi8>", 13, "dimension 1 of the type is 1, but 2 elements are given"),
        ("dense<1> : tensor<3xf32>", 7, "a number of type f32 is written with a dot: 1.0"),
        ("dense<[1, 300]> : tensor<2xi8>", 11, "300 is out of the range of i8"),
        ("dense<\"0x00\"> : tensor<4xf32>", 7, "the constant has 1 bytes, its type takes 16"),
        (
            "dense<\"0x00\"> : tensor<99999999x99999999x99999999xf32>",
            7,
            "the constant has 1 bytes, its type takes more than there are",
        ),
        (
            "dense<\"0x0\"> : tensor<4xf32>",
            7,
            "expected the bytes of a constant, \"0x…\" with an even number of hex digits, found '\"0x0\"'",
        ),
        ("dense<> : tensor<4xf32>", 7, "expected 4 elements, found none"),
        ("dense<1.0> : tensor<?xf32>", 14, "a dense constant has fixed sizes"),
        ("dense<1.0> : f32", 14, "a dense constant has a tensor or vector type, not f32"),
        ("dense<true> : tensor<2xf32>", 7, "expected an element of type f32, found 'true'"),
    ];
    for (constant, column, message) in cases {
        fails_inside(&format!("t.kinds {{any = {constant}}}"), 15 + column, message, &[]);
    }
    // A splat of any size is fine.
    let (module, _) =
        parse_module("big.ir", "t.kinds {any = dense<0.0> : tensor<9223372036854775807x9223372036854775807xf32>}");
    assert!(module.is_some());
    fails(
        "{-# dialect_resources: { builtin: { w: \"0x00\" } } #-}",
        "1:40",
        "a resource starts with its alignment, four little-endian bytes",
        &[],
    );
    fails(
        "{-# dialect_resources: { builtin: { w: \"0x03000000\" } } #-}",
        "1:40",
        "the alignment 3 is not a power of two",
        &[],
    );
}

#[test]
fn several_errors_in_one_file() {
    register();
    let text = "func.func @a() {\n  t.ad\n}\nfunc.func @b() {\n  func.return\n}\nfunc.func @c(%x: f32) {\n  t.isolated ({ t.launch %y })\n  func.return\n}\n%z = 3\nt.nope\n";
    for text in [text.to_string(), format!("module {{\n{text}}}\n")] {
        let (module, diagnostics) = parse_module("e.ir", text.clone());
        let messages: Vec<&str> = diagnostics.iter().map(|d| d.message.as_str()).collect();
        assert!(module.is_none());
        let expected = [
            "unknown operation 't.ad'",
            "use of the undefined value '%y'",
            "expected an operation, found '3'",
            "unknown operation 't.nope'",
        ];
        assert_eq!(messages, expected, "{text}");
    }
}

#[test]
fn unregistered_operations_of_a_registered_dialect() {
    register();
    let allow = ParseOptions { allow_unregistered: true };
    assert!(parse_module_with("e.ir", "foo.bar", &allow).0.is_some());
    assert!(parse_module_with("e.ir", "t.nope", &allow).0.is_none());
}

#[test]
fn bytes_that_are_not_text() {
    let (module, diagnostics) = parse_bytes("e.ir", b"ok\n\xff\xfe".to_vec(), &ParseOptions::default());
    assert!(module.is_none());
    assert_eq!(diagnostics[0].loc.to_string(), "e.ir:2:1");
    assert!(diagnostics[0].message.contains("not UTF-8"));
    fails("t.kinds\0", "1:8", "expected an operation, an alias or resources, found the character '\\0'", &[]);
    for nothing in ["", "  // only a comment", "#a = 1"] {
        let (module, diagnostics) = parse_module("e.ir", nothing);
        assert!(module.is_none());
        assert_eq!(diagnostics[0].message, "expected an operation or a module, found nothing");
    }
    fails("ü", "1:1", "expected an operation, an alias or resources, found the character 'ü'", &[]);
}
