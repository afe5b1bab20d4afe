//! The whole table of values, as Go's library prints it.

use super::{go_float, to_string};

#[test]
fn values_print_like_in_calico() {
    let value = serde_json::from_str(include_str!("testdata/values.json")).unwrap();
    let printed = to_string(&value);
    for (number, (ours, theirs)) in
        printed.lines().zip(include_str!("testdata/values.yaml").lines()).enumerate()
    {
        assert_eq!(ours, theirs, "line {}", number + 1);
    }
    assert_eq!(printed, include_str!("testdata/values.yaml"));
}

#[test]
fn single_values_are_documents_too() {
    for (json, yaml) in
        [("null", "null\n"), ("[]", "[]\n"), ("{}", "{}\n"), ("\"x\"", "x\n"), ("[1]", "- 1\n")]
    {
        assert_eq!(to_string(&serde_json::from_str(json).unwrap()), yaml);
    }
}

#[test]
fn floats_print_like_in_go() {
    let cases = [
        (0.0, "0"),
        (100.0, "100"),
        (123_456.0, "123456"),
        (1e6, "1e+06"),
        (1_234_567.5, "1.2345675e+06"),
        (1e21, "1e+21"),
        (0.5, "0.5"),
        (0.0001, "0.0001"),
        (0.00001, "1e-05"),
        (-1e7, "-1e+07"),
        (1e100, "1e+100"),
    ];
    for (value, text) in cases {
        assert_eq!(go_float(value), text);
    }
}
