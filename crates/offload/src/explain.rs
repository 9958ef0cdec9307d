//! What a program uses of numerical libraries, and what a server can compute of it: for each loaded
//! object, the functions that it takes from libraries of linear algebra. It reads the tables of the
//! dynamic linker and changes nothing.

use crate::real::{Object, loaded, providers_of};
use std::collections::BTreeSet;
use std::ffi::{CStr, CString, c_char};
use std::fmt::Write;

/// Tags of the dynamic section and the parts of a symbol, as in the ELF specification.
const DT_HASH: i64 = 4;
const DT_STRTAB: i64 = 5;
const DT_SYMTAB: i64 = 6;
const DT_GNU_HASH: i64 = 0x6fff_fef5;
const SHN_UNDEF: u16 = 0;

/// Names in one line of the report. Bindings of Python take all functions of LAPACK.
const MOST: usize = 32;

/// One object's functions.
struct Use {
    object: String,
    /// Those that a drop-in library has.
    covered: BTreeSet<String>,
    /// Those that always stay here.
    local: BTreeSet<String>,
}

/// The report on this process. `covered` are the symbols of the drop-in libraries, and `own` has an
/// address in each of these.
pub(crate) fn report(covered: &BTreeSet<&CStr>, own: &[usize]) -> String {
    let objects = loaded(own);
    let providers = providers_of(&objects);
    let is_provider = |object: &Object| {
        providers
            .iter()
            .any(|one| one.addresses == object.addresses)
    };
    let mut uses = Vec::new();
    for object in objects.iter().filter(|object| !is_provider(object)) {
        let mut used = Use {
            object: object.name(),
            covered: BTreeSet::new(),
            local: BTreeSet::new(),
        };
        for symbol in imports(object) {
            if !providers
                .iter()
                .any(|provider| provider.defines(&symbol).is_some())
            {
                continue;
            }
            let name = symbol.to_string_lossy().into_owned();
            match covered.contains(symbol.as_c_str()) {
                true => used.covered.insert(name),
                false => used.local.insert(name),
            };
        }
        if !(used.covered.is_empty() && used.local.is_empty()) {
            uses.push(used);
        }
    }
    let names: Vec<String> = providers.iter().map(|provider| provider.name()).collect();
    text(&names, &uses)
}

fn text(providers: &[String], uses: &[Use]) -> String {
    let mut text = String::new();
    // Writing to a `String` does not fail.
    let _ = match providers {
        [] => writeln!(
            text,
            "way in: none. The program has loaded no BLAS or LAPACK library; what it links \
             statically is out of reach"
        ),
        all => writeln!(text, "way in: LD_PRELOAD, before {}", all.join(", ")),
    };
    for used in uses {
        let (covered, local) = (used.covered.len(), used.local.len());
        let all = covered + local;
        let _ = writeln!(
            text,
            "{}: uses {all} functions, {covered} covered",
            used.object
        );
        for (what, names) in [("covered", &used.covered), ("stay here", &used.local)] {
            if !names.is_empty() {
                let listed: Vec<&str> = names.iter().map(String::as_str).take(MOST).collect();
                let more = match names.len().saturating_sub(MOST) {
                    0 => String::new(),
                    more => format!(" and {more} more"),
                };
                let _ = writeln!(text, "  {what}: {}{more}", listed.join(" "));
            }
        }
    }
    if uses.is_empty() && !providers.is_empty() {
        text.push_str("no loaded object calls them by name\n");
    }
    text
}

/// The symbols that an object takes from others.
fn imports(object: &Object) -> Vec<CString> {
    let Some(dynamic) = object.dynamic else {
        return Vec::new();
    };
    let (mut symbols, mut texts, mut count) = (0usize, 0usize, 0usize);
    let mut entry = dynamic as *const [i64; 2];
    // The dynamic linker has made the addresses absolute, unless the section is read-only.
    let start = object.addresses.start;
    let absolute = |value: i64| match value as usize {
        offset if offset < start => start + offset,
        address => address,
    };
    // SAFETY: the dynamic section of a loaded object ends with a zero tag. Each table is as the ELF
    // specification says.
    unsafe {
        while (*entry)[0] != 0 {
            let [tag, value] = *entry;
            let address = absolute(value);
            match tag {
                DT_SYMTAB => symbols = address,
                DT_STRTAB => texts = address,
                // The number of all symbols.
                DT_HASH => count = (*(address as *const [u32; 2]))[1] as usize,
                // The symbols before the first one with a hash are those of other objects.
                DT_GNU_HASH if count == 0 => count = (*(address as *const [u32; 2]))[1] as usize,
                _ => {}
            }
            entry = entry.add(1);
        }
        if symbols == 0 || texts == 0 {
            return Vec::new();
        }
        let undefined = (1..count).filter_map(|index| {
            let symbol = &*(symbols as *const libc::Elf64_Sym).add(index);
            (symbol.st_shndx == SHN_UNDEF).then(|| {
                let name = (texts + symbol.st_name as usize) as *const c_char;
                CStr::from_ptr(name).to_owned()
            })
        });
        undefined.collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_imports_of_this_program_have_those_of_its_own_code() {
        let objects = loaded(&[]);
        let all: Vec<CString> = objects.iter().flat_map(imports).collect();
        assert!(
            all.iter().any(|symbol| symbol.as_c_str() == c"malloc"),
            "{}",
            all.len()
        );
        assert!(all.iter().all(|symbol| symbol.as_c_str() != c"dgesv_"));
    }

    #[test]
    fn a_program_without_a_library_has_no_way_in() {
        assert!(text(&[], &[]).contains("out of reach"));
    }
}
