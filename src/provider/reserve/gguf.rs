//! Reading the head of a GGUF file (pure): what the model is, and where its tensors lie.
//!
//! The layout is that of the format's specification, versions 2 and 3: magic, version, counts,
//! key and value pairs, tensor descriptions, padding, data. Strings and arrays stay where they
//! are in the file; only their places are kept, so that a vocabulary costs no second copy.
//!
//! # Invariants
//! - Every place handed out lies inside the file.
//! - No count taken from the file is used to reserve memory before the bytes were seen.

use std::collections::BTreeMap;
use std::ops::Range;

/// Tensors and keys of the largest models are a few thousand; more is a broken file.
const ENTRIES_MAX: u64 = 65_536;

/// Arrays nest in theory; nothing that is read here does.
const ARRAY_KIND: u32 = 9;

const TEXT_KIND: u32 = 8;

/// Why a file is not a model that can be run. The text is for a person.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum ModelError {
    /// The file ends early or contradicts itself.
    #[error("the file is damaged ({0}); fetch it again: crayfish model fetch")]
    Damaged(&'static str),
    /// A sound file of something that this engine does not run.
    #[error("this engine does not run it: {0}")]
    Unsupported(String),
    /// It would take more memory than is allowed.
    #[error("it needs {needs_mb} MB and reserve.memory_max_mb allows {max_mb}")]
    TooLarge {
        /// What it needs.
        needs_mb: u64,
        /// What is allowed.
        max_mb: u64,
    },
}

/// How the numbers of a tensor are stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Four bytes each.
    F32,
    /// Two bytes each.
    F16,
    /// Blocks of 32 in 18 bytes: a scale and 4 bits each, offset by 8.
    Q4_0,
    /// Blocks of 32 in 20 bytes: a scale, a minimum and 4 bits each.
    Q4_1,
    /// Blocks of 32 in 34 bytes: a scale and 8 bits each.
    Q8_0,
}

impl Kind {
    fn from_number(number: u32) -> Option<Self> {
        match number {
            0 => Some(Self::F32),
            1 => Some(Self::F16),
            2 => Some(Self::Q4_0),
            3 => Some(Self::Q4_1),
            8 => Some(Self::Q8_0),
            _ => None,
        }
    }

    /// Numbers in a block and bytes of a block.
    pub(crate) fn block(self) -> (usize, usize) {
        match self {
            Self::F32 => (1, 4),
            Self::F16 => (1, 2),
            Self::Q4_0 => (32, 18),
            Self::Q4_1 => (32, 20),
            Self::Q8_0 => (32, 34),
        }
    }
}

/// A matrix in the file, or a vector with one row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Tensor {
    pub(crate) kind: Kind,
    /// Numbers of a row.
    pub(crate) columns: usize,
    pub(crate) rows: usize,
    /// Its bytes in the file.
    pub(crate) place: Range<usize>,
}

/// A value of the metadata.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Value {
    Whole(u64),
    Real(f64),
    Text(Range<usize>),
    /// Texts one after the other, each with its length before it.
    Texts {
        count: usize,
        at: usize,
    },
    /// Something that is not read here.
    Other,
}

/// The head of a file.
#[derive(Debug)]
pub(crate) struct Head {
    pub(crate) values: BTreeMap<String, Value>,
    pub(crate) tensors: BTreeMap<String, Tensor>,
}

impl Head {
    /// Reads the head of the file.
    pub(crate) fn parse(bytes: &[u8]) -> Result<Self, ModelError> {
        let mut read = Reader { bytes, at: 0 };
        if read.take(4)? != b"GGUF" {
            return Err(ModelError::Damaged("it is not a GGUF file"));
        }
        let version = read.u32()?;
        if !(2..=3).contains(&version) {
            return Err(ModelError::Unsupported(format!("GGUF version {version}")));
        }
        let tensor_count = read.u64()?;
        let value_count = read.u64()?;
        if tensor_count > ENTRIES_MAX || value_count > ENTRIES_MAX {
            return Err(ModelError::Damaged("it names too many parts"));
        }
        let mut values = BTreeMap::new();
        for _ in 0..value_count {
            let key = read.name()?;
            let kind = read.u32()?;
            values.insert(key, read.value(kind)?);
        }
        let mut found = Vec::new();
        for _ in 0..tensor_count {
            found.push(read.tensor()?);
        }
        let align = match values.get("general.alignment") {
            Some(Value::Whole(align)) => usize::try_from(*align).unwrap_or(0),
            _ => 32,
        };
        if !align.is_power_of_two() {
            return Err(ModelError::Damaged("its alignment is no power of two"));
        }
        let start = read.at.checked_next_multiple_of(align);
        let start = start.ok_or(ModelError::Damaged("its head is too long"))?;
        let mut tensors = BTreeMap::new();
        for (name, mut tensor) in found {
            let place = tensor.place;
            let from = start.checked_add(place.start).ok_or(OUTSIDE)?;
            let to = from.checked_add(place.end).ok_or(OUTSIDE)?;
            if to > bytes.len() {
                return Err(OUTSIDE);
            }
            tensor.place = from..to;
            tensors.insert(name, tensor);
        }
        Ok(Self { values, tensors })
    }

    /// A whole number that must be there.
    pub(crate) fn whole(&self, key: &str) -> Result<usize, ModelError> {
        match self.values.get(key) {
            Some(Value::Whole(value)) => {
                usize::try_from(*value).map_err(|_| ModelError::Damaged("a size is too large"))
            }
            _ => Err(ModelError::Unsupported(format!("it does not say its {key}"))),
        }
    }

    /// A real number, or this one.
    pub(crate) fn real_or(&self, key: &str, absent: f64) -> f64 {
        match self.values.get(key) {
            Some(Value::Real(value)) => *value,
            _ => absent,
        }
    }

    /// A text, or the empty one.
    pub(crate) fn text<'a>(&self, key: &str, bytes: &'a [u8]) -> &'a str {
        match self.values.get(key) {
            Some(Value::Text(place)) => std::str::from_utf8(&bytes[place.clone()]).unwrap_or(""),
            _ => "",
        }
    }

    /// The places of the texts of an array.
    pub(crate) fn texts(&self, key: &str, bytes: &[u8]) -> Result<Vec<Range<u32>>, ModelError> {
        let Some(Value::Texts { count, at }) = self.values.get(key) else {
            return Err(ModelError::Unsupported(format!("it has no {key}")));
        };
        let mut read = Reader { bytes, at: *at };
        let mut places = Vec::new();
        for _ in 0..*count {
            let place = read.text()?;
            let whole =
                |at| u32::try_from(at).map_err(|_| ModelError::Damaged("a text lies far out"));
            places.push(whole(place.start)?..whole(place.end)?);
        }
        Ok(places)
    }

    /// A tensor that must be there with this shape.
    pub(crate) fn tensor(
        &self,
        name: &str,
        columns: usize,
        rows: usize,
    ) -> Result<Tensor, ModelError> {
        let Some(tensor) = self.tensors.get(name) else {
            return Err(ModelError::Unsupported(format!("it has no tensor {name}")));
        };
        if tensor.columns != columns || tensor.rows != rows {
            return Err(ModelError::Damaged("a tensor has another shape than its model says"));
        }
        Ok(tensor.clone())
    }
}

const OUTSIDE: ModelError = ModelError::Damaged("a tensor lies outside of the file");
const SHORT: ModelError = ModelError::Damaged("it ends early");

struct Reader<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Reader<'a> {
    fn take(&mut self, count: usize) -> Result<&'a [u8], ModelError> {
        let end = self.at.checked_add(count).ok_or(SHORT)?;
        let taken = self.bytes.get(self.at..end).ok_or(SHORT)?;
        self.at = end;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], ModelError> {
        self.take(N)?.try_into().map_err(|_| SHORT)
    }

    fn u32(&mut self) -> Result<u32, ModelError> {
        Ok(u32::from_le_bytes(self.array()?))
    }

    fn u64(&mut self) -> Result<u64, ModelError> {
        Ok(u64::from_le_bytes(self.array()?))
    }

    fn size(&mut self) -> Result<usize, ModelError> {
        usize::try_from(self.u64()?).map_err(|_| SHORT)
    }

    fn text(&mut self) -> Result<Range<usize>, ModelError> {
        let length = self.size()?;
        let start = self.at;
        self.take(length)?;
        Ok(start..self.at)
    }

    fn name(&mut self) -> Result<String, ModelError> {
        let place = self.text()?;
        let name = std::str::from_utf8(&self.bytes[place]);
        name.map(str::to_owned).map_err(|_| ModelError::Damaged("a name is not text"))
    }

    fn value(&mut self, kind: u32) -> Result<Value, ModelError> {
        Ok(match kind {
            0 | 7 => Value::Whole(u64::from(self.array::<1>()?[0])),
            2 => Value::Whole(u64::from(u16::from_le_bytes(self.array()?))),
            4 => Value::Whole(u64::from(self.u32()?)),
            10 => Value::Whole(self.u64()?),
            5 => signed(i64::from(i32::from_le_bytes(self.array()?))),
            11 => signed(i64::from_le_bytes(self.array()?)),
            6 => Value::Real(f64::from(f32::from_le_bytes(self.array()?))),
            12 => Value::Real(f64::from_le_bytes(self.array()?)),
            TEXT_KIND => Value::Text(self.text()?),
            ARRAY_KIND => self.list()?,
            other => {
                self.take(width(other)?)?;
                Value::Other
            }
        })
    }

    fn list(&mut self) -> Result<Value, ModelError> {
        let kind = self.u32()?;
        let count = self.size()?;
        let at = self.at;
        if kind != TEXT_KIND {
            let bytes = count.checked_mul(width(kind)?).ok_or(SHORT)?;
            self.take(bytes)?;
            return Ok(Value::Other);
        }
        for _ in 0..count {
            self.text()?;
        }
        Ok(Value::Texts { count, at })
    }

    /// A description; the place is the offset and the length, for now.
    fn tensor(&mut self) -> Result<(String, Tensor), ModelError> {
        let name = self.name()?;
        let dimensions = self.u32()?;
        if !(1..=2).contains(&dimensions) {
            return Err(ModelError::Unsupported(format!("{name} has {dimensions} dimensions")));
        }
        let columns = self.size()?;
        let rows = if dimensions == 2 { self.size()? } else { 1 };
        let number = self.u32()?;
        let offset = self.size()?;
        let Some(kind) = Kind::from_number(number) else {
            let says = format!(
                "{name} is stored as kind {number}; F32, F16, Q4_0, Q4_1 and Q8_0 are known"
            );
            return Err(ModelError::Unsupported(says));
        };
        let (numbers, bytes) = kind.block();
        if !columns.is_multiple_of(numbers) {
            return Err(ModelError::Damaged("a row is no whole number of blocks"));
        }
        let length = (columns / numbers).checked_mul(bytes).and_then(|row| row.checked_mul(rows));
        let length = length.ok_or(OUTSIDE)?;
        Ok((name, Tensor { kind, columns, rows, place: offset..length }))
    }
}

fn signed(value: i64) -> Value {
    u64::try_from(value).map_or(Value::Other, Value::Whole)
}

/// Bytes of a plain value by the number of its kind.
fn width(kind: u32) -> Result<usize, ModelError> {
    match kind {
        0 | 1 | 7 => Ok(1),
        2 | 3 => Ok(2),
        4..=6 => Ok(4),
        10..=12 => Ok(8),
        _ => Err(ModelError::Damaged("a value is of no known kind")),
    }
}
