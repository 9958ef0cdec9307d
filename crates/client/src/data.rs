//! Named data as a program sees them: name, version, owner and holders. `names` in the crate
//! `rpc-proto` has the rules for names. The types hold only what a server or a metaserver has told.
//! Sources, which are arrays outside of Farcall, are addresses that only servers read.

use farcall_rpc_proto::{DataName, DataVersion, Rows, SourceOptions};
use std::str::FromStr;

/// An array at an address outside of Farcall, such as `https://data.example.org/a.npy`. The server
/// of a call reads it. Its operator decides which addresses users may read.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Source {
    /// The address.
    pub address: String,
    /// How to read it.
    pub options: SourceOptions,
}

/// A text that is not the address of an array.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{text}`: {what}. Write ADDRESS, or ADDRESS#NAME=VALUE&NAME=VALUE with the names format, \
         type, shape, order, columns, rows, sha256, and query at the end"
)]
pub struct NoSource {
    text: String,
    what: &'static str,
}

impl FromStr for Source {
    type Err = NoSource;

    /// `ADDRESS`, or `ADDRESS#NAME=VALUE&NAME=VALUE`: `format=csv`, `type=double` (a type of the
    /// interface language), `shape=3,4`, `order=F`, `columns=a,b`, `rows=10:20`, `sha256=...`.
    /// `query=...` is the last one and takes the rest of the text.
    fn from_str(text: &str) -> Result<Source, NoSource> {
        let (address, rest) = text.split_once('#').unwrap_or((text, ""));
        let wrong = |what| NoSource {
            text: text.to_string(),
            what,
        };
        let mut options = SourceOptions::default();
        let mut left = rest;
        while !left.is_empty() {
            if let Some(query) = left.strip_prefix("query=") {
                options.query = Some(query.to_string());
                break;
            }
            let (word, after) = left.split_once('&').unwrap_or((left, ""));
            left = after;
            let (name, value) = word
                .split_once('=')
                .ok_or(wrong("an option has no value"))?;
            let words = || value.split(',').map(str::to_string).collect();
            match name {
                "format" => options.format = Some(value.to_string()),
                "type" => options.element = Some(value.to_string()),
                "columns" => options.columns = Some(words()),
                "sha256" => options.sha256 = Some(value.to_string()),
                "order" => match value {
                    "C" | "F" => options.column_major = Some(value == "F"),
                    _ => return Err(wrong("the order is C or F")),
                },
                "shape" => {
                    let lengths: Result<Vec<u64>, _> = value.split(',').map(str::parse).collect();
                    let lengths = lengths.map_err(|_| wrong("the shape has no lengths"))?;
                    options.shape = Some(lengths);
                }
                "rows" => {
                    let rows =
                        rows_of(value).ok_or(wrong("the rows are BEGIN:END, such as 0:10"))?;
                    options.rows = Some(rows);
                }
                _ => return Err(wrong("an option is unknown")),
            }
        }
        let address = address.to_string();
        Ok(Source { address, options })
    }
}

/// Reads `10:20`, `10:` or `:20`.
fn rows_of(text: &str) -> Option<Rows> {
    let (begin, end) = text.split_once(':')?;
    let number = |text: &str| match text {
        "" => Some(None),
        digits => digits.parse().ok().map(Some),
    };
    Some(Rows {
        begin: number(begin)?.unwrap_or(0),
        end: number(end)?,
    })
}

/// The name of an array, and its version.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Named {
    /// The name, with the owner.
    pub name: DataName,
    /// Number of the version, from 1 on.
    pub version: u64,
    /// Whether all users may read the data.
    pub shared: bool,
    /// Whether the caller owns the data.
    pub own: bool,
    pub(crate) identity: DataVersion,
}

/// The status of named data.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DataStatus {
    /// The name, with the owner.
    pub name: DataName,
    /// Number of the version, from 1 on.
    pub version: u64,
    /// Whether all users may read the data.
    pub shared: bool,
    /// Element type, by its name in the interface language.
    pub element: String,
    /// The shape.
    pub shape: Vec<u64>,
    /// Size in bytes.
    pub bytes: u64,
    /// Addresses of the servers that hold this version.
    pub holders: Vec<String>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_has_options_behind_it() {
        let plain: Source = "https://a.org/b?c=d&e=f".parse().unwrap();
        assert_eq!(plain.address, "https://a.org/b?c=d&e=f");
        assert_eq!(plain.options, SourceOptions::default());
        let raw = "s3://a/b#type=double&shape=3,4&order=F&format=raw&rows=7:&sha256=0f";
        let raw: Source = raw.parse().unwrap();
        assert_eq!(raw.address, "s3://a/b");
        let expected = SourceOptions {
            format: Some("raw".to_string()),
            element: Some("double".to_string()),
            shape: Some(vec![3, 4]),
            column_major: Some(true),
            sha256: Some("0f".to_string()),
            rows: Some(Rows {
                begin: 7,
                end: None,
            }),
            ..SourceOptions::default()
        };
        assert_eq!(raw.options, expected);
        let query = "sqlite:/a.db#columns=x,y&query=select x & 1 as x, '#' from t where y = 2";
        let query: Source = query.parse().unwrap();
        let columns = vec!["x".to_string(), "y".to_string()];
        assert_eq!(query.options.columns, Some(columns));
        let text = "select x & 1 as x, '#' from t where y = 2";
        assert_eq!(query.options.query.as_deref(), Some(text));
        for wrong in [
            "a#b",
            "a#b=c",
            "a#order=X",
            "a#shape=x",
            "a#rows=3",
            "a#rows=-1:2",
            "a#&query=b",
        ] {
            assert!(wrong.parse::<Source>().is_err(), "{wrong}");
        }
    }
}
