//! The arguments of a call as one JSON object, and its results as another. The interface of the
//! function says what each member means. This module does no I/O: a caller computes the layout
//! between [`Arguments::read`] and [`Arguments::fit`].

use crate::values::{Given, Shown};
use farcall_idl::{
    Interface, Layout, MOST_TEXTS, Mode, Param, Scalar, Type, Values, is_exact, read_texts,
};
use farcall_npy::{Array, same_shape};
use serde::de::{self, DeserializeSeed, Deserializer, MapAccess, SeqAccess, Visitor};
use serde::ser::{SerializeMap, Serializer};
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;

/// Why a request cannot be a call. The text is for the caller.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Misfit {
    /// An argument does not fit the interface.
    #[error("{0}")]
    Argument(String),
    /// The arrays of the call are larger than the gateway allows.
    #[error(
        "the arrays of the call have {given} bytes, and this gateway allows {most}; use a client \
         of Farcall"
    )]
    TooLarge {
        /// Bytes of the call.
        given: u64,
        /// Bytes that the gateway allows.
        most: u64,
    },
    /// An array without elements would come back as very many empty lists.
    #[error(
        "the arrays without elements of the call have {lists} empty lists in JSON, and this \
         gateway writes at most {most}"
    )]
    TooManyLists {
        /// Lists of all such arrays.
        lists: u64,
        /// Lists that the gateway writes.
        most: u64,
    },
    /// JSON cannot carry what the function takes.
    #[error("{function} {what}, which this gateway does not carry; use a client of Farcall")]
    NotCarried {
        /// Qualified name of the function.
        function: String,
        /// What it takes.
        what: &'static str,
    },
}

/// Whether a function can be called with JSON.
///
/// # Errors
/// It takes files or callbacks, or is a method of an object.
pub fn carried(interface: &Interface) -> Result<(), Misfit> {
    let what = if interface.class.is_some() {
        "is a method of an object"
    } else if interface.moves_files() {
        "takes files"
    } else if !interface.callbacks.is_empty() {
        "calls functions of its caller"
    } else {
        return Ok(());
    };
    Err(Misfit::NotCarried {
        function: interface.qualified_name().into_owned(),
        what,
    })
}

/// Whether a caller passes a value for the parameter.
pub(crate) fn is_needed(param: &Param) -> bool {
    param.is_passed() && (param.is_value() || param.mode.is_sent())
}

/// The arguments of a call, as a caller has given them.
#[derive(Debug)]
pub struct Arguments {
    /// The value of each scalar; `None` for arrays.
    pub scalars: Vec<Option<Scalar>>,
    /// Bytes of the arrays, by parameter.
    arrays: BTreeMap<usize, Vec<u8>>,
    /// Their shapes.
    shapes: BTreeMap<usize, Vec<u64>>,
    /// Arrays of texts of fixed length.
    texts: BTreeMap<usize, Vec<String>>,
    /// The lengths of the lists of all texts.
    lists: BTreeMap<usize, Vec<u64>>,
}

/// What a caller gives for one parameter.
enum Value {
    Scalar(Scalar),
    Array(Array),
    /// Texts, and the lengths of their lists.
    Texts(Scalar, Vec<u64>),
}

impl Arguments {
    /// Reads a JSON object with a member for each argument that the function takes.
    ///
    /// # Errors
    /// The text is not such an object, or a value does not fit its parameter.
    pub fn read(interface: &Interface, text: &[u8]) -> Result<Arguments, Misfit> {
        let mut input = serde_json::Deserializer::from_slice(text);
        let values = Members(interface).deserialize(&mut input);
        let values = values.and_then(|values| input.end().map(|()| values));
        let mut values = values.map_err(|error| Misfit::Argument(error.to_string()))?;
        let params = interface.params.iter().enumerate();
        let missing =
            params.filter(|(index, param)| is_needed(param) && !values.contains_key(index));
        let missing: Vec<&str> = missing.map(|(_, param)| param.name.as_str()).collect();
        if let [first, rest @ ..] = &missing[..] {
            return Err(Misfit::Argument(match rest {
                [] => format!("argument `{first}` is missing"),
                _ => format!("arguments `{}` are missing", missing.join("`, `")),
            }));
        }
        let mut arguments = Arguments {
            scalars: vec![None; interface.params.len()],
            arrays: BTreeMap::new(),
            shapes: BTreeMap::new(),
            texts: BTreeMap::new(),
            lists: BTreeMap::new(),
        };
        while let Some((index, value)) = values.pop_first() {
            let param = &interface.params[index];
            match value {
                Value::Scalar(value) => arguments.scalars[index] = Some(value),
                Value::Texts(texts, lengths) => {
                    arguments.lists.insert(index, lengths);
                    match texts {
                        Scalar::Texts(texts) if param.is_fixed_texts() => {
                            arguments.texts.insert(index, texts);
                        }
                        texts => arguments.scalars[index] = Some(texts),
                    }
                }
                Value::Array(array) => {
                    arguments.shapes.insert(index, array.shape.clone());
                    let bytes = array.into_bytes(param.ty, interface.order());
                    let name = &param.name;
                    let bytes = bytes
                        .map_err(|text| Misfit::Argument(format!("argument `{name}`: {text}")))?;
                    arguments.arrays.insert(index, bytes);
                }
            }
        }
        Ok(arguments)
    }

    /// The values of [`Interface::element_refs`].
    ///
    /// # Errors
    /// An array has no such element.
    pub fn elements(&self, interface: &Interface) -> Result<Vec<i64>, Misfit> {
        let bytes = |param| self.arrays.get(&param).map_or(&[][..], Vec::as_slice);
        let values = interface.element_values(&self.scalars, bytes);
        values.map_err(|error| Misfit::Argument(error.to_string()))
    }

    /// The memory of the arrays of a call with this layout: those that were given, and zeros for
    /// OUT arrays. Together they have at most `most` bytes, and those without elements at most
    /// `most` lists.
    ///
    /// # Errors
    /// A shape is not that of the layout, or the arrays are too large.
    pub fn fit(
        mut self,
        interface: &Interface,
        layout: &Layout,
        most: u64,
    ) -> Result<BTreeMap<usize, Vec<u8>>, Misfit> {
        let bytes = layout.arrays.iter().map(|array| array.client_bytes);
        let given = bytes.fold(0, u64::saturating_add);
        if given > most {
            return Err(Misfit::TooLarge { given, most });
        }
        let returned = layout.arrays.iter().filter(|one| one.mode.is_returned());
        let lists = returned.map(|array| empty_lists(&array.shape(interface.order())));
        let lists = lists.fold(0, u64::saturating_add);
        if lists > most {
            return Err(Misfit::TooManyLists { lists, most });
        }
        self.check_lists(interface)?;
        for array in &layout.arrays {
            let param = &interface.params[array.param];
            let expected = array.shape(interface.order());
            if let Some(shape) = self.shapes.get(&array.param)
                && !same_shape(shape, &expected)
            {
                return Err(wrong_shape(param, &expected, shape));
            }
            if array.mode == Mode::Work {
                continue;
            }
            let fields = self
                .arrays
                .entry(array.param)
                .or_insert_with(|| vec![0; array.client_bytes as usize]);
            if let Some(texts) = self.texts.get(&array.param) {
                let texts = texts.iter().map(String::as_bytes);
                let written = array.write_texts(param, texts, fields);
                written.map_err(|error| Misfit::Argument(error.to_string()))?;
            }
        }
        Ok(self.arrays)
    }

    /// Checks that texts in lists of lists have the declared lengths. One list may have them all.
    fn check_lists(&self, interface: &Interface) -> Result<(), Misfit> {
        let elements = self.elements(interface)?;
        let values = Values {
            scalars: &self.scalars,
            elements: &elements,
        };
        let nested = self.lists.iter().filter(|(_, lengths)| lengths.len() > 1);
        for (&index, lengths) in nested {
            let param = &interface.params[index];
            let declared = interface.text_shape(index, values);
            let mut declared = declared.map_err(|error| Misfit::Argument(error.to_string()))?;
            if param.is_fixed_texts() {
                // The length of each text.
                declared.pop();
            }
            if !same_shape(lengths, &declared) {
                return Err(wrong_shape(param, &declared, lengths));
            }
        }
        Ok(())
    }
}

fn wrong_shape(param: &Param, expected: &[u64], given: &[u64]) -> Misfit {
    let name = &param.name;
    Misfit::Argument(format!(
        "argument `{name}`: expected shape {expected:?}, given shape {given:?}"
    ))
}

/// Lists within an array of this shape, if it has no elements. If it has some, its bytes bound its
/// lists.
fn empty_lists(shape: &[u64]) -> u64 {
    let Some(end) = shape.iter().position(|length| *length == 0) else {
        return 0;
    };
    let levels = shape[..end].iter().scan(1u64, |lists, length| {
        *lists = lists.saturating_mul(*length);
        Some(*lists)
    });
    levels.fold(0, u64::saturating_add)
}

/// The results of a call as a JSON object, with a member for each OUT and INOUT array.
///
/// # Panics
/// If an array has another length than the layout says.
pub fn results(
    interface: &Interface,
    layout: &Layout,
    arrays: &BTreeMap<usize, Vec<u8>>,
    is_binary: bool,
) -> Vec<u8> {
    let mut text = Vec::new();
    let mut out = serde_json::Serializer::new(&mut text);
    let mut write = || {
        let mut map = out.serialize_map(None)?;
        for array in layout
            .arrays
            .iter()
            .filter(|array| array.mode.is_returned())
        {
            let param = &interface.params[array.param];
            let bytes_of = |param| arrays.get(&param).map(Vec::as_slice);
            let (array, bytes) = interface.shown(array, &arrays[&array.param], bytes_of);
            if param.is_fixed_texts() {
                let texts = read_texts(bytes, array.text_length());
                let texts: Vec<Cow<'_, str>> = texts.map(String::from_utf8_lossy).collect();
                map.serialize_entry(&param.name, &texts)?;
                continue;
            }
            let shape = array.shape(interface.order());
            let shown = Shown::new(param.ty, &shape, interface.order(), bytes, is_binary);
            map.serialize_entry(&param.name, &shown)?;
        }
        map.end()
    };
    let written: Result<(), serde_json::Error> = write();
    written.expect("names are texts, and memory does not fail");
    text
}

/// The members of the object.
struct Members<'i>(&'i Interface);

impl<'de> DeserializeSeed<'de> for Members<'_> {
    type Value = BTreeMap<usize, Value>;

    fn deserialize<D: Deserializer<'de>>(self, input: D) -> Result<Self::Value, D::Error> {
        input.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for Members<'_> {
    type Value = BTreeMap<usize, Value>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object with the arguments by name")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut values = BTreeMap::new();
        while let Some(name) = map.next_key::<Cow<'_, str>>()? {
            let known = self.0.param(&name);
            let known = known.filter(|index| self.0.params[*index].is_passed());
            let index = known.ok_or_else(|| de::Error::custom(unknown(self.0, &name)))?;
            let value = map.next_value_seed(Argument(&self.0.params[index]));
            let value = value.map_err(|error| named(&name, error))?;
            if values.insert(index, value).is_some() {
                return Err(de::Error::custom(format!(
                    "argument `{name}` is given twice"
                )));
            }
        }
        Ok(values)
    }
}

/// An error that says which argument it is about.
fn named<E: de::Error>(name: &str, error: E) -> E {
    let text = error.to_string();
    let argument = format!("argument `{name}`");
    match text.contains(&argument) {
        true => error,
        false => E::custom(format!("{argument}: {text}")),
    }
}

fn unknown(interface: &Interface, name: &str) -> String {
    let params = interface.params.iter().filter(|param| param.is_passed());
    let names: Vec<&str> = params.map(|param| param.name.as_str()).collect();
    let close = farcall_spelling::closest(name, names.iter().copied(), 1);
    let hint = close.map_or_else(String::new, |known| format!(" did you mean `{known}`?"));
    let shown: String = name.chars().take(40).flat_map(char::escape_debug).collect();
    let names = names.join(", ");
    format!("there is no argument `{shown}`;{hint} there are: {names}")
}

/// The value of one argument.
struct Argument<'p>(&'p Param);

impl<'de> DeserializeSeed<'de> for Argument<'_> {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, input: D) -> Result<Value, D::Error> {
        let Argument(param) = self;
        if param.is_texts() || param.is_fixed_texts() {
            let mut texts = Texts::default();
            input.deserialize_seq(TextLevel(&mut texts, param, 0))?;
            let lengths = texts
                .lengths()
                .ok_or_else(|| de::Error::custom("expected lists of equal length"))?;
            let texts = Scalar::Texts(texts.all);
            let texts = match param.is_fixed_texts() {
                true => texts,
                false => texts.convert_written(param).map_err(de::Error::custom)?,
            };
            return Ok(Value::Texts(texts, lengths));
        }
        if !param.is_scalar() {
            return Given(param).deserialize(input).map(Value::Array);
        }
        let value = input.deserialize_any(Plain(param))?;
        let value = value.convert_written(param).map_err(de::Error::custom)?;
        Ok(Value::Scalar(value))
    }
}

/// A scalar in JSON.
struct Plain<'p>(&'p Param);

impl<'de> Visitor<'de> for Plain<'_> {
    type Value = Scalar;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (name, ty) = (&self.0.name, self.0.ty.name());
        write!(
            f,
            "for argument `{name}` ({ty}) a number, a text, or [real, imaginary]"
        )
    }

    fn visit_i64<E: de::Error>(self, value: i64) -> Result<Scalar, E> {
        Ok(Scalar::Int(value))
    }

    fn visit_u64<E: de::Error>(self, value: u64) -> Result<Scalar, E> {
        if let Ok(value) = i64::try_from(value) {
            return Ok(Scalar::Int(value));
        }
        match self.0.ty.precision() {
            Some(bits) if !is_exact(value, bits) => Err(E::custom(format!(
                "argument `{}`: {} cannot hold {value}",
                self.0.name,
                self.0.ty.name()
            ))),
            // If it is beyond an integer type, the type says which ones it takes.
            _ => Ok(Scalar::Float(value as f64)),
        }
    }

    fn visit_f64<E: de::Error>(self, value: f64) -> Result<Scalar, E> {
        // A whole number may be written as 1.0 or 1e3.
        let is_whole = value.fract() == 0.0 && value.abs() < 2f64.powi(53);
        Ok(match is_whole && self.0.ty.is_integer() {
            true => Scalar::Int(value as i64),
            false => Scalar::Float(value),
        })
    }

    /// JSON has no infinite numbers and no NaN: they are texts.
    fn visit_str<E: de::Error>(self, text: &str) -> Result<Scalar, E> {
        let is_number = !matches!(self.0.ty, Type::String | Type::Char);
        Ok(match text {
            "NaN" if is_number => Scalar::Float(f64::NAN),
            "Infinity" if is_number => Scalar::Float(f64::INFINITY),
            "-Infinity" if is_number => Scalar::Float(f64::NEG_INFINITY),
            _ => Scalar::Text(text.to_owned()),
        })
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Scalar, A::Error> {
        let mut part = || list.next_element_seed(Part(self.0));
        match (part()?, part()?, part()?) {
            (Some(re), Some(im), None) => Ok(Scalar::Complex { re, im }),
            _ => Err(de::Error::invalid_type(de::Unexpected::Seq, &self)),
        }
    }
}

/// The real or the imaginary part of a scalar.
struct Part<'p>(&'p Param);

impl<'de> DeserializeSeed<'de> for Part<'_> {
    type Value = f64;

    fn deserialize<D: Deserializer<'de>>(self, input: D) -> Result<f64, D::Error> {
        let Part(param) = self;
        let bits = param.ty.precision().unwrap_or(f64::MANTISSA_DIGITS);
        match input.deserialize_any(Plain(param))? {
            Scalar::Int(value) if is_exact(value.unsigned_abs(), bits) => Ok(value as f64),
            Scalar::Float(value) => Ok(value),
            other => Err(de::Error::custom(format!(
                "argument `{}`: {other} is not a part of a number of type {}",
                param.name,
                param.ty.name()
            ))),
        }
    }
}

/// The texts of lists in lists, as far as they are read.
#[derive(Default)]
struct Texts {
    all: Vec<String>,
    /// The length of each level, once the first list of that level has ended.
    lengths: Vec<Option<u64>>,
    /// The level of the texts.
    depth: Option<usize>,
}

impl Texts {
    /// The length of each level. `None` if there is a list beside a text.
    fn lengths(&self) -> Option<Vec<u64>> {
        let lengths: Option<Vec<u64>> = self.lengths.iter().copied().collect();
        let lengths = lengths?;
        let mut levels = lengths.iter();
        let count = levels.try_fold(1u64, |count, length| count.checked_mul(*length));
        (count == Some(self.all.len() as u64)).then_some(lengths)
    }
}

/// A list of texts, or a text, at a level of lists in lists.
struct TextLevel<'t>(&'t mut Texts, &'t Param, usize);

impl<'de> DeserializeSeed<'de> for TextLevel<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, input: D) -> Result<(), D::Error> {
        input.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for TextLevel<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "for argument `{}` a list of texts", self.1.name)
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<(), E> {
        let TextLevel(texts, _, level) = self;
        if *texts.depth.get_or_insert(level) != level {
            return Err(E::custom("a list mixes texts and lists"));
        }
        // A text takes more memory than its JSON.
        if texts.all.len() == MOST_TEXTS {
            let text = format!("an array has at most {MOST_TEXTS} texts");
            return Err(E::custom(text));
        }
        texts.all.push(text.to_owned());
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<(), A::Error> {
        let TextLevel(texts, param, level) = self;
        if texts.lengths.len() == level {
            texts.lengths.push(None);
        }
        let mut length = 0;
        while list
            .next_element_seed(TextLevel(texts, param, level + 1))?
            .is_some()
        {
            length += 1;
        }
        match *texts.lengths[level].get_or_insert(length) == length {
            true => Ok(()),
            false => Err(de::Error::custom("the lists have different lengths")),
        }
    }
}

#[cfg(test)]
mod tests;
