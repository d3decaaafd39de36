//! Attention over what was read: the cache of one layer and the mixing of its values.

use rayon::iter::{IndexedParallelIterator, ParallelIterator};
use rayon::slice::ParallelSliceMut;

/// How many heads ask, how many are asked, and how long each one is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Heads {
    pub(crate) query: usize,
    pub(crate) kv: usize,
    pub(crate) size: usize,
}

/// Keys and values of one layer, position after position, in eight bits.
pub(crate) struct Cache {
    heads: Heads,
    keys: Side,
    values: Side,
}

/// One vector per position and head, each with its scale.
#[derive(Default)]
struct Side {
    numbers: Vec<i8>,
    scales: Vec<f32>,
}

impl Side {
    fn push(&mut self, vectors: &[f32], size: usize) {
        for vector in vectors.chunks_exact(size) {
            let largest = vector.iter().fold(0f32, |largest, x| largest.max(x.abs()));
            let inverse = if largest > 0.0 { 127.0 / largest } else { 0.0 };
            // A float cast saturates, and NaN becomes zero.
            self.numbers.extend(vector.iter().map(|x| (x * inverse).round() as i8));
            self.scales.push(largest / 127.0);
        }
    }

    fn truncate(&mut self, vectors: usize, size: usize) {
        self.numbers.truncate(vectors * size);
        self.scales.truncate(vectors);
    }

    fn get(&self, vector: usize, size: usize) -> (&[i8], f32) {
        (&self.numbers[vector * size..][..size], self.scales[vector])
    }
}

impl Cache {
    pub(crate) fn new(heads: Heads) -> Self {
        Self { heads, keys: Side::default(), values: Side::default() }
    }

    /// Adds the keys and values of the next positions.
    pub(crate) fn push(&mut self, keys: &[f32], values: &[f32]) {
        self.keys.push(keys, self.heads.size);
        self.values.push(values, self.heads.size);
    }

    /// Forgets all positions but the first.
    pub(crate) fn truncate(&mut self, positions: usize) {
        let Heads { kv, size, .. } = self.heads;
        self.keys.truncate(positions * kv, size);
        self.values.truncate(positions * kv, size);
    }
}

/// Mixes the values for each query; the first query is at position `start`, and every one sees
/// what stands before it and itself.
pub(crate) fn attend(cache: &Cache, queries: &[f32], start: usize, out: &mut Vec<f32>) {
    let heads = cache.heads;
    out.resize(queries.len(), 0.0);
    let threads = rayon::current_num_threads().max(1);
    let count = queries.len() / heads.size;
    let share = count.div_ceil(threads).max(1);
    out.par_chunks_mut(share * heads.size).enumerate().for_each(|(index, out)| {
        let first = index * share;
        pulp::Arch::new().dispatch(Mix { cache, queries, start, first, out });
    });
}

/// The work of one thread, compiled for each instruction set.
struct Mix<'a> {
    cache: &'a Cache,
    queries: &'a [f32],
    start: usize,
    /// The first of its heads, counted over all queries.
    first: usize,
    out: &'a mut [f32],
}

impl pulp::NullaryFnOnce for Mix<'_> {
    type Output = ();

    #[inline(always)]
    fn call(self) {
        let Heads { query, kv, size } = self.cache.heads;
        let shrink = 1.0 / (size as f32).sqrt();
        let mut weights = Vec::new();
        for (index, out) in self.out.chunks_exact_mut(size).enumerate() {
            let index = self.first + index;
            let asks = &self.queries[index * size..][..size];
            let positions = self.start + index / query + 1;
            let head = index % query / (query / kv);
            weights.clear();
            let mut largest = f32::NEG_INFINITY;
            for position in 0..positions {
                let (key, scale) = self.cache.keys.get(position * kv + head, size);
                let weight = product(asks, key) * scale * shrink;
                largest = largest.max(weight);
                weights.push(weight);
            }
            let mut total = 0f32;
            for weight in &mut weights {
                *weight = (*weight - largest).exp();
                total += *weight;
            }
            out.fill(0.0);
            for (position, weight) in weights.iter().enumerate() {
                let (value, scale) = self.cache.values.get(position * kv + head, size);
                let weight = weight / total * scale;
                for (out, value) in out.iter_mut().zip(value) {
                    *out += weight * f32::from(*value);
                }
            }
        }
    }
}

/// The product of two vectors, in eight sums so that the compiler may use wide registers.
#[inline(always)]
fn product(a: &[f32], b: &[i8]) -> f32 {
    let mut sums = [0f32; 8];
    let (a, a_rest) = a.as_chunks::<8>();
    let (b, b_rest) = b.as_chunks::<8>();
    for (a, b) in a.iter().zip(b) {
        for i in 0..8 {
            sums[i] += a[i] * f32::from(b[i]);
        }
    }
    let rest: f32 = a_rest.iter().zip(b_rest).map(|(a, b)| a * f32::from(*b)).sum();
    sums.iter().sum::<f32>() + rest
}
