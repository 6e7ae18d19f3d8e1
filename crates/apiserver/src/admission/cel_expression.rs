//! CEL expressions in admission: match conditions of webhooks, and validating admission policies.
//!
//! Objects are bound as plain maps, so fields keep their JSON names. Expressions that are too long or too deeply nested are rejected
//! before anything recurses into them.

use std::collections::HashMap;
use std::sync::{Arc, LazyLock, Mutex, PoisonError};

use kube_cel::KubeCelExt as _;
use kube_cel::cel::common::ast::{EntryExpr, Expr, IdedExpr};
use kube_cel::cel::objects::{Key, Map};
use kube_cel::cel::parser::Parser;
use kube_cel::cel::{Context, ExecutionError, Value};
use serde_json::Value as Json;

/// The number of parsed expressions to cache. Policies are few, so this is only a bound.
const KEPT: usize = 1024;

/// The maximum length.
const LONGEST: usize = 8 * 1024;
/// The maximum depth of a tree; shallower ones fit on any stack.
const DEEPEST: usize = 128;
/// Only the part in use is ever committed.
const DEEP_STACK: usize = 512 * 1024 * 1024;

/// Names an expression may use without a binding: types, and libraries whose functions are called through them.
const BUILT_IN: [&str; 22] = [
    "bool",
    "bytes",
    "double",
    "duration",
    "dyn",
    "int",
    "list",
    "map",
    "null_type",
    "string",
    "timestamp",
    "type",
    "uint",
    "optional",
    "optional_type",
    "math",
    "sets",
    "base64",
    "format",
    "strings",
    "jsonpatch",
    "semver",
];

type Parsed = Result<Arc<IdedExpr>, String>;

static PARSED: LazyLock<Mutex<HashMap<String, Parsed>>> = LazyLock::new(Mutex::default);

/// Parses an expression.
pub(crate) fn parse(source: &str) -> Parsed {
    let mut kept = PARSED.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(known) = kept.get(source) {
        return known.clone();
    }
    // The parser panics on some invalid input.
    let parsed = on_deep_stack(|| tree_of(source))
        .unwrap_or_else(|| Err("ERROR: <input>:1:1: the expression cannot be read".into()))
        .map(Arc::new);
    if kept.len() >= KEPT {
        kept.clear();
    }
    kept.insert(source.to_owned(), parsed.clone());
    parsed
}

fn tree_of(source: &str) -> Result<IdedExpr, String> {
    if source.len() > LONGEST {
        return Err(format!("ERROR: <input>:1:1: the expression is longer than {LONGEST} bytes"));
    }
    if brackets(source) > DEEPEST {
        return Err(format!("ERROR: <input>:1:1: the expression is nested more than {DEEPEST} levels deep"));
    }
    // Optional selection (`.?`) is disabled: the interpreter treats a missing field as present.
    let tree = Parser::new().parse(source).map_err(|errors| errors.to_string())?;
    if depth(&tree) > DEEPEST {
        return Err(format!("ERROR: <input>:1:1: the expression is nested more than {DEEPEST} levels deep"));
    }
    Ok(tree)
}

/// The nesting depth of brackets, ignoring quotes; the parser is slow on deep input.
fn brackets(source: &str) -> usize {
    let (mut open, mut most) = (0usize, 0);
    for letter in source.chars() {
        match letter {
            '(' | '[' | '{' => open += 1,
            ')' | ']' | '}' => open = open.saturating_sub(1),
            _ => {}
        }
        most = most.max(open);
    }
    most
}

fn depth(tree: &IdedExpr) -> usize {
    let entry = |entry: &EntryExpr| match entry {
        EntryExpr::StructField(field) => depth(&field.value),
        EntryExpr::MapEntry(pair) => depth(&pair.key).max(depth(&pair.value)),
    };
    let below = match &tree.expr {
        Expr::Unspecified | Expr::Literal(_) | Expr::Ident(_) => 0,
        Expr::Select(select) => depth(&select.operand),
        Expr::Call(call) => call.target.iter().map(|t| &**t).chain(&call.args).map(depth).max().unwrap_or_default(),
        Expr::List(list) => list.elements.iter().map(depth).max().unwrap_or_default(),
        Expr::Map(map) => map.entries.iter().map(|e| entry(&e.expr)).max().unwrap_or_default(),
        Expr::Struct(made) => made.entries.iter().map(|e| entry(&e.expr)).max().unwrap_or_default(),
        Expr::Comprehension(each) => {
            [&each.iter_range, &each.accu_init, &each.loop_cond, &each.loop_step, &each.result]
                .into_iter()
                .map(depth)
                .max()
                .unwrap_or_default()
        }
    };
    below + 1
}

/// Runs something that recurses as deep as its input on a large stack. `None` if it panicked.
pub(crate) fn on_deep_stack<T: Send>(work: impl FnOnce() -> T + Send) -> Option<T> {
    std::thread::scope(|scope| {
        let thread = std::thread::Builder::new().stack_size(DEEP_STACK).spawn_scoped(scope, work);
        thread.ok()?.join().ok()
    })
}

/// Why an expression with these variables is rejected: it does not parse, or it uses other variables.
pub(crate) fn complaint(source: &str, variables: &[&str]) -> Option<String> {
    let tree = match parse(source) {
        Ok(tree) => tree,
        Err(why) => return Some(format!("compilation failed: {why}")),
    };
    let mut scope: Vec<&str> = variables.iter().copied().chain(BUILT_IN).collect();
    let unknown = undeclared(&tree, &mut scope)?;
    let at = source.find(unknown).unwrap_or_default();
    let column = source[..at].chars().count() + 1;
    let line = source.lines().next().unwrap_or_default();
    Some(format!(
        "compilation failed: ERROR: <input>:1:{column}: undeclared reference to '{unknown}' (in container '')\n | {line}\n | {}^",
        ".".repeat(column - 1)
    ))
}

/// The first unbound name.
fn undeclared<'a>(tree: &'a IdedExpr, scope: &mut Vec<&'a str>) -> Option<&'a str> {
    match &tree.expr {
        Expr::Unspecified | Expr::Literal(_) => None,
        Expr::Ident(name) => (!name.starts_with('@') && !scope.contains(&name.as_str())).then_some(name),
        Expr::Select(select) => undeclared(&select.operand, scope),
        Expr::Call(call) => call.target.iter().map(|t| &**t).chain(&call.args).find_map(|part| undeclared(part, scope)),
        Expr::List(list) => list.elements.iter().find_map(|element| undeclared(element, scope)),
        Expr::Map(map) => map.entries.iter().find_map(|entry| entry_undeclared(&entry.expr, scope)),
        Expr::Struct(made) => made.entries.iter().find_map(|entry| entry_undeclared(&entry.expr, scope)),
        Expr::Comprehension(each) => {
            let outer = undeclared(&each.iter_range, scope).or_else(|| undeclared(&each.accu_init, scope));
            let depth = scope.len();
            scope.push(&each.iter_var);
            scope.extend(each.iter_var2.as_deref());
            scope.push(&each.accu_var);
            let inner = outer
                .or_else(|| undeclared(&each.loop_cond, scope))
                .or_else(|| undeclared(&each.loop_step, scope))
                .or_else(|| undeclared(&each.result, scope));
            scope.truncate(depth);
            inner
        }
    }
}

fn entry_undeclared<'a>(entry: &'a EntryExpr, scope: &mut Vec<&'a str>) -> Option<&'a str> {
    match entry {
        EntryExpr::StructField(field) => undeclared(&field.value, scope),
        EntryExpr::MapEntry(pair) => undeclared(&pair.key, scope).or_else(|| undeclared(&pair.value, scope)),
    }
}

/// The variables of an expression.
pub(crate) struct Scope(Context<'static>);

impl Scope {
    pub(crate) fn new(bound: &[(&str, &Json)]) -> Self {
        let mut scope = Self(Context::default().with_all());
        for (name, value) in bound {
            scope.bind(name, from_json(value));
        }
        scope
    }

    pub(crate) fn bind(&mut self, name: &str, value: Value) {
        self.0.add_variable_from_value(name, value);
    }

    /// Evaluates an expression; errors are in the real server's words.
    pub(crate) fn evaluate(&self, source: &str) -> Result<Value, String> {
        let tree = parse(source).map_err(|why| format!("compilation error: compilation failed: {why}"))?;
        Value::resolve(&tree, &self.0)
            .map_err(|error| format!("expression '{source}' resulted in error: {}", words(&error)))
    }
}

pub(crate) fn map(entries: HashMap<Key, Value>) -> Value {
    Value::Map(Map { map: Arc::new(entries) })
}

pub(crate) fn key(name: &str) -> Key {
    Key::String(Arc::new(name.to_owned()))
}

fn from_json(value: &Json) -> Value {
    match value {
        Json::Null => Value::Null,
        Json::Bool(b) => Value::Bool(*b),
        Json::Number(n) => match (n.as_i64(), n.as_u64()) {
            (Some(i), _) => Value::Int(i),
            (None, Some(u)) => Value::UInt(u),
            _ => Value::Float(n.as_f64().unwrap_or(f64::NAN)),
        },
        Json::String(s) => Value::String(Arc::new(s.clone())),
        Json::Array(list) => Value::List(Arc::new(list.iter().map(from_json).collect())),
        Json::Object(fields) => map(fields.iter().map(|(name, value)| (key(name), from_json(value))).collect()),
    }
}

fn words(error: &ExecutionError) -> String {
    match error {
        ExecutionError::NoSuchKey(key) => format!("no such key: {key}"),
        ExecutionError::NoSuchOverload
        | ExecutionError::UnexpectedType { .. }
        | ExecutionError::ValuesNotComparable(..)
        | ExecutionError::UnsupportedUnaryOperator(..)
        | ExecutionError::UnsupportedBinaryOperator(..) => "no such overload".into(),
        ExecutionError::DivisionByZero(_) => "division by zero".into(),
        ExecutionError::RemainderByZero(_) => "modulus by zero".into(),
        ExecutionError::IndexOutOfBounds(Value::Int(index)) => format!("index out of bounds: {index}"),
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn value(source: &str) -> Result<Value, String> {
        let object =
            json!({"metadata": {"namespace": "n", "labels": {"a.b/c": "d"}}, "spec": {"n": 3, "list": [1, 2]}});
        Scope::new(&[("object", &object)]).evaluate(source)
    }

    #[test]
    fn fields_are_read_by_their_own_names() {
        for truth in [
            "object.metadata.namespace == 'n'",
            "object.metadata.labels['a.b/c'] == 'd'",
            "object.spec.n > 2 && object.spec.list.all(i, i < 3)",
            "!has(object.spec.none)",
            "optional.none().orValue(5) == 5",
            "'a.b/c' in object.metadata.labels",
        ] {
            assert_eq!(value(truth), Ok(Value::Bool(true)), "{truth}");
        }
    }

    #[test]
    fn optional_selection_is_refused() {
        assert!(complaint("object.?spec.?none.orValue(5) == 5", &["object"]).is_some());
    }

    #[test]
    fn a_missing_field_is_an_error() {
        assert_eq!(
            value("object.spec.none == 1"),
            Err("expression 'object.spec.none == 1' resulted in error: no such key: none".into())
        );
    }

    #[test]
    fn names_that_nothing_is_bound_to_are_found() {
        assert_eq!(complaint("object.list.exists(x, x == y)", &["object"]).map(|w| w.contains("'y'")), Some(true));
        assert_eq!(complaint("object.list.exists(x, x == 1) && math.greatest(1, 2) == 2", &["object"]), None);
        assert!(complaint("object ==", &["object"]).is_some_and(|w| w.starts_with("compilation failed: ERROR")));
    }

    #[test]
    fn nesting_without_end_is_refused_not_followed() {
        for (open, close) in [("(", ")"), ("[", "]"), ("!", ""), ("-", "")] {
            for times in [200, 4_000, 100_000] {
                let source = format!("{}true{}", open.repeat(times), close.repeat(times));
                let refused = complaint(&source, &[]).is_some();
                assert!(refused || close.is_empty(), "{times} times {open}");
            }
        }
        for chain in ["true ? true : ", "1 + ", "true && ", "x."] {
            let source = format!("{}true", chain.repeat(8_000 / chain.len()));
            let _ = complaint(&source, &["x"]);
        }
    }
}
