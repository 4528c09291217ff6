//! From the claims of a JWT to what its bearer may do.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::{Map, Value};

use super::{Grant, Role};

/// Prefixes that are taken from one token.
const PREFIXES_MAX: usize = 256;

/// Where roles and prefixes are. A claim is named, or pointed to as RFC 6901
/// has it: `/realm_access/roles`.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct ClaimRules {
    /// A word or a list of words, of which the greatest role counts.
    #[serde(default = "role_claim")]
    role_claim: String,
    /// A prefix or a list of prefixes. A token without it reaches no history.
    #[serde(default = "histories_claim")]
    histories_claim: String,
    /// What words mean, such as the groups of a directory. None given: the
    /// words are the roles' own.
    #[serde(default)]
    roles: BTreeMap<String, Role>,
}

fn role_claim() -> String {
    "headwater_role".to_owned()
}

fn histories_claim() -> String {
    "headwater_histories".to_owned()
}

impl Default for ClaimRules {
    fn default() -> Self {
        let (role_claim, histories_claim) = (role_claim(), histories_claim());
        Self { role_claim, histories_claim, roles: BTreeMap::new() }
    }
}

impl ClaimRules {
    /// What the claims allow: nothing, where a role or the prefixes are missing.
    pub(crate) fn grants(&self, claims: &Map<String, Value>) -> Vec<Grant> {
        let role = words(claims, &self.role_claim).filter_map(|it| self.role(it)).max();
        let histories = words(claims, &self.histories_claim).take(PREFIXES_MAX);
        let histories: Vec<String> = histories.map(str::to_owned).collect();
        role.map(|role| Grant { role, histories }).into_iter().collect()
    }

    fn role(&self, word: &str) -> Option<Role> {
        if self.roles.is_empty() { Role::parse(word) } else { self.roles.get(word).copied() }
    }
}

fn words<'a>(claims: &'a Map<String, Value>, name: &str) -> impl Iterator<Item = &'a str> {
    let found = match name.strip_prefix('/').map(|it| it.split_once('/')) {
        None => claims.get(name),
        Some(None) => claims.get(&name[1..]),
        Some(Some((first, rest))) => {
            claims.get(first).and_then(|it| it.pointer(&format!("/{rest}")))
        }
    };
    let list: &[Value] = match found {
        Some(Value::Array(list)) => list,
        Some(one) => std::slice::from_ref(one),
        None => &[],
    };
    list.iter().filter_map(Value::as_str)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn grants(rules: &ClaimRules, claims: &Value) -> Vec<Grant> {
        rules.grants(claims.as_object().unwrap())
    }

    fn grant(role: Role, histories: &[&str]) -> Vec<Grant> {
        vec![Grant { role, histories: histories.iter().map(ToString::to_string).collect() }]
    }

    #[test]
    fn words_and_lists_are_read_and_nothing_is_made_up() {
        let rules = ClaimRules::default();
        let read = |role: Value, histories: Value| {
            grants(&rules, &json!({ "headwater_role": role, "headwater_histories": histories }))
        };
        assert_eq!(read(json!("write"), json!("app-")), grant(Role::Write, &["app-"]));
        assert_eq!(
            read(json!(["read", "admin", "cook"]), json!(["a", "b"])),
            grant(Role::Admin, &["a", "b"])
        );
        assert_eq!(read(json!("root"), json!("")), vec![]);
        assert_eq!(read(json!(4), json!("")), vec![]);
        // A role without prefixes reaches nothing.
        assert_eq!(read(json!("admin"), Value::Null), grant(Role::Admin, &[]));
        assert_eq!(grants(&rules, &json!({})), vec![]);
    }

    #[test]
    fn groups_are_roles_where_the_file_says_so_and_only_then() {
        let rules = ClaimRules {
            role_claim: "/realm_access/roles".to_owned(),
            histories_claim: "/h".to_owned(),
            roles: BTreeMap::from([("ops".to_owned(), Role::Maintain)]),
        };
        let claims = |word: &str| json!({ "realm_access": { "roles": [word] }, "h": "x" });
        assert_eq!(grants(&rules, &claims("ops")), grant(Role::Maintain, &["x"]));
        assert_eq!(grants(&rules, &claims("admin")), vec![]);
    }
}
