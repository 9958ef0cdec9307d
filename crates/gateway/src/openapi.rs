//! The description of functions for programs: their interfaces as JSON, and an OpenAPI 3.1
//! document. Both follow from the interfaces alone. A function that JSON cannot carry is not in the
//! document.

use crate::arguments::{carried, is_needed};
use farcall_idl::{Body, Constant, Expr, Interface, Param, Passed, Type};
use serde_json::{Map, Value, json};

/// The interface of a function as JSON: the same as `farcall describe --json` prints.
pub fn describe(interface: &Interface, text: &str) -> Value {
    let params = interface.params.iter().map(|param| {
        json!({
            "name": param.name,
            "mode": param.mode.name(),
            "type": param.ty.name(),
            "dimensions": dimensions(interface, param),
            "ranges": ranges(interface, param),
        })
    });
    let params: Vec<Value> = params.collect();
    let text_of = |expr: &Option<Expr>| expr.as_ref().map(|expr| interface.expr_text(expr));
    json!({
        "schema": 1,
        "name": interface.qualified_name(),
        "description": interface.description,
        "cost": text_of(&interface.calc_order),
        "processor_elements": {
            "fewest": text_of(&interface.fewest_elements),
            "most": text_of(&interface.processor_elements),
        },
        "repeatable": interface.repeatable,
        "parameters": params,
        "callbacks": interface.callbacks.iter().map(|one| &one.name).collect::<Vec<_>>(),
        "calls": calls(interface),
        "idl": text,
    })
}

/// The part of each dimension that travels; null for a whole dimension.
fn ranges(interface: &Interface, param: &Param) -> Vec<Value> {
    let ranges = param.dims.iter().map(|dim| dim.range.as_ref());
    let ranges = ranges.map(|range| {
        let range = range?;
        let text_of = |expr: &Option<Expr>| expr.as_ref().map(|expr| interface.expr_text(expr));
        Some(json!({
            "start": text_of(&range.start),
            "end": interface.expr_text(&range.end),
            "step": text_of(&range.step),
        }))
    });
    ranges.map(Value::from).collect()
}

/// The function of the library that the interface calls; null for compiled C text.
fn calls(interface: &Interface) -> Value {
    let Body::Calls {
        convention,
        function,
        args,
        returns,
    } = &interface.body
    else {
        return Value::Null;
    };
    let name = |index: usize| match interface.params.get(index) {
        Some(param) => param.name.as_str(),
        None => &interface.callbacks[index - interface.params.len()].name,
    };
    let passed = |passed: &Passed| match passed {
        Passed::Param(index) => json!(name(*index)),
        Passed::Constant(Constant::Integer(value)) => json!({ "constant": value }),
        Passed::Constant(Constant::Real(value)) => json!({ "constant": value }),
        Passed::Constant(Constant::Character(code)) => {
            json!({ "constant": char::from(*code).to_string() })
        }
        Passed::Constant(Constant::Text(text)) => json!({ "constant": text }),
        Passed::Constant(Constant::Null) => json!({ "constant": null }),
    };
    json!({
        "convention": convention.name(),
        "function": function,
        "arguments": args.iter().map(passed).collect::<Vec<_>>(),
        "returns": returns.map(name),
    })
}

/// An OpenAPI 3.1 document of these functions.
pub fn openapi<'i>(interfaces: impl IntoIterator<Item = &'i Interface>) -> Value {
    let interfaces = interfaces.into_iter();
    let offered = interfaces.filter(|interface| carried(interface).is_ok());
    let calls = offered.map(|interface| {
        let path = format!("/v1/call/{}", interface.qualified_name());
        (path, json!({ "post": operation(interface) }))
    });
    let mut paths: Map<String, Value> = calls.collect();
    paths.insert("/v1/functions".into(), list());
    json!({
        "openapi": "3.1.0",
        "info": {
            "title": "Functions of Farcall servers",
            "version": env!("CARGO_PKG_VERSION"),
            "description": "Each function is a POST with its arguments as a JSON object.",
        },
        "security": [{}, { "token": [] }],
        "paths": paths,
        "components": {
            "securitySchemes": {
                "token": {
                    "type": "http",
                    "scheme": "bearer",
                    "description": "The token of a user of the server.",
                },
            },
            "schemas": schemas(),
            "responses": {
                "Error": {
                    "description": "The call failed.",
                    "content": content(&json!({ "$ref": "#/components/schemas/Error" })),
                },
            },
        },
    })
}

fn content(schema: &Value) -> Value {
    json!({ "application/json": { "schema": schema } })
}

fn list() -> Value {
    let function = json!({
        "type": "object",
        "properties": { "name": { "type": "string" }, "title": { "type": "string" } },
        "required": ["name", "title"],
    });
    let functions = json!({
        "type": "object",
        "properties": { "functions": { "type": "array", "items": function } },
        "required": ["functions"],
    });
    json!({
        "get": {
            "operationId": "functions",
            "summary": "List the functions",
            "responses": {
                "200": { "description": "The functions.", "content": content(&functions) },
                "default": { "$ref": "#/components/responses/Error" },
            },
        },
    })
}

fn operation(interface: &Interface) -> Value {
    let passed = interface.params.iter().filter(|param| is_needed(param));
    let returned = interface.params.iter();
    let returned = returned.filter(|param| !param.is_value() && param.mode.is_returned());
    let name = interface.qualified_name();
    json!({
        "operationId": name.replace('/', "."),
        "summary": interface.description.as_deref().unwrap_or(&name),
        "parameters": [{
            "name": "arrays",
            "in": "query",
            "description": "How arrays come back: lists in lists, or objects with base64.",
            "schema": { "enum": ["lists", "base64"], "default": "lists" },
        }],
        "requestBody": { "required": true, "content": content(&object(interface, passed)) },
        "responses": {
            "200": {
                "description": "The results. The header has the times of the call.",
                "headers": { "Server-Timing": { "schema": { "type": "string" } } },
                "content": content(&object(interface, returned)),
            },
            "default": { "$ref": "#/components/responses/Error" },
        },
    })
}

fn object<'i>(interface: &Interface, params: impl Iterator<Item = &'i Param>) -> Value {
    let (mut properties, mut names) = (Map::new(), Vec::new());
    for param in params {
        properties.insert(param.name.clone(), schema(interface, param));
        names.push(param.name.as_str());
    }
    json!({
        "type": "object",
        "properties": properties,
        "required": names,
        "additionalProperties": false,
    })
}

/// Sizes as expressions, in the order in which a caller writes the lists.
fn dimensions(interface: &Interface, param: &Param) -> Vec<String> {
    let dims = param.dims.iter();
    dims.map(|dim| interface.expr_text(&dim.size)).collect()
}

fn schema(interface: &Interface, param: &Param) -> Value {
    if param.is_scalar() {
        return scalar(param.ty);
    }
    let mut sizes = dimensions(interface, param);
    let texts = param.is_texts() || param.is_fixed_texts();
    // Texts are in the order in which the interface declares them, and their length comes last.
    if interface.order() == farcall_idl::Order::ColumnMajor && !texts {
        sizes.reverse();
    }
    let (kind, sizes) = match param.is_fixed_texts() {
        true => ("string", &sizes[..sizes.len().saturating_sub(1)]),
        false => (param.ty.name(), &sizes[..]),
    };
    let description = format!("{kind}, shape ({})", sizes.join(", "));
    if texts {
        return json!({
            "description": description,
            "type": "array",
            "items": { "type": ["string", "array"] },
        });
    }
    let lists = sizes.iter().fold(
        element(param.ty),
        |inner, _| json!({ "type": "array", "items": inner }),
    );
    json!({
        "description": description,
        "anyOf": [
            lists,
            { "$ref": "#/components/schemas/Values" },
            { "$ref": "#/components/schemas/Encoded" },
        ],
    })
}

/// A scalar argument.
fn scalar(ty: Type) -> Value {
    match ty {
        Type::Char => json!({ "type": ["integer", "string"], "minimum": -128, "maximum": 255 }),
        Type::String | Type::FixedString | Type::Filename | Type::FilePointer => {
            json!({ "type": "string" })
        }
        Type::SComplex | Type::DComplex => json!({ "anyOf": [element(ty), real()] }),
        ty => element(ty),
    }
}

/// An element of an array.
fn element(ty: Type) -> Value {
    match ty {
        Type::SComplex | Type::DComplex => json!({ "$ref": "#/components/schemas/Complex" }),
        Type::UnsignedLong | Type::UnsignedLongLong => json!({ "type": "integer", "minimum": 0 }),
        ty => match ty.integer_range() {
            Some((least, most)) => {
                json!({ "type": "integer", "minimum": least, "maximum": most })
            }
            None => real(),
        },
    }
}

fn real() -> Value {
    json!({ "$ref": "#/components/schemas/Real" })
}

fn schemas() -> Value {
    let shape = json!({ "type": "array", "items": { "type": "integer", "minimum": 0 } });
    let order = json!({
        "type": "boolean",
        "default": false,
        "description": "Whether the first index varies fastest.",
    });
    json!({
        "Real": {
            "description": "JSON has no infinite numbers and no NaN: they are texts.",
            "anyOf": [{ "type": "number" }, { "enum": ["NaN", "Infinity", "-Infinity"] }],
        },
        "Complex": {
            "description": "Real part, imaginary part.",
            "type": "array",
            "items": real(),
            "minItems": 2,
            "maxItems": 2,
        },
        "Values": {
            "description": "A flat list with its shape.",
            "type": "object",
            "properties": {
                "shape": shape, "values": { "type": "array" }, "fortran_order": order,
            },
            "required": ["shape", "values"],
            "additionalProperties": false,
        },
        "Encoded": {
            "description": "The bytes of the elements.",
            "type": "object",
            "properties": {
                "dtype": { "type": "string", "examples": ["<f8", "<i4"] },
                "shape": shape,
                "data": { "type": "string", "contentEncoding": "base64" },
                "fortran_order": order,
            },
            "required": ["dtype", "shape", "data"],
            "additionalProperties": false,
        },
        "Error": {
            "type": "object",
            "properties": {
                "error": {
                    "type": "object",
                    "properties": {
                        "kind": { "type": "string" }, "message": { "type": "string" },
                    },
                    "required": ["kind", "message"],
                },
            },
            "required": ["error"],
        },
    })
}
