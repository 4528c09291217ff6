//! The smallest policies that will do, for stores in S3.

use headwater_store::S3Options;
use serde_json::{Value, json};

/// Two policies, in the language of IAM.
pub(super) struct Policies {
    /// Writers: they also list and delete, for people and for space.
    pub(super) writer: Value,
    /// Replicas: they read objects that heads name.
    pub(super) replica: Value,
}

/// For the store that `url` names; `None` where it is not in S3.
pub(super) fn smallest(url: &str) -> Option<Policies> {
    let options = S3Options::parse(url).ok()?;
    let bucket = format!("arn:aws:s3:::{}", options.bucket);
    let below = match options.prefix.as_str() {
        "" => "*".to_owned(),
        prefix => format!("{prefix}/*"),
    };
    let objects = |actions: &[&str]| json!({ "Effect": "Allow", "Action": actions, "Resource": format!("{bucket}/{below}") });
    let list = json!({
        "Effect": "Allow",
        "Action": ["s3:ListBucket"],
        "Resource": bucket,
        "Condition": { "StringLike": { "s3:prefix": below } },
    });
    let policy = |statements: Value| json!({ "Version": "2012-10-17", "Statement": statements });
    Some(Policies {
        writer: policy(json!([
            objects(&["s3:GetObject", "s3:PutObject", "s3:DeleteObject"]),
            list
        ])),
        replica: policy(json!([objects(&["s3:GetObject"])])),
    })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use headwater_store::probe::Permission;

    use super::*;

    fn actions(policy: &Value) -> BTreeSet<&str> {
        let statements = policy["Statement"].as_array().unwrap().iter();
        let lists = statements.map(|it| it["Action"].as_array().unwrap());
        lists.flatten().map(|it| it.as_str().unwrap()).collect()
    }

    #[test]
    fn the_files_are_these_policies_and_name_what_is_asked_of_a_store() {
        let Policies { writer, replica } = smallest("s3://BUCKET/PREFIX").unwrap();
        let file = |text| serde_json::from_str::<Value>(text).unwrap();
        assert_eq!(file(include_str!("../../../../deploy/policies/writer.json")), writer);
        assert_eq!(file(include_str!("../../../../deploy/policies/replica.json")), replica);

        let all = [Permission::Put, Permission::Get, Permission::List, Permission::Delete];
        assert_eq!(actions(&writer), BTreeSet::from(all.map(Permission::s3_action)));
        assert_eq!(actions(&replica), BTreeSet::from([Permission::Get.s3_action()]));
    }

    #[test]
    fn a_policy_is_about_the_prefix_alone() {
        let Policies { writer, replica } = smallest("s3://b/p/q?region=x").unwrap();
        assert_eq!(writer["Statement"][0]["Resource"], "arn:aws:s3:::b/p/q/*");
        assert_eq!(writer["Statement"][1]["Condition"]["StringLike"]["s3:prefix"], "p/q/*");
        assert_eq!(replica["Statement"].as_array().unwrap().len(), 1);
        assert_eq!(replica["Statement"][0]["Action"], json!(["s3:GetObject"]));
        assert_eq!(
            smallest("s3://b").unwrap().writer["Statement"][0]["Resource"],
            "arn:aws:s3:::b/*"
        );
        assert!(smallest("file:///x").is_none());
    }
}
