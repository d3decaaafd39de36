//! A model of a few kilobytes for tests, made of noise: it says nonsense, always the same.

use super::vocabulary::letter;

pub(crate) const WIDTH: usize = 64;
pub(crate) const HIDDEN: usize = 96;
pub(crate) const LAYERS: usize = 2;
pub(crate) const CONTEXT: u32 = 512;

/// Writes the pieces of a GGUF file.
pub(crate) struct Tiny {
    values: Vec<u8>,
    value_count: u64,
    tensors: Vec<u8>,
    tensor_count: u64,
    data: Vec<u8>,
    random: fastrand::Rng,
}

fn text(out: &mut Vec<u8>, text: &str) {
    out.extend((text.len() as u64).to_le_bytes());
    out.extend(text.as_bytes());
}

/// The nearest half-precision number below, for normal numbers.
pub(crate) fn half(x: f32) -> [u8; 2] {
    let bits = x.to_bits();
    let exponent = ((bits >> 23) & 0xff) as i32 - 112;
    let magnitude = if exponent <= 0 { 0 } else { (exponent as u32) << 10 | (bits >> 13) & 0x3ff };
    (((bits >> 16) & 0x8000 | magnitude) as u16).to_le_bytes()
}

impl Tiny {
    fn key(&mut self, key: &str, kind: u32) {
        text(&mut self.values, key);
        self.values.extend(kind.to_le_bytes());
        self.value_count += 1;
    }

    fn number(&mut self, key: &str, value: u32) {
        self.key(key, 4);
        self.values.extend(value.to_le_bytes());
    }

    fn word(&mut self, key: &str, value: &str) {
        self.key(key, 8);
        text(&mut self.values, value);
    }

    fn words(&mut self, key: &str, words: &[String]) {
        self.key(key, 9);
        self.values.extend(8u32.to_le_bytes());
        self.values.extend((words.len() as u64).to_le_bytes());
        for word in words {
            text(&mut self.values, word);
        }
    }

    fn tensor(&mut self, name: &str, columns: usize, rows: usize, kind: u32) {
        text(&mut self.tensors, name);
        self.tensors.extend(2u32.to_le_bytes());
        for size in [columns, rows] {
            self.tensors.extend((size as u64).to_le_bytes());
        }
        self.tensors.extend(kind.to_le_bytes());
        self.tensors.extend((self.data.len() as u64).to_le_bytes());
        self.tensor_count += 1;
        for _ in 0..columns * rows / if kind < 2 { 1 } else { 32 } {
            let random = &mut self.random;
            match kind {
                0 => self.data.extend((random.f32() + 0.5).to_le_bytes()),
                1 => self.data.extend(half(random.f32() - 0.5)),
                2 => self.data.extend(half(0.02)),
                3 => self.data.extend([half(0.02), half(-0.15)].as_flattened()),
                _ => self.data.extend(half(0.002)),
            }
            let bytes = match kind {
                2 | 3 => 16,
                8 => 32,
                _ => 0,
            };
            self.data.extend((0..bytes).map(|_| random.u8(..)));
        }
        self.data.resize(self.data.len().next_multiple_of(32), 0);
    }

    fn file(self) -> Vec<u8> {
        let mut file = b"GGUF".to_vec();
        file.extend(3u32.to_le_bytes());
        file.extend(self.tensor_count.to_le_bytes());
        file.extend(self.value_count.to_le_bytes());
        file.extend(self.values);
        file.extend(self.tensors);
        file.resize(file.len().next_multiple_of(32), 0);
        file.extend(self.data);
        file
    }
}

/// The whole model. Its words: the bytes, a few merges, the three control tokens.
pub(crate) fn model() -> Vec<u8> {
    let random = fastrand::Rng::with_seed(7);
    let mut tiny = Tiny {
        values: vec![],
        value_count: 0,
        tensors: vec![],
        tensor_count: 0,
        data: vec![],
        random,
    };
    tiny.word("general.architecture", "llama");
    tiny.word("tokenizer.ggml.model", "gpt2");
    tiny.word("tokenizer.ggml.pre", "smollm");
    for (key, value) in [
        ("block_count", LAYERS as u32),
        ("context_length", CONTEXT),
        ("embedding_length", WIDTH as u32),
        ("feed_forward_length", HIDDEN as u32),
        ("attention.head_count", 4),
        ("attention.head_count_kv", 2),
    ] {
        tiny.number(&format!("llama.{key}"), value);
    }
    let mut words: Vec<String> =
        ["<|endoftext|>", "<|im_start|>", "<|im_end|>"].map(str::to_owned).into();
    words.extend((0..=255).map(|byte| letter(byte).to_string()));
    let merges = ["h e", "l l", "he ll", "hell o", "Ġ w", "o r", "Ġw or", "l d"];
    words.extend(merges.map(|merge| merge.replace(' ', "")));
    tiny.words("tokenizer.ggml.tokens", &words);
    tiny.words("tokenizer.ggml.merges", &merges.map(str::to_owned));
    tiny.tensor("token_embd.weight", WIDTH, words.len(), 8);
    tiny.tensor("output_norm.weight", WIDTH, 1, 0);
    for layer in 0..LAYERS {
        // Every kind of weight is met somewhere.
        let kind = [3, 2][layer];
        for (name, columns, rows, kind) in [
            ("attn_norm", WIDTH, 1, 0),
            ("ffn_norm", WIDTH, 1, 0),
            ("attn_q", WIDTH, WIDTH, kind),
            ("attn_k", WIDTH, 32, kind),
            ("attn_v", WIDTH, 32, 1),
            ("attn_output", WIDTH, WIDTH, kind),
            ("ffn_gate", WIDTH, HIDDEN, kind),
            ("ffn_up", WIDTH, HIDDEN, 8),
            ("ffn_down", HIDDEN, WIDTH, kind),
        ] {
            tiny.tensor(&format!("blk.{layer}.{name}.weight"), columns, rows, kind);
        }
    }
    tiny.file()
}
