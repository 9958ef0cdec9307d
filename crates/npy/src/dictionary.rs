//! Parses the text of a header: a dictionary in Python's syntax, of which three keys matter.
//! `Header` decides whether their values make sense. The number of lengths that are read is
//! bounded.

/// The contents of a header.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Dictionary {
    /// The type of the elements. Of elements with fields, it is the list of them as it stands
    /// there.
    pub(crate) descr: String,
    pub(crate) fortran_order: bool,
    pub(crate) shape: Vec<u64>,
}

/// Largest number of lengths to read of a shape. It is larger than the number of dimensions that is
/// accepted.
const MOST_LENGTHS: usize = 64;

impl Dictionary {
    /// Reads `{'descr': '<f8', 'fortran_order': False, 'shape': (3, 4), }`, with the keys in any
    /// order.
    pub(crate) fn read(text: &str) -> Option<Dictionary> {
        let mut left = Text(text);
        left.take("{")?;
        let (mut descr, mut order, mut shape) = (None, None, None);
        while left.take("}").is_none() {
            let key = left.string()?;
            left.take(":")?;
            match key {
                "descr" => descr = Some(left.string().or_else(|| left.fields())?.to_string()),
                "fortran_order" => order = Some(left.boolean()?),
                "shape" => shape = Some(left.lengths()?),
                _ => return None,
            }
            if left.take(",").is_none() {
                left.take("}")?;
                break;
            }
        }
        if !left.0.trim_matches([' ', '\n', '\0']).is_empty() {
            return None;
        }
        Some(Dictionary {
            descr: descr?,
            fortran_order: order?,
            shape: shape?,
        })
    }
}

/// The text that is left to read.
struct Text<'t>(&'t str);

impl<'t> Text<'t> {
    fn take(&mut self, word: &str) -> Option<()> {
        self.0 = self.0.trim_start().strip_prefix(word)?;
        Some(())
    }

    fn string(&mut self) -> Option<&'t str> {
        let text = self.0.trim_start();
        let quote = text
            .chars()
            .next()
            .filter(|first| matches!(first, '\'' | '"'))?;
        let (string, rest) = text[1..].split_once(quote)?;
        self.0 = rest;
        // No known string needs an escape.
        (!string.contains('\\')).then_some(string)
    }

    /// The list of the fields of structured elements, which is not taken apart.
    fn fields(&mut self) -> Option<&'t str> {
        let text = self.0.trim_start();
        let (mut depth, mut quote) = (0_usize, None);
        for (at, letter) in text.char_indices() {
            match (letter, quote) {
                (_, Some(open)) if letter == open => quote = None,
                (_, Some(_)) => {}
                ('\'' | '"', None) => quote = Some(letter),
                ('[' | '(', None) => depth += 1,
                (']' | ')', None) if depth > 1 => depth -= 1,
                (']' | ')', None) if depth == 1 => {
                    let (fields, rest) = text.split_at(at + 1);
                    self.0 = rest;
                    return Some(fields);
                }
                _ if depth == 0 => return None,
                _ => {}
            }
        }
        None
    }

    fn boolean(&mut self) -> Option<bool> {
        match self.take("True") {
            Some(()) => Some(true),
            None => self.take("False").map(|()| false),
        }
    }

    fn lengths(&mut self) -> Option<Vec<u64>> {
        self.take("(")?;
        let mut lengths = Vec::new();
        while self.take(")").is_none() {
            if lengths.len() == MOST_LENGTHS {
                return None;
            }
            lengths.push(self.number()?);
            if self.take(",").is_none() {
                // To Python, `(3)` is a number and not a shape.
                self.take(")")?;
                return (lengths.len() > 1).then_some(lengths);
            }
        }
        Some(lengths)
    }

    fn number(&mut self) -> Option<u64> {
        let text = self.0.trim_start();
        let end = text
            .find(|digit: char| !digit.is_ascii_digit())
            .unwrap_or(text.len());
        let (digits, rest) = text.split_at(end);
        self.0 = rest;
        // Python 2 wrote long integers with an `L`.
        let _ = self.take("L");
        digits.parse().ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dictionaries_are_read_in_any_order() {
        let text = "{'shape': (3L, 4), \"fortran_order\" : True,'descr':'<f8'}   \n";
        let read = Dictionary::read(text).unwrap();
        assert_eq!((read.descr.as_str(), read.fortran_order), ("<f8", true));
        assert_eq!(read.shape, [3, 4]);
    }

    #[test]
    fn the_fields_of_structured_elements_are_one_text() {
        let fields = "[('x [', '<f8'), (\"y's\", [('z', '<i4', (2,))])]";
        let text = format!("{{'descr': {fields}, 'fortran_order': False, 'shape': (3,), }}");
        let read = Dictionary::read(&text).unwrap();
        assert_eq!((read.descr.as_str(), read.shape), (fields, vec![3]));
    }

    #[test]
    fn a_text_that_is_not_a_dictionary_is_refused() {
        let whole = "{'descr': '<f8', 'fortran_order': False, 'shape': (3,), }";
        assert!(Dictionary::read(whole).is_some());
        for end in 0..whole.len() {
            assert_eq!(Dictionary::read(&whole[..end]), None, "{}", &whole[..end]);
        }
        for (from, to) in [
            ("(3,)", "(3)"),
            ("(3,)", "(-3,)"),
            ("(3,)", "(99999999999999999999,)"),
            ("'shape'", "'form'"),
            ("False", "0"),
            ("'<f8'", "[('x', '<f8')"),
            ("'<f8'", "]"),
            ("'<f8'", "<f8"),
            ("'<f8'", "é"),
            (", }", ", } x"),
        ] {
            assert_eq!(Dictionary::read(&whole.replace(from, to)), None, "{to}");
        }
    }
}
