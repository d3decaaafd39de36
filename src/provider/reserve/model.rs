//! The llama architecture: tokens in, logits out, with a cache of keys and values.
//!
//! The formulas are those of the published model: root-mean-square norms, rotary positions on
//! neighbouring pairs, grouped-query attention, a gated feed-forward step. Keys and values are
//! kept in eight bits with one scale per head and position, which grows with the conversation.
//! Several tokens at a time take the same path as one, with the same result.
//!
//! # Invariants
//! - The cache holds exactly the tokens that were fed and not taken back.
//! - A step that is given up half way leaves the cache as it was.

use rayon::iter::{IndexedParallelIterator, ParallelIterator};
use rayon::slice::ParallelSliceMut;

use super::attention::{Cache, Heads, attend};
use super::gguf::{Head, ModelError, Tensor};
use super::kernel::{BLOCK, Quantised, Rows};

/// Tokens that go through the layers at a time: enough to use a row many times once it is
/// unpacked, few enough that giving up is noticed at once and scratch memory stays below 2 MB.
pub(crate) const TOGETHER: usize = 64;

/// Rows that one thread takes at a time: fewer cost more in handing out than in arithmetic.
const ROWS_MIN: usize = 64;

/// Sizes of a model.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Shape {
    pub(crate) layers: usize,
    pub(crate) width: usize,
    pub(crate) hidden: usize,
    pub(crate) heads: Heads,
    pub(crate) vocabulary: usize,
    pub(crate) context: usize,
    rope_base: f64,
    epsilon: f32,
}

/// A model, its file in memory and what it has read.
pub(crate) struct Model {
    file: Vec<u8>,
    pub(crate) shape: Shape,
    embedding: Tensor,
    output: Tensor,
    output_norm: Vec<f32>,
    layers: Vec<Layer>,
    cache: Vec<Cache>,
    /// What the cache holds.
    fed: Vec<u32>,
    scratch: Scratch,
}

struct Layer {
    attention_norm: Vec<f32>,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_out: Tensor,
    ffn_norm: Vec<f32>,
    gate: Tensor,
    up: Tensor,
    down: Tensor,
}

/// Memory that every step uses again.
#[derive(Default)]
struct Scratch {
    quantised: Quantised,
    products: Vec<f32>,
    angles: Vec<(f32, f32)>,
    normed: Vec<f32>,
    query: Vec<f32>,
    key: Vec<f32>,
    value: Vec<f32>,
    mixed: Vec<f32>,
    gate: Vec<f32>,
    up: Vec<f32>,
}

/// Somebody does not want the answer any more.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct GivenUp;

impl Shape {
    fn read(head: &Head, bytes: &[u8]) -> Result<Self, ModelError> {
        let architecture = head.text("general.architecture", bytes);
        if architecture != "llama" {
            let says = format!("its architecture is {architecture:?}, and only \"llama\" is known");
            return Err(ModelError::Unsupported(says));
        }
        let heads = head.whole("llama.attention.head_count")?;
        let kv_heads = head.whole("llama.attention.head_count_kv").unwrap_or(heads);
        let width = head.whole("llama.embedding_length")?;
        let hidden = head.whole("llama.feed_forward_length")?;
        let embedding = head.tensors.get("token_embd.weight");
        let vocabulary = embedding.map_or(0, |tensor| tensor.rows);
        let fits = heads > 0
            && kv_heads > 0
            && heads.is_multiple_of(kv_heads)
            && width.is_multiple_of(heads)
            && (width / heads).is_multiple_of(2)
            && width.is_multiple_of(BLOCK)
            && hidden.is_multiple_of(BLOCK)
            && vocabulary > 0;
        if !fits {
            return Err(ModelError::Damaged("its sizes do not fit each other"));
        }
        let size = width / heads;
        if head.whole("llama.rope.dimension_count").unwrap_or(size) != size {
            return Err(ModelError::Unsupported("it rotates only part of a head".to_owned()));
        }
        if head.values.contains_key("llama.rope.scaling.type")
            || head.tensors.contains_key("rope_freqs.weight")
        {
            return Err(ModelError::Unsupported("its positions are scaled".to_owned()));
        }
        Ok(Self {
            layers: head.whole("llama.block_count")?.min(1024),
            width,
            hidden,
            heads: Heads { query: heads, kv: kv_heads, size },
            vocabulary,
            context: head.whole("llama.context_length")?,
            rope_base: head.real_or("llama.rope.freq_base", 10_000.0),
            epsilon: head.real_or("llama.attention.layer_norm_rms_epsilon", 1e-5) as f32,
        })
    }

    /// Bytes that the cache takes for each token.
    pub(crate) fn cache_bytes(&self) -> usize {
        self.layers * 2 * self.heads.kv * (self.heads.size + size_of::<f32>())
    }
}

impl Model {
    /// A model over the bytes of its file.
    pub(crate) fn new(file: Vec<u8>, head: &Head) -> Result<Self, ModelError> {
        let shape = Shape::read(head, &file)?;
        let (width, hidden) = (shape.width, shape.hidden);
        let kv = shape.heads.kv * shape.heads.size;
        let norm = |name: &str| -> Result<Vec<f32>, ModelError> {
            let tensor = head.tensor(name, width, 1)?;
            let mut numbers = vec![0.0; width];
            rows(&file, &tensor).read(0, &mut numbers);
            Ok(numbers)
        };
        let mut layers = Vec::new();
        for layer in 0..shape.layers {
            let name = |part: &str| format!("blk.{layer}.{part}.weight");
            layers.push(Layer {
                attention_norm: norm(&name("attn_norm"))?,
                query: head.tensor(&name("attn_q"), width, width)?,
                key: head.tensor(&name("attn_k"), width, kv)?,
                value: head.tensor(&name("attn_v"), width, kv)?,
                attention_out: head.tensor(&name("attn_output"), width, width)?,
                ffn_norm: norm(&name("ffn_norm"))?,
                gate: head.tensor(&name("ffn_gate"), width, hidden)?,
                up: head.tensor(&name("ffn_up"), width, hidden)?,
                down: head.tensor(&name("ffn_down"), hidden, width)?,
            });
        }
        let embedding = head.tensor("token_embd.weight", width, shape.vocabulary)?;
        let output = match head.tensors.contains_key("output.weight") {
            true => head.tensor("output.weight", width, shape.vocabulary)?,
            false => embedding.clone(),
        };
        let output_norm = norm("output_norm.weight")?;
        let cache = (0..shape.layers).map(|_| Cache::new(shape.heads)).collect();
        let (fed, scratch) = (Vec::new(), Scratch::default());
        Ok(Self { file, shape, embedding, output, output_norm, layers, cache, fed, scratch })
    }

    /// The bytes of the file, for texts that stay there.
    pub(crate) fn file(&self) -> &[u8] {
        &self.file
    }

    /// What has been read.
    pub(crate) fn fed(&self) -> &[u32] {
        &self.fed
    }

    /// Takes back everything but the first tokens.
    pub(crate) fn keep(&mut self, tokens: usize) {
        self.fed.truncate(tokens);
        for cache in &mut self.cache {
            cache.truncate(tokens);
        }
    }

    /// Reads tokens and tells what may follow the last of them: a number for each token of the
    /// vocabulary. Must run inside the thread pool that shall do the work.
    pub(crate) fn feed(
        &mut self,
        tokens: &[u32],
        given_up: &dyn Fn() -> bool,
    ) -> Result<Vec<f32>, GivenUp> {
        let before = self.fed.len();
        let mut states = Vec::new();
        for tokens in tokens.chunks(TOGETHER) {
            states = self.step(tokens, given_up).inspect_err(|_| self.keep(before))?;
        }
        let last = states.len().saturating_sub(self.shape.width);
        let mut logits = vec![0.0; self.shape.vocabulary];
        if let Some(last) = states.get(last..).filter(|last| !last.is_empty()) {
            norm(last, &self.output_norm, self.shape.epsilon, &mut self.scratch.normed);
            let Self { file, output, scratch, .. } = self;
            let Scratch { quantised, normed, products, .. } = scratch;
            quantised.fill(normed, output.columns);
            multiply(rows(file, output), quantised, products, &mut logits);
        }
        Ok(logits)
    }

    /// Takes a few tokens through all layers.
    fn step(&mut self, tokens: &[u32], given_up: &dyn Fn() -> bool) -> Result<Vec<f32>, GivenUp> {
        let Self { file, shape, embedding, layers, cache, fed, scratch, .. } = self;
        let s = scratch;
        let start = fed.len();
        let mut states = vec![0.0; tokens.len() * shape.width];
        for (token, state) in tokens.iter().zip(states.chunks_exact_mut(shape.width)) {
            let row = (*token as usize).min(shape.vocabulary - 1);
            rows(file, embedding).read(row, state);
        }
        angles(start, tokens.len(), shape, &mut s.angles);
        for (layer, cache) in layers.iter().zip(cache.iter_mut()) {
            if given_up() {
                // Layers before this one have read the tokens already.
                fed.extend(tokens);
                return Err(GivenUp);
            }
            norm(&states, &layer.attention_norm, shape.epsilon, &mut s.normed);
            s.quantised.fill(&s.normed, shape.width);
            for (tensor, out) in [
                (&layer.query, &mut s.query),
                (&layer.key, &mut s.key),
                (&layer.value, &mut s.value),
            ] {
                out.resize(tokens.len() * tensor.rows, 0.0);
                multiply(rows(file, tensor), &s.quantised, &mut s.products, out);
            }
            rotate(&mut s.query, &s.angles, shape.heads.query, shape.heads.size);
            rotate(&mut s.key, &s.angles, shape.heads.kv, shape.heads.size);
            cache.push(&s.key, &s.value);
            attend(cache, &s.query, start, &mut s.mixed);
            s.quantised.fill(&s.mixed, shape.width);
            add(
                rows(file, &layer.attention_out),
                &s.quantised,
                &mut s.products,
                &mut s.normed,
                &mut states,
            );

            norm(&states, &layer.ffn_norm, shape.epsilon, &mut s.normed);
            s.quantised.fill(&s.normed, shape.width);
            for (tensor, out) in [(&layer.gate, &mut s.gate), (&layer.up, &mut s.up)] {
                out.resize(tokens.len() * tensor.rows, 0.0);
                multiply(rows(file, tensor), &s.quantised, &mut s.products, out);
            }
            for (gate, up) in s.gate.iter_mut().zip(&s.up) {
                *gate = *gate / (1.0 + (-*gate).exp()) * up;
            }
            s.quantised.fill(&s.gate, shape.hidden);
            add(rows(file, &layer.down), &s.quantised, &mut s.products, &mut s.normed, &mut states);
        }
        fed.extend(tokens);
        Ok(states)
    }
}

fn rows<'a>(file: &'a [u8], tensor: &Tensor) -> Rows<'a> {
    Rows { kind: tensor.kind, columns: tensor.columns, bytes: &file[tensor.place.clone()] }
}

/// Multiplies, spread over the threads; `out` is one vector after the other.
fn multiply(rows: Rows<'_>, with: &Quantised, products: &mut Vec<f32>, out: &mut [f32]) {
    let stride = rows.stride();
    let count = rows.bytes.len() / stride.max(1);
    let vectors = out.len() / count.max(1);
    let threads = rayon::current_num_threads().max(1);
    let share = count.div_ceil(threads).max(ROWS_MIN);
    let spread = |products: &mut [f32]| {
        products.par_chunks_mut(share * vectors).enumerate().for_each(|(index, products)| {
            let from = index * share * stride;
            let to = from + products.len() / vectors * stride;
            Rows { bytes: &rows.bytes[from..to], ..rows }.multiply(with, products);
        });
    };
    if vectors == 1 {
        spread(out);
        return;
    }
    products.resize(out.len(), 0.0);
    spread(products);
    for (row, products) in products.chunks_exact(vectors).enumerate() {
        for (vector, product) in products.iter().enumerate() {
            out[vector * count + row] = *product;
        }
    }
}

/// Multiplies and adds the result to the states.
fn add(
    rows: Rows<'_>,
    with: &Quantised,
    products: &mut Vec<f32>,
    out: &mut Vec<f32>,
    states: &mut [f32],
) {
    out.resize(states.len(), 0.0);
    multiply(rows, with, products, out);
    for (state, out) in states.iter_mut().zip(out) {
        *state += *out;
    }
}

fn norm(states: &[f32], weights: &[f32], epsilon: f32, out: &mut Vec<f32>) {
    out.clear();
    for state in states.chunks_exact(weights.len()) {
        let squares: f32 = state.iter().map(|x| x * x).sum();
        let scale = 1.0 / (squares / weights.len() as f32 + epsilon).sqrt();
        out.extend(state.iter().zip(weights).map(|(x, weight)| x * scale * weight));
    }
}

/// Sine and cosine of every pair's angle, for positions one after the other.
fn angles(start: usize, count: usize, shape: &Shape, out: &mut Vec<(f32, f32)>) {
    let size = shape.heads.size;
    out.clear();
    for position in start..start + count {
        out.extend((0..size / 2).map(|pair| {
            let frequency = shape.rope_base.powf(-2.0 * pair as f64 / size as f64);
            let (sin, cos) = (position as f64 * frequency).sin_cos();
            (sin as f32, cos as f32)
        }));
    }
}

/// Turns neighbouring pairs of every head by the angle of their position.
fn rotate(vectors: &mut [f32], angles: &[(f32, f32)], heads: usize, size: usize) {
    let positions = vectors.chunks_exact_mut(heads * size).zip(angles.chunks_exact(size / 2));
    for (vector, angles) in positions {
        for head in vector.chunks_exact_mut(size) {
            for (pair, (sin, cos)) in head.as_chunks_mut::<2>().0.iter_mut().zip(angles) {
                let [a, b] = *pair;
                *pair = [a * cos - b * sin, a * sin + b * cos];
            }
        }
    }
}
