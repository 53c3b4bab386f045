//! Removal of secrets from properties and command lines for results.

/// Text shown instead of a secret.
pub const HIDDEN: &str = "***";

/// Returns whether a property's name says that its value is a secret.
pub(crate) fn is_secret(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    ["passw", "secret", "token", "accesskey", "access_key", "credential"]
        .iter()
        .any(|part| name.contains(part))
}

/// Returns the value of a property for results: secrets and passwords in URLs are replaced.
pub fn shown(name: &str, value: &str) -> String {
    if is_secret(name) {
        return HIDDEN.to_owned();
    }
    if !value.contains("://") {
        return value.to_owned();
    }
    let mut text = String::new();
    for (index, piece) in value.split_inclusive(['?', '&', ';']).enumerate() {
        let body = piece.trim_end_matches(['?', '&', ';']);
        let end = &piece[body.len()..];
        match (body.split_once('='), body.split_once("://")) {
            (Some((name, _)), _) if index > 0 && is_secret(name) => text.push_str(&format!("{name}=***")),
            (_, Some((scheme, rest))) => {
                // USER:PASSWORD@HOST. An @ after the first slash belongs to the path.
                let place = rest.split('/').next().unwrap_or_default();
                match place.rsplit_once('@').and_then(|(login, _)| login.split_once(':')) {
                    Some((user, password)) => {
                        let host = &rest[user.len() + 1 + password.len()..];
                        text.push_str(&format!("{scheme}://{user}:***{host}"));
                    }
                    None => text.push_str(body),
                }
            }
            _ => text.push_str(body),
        }
        text.push_str(end);
    }
    text
}

/// Returns command line arguments with secrets replaced.
pub fn without_secrets(arguments: impl IntoIterator<Item = String>) -> Vec<String> {
    arguments
        .into_iter()
        .map(|argument| match argument.split_once('=') {
            Some((name, value)) => format!("{name}={}", shown(name, value)),
            None => argument,
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_are_left_out_of_results() {
        let arguments = ["run", "redis.password=hunter2", "-p", "db.passwd=x=y", "recordcount=5"];
        let kept = without_secrets(arguments.map(String::from));
        assert_eq!(kept, ["run", "redis.password=***", "-p", "db.passwd=***", "recordcount=5"]);
    }

    #[test]
    fn passwords_in_urls_are_left_out_of_results() {
        for (url, expected) in [
            (
                "jdbc:postgresql://h:1/d?user=u&password=a=b&ssl=1",
                "jdbc:postgresql://h:1/d?user=u&password=***&ssl=1",
            ),
            (
                "jdbc:mysql://h/d?password=x;jdbc:mysql://u:x@i/d",
                "jdbc:mysql://h/d?password=***;jdbc:mysql://u:***@i/d",
            ),
            ("mongodb://u:a:b@h,i/d@e", "mongodb://u:***@h,i/d@e"),
            ("http://h/a?x=y", "http://h/a?x=y"),
            ("jdbc:sqlite:x.db", "jdbc:sqlite:x.db"),
        ] {
            assert_eq!(without_secrets([format!("db.url={url}")]), [format!("db.url={expected}")]);
        }
    }
}
