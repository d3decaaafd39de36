//! The arithmetic (pure): rows of quantised weights times vectors of activations.
//!
//! Activations are quantised in blocks of 32 to eight bits, as the weights are, so that the inner
//! loop multiplies small integers; a row is unpacked once for all the vectors it meets. `pulp`
//! picks the instruction set of the processor at hand without `unsafe` here: AVX2 has its own
//! inner loop, everything else (NEON, SSE2) is what the compiler makes of the plain one.
//! Answers do not depend on how many vectors are multiplied at a time.

use super::gguf::Kind;

/// Numbers in a block, for weights and activations alike.
pub(crate) const BLOCK: usize = 32;

/// Vectors of activations, quantised.
#[derive(Debug, Default, Clone)]
pub(crate) struct Quantised {
    columns: usize,
    values: Vec<i8>,
    scales: Vec<f32>,
    /// Scale times the sum of a block's values, for weights with a minimum.
    sums: Vec<f32>,
}

impl Quantised {
    /// Quantises vectors of this many numbers, one after the other. Reuses its memory.
    pub(crate) fn fill(&mut self, vectors: &[f32], columns: usize) {
        self.columns = columns;
        self.values.clear();
        self.scales.clear();
        self.sums.clear();
        for block in vectors.as_chunks::<BLOCK>().0 {
            let (values, scale) = quantise(block);
            let sum: i32 = values.iter().map(|value| i32::from(*value)).sum();
            self.values.extend(values);
            self.scales.push(scale);
            self.sums.push(scale * sum as f32);
        }
    }

    fn count(&self) -> usize {
        self.values.len() / self.columns.max(1)
    }
}

/// Rows of one matrix, in the file's bytes.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Rows<'a> {
    pub(crate) kind: Kind,
    pub(crate) columns: usize,
    pub(crate) bytes: &'a [u8],
}

impl Rows<'_> {
    /// Bytes of a row.
    pub(crate) fn stride(&self) -> usize {
        let (numbers, bytes) = self.kind.block();
        self.columns / numbers * bytes
    }

    /// Multiplies all rows with all vectors: `out` has a row of products for each row.
    pub(crate) fn multiply(&self, with: &Quantised, out: &mut [f32]) {
        #[cfg(target_arch = "x86_64")]
        if let Some(simd) = pulp::x86::V3::try_new() {
            let dot = |q: Scaled<'_>, x: Scaled<'_>| avx2::dot(simd, q, x);
            simd.vectorize(Multiply { rows: *self, with, out, dot });
            return;
        }
        pulp::Arch::new().dispatch(Multiply { rows: *self, with, out, dot: plain_dot });
    }

    /// The numbers of one row.
    pub(crate) fn read(&self, row: usize, out: &mut [f32]) {
        let bytes = &self.bytes[row * self.stride()..][..self.stride()];
        read(self.kind, bytes, out);
    }
}

/// The numbers of a row, or of part of one.
fn read(kind: Kind, bytes: &[u8], out: &mut [f32]) {
    match kind {
        Kind::F32 => {
            for (out, bytes) in out.iter_mut().zip(bytes.as_chunks::<4>().0) {
                *out = f32::from_le_bytes(*bytes);
            }
        }
        Kind::F16 => {
            for (out, bytes) in out.iter_mut().zip(bytes.as_chunks::<2>().0) {
                *out = half(u32::from(u16::from_le_bytes(*bytes)));
            }
        }
        Kind::Q4_0 | Kind::Q4_1 | Kind::Q8_0 => {
            let mut unpacked = Unpacked::default();
            unpacked.fill(kind, bytes);
            for (block, out) in out.as_chunks_mut::<BLOCK>().0.iter_mut().enumerate() {
                let (scale, least) = (unpacked.scales[block], unpacked.least[block]);
                for (out, value) in out.iter_mut().zip(unpacked.values[block]) {
                    *out = scale * f32::from(value) + least;
                }
            }
        }
    }
}

/// Numbers as eight bits and a scale.
fn quantise(block: &[f32; BLOCK]) -> ([i8; BLOCK], f32) {
    let largest = block.iter().fold(0f32, |largest, x| largest.max(x.abs()));
    let inverse = if largest > 0.0 { 127.0 / largest } else { 0.0 };
    // Half away from zero, without a call; a float cast saturates, and NaN becomes zero.
    (block.map(|x| (x * inverse + 0.5f32.copysign(x)) as i8), largest / 127.0)
}

/// One row, unpacked.
#[derive(Default)]
struct Unpacked {
    values: Vec<[i8; BLOCK]>,
    scales: Vec<f32>,
    least: Vec<f32>,
}

impl Unpacked {
    #[inline(always)]
    fn fill(&mut self, kind: Kind, bytes: &[u8]) {
        let (numbers, size) = kind.block();
        let blocks = bytes.len() / size * numbers / BLOCK;
        self.values.resize(blocks, [0; BLOCK]);
        self.scales.resize(blocks, 0.0);
        self.least.resize(blocks, 0.0);
        let out = self.values.iter_mut().zip(&mut self.scales).zip(&mut self.least);
        match kind {
            Kind::Q4_1 => {
                for (block, ((values, scale), least)) in bytes.as_chunks::<20>().0.iter().zip(out) {
                    let [s0, s1, m0, m1, packed @ ..] = block;
                    *scale = raw([*s0, *s1]);
                    *least = raw([*m0, *m1]);
                    *values = nibbles(packed);
                }
                halves(&mut self.scales);
                halves(&mut self.least);
            }
            Kind::Q4_0 => {
                for (block, ((values, scale), _)) in bytes.as_chunks::<18>().0.iter().zip(out) {
                    let [s0, s1, packed @ ..] = block;
                    *scale = raw([*s0, *s1]);
                    *values = nibbles(packed);
                }
                halves(&mut self.scales);
                for (least, scale) in self.least.iter_mut().zip(&self.scales) {
                    *least = -8.0 * scale;
                }
            }
            Kind::Q8_0 => {
                for (block, ((values, scale), _)) in bytes.as_chunks::<34>().0.iter().zip(out) {
                    let [s0, s1, packed @ ..] = block;
                    *scale = raw([*s0, *s1]);
                    *values = pulp::cast(*packed);
                }
                halves(&mut self.scales);
            }
            Kind::F32 | Kind::F16 => {
                let width = size * BLOCK;
                for (bytes, ((values, scale), _)) in bytes.chunks_exact(width).zip(out) {
                    let mut row = [0f32; BLOCK];
                    read(kind, bytes, &mut row);
                    (*values, *scale) = quantise(&row);
                }
            }
        }
    }
}

/// The four-bit values of a block: the low halves of its bytes, then the high ones.
#[inline(always)]
fn nibbles(packed: &[u8; BLOCK / 2]) -> [i8; BLOCK] {
    let mut values = [0; BLOCK];
    for (i, byte) in packed.iter().enumerate() {
        values[i] = i8::from_ne_bytes([byte & 15]);
        values[i + BLOCK / 2] = i8::from_ne_bytes([byte >> 4]);
    }
    values
}

/// The bits of a half-precision number, until a whole row of them is converted at once.
#[inline(always)]
fn raw(bytes: [u8; 2]) -> f32 {
    f32::from_bits(u32::from(u16::from_le_bytes(bytes)))
}

/// Converts what `raw` left, several at a time.
#[inline(always)]
fn halves(numbers: &mut [f32]) {
    for number in numbers {
        *number = half(number.to_bits());
    }
}

/// A half-precision number. Infinities and NaN, which no weights have, become large numbers.
#[inline(always)]
fn half(bits: u32) -> f32 {
    // 2^112 moves the exponent from the narrow range to the wide one, small numbers included.
    let magnitude = f32::from_bits((bits & 0x7fff) << 13) * f32::from_bits(0x7780_0000);
    f32::from_bits(magnitude.to_bits() | ((bits & 0x8000) << 16))
}

/// Blocks with their scales: of a row, or of a vector.
#[derive(Clone, Copy)]
struct Scaled<'a> {
    values: &'a [[i8; BLOCK]],
    scales: &'a [f32],
}

/// What is done for the rows, compiled once for each instruction set.
struct Multiply<'a, D> {
    rows: Rows<'a>,
    with: &'a Quantised,
    out: &'a mut [f32],
    dot: D,
}

impl<D: Fn(Scaled<'_>, Scaled<'_>) -> f32> pulp::NullaryFnOnce for Multiply<'_, D> {
    type Output = ();

    #[inline(always)]
    fn call(self) {
        let Self { rows, with, out, dot } = self;
        let blocks = rows.columns / BLOCK;
        let has_least = rows.kind != Kind::Q8_0;
        let mut row = Unpacked::default();
        let x = with.values.as_chunks::<BLOCK>().0;
        let each = rows.bytes.chunks_exact(rows.stride()).zip(out.chunks_exact_mut(with.count()));
        for (bytes, out) in each {
            row.fill(rows.kind, bytes);
            let q = Scaled { values: &row.values, scales: &row.scales };
            for (vector, out) in out.iter_mut().enumerate() {
                let span = vector * blocks..(vector + 1) * blocks;
                let scales = &with.scales[span.clone()];
                let mut sum = dot(q, Scaled { values: &x[span.clone()], scales });
                if has_least {
                    sum += product(&row.least, &with.sums[span]);
                }
                *out = sum;
            }
        }
    }
}

/// The product of two vectors, in eight sums so that the compiler may use wide registers.
#[inline(always)]
fn product(a: &[f32], b: &[f32]) -> f32 {
    let mut sums = [0f32; 8];
    let (a, a_rest) = a.as_chunks::<8>();
    let (b, b_rest) = b.as_chunks::<8>();
    for (a, b) in a.iter().zip(b) {
        for i in 0..8 {
            sums[i] += a[i] * b[i];
        }
    }
    let rest: f32 = a_rest.iter().zip(b_rest).map(|(a, b)| a * b).sum();
    sums.iter().sum::<f32>() + rest
}

#[inline(always)]
fn plain_dot(q: Scaled<'_>, x: Scaled<'_>) -> f32 {
    let scales = q.scales.iter().zip(x.scales);
    let mut sum = 0f32;
    for ((q, x), (a, b)) in q.values.iter().zip(x.values).zip(scales) {
        let mut whole = 0i32;
        for (q, x) in q.iter().zip(x) {
            // 32 products of at most 128 times 127 are far from the end of i32.
            whole = whole.wrapping_add(i32::from(*q) * i32::from(*x));
        }
        sum += a * b * whole as f32;
    }
    sum
}

/// The inner loop for AVX2: pairs of products are added in the multiplication.
#[cfg(target_arch = "x86_64")]
mod avx2 {
    use std::arch::x86_64::{__m256, __m256i};

    use super::{BLOCK, Scaled};

    #[inline(always)]
    pub(super) fn dot(simd: pulp::x86::V3, q: Scaled<'_>, x: Scaled<'_>) -> f32 {
        let (avx, fma) = (simd.avx, simd.fma);
        // Two sums: one would wait for its last addition all the time.
        let mut sums = [avx._mm256_setzero_ps(); 2];
        let (q_pairs, q_last) = q.values.as_chunks::<2>();
        let (x_pairs, x_last) = x.values.as_chunks::<2>();
        let (a_pairs, a_last) = q.scales.as_chunks::<2>();
        let (b_pairs, b_last) = x.scales.as_chunks::<2>();
        for ((q, x), (a, b)) in q_pairs.iter().zip(x_pairs).zip(a_pairs.iter().zip(b_pairs)) {
            for i in 0..2 {
                let scale = avx._mm256_set1_ps(a[i] * b[i]);
                sums[i] = fma._mm256_fmadd_ps(products(simd, &q[i], &x[i]), scale, sums[i]);
            }
        }
        for ((q, x), (a, b)) in q_last.iter().zip(x_last).zip(a_last.iter().zip(b_last)) {
            let scale = avx._mm256_set1_ps(a * b);
            sums[0] = fma._mm256_fmadd_ps(products(simd, q, x), scale, sums[0]);
        }
        let sum = avx._mm256_add_ps(sums[0], sums[1]);
        pulp::cast::<__m256, [f32; 8]>(sum).iter().sum()
    }

    /// The products of a block, added up in groups of four.
    #[inline(always)]
    fn products(simd: pulp::x86::V3, q: &[i8; BLOCK], x: &[i8; BLOCK]) -> __m256 {
        let (avx, avx2) = (simd.avx, simd.avx2);
        let (q, x): (__m256i, __m256i) = (pulp::cast(*q), pulp::cast(*x));
        // The instruction wants one side without a sign: the row's goes to the vector.
        let (q, x) = (avx2._mm256_abs_epi8(q), avx2._mm256_sign_epi8(x, q));
        let pairs = avx2._mm256_maddubs_epi16(q, x);
        avx._mm256_cvtepi32_ps(avx2._mm256_madd_epi16(pairs, avx._mm256_set1_epi16(1)))
    }
}
