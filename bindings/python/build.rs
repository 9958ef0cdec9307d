//! The names of the interpreter are there when it loads the module. On macOS a linker has to be
//! told so.

fn main() {
    pyo3_build_config::add_extension_module_link_args();
}
