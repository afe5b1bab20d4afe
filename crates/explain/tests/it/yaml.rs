//! Fixtures are written in YAML, which the crate itself does not read.

use saphyr::{LoadableYamlNode as _, Scalar, Yaml};
use serde_json::{Map, Value};

/// The documents of a text.
pub(crate) fn documents(text: &str) -> Vec<Value> {
    Yaml::load_from_str(text).expect("YAML").iter().map(value).collect()
}

fn value(node: &Yaml<'_>) -> Value {
    match node {
        Yaml::Value(Scalar::Null) => Value::Null,
        Yaml::Value(Scalar::Boolean(truth)) => Value::Bool(*truth),
        Yaml::Value(Scalar::Integer(number)) => Value::from(*number),
        Yaml::Value(Scalar::FloatingPoint(number)) => Value::from(number.0),
        Yaml::Value(Scalar::String(text)) => Value::String(text.clone().into_owned()),
        Yaml::Sequence(items) => Value::Array(items.iter().map(value).collect()),
        Yaml::Mapping(fields) => {
            let field = |(name, field): (&Yaml<'_>, &Yaml<'_>)| {
                (name.as_str().expect("a name").to_owned(), value(field))
            };
            Value::Object(fields.iter().map(field).collect::<Map<_, _>>())
        }
        other => panic!("{other:?} is not used in fixtures"),
    }
}
