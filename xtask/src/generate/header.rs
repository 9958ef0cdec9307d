//! Generates the header of the C library: declarations from the Rust source and from `variadic.h`,
//! in the groups and the order of `farcall.h.in`. Every function must be in exactly one group.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

/// The lines before and after the functions in cbindgen's header.
const BEGIN: &str = "extern \"C\" {\n#endif // __cplusplus\n";
const END: &str = "#ifdef __cplusplus\n}  // extern \"C\"";

pub(super) fn header(root: &Path) -> Result<String, String> {
    let library = root.join("bindings/c");
    let read = |name: &str| {
        let path = library.join(name);
        fs::read_to_string(&path).map_err(|error| format!("{}: {error}", path.display()))
    };
    let text = declarations(&library)?;
    let (before, rest) = text
        .split_once(BEGIN)
        .ok_or("bindings/c: cbindgen's header begins in another way than expected")?;
    let (rust, end) = rest
        .split_once(END)
        .ok_or("bindings/c: cbindgen's header ends in another way than expected")?;
    let (complex, variadic) = read("src/variadic.h")?
        .split_once("\n\n")
        .map(|(one, rest)| (one.to_owned(), rest.to_owned()))
        .ok_or("bindings/c/src/variadic.h: no functions after the complex numbers")?;
    let functions = rust.split("\n\n").chain(variadic.split("\n\n"));
    let grouped = grouped(functions, &read("farcall.h.in")?)?;
    let before = before
        .strip_suffix("#ifdef __cplusplus\n")
        .unwrap_or(before);
    Ok(format!(
        "{before}{complex}\n\n#ifdef __cplusplus\n{BEGIN}\n{grouped}{END}{end}"
    ))
}

/// cbindgen's header.
fn declarations(library: &Path) -> Result<String, String> {
    let config = cbindgen::Config::from_file(library.join("cbindgen.toml"))?;
    let builder = cbindgen::Builder::new().with_config(config);
    let bindings = builder.with_src(library.join("src/lib.rs")).generate();
    let mut text = Vec::new();
    bindings
        .map_err(|error| error.to_string())?
        .write(&mut text);
    let text = String::from_utf8(text).map_err(|error| error.to_string())?;
    // In C the comment is the whole contract, so there is no section about safety.
    Ok(text.replace("// # Safety\n", ""))
}

/// The template with each line `@NAME` replaced by the declaration of that function.
fn grouped<'a>(functions: impl Iterator<Item = &'a str>, template: &str) -> Result<String, String> {
    let named = functions.map(str::trim).filter(|text| !text.is_empty());
    let named = named.map(|text| (name(text), text));
    let mut left: BTreeMap<&str, &str> = named.collect();
    let mut text = String::new();
    for line in template.lines() {
        match line.strip_prefix('@') {
            None => text += &format!("{line}\n"),
            Some(name) => {
                let function = left.remove(name);
                let function = function
                    .ok_or_else(|| format!("bindings/c/farcall.h.in: no function `{name}`"))?;
                text += &format!("{function}\n\n");
            }
        }
    }
    match left.keys().next() {
        None => Ok(text.replace("\n\n\n", "\n\n")),
        Some(name) => Err(format!("bindings/c/farcall.h.in: `{name}` is in no group")),
    }
}

/// The name of the function that a block of comments and one declaration declares.
fn name(block: &str) -> &str {
    let declaration = block.lines().find(|line| !line.starts_with("//"));
    let before = declaration.unwrap_or_default().split('(').next();
    let word = before.unwrap_or_default().rsplit([' ', '*']).next();
    word.unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    const TWO: [&str; 2] = ["// One.\nint f(int n);", "// Two.\nconst char *g(void);"];

    #[test]
    fn functions_are_in_the_order_of_the_template() {
        let text = grouped(TWO.into_iter(), "/* Texts */\n\n@g\n/* Numbers */\n\n@f\n").unwrap();
        let (first, second) = (text.find("*g(").unwrap(), text.find("f(int").unwrap());
        assert!(first < second, "{text}");
        assert!(text.starts_with("/* Texts */\n\n// Two.\n"), "{text}");
    }

    #[test]
    fn every_function_is_in_one_group() {
        let error = grouped(TWO.into_iter(), "@f\n").unwrap_err();
        assert!(error.contains("`g` is in no group"), "{error}");
        let error = grouped(TWO.into_iter(), "@f\n@f\n@g\n").unwrap_err();
        assert!(error.contains("no function `f`"), "{error}");
    }
}
