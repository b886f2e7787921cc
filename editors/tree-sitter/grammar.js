// rc's IR: the pretty and the generic form, which may be mixed in a file. One rule serves every operation, as in rc's own parser.

const list = (rule) => optional(list1(rule));
const list1 = (rule) => seq(rule, repeat(seq(",", rule)));

module.exports = grammar({
  name: "rc_ir",
  extras: ($) => [/\s/, $.comment],
  word: ($) => $.word,
  conflicts: ($) => [
    // `{a.b}` is a region with an operation, or a dictionary with an entry.
    [$._plain_operation, $.entry],
    // Types in parentheses may turn out to be the arguments of a function type.
    [$.result_types, $.function_type],
    // After `kernel.barrier` a value is an operand, or a result of the next operation.
    [$._plain_operation],
  ],

  rules: {
    source_file: ($) => repeat($._top_level),
    _top_level: ($) => choice($.module, $.alias_definition, $.resources, $.operation),
    comment: () => token(seq("//", /[^\n]*/)),

    module: ($) =>
      seq("module", optional($.symbol), optional(seq("attributes", $.dictionary)), "{", repeat($._top_level), "}", optional($.location)),
    alias_definition: ($) => seq(choice($.attribute_name, $.type_name), "=", choice($._attribute, $.location)),
    resources: ($) => seq("{-#", repeat($._balanced), "#-}"),

    // %a, %b:2 = core.add %x, %y {…} ({ … }) : tensor<4xf32>
    operation: ($) =>
      seq(optional(seq($.results, "=")), choice($._generic_operation, $._symbol_operation, $._plain_operation), optional($.location)),
    results: ($) => list1(seq($.value, optional(seq(":", $.number)))),

    // "rc.core.add"(%a, %b)[^bb1] <{…}> ({ … }) {…} : (t, t) -> t
    _generic_operation: ($) =>
      seq(
        field("name", $.string),
        "(", list($.value), ")",
        optional($.successors),
        optional(seq("<", $.dictionary, ">")),
        optional($.regions),
        optional($.dictionary),
        ":", $.function_type,
      ),

    // func.func private @f(%x: t {…}) -> t attributes {…} { … }
    _symbol_operation: ($) =>
      prec.right(
        seq(
          field("name", $.operation_name),
          optional(choice("private", "public", "nested")),
          field("symbol", $.symbol),
          optional($.arguments),
          optional(seq("->", choice($._type, $.result_types))),
          optional(seq("attributes", $.dictionary)),
          optional(choice($.region, $.dictionary)),
        ),
      ),
    arguments: ($) => seq("(", list(choice($.argument, seq($._type, optional($.dictionary)))), ")"),
    result_types: ($) => seq("(", list(seq($._type, optional($.dictionary))), ")"),

    // core.reduce %x bias(%b) iter(%acc = %init) [^bb1] {…} (…) : t, t
    _plain_operation: ($) =>
      seq(
        field("name", $.operation_name),
        repeat(choice(",", $.operand, $.operand_group, $.successors, $.label)),
        optional($.dictionary),
        optional($.regions),
        optional(seq(":", list1($._type))),
      ),
    operand: ($) => prec.right(seq($.value, optional($.index_map))),
    operand_group: ($) => seq($.word, "(", list(choice($.operand, seq($.value, "=", $.value))), ")"),
    index_map: ($) => seq("[", repeat($._balanced), "]"),
    successors: ($) => seq("[", list1($.label), "]"),

    regions: ($) => seq("(", list1(choice($.region, seq("(", list($.argument), ")", $.region), seq("(", list($.argument), ")", "{", repeat(choice($.block_label, $.operation)), "}"))), ")"),
    region: ($) => prec(1, seq("{", repeat(choice($.block_label, $.operation)), "}")),
    block_label: ($) => seq($.label, optional(seq("(", list($.argument), ")")), ":"),
    argument: ($) => seq($.value, ":", $._type, optional($.dictionary), optional($.location)),
    location: ($) => seq("loc", "(", repeat($._balanced), ")"),

    // ---- attributes ----

    dictionary: ($) => seq("{", list($.entry), "}"),
    entry: ($) => seq(field("key", choice($.word, $.operation_name, $.string)), optional(seq("=", $._attribute))),
    _attribute: ($) =>
      prec.right(
        seq(
          choice($.number, $.string, $.symbol_reference, $.dictionary, $.array, $.named_attribute, $.parameters, $.constant, $._type),
          optional(seq(":", $._type)),
        ),
      ),
    symbol_reference: ($) => prec.right(seq($.symbol, repeat(seq("::", $.symbol)))),
    array: ($) => seq("[", repeat($._balanced), "]"),
    named_attribute: ($) => prec.right(seq($.attribute_name, optional($.parameters))),
    constant: () => choice("true", "false", "unit"),

    // ---- types ----

    _type: ($) => choice($.function_type, $.type),
    type: ($) => prec.right(seq(choice($.word, $.type_name), optional($.parameters))),
    function_type: ($) => prec.right(seq("(", list($._type), ")", "->", choice($._type, seq("(", list($._type), ")")))),
    parameters: ($) => seq("<", repeat($._balanced), ">"),

    // What stands in brackets: sizes, expressions, elements.
    _balanced: ($) =>
      choice(
        $.number, $.string, $.word, $.operation_name, $.value, $.symbol, $.attribute_name, $.type_name, $.size,
        ",", ":", "=", "+", "-", "*", "?", "->", "::", "/", ".",
        seq("(", repeat($._balanced), ")"),
        seq("[", repeat($._balanced), "]"),
        seq("{", repeat($._balanced), "}"),
        $.parameters,
      ),

    // ---- words ----

    operation_name: () => /[A-Za-z_][A-Za-z0-9_$]*(\.[A-Za-z0-9_$-]+)+/,
    word: () => /[A-Za-z_][A-Za-z0-9_$]*/,
    // 4x8xf32 and ?x4xf32 without spaces.
    size: () => token(prec(1, /([0-9]+|\?)(x([0-9]+|\?))*x[A-Za-z][A-Za-z0-9]*/)),
    number: () => /-?(0x[0-9A-Fa-f]+|[0-9]+(\.[0-9]*)?([eE][-+]?[0-9]+)?)/,
    string: () => /"([^"\\\n]|\\.)*"/,
    value: () => /%([0-9]+|[A-Za-z_$.-][A-Za-z0-9_$.-]*)(#[0-9]+)?/,
    symbol: () => /@([A-Za-z_][A-Za-z0-9_$.]*|"([^"\\\n]|\\.)*")/,
    label: () => /\^[A-Za-z0-9_$.-]+/,
    attribute_name: () => /#[A-Za-z_][A-Za-z0-9_$.-]*/,
    type_name: () => /![A-Za-z_][A-Za-z0-9_$.-]*/,
  },
});
