//! Texts that use all of the grammar, printed as written here.

use crate::common::*;
use rc_ir::{Attr, Blob, Type};

/// The text is its own pretty form, and its module survives both forms.
#[track_caller]
fn fixed(text: &str) {
    let module = parse(text);
    assert_same(&pretty(&module), text, "printed");
    check_round_trip(&module);
}
/// The text reads as the module whose pretty form is `expected`.
#[track_caller]
fn reads(text: &str, expected: &str) {
    let module = parse(text);
    assert_same(&pretty(&module), expected, "printed");
    check_round_trip(&module);
}

#[test]
fn functions() {
    fixed("func.func @empty() {\n  func.return\n}\n");
    fixed("func.func private @declared(tensor<4xf32>, i1) -> f32\n");
    fixed("func.func @\"odd name\"(%x: f32) -> f32 {\n  func.return %x\n}\n");
    fixed(
        "func.func public @f(%x: tensor<s x 4 x f32> {rc.name = \"x\"}, %y: f32) -> (f32 {rc.donated}, (f32) -> f32) attributes {rc.note = 3 : i64} {\n  func.return %y, %x\n}\n",
    );
    fixed(
        "func.func @g() -> ((f32) -> f32) {\n  %f = t.constant {value = 1 : i64} : ((f32) -> f32)\n  func.return %f\n}\n",
    );
    reads("func.func @f(%x: f32) { func.return }", "func.func @f(%x: f32) {\n  func.return\n}\n");
}

#[test]
fn blocks_and_branches() {
    fixed(
        "func.func @f(%c: i1, %x: f32) {
  t.cond_br %c [^loop, ^bb2]
^loop(%a: f32, %0: i32):
  %1 = t.add %a, %later : f32
  t.br %1, %x [^loop]
^bb2:
  %later = t.add %x, %x : f32
  t.br [^loop]
}
",
    );
    // Entry blocks that are branched to have labels.
    fixed("foo.op ({\n^bb0(%x: f32):\n  t.br %x [^bb0]\n})\n");
    fixed(
        "func.func @f() {\n  foo.op ({\n  ^head:\n    t.br [^head]\n  }, {\n  ^bb0:\n  }, {\n  })\n  func.return\n}\n",
    );
    reads("foo.op ({\n^bb7: t.br ^x\n^x: t.br ^bb7 })", "foo.op ({\n^bb0:\n  t.br [^x]\n^x:\n  t.br [^bb0]\n})\n");
}

#[test]
fn names() {
    // Names stay, digits are renumbered, groups are one name.
    reads(
        "foo.op ({ %7 = a.b : f32  %x.y-z$ = a.b : f32  %g:3 = a.b : f32, i1, i1  %p, %q:2, %5 = a.b %g#2, %7, %g#0 : i1, i2, i3, i4 \n c.d %q#1, %5, %p })",
        "foo.op ({
  %0 = a.b : f32
  %x.y-z$ = a.b : f32
  %g:3 = a.b : f32, i1, i1
  %p, %q:3 = a.b %g#2, %0, %g#0 : i1, i2, i3, i4
  c.d %q#1, %q#2, %p
})
",
    );
    // Regions side by side may use the same names.
    fixed(
        "foo.op ({
  %x = a.b : f32
  foo.in ({
    %y = a.b %x : f32
    %0 = a.b : f32
  }, {
    %y = a.b %x : f32
    %0 = a.b : f32
  })
  %y_0 = a.b : f32
})
",
    );
    // Names given in a program are made valid and unique.
    let mut module = parse(
        "foo.op ({ %a = a.b : f32  %b = a.b : f32  %c = a.b : f32  %d = a.b : f32  %e = a.b : f32  c.d %a, %b, %c, %d, %e })",
    );
    let body = &mut module.bodies[0];
    let values: Vec<_> = body.walk().into_iter().flat_map(|op| body.results(op).collect::<Vec<_>>()).collect();
    for (&value, name) in values.iter().zip(["x", "x", "0y", "größe", "x_0"]) {
        body.set_value_name(value, name.into());
    }
    assert!(pretty(&module).contains("c.d %x, %x_0, %_0y, %gr__e, %x_0_0"), "{module}");
    check_round_trip(&module);
}

#[test]
fn operand_groups() {
    fixed(
        "func.func @f(%k: f32, %i: index, %m: memref<4xf32>) {
  t.launch %k
  t.launch %k grid(%i, %i) args(%k)
  %r:2 = t.launch %k stream(%k) args(%i) {n = 3} : f32, i1
  t.store %k, %m[]
  t.store %k, %m[%i, %i] mask(%k)
  %0 = t.load %m[%i] : f32
  %1 = t.load %m[] : f32
  func.return
}
",
    );
    // In the generic form the sizes of the groups are written.
    let module = parse("func.func @f(%k: f32) {\n t.launch %k args(%k, %k)\n func.return\n}");
    let text = generic(&module);
    assert!(
        text.contains(
            "\"rc.t.launch\"(%k, %k, %k) <{operandSegmentSizes = array<i32: 1, 0, 0, 2>}> : (f32, f32, f32) -> ()"
        ),
        "{text}"
    );
}

#[test]
fn loops() {
    fixed(
        "func.func @f(%n: index, %x: f32) -> f32 {
  %r:2 = t.for %n, %n iter(%acc = %x, %b = %n) ((%i: index) {
    %s = t.add %acc, %x : f32
    t.yield %s, %b
  }) : f32, index
  t.for %n, %n ((%i: index) {
    t.store %x, %x[%i]
  })
  t.for %n, %n iter(%a = %x) ({
    t.yield %a
  })
  func.return %r#0
}
",
    );
    // The terminator that was left out is there.
    let module = parse("func.func @f(%n: index) {\n t.for %n, %n ({\n })\n func.return\n}");
    assert!(generic(&module).contains("({\n      \"rc.t.yield\"() : () -> ()\n    })"), "{}", generic(&module));
}

#[test]
fn index_maps() {
    fixed(
        "func.func @f(%a: tensor<4x8xf32>, %b: f32) {
  %r = t.nest %a[m, 2 * k + 1], %b[] {iterators = [parallel, reduce, \"not a word\"]} ((%x: f32) {
    t.yield %x
  }) : tensor<4xf32>
  t.nest {maps = []} ({
    t.yield
  })
  t.nest %a {maps = []} ({
    t.yield
  })
  func.return
}
",
    );
    let text = generic(&parse(
        "func.func @f(%a: f32) {\n t.nest %a[((i + 3) floordiv 4), max(i, j) mod 2] ({ t.yield })\n func.return\n}",
    ));
    assert!(text.contains("<{maps = [#rc.shape<[((i + 3) floordiv (4)), ((max(i, j)) mod (2))]>]}>"), "{text}");
}

#[test]
fn declared_attributes() {
    fixed(
        "func.func @f() {
  t.kinds
  t.kinds {dims = [], eps = 0x7F800000, flag = true, mode = f32, n = -3, unit}
  t.kinds {any = 1 : i64, callee = @a::@\"b c\", dict = {a = 1 : i32, b}, dims = [1, -2], dims32 = [7], elements = dense<1> : tensor<2xi8>, eps = 1.000000e-05, items = [1 : i64, \"x\"]}
  t.kinds {iterators = [parallel, reduce], my.note = \"free\", small = 7, text = \"add\", wide = 2.500000e-01}
  t.kinds {schedule = <grid = [4], name = word, q = \"not a word\", flag, n = 3, x = 1.500000e+00>}
  t.kinds {schedule = <kind = \"f32\", nested = {a = [1 : i64], b = [x, [2, 3]]}, deep = #rc.tile<[8, 8]>, \"pos\">}
  t.kinds {schedule = <>, shape = [s, 768, 2 * s - 1], shapes = [[m, k], [], [?]], ty = tensor<4xf32>}
  t.kinds {n = 3 : index}
  func.return
}
",
    );
    let text = generic(&parse("func.func @f() {\n t.kinds {flag, n = 3, my.note = 1}\n func.return\n}"));
    assert!(text.contains("\"rc.t.kinds\"() <{flag = true, n = 3 : i64}> {my.note = 1 : i64} : () -> ()"), "{text}");
}

#[test]
fn attributes() {
    let attrs = [
        "unit",
        "true",
        "-3 : i32",
        "170141183460469231731687303715884105727 : i128",
        "3 : index",
        "5 : ui8",
        "-5 : si8",
        "1.500000e+00 : bf16",
        "0x7FC00000 : f32",
        "0x3FC00 : tf32",
        "0x7F : f8E4M3FN",
        "4.480000e+02 : f8E4M3FN",
        "\"a\\22b\\\\\\0A\\C3\\B6\"",
        "f32",
        "(f32, i1) -> (tensor<*xf32>, memref<*xi8, 3>)",
        "tensor<0x4xi1>",
        "tensor<?x4x(s + 1)xf32, #rc.enc<3>>",
        "memref<4x?xf32, strided<[?, 1], offset: ?>, 3>",
        "memref<4xf32, affine_map<(d0) -> (d0 + 1)>>",
        "memref<s x 4 x f32, 1>",
        "vector<4x8xbf16>",
        "vector<f32>",
        "tuple<i1, tuple<>>",
        "complex<f32>",
        "none",
        "!rc.tile<8x16xf32, #rc.layout<row, order = [1, 0]>>",
        "!rc.token",
        "!rc.pair<f32, 3, \"x\", [1, 2]>",
        "!llvm.ptr",
        "!foo.bar<a -> b, {[(x)]}, \">\">",
        "[]",
        "[1 : i64, [\"x\"], {}]",
        "{b, \"odd key\" = 1 : i64}",
        "array<i64>",
        "array<i8: -128, 127>",
        "array<i1: true, false>",
        "array<f32: 1.000000e+00, 0xFF800000>",
        "@f",
        "@\"f g\"::@h",
        "dense<> : tensor<0x4xf32>",
        "dense<1.000000e+00> : tensor<4xf32>",
        "dense<[[1, 2, 3], [4, 5, 6]]> : tensor<2x3xi32>",
        "dense<[true, false]> : vector<2xi1>",
        "dense<0x7FC0> : tensor<bf16>",
        "dense<18446744073709551615> : tensor<ui64>",
        "dense<[-1, 0]> : tensor<2xindex>",
        "dense_resource<blob> : tensor<4xf32>",
        "dense_resource<blob> : !rc.tile<4xf32>",
        "dense<[1, 2]> : !rc.tile<2xi8, #rc.layout<row>>",
        "#rc.shape<[s, 2 * s * t + 1, ?, max(s, t), ((s) mod (8))]>",
        "#rc.flag",
        "#rc.x<a, \"b\", 3, c = \"true\", d = [\"f32\", word], e = 3 : i32, f = [], g = array<i64>, h>",
        "#foo.bar<x = [1, {y}], \"}\">",
        "#foo.plain",
        "#foo<\"old style\">",
        "affine_set<(d0) : (d0 - 1 >= 0)>",
        "distinct[0]<unit>",
        // What rc only carries.
        "f80",
        "vector<4x[8]xf32>",
        "1.000000e+00 : f128",
        "dense<(1,2)> : tensor<2xcomplex<i32>>",
        "dense<\"x\"> : tensor<4x!foo.str>",
        "#complex.number<:f64 1.0, 0.0> : complex<f64>",
        "\"\\E2\\FF\"",
        "loc(\"a.py\":1:2)",
    ];
    for attr in attrs {
        let text = format!("foo.op {{a = {attr}}}\n");
        let expected = text
            .replace("{a = unit}", "{a}")
            .replace("{a = tensor<?x4x(s + 1)xf32", "{a = tensor<? x 4 x (s + 1) x f32");
        reads(&text, &expected);
    }
}

#[test]
fn other_spellings() {
    let same = [
        ("1", "1 : i64"),
        ("1.0", "1.000000e+00 : f64"),
        ("255 : i8", "-1 : i8"),
        ("1 : i1", "true"),
        ("0x10", "16 : i64"),
        ("[1, 2]", "[1 : i64, 2 : i64]"),
        ("tensor< 4 x ? x f32 >", "tensor<4x?xf32>"),
        ("tensor<?x768xf32, #rc.shape<[s, 768]>>", "tensor<s x 768 x f32>"),
        ("tensor<?xf32, #rc.encoding<shape = #rc.shape<[s]>, with = 3>>", "tensor<s x f32, 3>"),
        ("memref<?xf32, {rc.shape = #rc.shape<[s]>, rc.space = 3}>", "memref<s x f32, 3>"),
        ("dense<\"0x0000803F00000040\"> : tensor<2xf32>", "dense<[1.000000e+00, 2.000000e+00]> : tensor<2xf32>"),
        ("dense<\"0x0000803F\"> : tensor<2xf32>", "dense<1.000000e+00> : tensor<2xf32>"),
        ("dense<[[7]]> : tensor<1x1xi8>", "dense<7> : tensor<1x1xi8>"),
        ("dense<[[1, 1], [1, 1]]> : tensor<2x2xi8>", "dense<1> : tensor<2x2xi8>"),
        ("#rc.x<h = unit>", "#rc.x<h>"),
        ("#rc.shape<[s - s + 4, 2 * (s + 1)]>", "#rc.shape<[4, 2 * s + 2]>"),
        ("#rc.x<a = [1, 2], b = {c = word}>", "#rc.x<a = [1, 2], b = {c = word}>"),
        ("\"\\n\\t\\\"\"", "\"\\0A\\09\\22\""),
    ];
    for (text, expected) in same {
        reads(&format!("foo.op {{a = {text}}}"), &format!("foo.op {{a = {expected}}}\n"));
    }
}

#[test]
fn mixed_forms() {
    reads(
        "\"func.func\"() <{sym_name = \"f\", function_type = (f32) -> f32}> ({
        ^bb0(%x: f32):
          %y = t.add %x, %x : f32
          %z = \"rc.t.add\"(%x, %y) : (f32, f32) -> f32
          %w = t.add %z, %z
          func.return %w
        }) : () -> ()",
        "func.func @f(%x: f32) -> f32 {
  %y = t.add %x, %x : f32
  %z = t.add %x, %y : f32
  %w = t.add %z, %z : f32
  func.return %w
}
",
    );
}

#[test]
fn unregistered_operations() {
    fixed(
        "foo.op ({
  foo.nothing
  %a = foo.nothing : f32
  foo.nothing
  %b, %c:2 = foo.nothing <{p = 1 : i64}> : f32, i1, ((f32) -> f32)
  \"foo\" %a, %b
  \"foo\" ({
    a.b
  })
  %0 = \"t.add\" %a : f32
  \"odd name\" {x}
  rc.core.unknown %a
  \"t.extract\" %a
})
",
    );
    // What the declaration does not describe prints in the generic form.
    reads(
        "foo.op ({ %a = \"rc.t.add\"() : () -> f32\n \"rc.t.kinds\"() {free} : () -> ()\n \"rc.t.kinds\"() <{n = \"x\"}> : () -> () })",
        "foo.op ({
  %a = \"rc.t.add\"() : () -> f32
  \"rc.t.kinds\"() {free} : () -> ()
  \"rc.t.kinds\"() <{n = \"x\"}> : () -> ()
})
",
    );
}

#[test]
fn modules_symbols_and_resources() {
    fixed("module {\n}\n");
    fixed("module attributes {rc.x} {\n}\n");
    fixed(
        "module @m attributes {rc.target = \"sm_90a\"} {\n  t.global @w {value = dense_resource<w> : tensor<2xf32>}\n}\n",
    );
    reads("module { foo.op }", "foo.op\n");
    reads("builtin.module @m { }", "module @m {\n}\n");
    reads("\"builtin.module\"() ({ \"foo.op\"() : () -> () }) : () -> ()", "foo.op\n");
    reads(
        "#a = 3 : i32\n!t = tensor<4xf32>\nfoo.op {x = #a, y = !t, z = (!t) -> !t}",
        "foo.op {x = 3 : i32, y = tensor<4xf32>, z = (tensor<4xf32>) -> tensor<4xf32>}\n",
    );
    let mut module = parse(
        "foo.op {w = dense_resource<w> : tensor<2xf32>}\n{-# dialect_resources: { builtin: { w: \"0x080000000000803F00000040\" } } #-}\n",
    );
    let blob = &module.resources[0];
    assert_eq!((blob.align, blob.bytes()), (8, &[0, 0, 0x80, 0x3f, 0, 0, 0, 0x40][..]));
    check_round_trip(&module);
    let big: Vec<u8> = (0..200_000u32).map(|i| (i * 7) as u8).collect();
    let added = |module: &mut rc_ir::Module, bytes: &[u8]| {
        module.add_resource("big", Type::tensor_of(&[200_000], Type::i8()), Blob::new(bytes.to_vec())).to_string()
    };
    let first = added(&mut module, &big);
    assert_eq!(added(&mut module, &big), first);
    let name = first.split(['<', '>']).nth(1).unwrap();
    assert_eq!(name.len(), "big_".len() + 32, "a name has 128 bits of a cryptographic hash: {name}");
    assert_ne!(added(&mut module, &big[1..]), first);
    module.resources.pop();
    check_round_trip(&module);
    assert_eq!(parse(&generic(&module)).resources, module.resources);
}

#[test]
fn locations() {
    let text = "#loc1 = loc(\"a.py\":1:2)\nfoo.op loc(#loc1)\nfoo.op loc(#late)\nfoo.op loc(fused[\"x\"(\"b\":3:4), callsite(#loc1 at unknown)])\nfoo.op loc(unknown)\nfoo.op\n#late = loc(\"late\")\n";
    let module = parse(text);
    let options = rc_ir::print::PrintOptions { debug_info: true, ..Default::default() };
    let printed = rc_ir::print::print_module(&module, &options);
    let expected = "foo.op loc(\"a.py\":1:2)\nfoo.op loc(\"late\")\nfoo.op loc(fused[\"x\"(\"b\":3:4), callsite(\"a.py\":1:2 at unknown)])\nfoo.op loc(unknown)\nfoo.op loc(\"test.ir\":6:1)\n";
    assert_same(&printed, expected, "locations");
    assert_same(&rc_ir::print::print_module(&parse(&printed), &options), expected, "locations read back");
}

/// What rc does not interpret is kept as its text, with what its aliases stand for.
#[test]
fn aliases_in_what_is_kept() {
    reads(
        "!t = i32\n#a = 3 : i64\nfoo.op {x = #bar.b<!t, \"!t\", #a, !t.u, #a<1>>}",
        "foo.op {x = #bar.b<i32, \"!t\", 3 : i64, !t.u, #a<1>>}\n",
    );
    reads("!t = i32\nfoo.op {x = !bar.b<!t>}", "foo.op {x = !bar.b<i32>}\n");
    // Aliases of locations may come later, and stand where attributes do.
    reads(
        "!t = tuple<>\nfoo.op {x = #l}\n#m = loc(\"a\":1:2)\n#n = loc(fused<!t>[\"c\"])\n#l = loc(fused<#n>[#m, \"b\"])",
        "foo.op {x = loc(fused<loc(fused<tuple<>>[\"c\"])>[\"a\":1:2, \"b\"])}\n",
    );
    for (text, error) in [
        ("foo.op {x = #l}\n#l = loc(fused[#l])\n", "stands for itself"),
        ("foo.op {x = #late}\n#late = 1 : i32\n", "undefined attribute alias '#late'"),
    ] {
        let (_, errors) =
            rc_parser::parse_module_with("test.ir", text, &rc_parser::ParseOptions { allow_unregistered: true });
        assert!(errors.iter().any(|e| e.message.contains(error)), "{errors:?}");
    }
    // Twice as much with each alias.
    let doubling: String = (1..30).map(|n| format!("#l{n} = loc(fused[#l{}, #l{}])\n", n - 1, n - 1)).collect();
    let text = format!("foo.op {{x = #l29}}\n#l0 = loc(\"a\")\n{doubling}");
    let (_, errors) =
        rc_parser::parse_module_with("test.ir", text, &rc_parser::ParseOptions { allow_unregistered: true });
    assert!(errors.iter().any(|e| e.message.contains("more than 65536 characters")), "{errors:?}");
}

#[test]
fn what_other_tools_keep_in_a_module_stays() {
    fixed("foo.op {a = array<i0: 0, 0>, n = 0 : si0, t = i0}\n");
    fixed("foo.op {n = 340282366920938463463374607431768211455 : ui128}\n");
    let both = "foo.op\n\n{-#\n  dialect_resources: {\n    bar: {x: \"a\", y: 1}\n  },\n  external_resources: {\n    tool: {z: true}\n  }\n#-}\n";
    fixed(both);
    let mut module = parse(both);
    module.add_resource("w", Type::tensor_of(&[4], Type::i8()), Blob::new(vec![1, 2, 3, 4]));
    check_round_trip(&module);
    assert_eq!(parse(&generic(&module)).foreign, module.foreign);
    fixed("foo.op\n\n{-#\n  external_resources: {\n    tool: {z: true}\n  }\n#-}\n");
}

#[test]
fn long_attributes_have_aliases() {
    let (a, b) = ("a".repeat(50), "b".repeat(90));
    // Once and long, once and not so long, twice, twice and short.
    let text = format!(
        "t.kinds {{schedule = <x = {b}>}}\nt.kinds {{schedule = <y = {a}>}}\nt.kinds {{schedule = <z = {a}>}}\nt.kinds {{schedule = <z = {a}>}}\n\
         t.kinds {{schedule = <n = 1>}}\nt.kinds {{schedule = <n = 1>}}\n"
    );
    let expected = format!(
        "#sched0 = #rc.sched<x = {b}>\n#sched1 = #rc.sched<z = {a}>\n\nt.kinds {{schedule = #sched0}}\nt.kinds {{schedule = <y = {a}>}}\n\
         t.kinds {{schedule = #sched1}}\nt.kinds {{schedule = #sched1}}\nt.kinds {{schedule = <n = 1>}}\nt.kinds {{schedule = <n = 1>}}\n"
    );
    reads(&text, &expected);
    fixed(&expected);
}

#[test]
fn equal_values_are_a_splat() {
    for bytes in [vec![3u8], vec![3, 3], vec![3, 4]] {
        let dense = Attr::dense(Type::tensor_of(&[bytes.len() as i64], Type::i8()), bytes);
        assert_eq!(rc_parser::parse_attr(&dense.to_string()).unwrap(), dense);
    }
}

/// MLIR's modules are graphs: top-level operations may use one another's values, before their definition, too. They are one body then.
#[test]
fn top_level_operations_share_values() {
    let text = "%a = foo.one : i32
%b, %c = foo.two %a : i32, i1
foo.region %c ({
  foo.use %a, %later
})
func.func @f(%x: f32) -> f32 {
  func.return %x
}
%later = foo.one : f32
";
    let module = parse(text);
    assert_eq!(module.bodies.len(), 1);
    assert!(rc_ir::verify_module(&module).is_empty());
    reads(text, text);
    let generic = generic(&module);
    assert!(
        generic.contains("%b, %c = \"foo.two\"(%a) : (i32) -> (i32, i1)") && !generic.contains("group"),
        "{generic}"
    );
    // What a region defines has another number than what it sees.
    let seen = "%0 = foo.one : i32\nfoo.region ({\n  %1 = foo.one : i32\n})\n";
    reads(seen, seen);
    // Results of one name each: mlir-opt takes no two.
    let two = "%0 = foo.one : i32\n%1 = foo.one : i32\n";
    reads(two, two);
}

#[test]
fn sparse_constants_have_a_type() {
    let text = "foo.a {few = sparse<[[0, 0], [1, 2]], [1, 5]> : tensor<3x4xi32>, none = sparse<> : tensor<2xi8>}\n";
    fixed(text);
}

/// Types, dictionaries and signatures are known by how they start: what goes on otherwise is another one.
#[test]
fn texts_that_start_alike() {
    let wide = "tensor<4x1024x768xf32>";
    let types = ["i3", "i32", "i3", "!foo.long_enough_name", "!foo.long_enough_name<i3>", "!foo.long_enough_name_2"];
    let ops = types.map(|ty| format!("\"foo.op\"(%a, %a) {{a = \"}}\", b = {ty}}} : ({wide}, {wide}) -> {ty}"));
    // What is behind them, a comment too, is no part of them.
    let one = format!("\"foo.op\"(%a, %a) {{c}} : ({wide}, {wide}) -> i3");
    let others = ["", " // >", " // > %a", " // > {"].map(|end| format!("{one}{end}"));
    let body = [ops.join("\n"), others.join("\n")].join("\n");
    let text = format!("\"foo.all\"() ({{\n^bb0(%a: {wide}):\n{body}\n}}) : () -> ()\n");
    let module = parse(&text);
    check_round_trip(&module);
    let printed = generic(&module);
    let found: Vec<&str> = printed.lines().filter_map(|l| l.get(l.find("\"foo.op")?..)).collect();
    let expected: Vec<&str> = ops.iter().map(String::as_str).chain([one.as_str(); 4]).collect();
    assert_eq!(found, expected);
}
