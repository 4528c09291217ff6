//! Key pairs from the files that AWS's tools share.
//!
//! In here: sections with keys, read again when a file changes, as tools that
//! renew temporary keys have it. Not in here: sections that name another source
//! of keys (roles, single sign-on, a process). They are refused by name: run the
//! tool that understands them, and give its keys in the environment.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use std::{env, fs, io};

use async_trait::async_trait;
use object_store::CredentialProvider;
use object_store::aws::AwsCredential;
use tokio::time::Instant;

use crate::bucket::options::BucketOptionsError;

/// How long keys are used before the files are looked at again.
const LOOK_EVERY: Duration = Duration::from_secs(10);

/// Settings of a section that name another source of keys.
const OTHER_SOURCES: [&str; 7] = [
    "role_arn",
    "source_profile",
    "credential_process",
    "sso_session",
    "sso_start_url",
    "web_identity_token_file",
    "credential_source",
];

/// One section of the shared files.
#[derive(Debug)]
pub(super) struct Profile {
    name: String,
    /// `~/.aws/credentials`: sections by name.
    credentials_file: PathBuf,
    /// `~/.aws/config`: sections by `profile` and name.
    config_file: PathBuf,
    read: Mutex<Option<(Instant, Arc<AwsCredential>)>>,
}

impl Profile {
    /// The section `name` of the files that the environment names, or of those
    /// in the home directory.
    pub(super) fn from_env(name: &str) -> Result<Self, BucketOptionsError> {
        let path = |variable: &str, in_home: &str| {
            let named = env::var_os(variable).map(PathBuf::from);
            named.or_else(|| env::home_dir().map(|home| home.join(".aws").join(in_home)))
        };
        let credentials_file = path("AWS_SHARED_CREDENTIALS_FILE", "credentials");
        let config_file = path("AWS_CONFIG_FILE", "config");
        let (Some(credentials_file), Some(config_file)) = (credentials_file, config_file) else {
            let what = "a profile is named, and there is no home directory to find it in";
            return Err(BucketOptionsError::Combination { what });
        };
        Self::open(name, credentials_file, config_file)
    }

    fn open(
        name: &str,
        credentials_file: PathBuf,
        config_file: PathBuf,
    ) -> Result<Self, BucketOptionsError> {
        let name = name.to_owned();
        let profile = Self { name, credentials_file, config_file, read: Mutex::default() };
        // A profile that cannot be used is told at once.
        profile.credential()?;
        Ok(profile)
    }

    /// The region that the section names, if it does.
    pub(super) fn region(&self) -> Result<Option<String>, BucketOptionsError> {
        Ok(self.settings()?.into_iter().find(|it| it.0 == "region").map(|it| it.1))
    }

    fn settings(&self) -> Result<Vec<(String, String)>, BucketOptionsError> {
        // The section of the default profile has its bare name in both files.
        let in_config = match self.name.as_str() {
            "default" => self.name.clone(),
            name => format!("profile {name}"),
        };
        let mut settings = section(&read(&self.credentials_file)?, &self.name);
        settings.extend(section(&read(&self.config_file)?, &in_config));
        Ok(settings)
    }

    fn credential(&self) -> Result<AwsCredential, BucketOptionsError> {
        let settings = self.settings()?;
        let find = |name: &str| settings.iter().find(|it| it.0 == name).map(|it| it.1.clone());
        let bad = |what| BucketOptionsError::BadFile { path: self.credentials_file.clone(), what };
        match (find("aws_access_key_id"), find("aws_secret_access_key")) {
            (Some(key_id), Some(secret_key)) => {
                Ok(AwsCredential { key_id, secret_key, token: find("aws_session_token") })
            }
            (Some(_), None) | (None, Some(_)) => {
                Err(bad(format!("half of a key pair is in the section `{}`", self.name)))
            }
            (None, None) => {
                let other = OTHER_SOURCES.into_iter().find(|it| find(it).is_some());
                Err(bad(match other {
                    Some(other) => format!(
                        "the section `{}` has `{other}`, which is not followed: give keys in the \
                         environment, as `aws configure export-credentials` prints them",
                        self.name
                    ),
                    None => format!("no key pair in a section `{}`", self.name),
                }))
            }
        }
    }
}

#[async_trait]
impl CredentialProvider for Profile {
    type Credential = AwsCredential;

    async fn get_credential(&self) -> object_store::Result<Arc<AwsCredential>> {
        let mut read = self.read.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((read_at, credential)) = &*read
            && read_at.elapsed() < LOOK_EVERY
        {
            return Ok(Arc::clone(credential));
        }
        // Two files of a few hundred bytes, once in a while: not worth a thread.
        let credential = match (self.credential(), &*read) {
            (Ok(credential), _) => Arc::new(credential),
            // A tool may be in the middle of writing it.
            (Err(error), Some((_, last))) => {
                tracing::warn!(%error, "a profile cannot be read again: its last keys are used");
                Arc::clone(last)
            }
            (Err(error), None) => {
                let source = Box::new(error);
                return Err(object_store::Error::Generic { store: "S3", source });
            }
        };
        *read = Some((Instant::now(), Arc::clone(&credential)));
        Ok(credential)
    }
}

/// Reads a file; one that is not there is empty.
fn read(path: &Path) -> Result<String, BucketOptionsError> {
    match fs::read_to_string(path) {
        Ok(text) => Ok(text),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(String::new()),
        Err(source) => Err(BucketOptionsError::File { path: path.into(), source }),
    }
}

/// The settings of one section: `name = value`, with comments from `#` or `;`
/// at the beginning of a line. Lines that are indented belong to the setting
/// before them and hold nothing of ours.
fn section(text: &str, wanted: &str) -> Vec<(String, String)> {
    let mut is_in = false;
    let mut settings = Vec::new();
    for line in text.lines() {
        let is_nested = line.starts_with([' ', '\t']);
        let line = line.trim();
        if line.is_empty() || line.starts_with(['#', ';']) {
            continue;
        }
        if let Some(name) = line.strip_prefix('[').and_then(|it| it.strip_suffix(']')) {
            is_in = name.split_whitespace().eq(wanted.split_whitespace());
        } else if is_in
            && !is_nested
            && let Some((name, value)) = line.split_once('=')
        {
            settings.push((name.trim().to_owned(), value.trim().to_owned()));
        }
    }
    settings
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Files(tempfile::TempDir);

    impl Files {
        fn new(credentials: &str, config: &str) -> Self {
            let files = Self(tempfile::tempdir().unwrap());
            fs::write(files.credentials(), credentials).unwrap();
            fs::write(files.config(), config).unwrap();
            files
        }

        fn credentials(&self) -> PathBuf {
            self.0.path().join("credentials")
        }

        fn config(&self) -> PathBuf {
            self.0.path().join("config")
        }

        fn open(&self, name: &str) -> Result<Profile, String> {
            Profile::open(name, self.credentials(), self.config()).map_err(|it| it.to_string())
        }
    }

    #[test]
    fn keys_are_in_either_file_and_the_region_comes_along() {
        let files = Files::new(
            "[default]\naws_access_key_id = d\naws_secret_access_key = ds\n\
             # [one]\n[one]\naws_access_key_id=k=1\naws_secret_access_key = s#1\n",
            "[default]\nregion = eu-1\n[profile one]\ns3 =\n  region = nested\nregion = eu-2\n\
             aws_session_token = t\n[profile two]\naws_access_key_id = k2\n\
             aws_secret_access_key = s2\n",
        );
        let one = files.open("one").unwrap();
        let credential = one.credential().unwrap();
        assert_eq!((&*credential.key_id, &*credential.secret_key), ("k=1", "s#1"));
        assert_eq!(credential.token.as_deref(), Some("t"));
        assert_eq!(one.region().unwrap().as_deref(), Some("eu-2"));
        assert_eq!(files.open("default").unwrap().region().unwrap().as_deref(), Some("eu-1"));
        assert_eq!(files.open("two").unwrap().region().unwrap(), None);
    }

    #[test]
    fn a_section_that_cannot_be_used_is_told_with_the_reason() {
        let files = Files::new(
            "[half]\naws_access_key_id = k\n",
            "[profile role]\nrole_arn = arn:x\nsource_profile = default\n",
        );
        assert!(files.open("half").unwrap_err().contains("half of a key pair"));
        assert!(files.open("role").unwrap_err().contains("`role_arn`"));
        assert!(files.open("none").unwrap_err().contains("`none`"));
    }

    #[tokio::test(start_paused = true)]
    async fn new_keys_are_seen_and_a_broken_file_keeps_the_last() {
        let keys = |n| format!("[p]\naws_access_key_id = k{n}\naws_secret_access_key = s\n");
        let files = Files::new(&keys(1), "");
        let profile = files.open("p").unwrap();
        let key_id = async || profile.get_credential().await.unwrap().key_id.clone();
        assert_eq!(key_id().await, "k1");

        fs::write(files.credentials(), keys(2)).unwrap();
        assert_eq!(key_id().await, "k1", "not looked at yet");
        tokio::time::advance(LOOK_EVERY).await;
        assert_eq!(key_id().await, "k2");
        fs::write(files.credentials(), "[p]\naws_acc").unwrap();
        tokio::time::advance(LOOK_EVERY).await;
        assert_eq!(key_id().await, "k2");
    }
}
