//! Parameters in the environment: `FELIX_NAME=value`, in any case.

use crate::sources::Texts;

/// The prefix of variables that are parameters.
const PREFIX: &str = "felix_";

/// The parameters among these variables. Names are returned in lower case, since case does not matter when they are
/// compared.
pub fn from_environment<N, V>(variables: impl IntoIterator<Item = (N, V)>) -> Texts
where
    N: AsRef<str>,
    V: Into<String>,
{
    let parameter = |(name, value): (N, V)| {
        let name = name.as_ref().to_lowercase();
        Some((name.strip_prefix(PREFIX)?.to_owned(), value.into()))
    };
    variables.into_iter().filter_map(parameter).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_our_variables_are_taken_in_any_case() {
        let variables = [
            ("FELIX_LogSeverityScreen", "DEBUG"),
            ("felix_FailsafeInboundHostPorts", "tcp:22"),
            ("FELIX_BPF_LOG", "x"),
            ("NOT_FELIX_X", "y"),
            ("FELIX", "z"),
        ];
        let texts = from_environment(variables);
        let expected =
            [("bpf_log", "x"), ("failsafeinboundhostports", "tcp:22"), ("logseverityscreen", "DEBUG")];
        assert_eq!(texts, expected.map(|(name, value)| (name.to_owned(), value.to_owned())).into());
    }
}
