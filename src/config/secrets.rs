//! Secrets, and the `${...}` forms by which they reach the configuration (pure).
//!
//! # Invariants
//! - A [`Secret`] has no `Display`, and its `Debug` shows asterisks only.
//! - A message about a value quotes what stands in the file, never what it was expanded to.
//!
//! # Absences
//! - Nothing here reads the environment; [`Env`] does.

use super::env::Env;

/// What is shown in a secret's place.
pub const HIDDEN: &str = "***";

/// Longest text after expansion, in bytes. Keys and tokens are below 4 KiB; a file that was given
/// as a credential by mistake is not.
const EXPANDED_BYTES_MAX: usize = 16 * 1024;

/// A text that must not appear in a log, a message or a command's output.
#[derive(Clone, PartialEq, Eq, Default)]
pub struct Secret(String);

impl Secret {
    /// Takes a text into custody.
    #[must_use]
    pub fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    /// The text itself, for the one place that sends or compares it.
    #[must_use]
    pub fn expose(&self) -> &str {
        &self.0
    }

    /// True if there is nothing in it.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl std::fmt::Debug for Secret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(HIDDEN)
    }
}

/// Where an expanded text came from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Origin {
    /// All of it stands in the file.
    Literal,
    /// A part comes from the environment variable of this name (the first, if several).
    Environment(String),
    /// A part comes from the systemd credential of this name, so all of it counts as secret.
    Credential(String),
}

/// A text whose `${...}` forms were replaced.
#[derive(Clone, PartialEq, Eq)]
pub struct Expanded {
    /// The text to use. Not for messages.
    pub text: String,
    /// Where it came from.
    pub origin: Origin,
}

/// Why a text could not be expanded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unexpandable {
    /// What is wrong.
    pub says: String,
    /// What to do.
    pub fix: String,
}

/// Replaces `${NAME}` by an environment variable, `${credential:NAME}` by a systemd credential
/// and `$${` by a plain `${`. Replacements are not expanded again.
///
/// # Errors
/// A variable or credential that does not exist, a bad name, a missing `}`, or a result that is
/// too long.
pub fn expand(raw: &str, env: &dyn Env) -> Result<Expanded, Unexpandable> {
    let mut text = String::with_capacity(raw.len());
    let mut origin = Origin::Literal;
    let mut rest = raw;
    while let Some(at) = rest.find("${") {
        let (before, from) = rest.split_at(at);
        if let Some(kept) = before.strip_suffix('$') {
            text.push_str(kept);
            text.push_str("${");
            rest = &from[2..];
            continue;
        }
        text.push_str(before);
        let Some(end) = from.find('}') else {
            return Err(Unexpandable {
                says: "\"${\" without \"}\"".into(),
                fix: "close it, or write \"$${\" for the characters themselves".into(),
            });
        };
        let name = &from[2..end];
        let (replacement, found_in) = look_up(name, env)?;
        text.push_str(&replacement);
        if matches!(origin, Origin::Literal) || matches!(found_in, Origin::Credential(_)) {
            origin = found_in;
        }
        rest = &from[end + 1..];
    }
    text.push_str(rest);
    if text.len() > EXPANDED_BYTES_MAX {
        return Err(Unexpandable {
            says: format!("longer than {EXPANDED_BYTES_MAX} bytes"),
            fix: "check that the variable or credential holds what it should".into(),
        });
    }
    Ok(Expanded { text, origin })
}

fn look_up(name: &str, env: &dyn Env) -> Result<(String, Origin), Unexpandable> {
    if let Some(credential) = name.strip_prefix("credential:") {
        if !plain_name(credential) {
            return Err(bad_name(credential));
        }
        return match env.credential(credential) {
            Some(text) => Ok((text, Origin::Credential(credential.into()))),
            None => Err(Unexpandable {
                says: format!("there is no systemd credential \"{credential}\""),
                fix: format!("add LoadCredential={credential}:/path/to/file to the unit"),
            }),
        };
    }
    if !plain_name(name) {
        return Err(bad_name(name));
    }
    match env.var(name) {
        Some(text) => Ok((text, Origin::Environment(name.into()))),
        None => Err(Unexpandable {
            says: format!("the environment variable {name} is not set"),
            fix: format!("set {name}, e.g. in the unit's EnvironmentFile, or remove the line"),
        }),
    }
}

/// Names go into a path under the credentials directory, so nothing that could leave it.
fn plain_name(name: &str) -> bool {
    !name.is_empty()
        && name.len() <= 128
        && !name.starts_with('.')
        && name.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'-' | b'.'))
}

fn bad_name(name: &str) -> Unexpandable {
    let shown: String = name.chars().take(40).collect();
    Unexpandable {
        says: format!("{shown:?} is not the name of a variable or credential"),
        fix: "write ${NAME} or ${credential:NAME}".into(),
    }
}

#[cfg(test)]
mod tests {
    use super::super::env::FixedEnv;
    use super::{Origin, Secret, expand};

    fn env() -> FixedEnv {
        FixedEnv::default()
            .with_var("KEY", "k-1")
            .with_var("NESTED", "${KEY}")
            .with_credential("token", "t-2")
    }

    #[test]
    fn variables_and_credentials_are_replaced_once() {
        for (raw, text, origin) in [
            ("plain", "plain", Origin::Literal),
            ("a$b", "a$b", Origin::Literal),
            ("${KEY}", "k-1", Origin::Environment("KEY".into())),
            ("x-${KEY}-y", "x-k-1-y", Origin::Environment("KEY".into())),
            ("${NESTED}", "${KEY}", Origin::Environment("NESTED".into())),
            ("$${KEY}", "${KEY}", Origin::Literal),
            ("${credential:token}", "t-2", Origin::Credential("token".into())),
            ("${KEY}${credential:token}", "k-1t-2", Origin::Credential("token".into())),
        ] {
            let expanded = expand(raw, &env()).unwrap();
            assert_eq!((expanded.text.as_str(), expanded.origin), (text, origin), "{raw}");
        }
    }

    #[test]
    fn what_cannot_be_replaced_is_said_with_a_fix() {
        for (raw, part) in [
            ("${MISSING}", "MISSING is not set"),
            ("${credential:none}", "no systemd credential \"none\""),
            ("${credential:../passwd}", "not the name"),
            ("${}", "not the name"),
            ("${KEY", "without"),
        ] {
            let refusal = expand(raw, &env()).err().unwrap();
            assert!(refusal.says.contains(part), "{raw}: {}", refusal.says);
            assert!(!refusal.fix.is_empty());
        }
    }

    #[test]
    fn an_expansion_is_bounded() {
        let env = FixedEnv::default().with_var("BIG", &"x".repeat(10_000));
        assert!(expand("${BIG}", &env).is_ok());
        assert!(expand("${BIG}${BIG}", &env).is_err());
    }

    #[test]
    fn a_secret_shows_asterisks() {
        let secret = Secret::new("hunter2");
        assert_eq!(format!("{secret:?} {:#?}", Some(&secret)).matches("hunter2").count(), 0);
        assert_eq!(secret.expose(), "hunter2");
    }
}
