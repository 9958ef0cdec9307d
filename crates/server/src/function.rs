//! The functions a server has, by name and by number.

use farcall_idl::Interface;
use farcall_library::Catalog;
use farcall_rpc_proto::{Failure, FailureKind, FunctionSummary, Listing};
use std::collections::{BTreeMap, HashMap};
use std::time::{SystemTime, UNIX_EPOCH};

/// Functions of one page of a listing.
const PAGE: usize = 256;

/// One function served.
pub(crate) struct Function {
    /// Index of its library.
    pub(crate) library: usize,
    /// Index in the library's catalog.
    pub(crate) index: usize,
    pub(crate) interface: Interface,
    /// What clients are sent as the interface.
    text: String,
}

/// All functions served.
pub(crate) struct FunctionTable {
    functions: Vec<Function>,
    by_qualified_name: BTreeMap<String, usize>,
    by_name: HashMap<String, Vec<usize>>,
    /// Number of the first function. It differs from one start of a server to the next, so that
    /// numbers from before a restart are recognised as stale.
    base: u64,
}

impl FunctionTable {
    /// The functions of all libraries. A name that two of them define is an error.
    pub(crate) fn new(catalogs: &[Catalog]) -> Result<FunctionTable, String> {
        let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let base = (since_epoch.as_nanos() as u64 & 0xffff_ffff_ffff) << 16;
        let mut table = FunctionTable {
            functions: Vec::new(),
            by_qualified_name: BTreeMap::new(),
            by_name: HashMap::new(),
            base,
        };
        for (library, catalog) in catalogs.iter().enumerate() {
            for (index, interface) in catalog.interfaces().iter().enumerate() {
                table.add(library, index, interface)?;
            }
        }
        Ok(table)
    }

    fn add(&mut self, library: usize, index: usize, interface: &Interface) -> Result<(), String> {
        let number = self.functions.len();
        let qualified = interface.qualified_name().into_owned();
        if self.by_qualified_name.insert(qualified.clone(), number).is_some() {
            return Err(format!("`{qualified}` is defined twice; rename one or its module"));
        }
        self.by_name.entry(interface.name.clone()).or_default().push(number);
        let text = interface.public_text();
        self.functions.push(Function { library, index, interface: interface.clone(), text });
        Ok(())
    }

    /// Number of functions.
    pub(crate) fn len(&self) -> usize {
        self.functions.len()
    }

    /// Number and text of the function of that name, qualified or not.
    pub(crate) fn describe(&self, name: &str) -> Result<(u64, &str), Failure> {
        let index = match self.by_qualified_name.get(name) {
            Some(index) => *index,
            None => match self.by_name.get(name).map(Vec::as_slice) {
                Some([index]) => *index,
                Some(several) => return Err(self.ambiguous(name, several)),
                None => return Err(self.unknown(name)),
            },
        };
        Ok((self.base + index as u64, &self.functions[index].text))
    }

    /// The function of a number, unless the number is from before a restart.
    pub(crate) fn get(&self, number: u64) -> Result<&Function, Failure> {
        let index = number.checked_sub(self.base).and_then(|index| usize::try_from(index).ok());
        index.and_then(|index| self.functions.get(index)).ok_or_else(|| {
            let text = "the server was restarted; fetch the interface again";
            Failure::new(FailureKind::StaleInterface, text)
        })
    }

    /// The page that starts at index `from` of the names in order.
    pub(crate) fn page(&self, from: u32) -> Listing {
        let from = from as usize;
        let names = self.by_qualified_name.iter().skip(from).take(PAGE);
        let functions: Vec<FunctionSummary> = names
            .map(|(name, index)| FunctionSummary {
                name: name.clone(),
                title: self.title(*index),
            })
            .collect();
        let end = from + functions.len();
        let next = (end < self.functions.len() && end > from).then_some(end as u32);
        Listing { functions, next }
    }

    fn title(&self, index: usize) -> String {
        let description = self.functions[index].interface.description.as_deref().unwrap_or("");
        description.lines().next().unwrap_or("").trim().chars().take(200).collect()
    }

    fn ambiguous(&self, name: &str, several: &[usize]) -> Failure {
        let names: Vec<_> =
            several.iter().map(|index| self.functions[*index].interface.qualified_name()).collect();
        let text = format!("`{name}` is ambiguous: write {}", names.join(" or "));
        Failure::new(FailureKind::UnknownFunction, text)
    }

    fn unknown(&self, name: &str) -> Failure {
        let entry = name.rsplit('/').next().unwrap_or(name);
        let closest = self
            .by_name
            .keys()
            .map(|known| (strsim::damerau_levenshtein(known, entry), known))
            .filter(|(distance, _)| *distance <= 2)
            .min();
        let hint = match closest {
            Some((_, known)) => format!("; did you mean `{known}`?"),
            None => "; `farcall ls` lists what there is".to_string(),
        };
        let shown: String = name.chars().take(100).collect();
        let text = format!("there is no function `{shown}`{hint}");
        Failure::new(FailureKind::UnknownFunction, text)
    }
}
