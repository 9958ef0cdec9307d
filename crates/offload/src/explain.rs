//! What a program uses of numerical libraries, and what a server can compute of it: for each loaded
//! object, the functions that it takes from libraries of linear algebra. It reads the tables of the
//! dynamic linker and changes nothing. It opens no library either: the report is made when the
//! program ends, and then the dynamic linker would run initialisers a second time.

use crate::real::{Object, SIGNS, loaded};
use std::collections::{BTreeSet, HashSet};
use std::ffi::{CStr, CString, c_char};
use std::fmt::Write;

/// Tags of the dynamic section and the parts of a symbol, as in the ELF specification.
const DT_PLTRELSZ: i64 = 2;
const DT_HASH: i64 = 4;
const DT_STRTAB: i64 = 5;
const DT_SYMTAB: i64 = 6;
const DT_RELA: i64 = 7;
const DT_RELASZ: i64 = 8;
const DT_JMPREL: i64 = 23;
const DT_GNU_HASH: i64 = 0x6fff_fef5;
const SHN_UNDEF: u16 = 0;

/// Names in one line of the report. Bindings of Python take all functions of LAPACK.
const MOST: usize = 32;

/// The symbols of an object.
#[derive(Default)]
struct Symbols {
    /// Those that it takes from others.
    imports: Vec<CString>,
    /// Those that it defines.
    exports: HashSet<CString>,
}

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
    let objects = loaded(own).into_iter();
    let known = objects.map(|object| (object.name(), symbols(&object)));
    let gives_algebra =
        |(_, symbols): &(String, Symbols)| SIGNS.iter().any(|sign| symbols.exports.contains(*sign));
    let (providers, others): (Vec<_>, Vec<_>) = known.partition(gives_algebra);
    let mut uses = Vec::new();
    for (object, symbols) in others {
        let mut used = Use {
            object,
            covered: BTreeSet::new(),
            local: BTreeSet::new(),
        };
        for symbol in symbols.imports {
            let mut providers = providers.iter();
            if !providers.any(|(_, provider)| provider.exports.contains(&symbol)) {
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
    let names: Vec<String> = providers.into_iter().map(|(name, _)| name).collect();
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

/// The symbols of an object, from its dynamic section.
fn symbols(object: &Object) -> Symbols {
    let mut found = Symbols::default();
    let Some(dynamic) = object.dynamic else {
        return found;
    };
    let (mut table, mut texts, mut count) = (0usize, 0usize, 0usize);
    // The relocations of data and of calls: the address and the bytes of each table.
    let mut relocations = [(0usize, 0usize); 2];
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
                DT_SYMTAB => table = address,
                DT_STRTAB => texts = address,
                DT_RELA => relocations[0].0 = address,
                DT_RELASZ => relocations[0].1 = value as usize,
                DT_JMPREL => relocations[1].0 = address,
                DT_PLTRELSZ => relocations[1].1 = value as usize,
                DT_HASH => count = (*(address as *const [u32; 2]))[1] as usize,
                DT_GNU_HASH if count == 0 => count = count_hashed(address as *const u32),
                _ => {}
            }
            entry = entry.add(1);
        }
        if table == 0 || texts == 0 {
            return found;
        }
        // The hash table of an object that defines nothing does not say what it imports.
        for (start, bytes) in relocations.into_iter().filter(|(start, _)| *start != 0) {
            let start = start as *const Relocation;
            let all = std::slice::from_raw_parts(start, bytes / size_of::<Relocation>());
            count = count.max(count_relocated(all));
        }
        for index in 1..count {
            let symbol = &*(table as *const libc::Elf64_Sym).add(index);
            let name = (texts + symbol.st_name as usize) as *const c_char;
            let name = CStr::from_ptr(name).to_owned();
            match symbol.st_shndx {
                SHN_UNDEF => found.imports.push(name),
                _ if object.is_program() => {}
                _ => _ = found.exports.insert(name),
            }
        }
    }
    found
}

/// A relocation: its place, its kind with the index of its symbol in the upper half, and a number.
type Relocation = [u64; 3];

/// The number of symbols of an object, as far as its relocations name them.
fn count_relocated(relocations: &[Relocation]) -> usize {
    let indices = relocations.iter().map(|[_, info, _]| (info >> 32) as usize);
    indices.max().map_or(0, |last| last + 1)
}

/// The number of symbols of an object, from its GNU hash table: four numbers, a filter, a bucket
/// for each remainder with the first symbol of its chain, and the chains. The last entry of a chain
/// is odd. Symbols of other objects come before all chains.
///
/// # Safety
/// `table` is such a table.
unsafe fn count_hashed(table: *const u32) -> usize {
    // SAFETY: the caller's promise.
    unsafe {
        let [buckets, first, filter, _] = *table.cast::<[u32; 4]>();
        let start = table.add(4 + 2 * filter as usize);
        let firsts = std::slice::from_raw_parts(start, buckets as usize);
        let last = firsts.iter().copied().max().unwrap_or(0);
        if last < first {
            return first as usize;
        }
        let chains = start.add(buckets as usize);
        let mut place = (last - first) as usize;
        while *chains.add(place) & 1 == 0 {
            place += 1;
        }
        first as usize + place + 1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_symbols_of_this_program_and_of_its_libraries() {
        let mut imports = HashSet::new();
        for object in loaded(&[]) {
            let found = symbols(&object);
            imports.extend(found.imports);
            // The dynamic linker finds the same.
            for name in [c"malloc", c"fputs", c"strtod", c"cos", c"dgesv_"] {
                let is_known = object.defines(name).is_some();
                assert_eq!(
                    found.exports.contains(name),
                    is_known,
                    "{name:?} in {}",
                    object.name()
                );
            }
        }
        assert!(imports.contains(c"malloc") && !imports.contains(c"dgesv_"));
    }

    /// As linkers write it: one empty chain, which begins after the first symbol.
    #[test]
    fn the_imports_of_an_object_that_defines_nothing_are_counted() {
        let table = [1u32, 1, 1, 0, 0, 0, 0];
        // SAFETY: four numbers, a filter of 64 bits, and a bucket.
        assert_eq!(unsafe { count_hashed(table.as_ptr()) }, 1);
        let relocations: [Relocation; 2] = [[0x4000, 3 << 32 | 7, 0], [0x4008, 5 << 32 | 7, 0]];
        assert_eq!(count_relocated(&relocations), 6);
        assert_eq!(count_relocated(&[]), 0);
    }

    #[test]
    fn a_program_without_a_library_has_no_way_in() {
        assert!(text(&[], &[]).contains("out of reach"));
    }
}
