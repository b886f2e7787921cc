//! GPT-2 with its language-model head, as `transformers` publishes it (`GPT2LMHeadModel`).
//!
//! The ids are the function's first argument, every weight is a further one, named as in the checkpoint
//! (`transformer.h.0.attn.c_attn.weight`), so that `rc-run --weights model.safetensors` binds it by name. The linear
//! layers inside the blocks store weights [in, out] (`Conv1D`); the head is the token table itself, [vocabulary, width].

use indexmap::IndexMap;
use rc_dialects::func::{SymbolDecl, return_op, set_symbols};
use rc_dialects::{CoreBuilder, TensorBuilder};
use rc_ir::builder::{NewFunc, new_function};
use rc_ir::{Attr, Builder, Dim, Loc, Module, Name, Type, Value};

/// Sizes, under the names of `GPT2Config` without their prefix.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Config {
    pub layers: i64,
    /// Width of the residual stream; a multiple of `heads`.
    pub embd: i64,
    pub heads: i64,
    pub vocab: i64,
    /// Rows of the position table: the greatest length.
    pub positions: i64,
    pub layer_norm_epsilon: f64,
}

impl Config {
    /// GPT-2 small: 124 million parameters.
    pub const SMALL: Config =
        Config { layers: 12, embd: 768, heads: 12, vocab: 50257, positions: 1024, layer_norm_epsilon: 1e-5 };

    fn check(&self) -> Result<(), String> {
        let sizes = [self.layers, self.embd, self.heads, self.vocab, self.positions];
        if sizes.iter().any(|&n| n < 1) {
            return Err(format!("every size of a model is at least 1: {self:?}"));
        }
        if self.embd % self.heads != 0 {
            return Err(format!("a width of {} does not divide into {} heads", self.embd, self.heads));
        }
        Ok(())
    }

    /// Every weight's name in the checkpoint and its shape, in the order of the function's arguments.
    pub fn weights(&self) -> IndexMap<String, Vec<i64>> {
        let width = self.embd;
        let mut all = IndexMap::new();
        let mut add = |name: String, shape: &[i64]| {
            all.insert(format!("transformer.{name}"), shape.to_vec());
        };
        add("wte.weight".into(), &[self.vocab, width]);
        add("wpe.weight".into(), &[self.positions, width]);
        for layer in 0..self.layers {
            let products = [
                ("attn.c_attn", width, 3 * width),
                ("attn.c_proj", width, width),
                ("mlp.c_fc", width, 4 * width),
                ("mlp.c_proj", 4 * width, width),
            ];
            for norm in ["ln_1", "ln_2"] {
                add(format!("h.{layer}.{norm}.weight"), &[width]);
                add(format!("h.{layer}.{norm}.bias"), &[width]);
            }
            for (name, inputs, outputs) in products {
                add(format!("h.{layer}.{name}.weight"), &[inputs, outputs]);
                add(format!("h.{layer}.{name}.bias"), &[outputs]);
            }
        }
        add("ln_f.weight".into(), &[width]);
        add("ln_f.bias".into(), &[width]);
        all
    }
}

/// How many tokens a sequence has.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Length {
    Fixed(i64),
    /// Any number in this range, bounds included, known when the module is run: the symbol `s`.
    Symbolic {
        min: i64,
        max: i64,
    },
}

impl Length {
    fn dim(self) -> Dim {
        match self {
            Length::Fixed(n) => Dim::Static(n),
            Length::Symbolic { .. } => Dim::symbol("s"),
        }
    }
    fn check(self, positions: i64) -> Result<(), String> {
        let (min, max) = match self {
            Length::Fixed(n) => (n, n),
            Length::Symbolic { min, max } => (min, max),
        };
        if 1 <= min && min <= max && max <= positions {
            return Ok(());
        }
        Err(format!(
            "a length of {min} to {max}, for a model of {positions} positions: give 1 <= MIN <= MAX <= {positions}"
        ))
    }
}

/// The function `@main` from ids [batch, length] of i64 and the weights to logits [batch, length, vocabulary], weights and
/// results of the float type `dtype`.
///
/// # Errors
/// Sizes that make no model.
pub fn module(config: &Config, batch: i64, length: Length, dtype: Type) -> Result<Module, String> {
    function(config, batch, length, dtype, "main", &["input_ids"], |model, data| model.forward(data[0]))
}

/// The function `@loss` from ids and labels, both [batch, length] of i64, and weights of f32 to the mean loss of the labels.
///
/// # Errors
/// Sizes that make no model.
pub fn loss(config: &Config, batch: i64, length: i64) -> Result<Module, String> {
    let data = ["input_ids", "labels"];
    function(config, batch, Length::Fixed(length), Type::f32(), "loss", &data, |model, data| {
        let logits = model.forward(data[0]);
        let count = Dim::Static(batch * length);
        let logits = model.b.reshape(logits, &[count, Dim::Static(config.vocab)]);
        let labels = model.b.reshape(data[1], &[count]);
        model.b.cross_entropy(logits, labels)
    })
}

/// A module with one function of ids, [batch, length] each, and of the weights.
fn function(
    config: &Config,
    batch: i64,
    length: Length,
    dtype: Type,
    name: &str,
    data: &[&str],
    build: impl Fn(&mut Model, &[Value]) -> Value,
) -> Result<Module, String> {
    config.check()?;
    length.check(config.positions)?;
    if batch < 1 {
        return Err(format!("a batch of {batch} sequences: give at least 1"));
    }
    rc_dialects::register();
    let (batch, seq) = (Dim::Static(batch), length.dim());
    let weights = config.weights();
    let mut inputs = vec![Type::tensor(&[batch, seq], Type::i64()); data.len()];
    inputs.extend(weights.values().map(|shape| Type::tensor_of(shape, dtype)));

    let NewFunc { mut body, entry, args, .. } = new_function("func.func", name, &inputs, &[], Loc::UNKNOWN);
    let names: Vec<&str> = data.iter().copied().chain(weights.keys().map(String::as_str)).collect();
    let named: Vec<Attr> = names.iter().map(|name| Attr::dict([(Name::new("rc.name"), Attr::str(name))])).collect();
    body.set_attr(body.root(), "arg_attrs", Attr::array(&named));
    if let Length::Symbolic { min, max } = length {
        set_symbols(&mut body, &[SymbolDecl::new("s", min, max)]);
    }
    let mut b = Builder::at_end(&mut body, entry);
    for (&arg, name) in args.iter().zip(&names) {
        b.name(arg, name);
    }
    let (data, weights) = (&args[..data.len()], weights.into_keys().zip(args[data.len()..].iter().copied()).collect());
    let mut model = Model { config, batch, seq, weights, b };
    let result = build(&mut model, data);
    let ty = model.b.ty(result);
    return_op(&mut model.b, &[result]);
    body.set_attr(body.root(), "function_type", Attr::ty(Type::function(&inputs, &[ty])));

    let mut module = Module::new();
    module.push(body);
    Ok(module)
}

/// The model under construction: where operations go, and the weights by name.
struct Model<'a> {
    config: &'a Config,
    batch: Dim,
    seq: Dim,
    weights: IndexMap<String, Value>,
    b: Builder<'a>,
}

impl Model<'_> {
    /// The logits of the tokens `ids` [batch, length].
    fn forward(&mut self, ids: Value) -> Value {
        let (tokens, positions) = (self.weight("wte.weight"), self.weight("wpe.weight"));
        let token_rows = self.b.embedding(tokens, ids);
        let first = [Dim::Static(0), Dim::Static(0)];
        let position_rows = self.b.slice(positions, &first, &[self.seq, Dim::Static(self.config.embd)]);
        let mut x = self.b.add(token_rows, position_rows);
        for layer in 0..self.config.layers {
            x = self.block(x, &format!("h.{layer}"));
        }
        x = self.layer_norm(x, "ln_f");
        self.b.linear(x, tokens, None)
    }

    /// Attention and a two-layer perceptron, each on a normalized copy of the residual stream `x`.
    fn block(&mut self, x: Value, name: &str) -> Value {
        let h = self.layer_norm(x, &format!("{name}.ln_1"));
        let h = self.attention(h, &format!("{name}.attn"));
        let x = self.b.add(h, x);
        let h = self.layer_norm(x, &format!("{name}.ln_2"));
        let h = self.conv1d(h, &format!("{name}.mlp.c_fc"));
        let h = self.b.gelu(h, "tanh");
        let h = self.conv1d(h, &format!("{name}.mlp.c_proj"));
        self.b.add(x, h)
    }

    /// Causal self-attention in `heads` heads; queries, keys and values are thirds of one product.
    fn attention(&mut self, x: Value, name: &str) -> Value {
        let Config { embd, heads, .. } = *self.config;
        let [batch, seq, width, head_width] = [self.batch, self.seq, embd.into(), (embd / heads).into()];
        let qkv = self.conv1d(x, &format!("{name}.c_attn"));
        let [q, k, v] = [0, embd, 2 * embd].map(|start| {
            let third = self.b.slice(qkv, &[0.into(), 0.into(), start.into()], &[batch, seq, width]);
            let split = self.b.reshape(third, &[batch, seq, heads.into(), head_width]);
            self.b.permute(split, &[0, 2, 1, 3])
        });
        let y = self.b.sdpa(q, k, v, None, true, None);
        let y = self.b.permute(y, &[0, 2, 1, 3]);
        let y = self.b.reshape(y, &[batch, seq, width]);
        self.conv1d(y, &format!("{name}.c_proj"))
    }

    /// `x @ weight + bias`, for a weight [in, out]. Rounded once, after the bias, as PyTorch's addmm does it; that is
    /// why it is written in `core`, where a product's result type says when it rounds.
    fn conv1d(&mut self, x: Value, name: &str) -> Value {
        let (weight, bias) = self.pair(name);
        let b = &mut self.b;
        let mut shape = b.ty(x).shape();
        let last = shape.len() - 1;
        shape[last] = b.ty(weight).shape()[1];
        let product = b.op("rc.core.dot").operands(&[x, weight]);
        let product = product.attr("lhs_contract", Attr::i64s(&[last as i64])).attr("rhs_contract", Attr::i64s(&[0]));
        let product = product.result(Type::tensor(&shape, Type::f32())).value();
        let wide = b.convert(bias, Type::f32());
        let sum = b.add(product, wide);
        let elem = b.ty(x).elem();
        b.convert(sum, elem)
    }

    fn layer_norm(&mut self, x: Value, name: &str) -> Value {
        let (weight, bias) = self.pair(name);
        self.b.layer_norm(x, Some(weight), Some(bias), self.config.layer_norm_epsilon)
    }

    /// The weight and the bias of a layer.
    fn pair(&self, name: &str) -> (Value, Value) {
        (self.weight(&format!("{name}.weight")), self.weight(&format!("{name}.bias")))
    }

    fn weight(&self, name: &str) -> Value {
        self.weights[&format!("transformer.{name}")]
    }
}
