//! Interfaces of remote library functions.
//!
//! An interface is written in the Ninf IDL. It describes the parameters of a library function, the
//! direction in which each travels, the size of each array as an expression of the other arguments,
//! and how to call the function. This crate has
//!
//! - the checked model ([`Document`], [`Interface`], [`Param`]),
//! - dimension and cost expressions ([`Expr`]) in checked 64-bit arithmetic,
//! - the layout of one call ([`Interface::layout`]): how many bytes each array has, where it is in
//!   the call buffer and which of its bytes travel.
//!
//! The crate does no I/O and trusts none of its input: expressions, sizes and text can come from a
//! peer. The text of an interface ([`Interface::text`]) is also its encoding on the wire.

#![no_std]

extern crate alloc;
#[cfg(test)]
extern crate std;

mod check;
mod diagnostic;
mod expr;
mod interface;
mod layout;
mod lexer;
mod parser;
mod print;
mod scalar;

pub use check::{
    InterfaceError, MAX_DOCUMENT, MAX_INTERFACE, Parsed, parse_document, parse_interface,
};
pub use diagnostic::{Diagnostic, Position, Severity, position, render};
pub use expr::{EvalError, Expr, ExprError, MAX_DEPTH, MAX_OPS, Op, Values};
pub use interface::{
    Body, Callback, Class, Code, Constant, Convention, Dim, Document, ElementRef, Interface,
    Library, MOST_GPUS, Mode, Order, Param, Passed, Range, ScalarError, StringLengths, Type,
    is_exact,
};
pub use layout::{
    ArrayLayout, Axis, DimensionPart, ElementError, Layout, LayoutError, MAX_RANK, MOST_TEXTS,
    Problem, Run, Runs, Section, SharedRange, read_integer, read_texts, text_of,
};
pub use scalar::Scalar;
