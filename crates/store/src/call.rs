//! The operations of a store as values, for counting and for ordering faults.

/// One operation of [`Store`](crate::Store).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Call {
    /// [`Store::read_head`](crate::Store::read_head).
    ReadHead,
    /// [`Store::create_head`](crate::Store::create_head).
    CreateHead,
    /// [`Store::replace_head`](crate::Store::replace_head).
    ReplaceHead,
    /// [`Store::put`](crate::Store::put).
    Put,
    /// [`Store::get`](crate::Store::get).
    Get,
    /// [`Store::list`](crate::Store::list).
    List,
    /// [`Store::list_folder`](crate::Store::list_folder).
    ListFolder,
    /// [`Store::delete`](crate::Store::delete).
    Delete,
}

impl Call {
    /// All of them, in the order of the trait.
    pub const ALL: [Self; 8] = [
        Self::ReadHead,
        Self::CreateHead,
        Self::ReplaceHead,
        Self::Put,
        Self::Get,
        Self::List,
        Self::ListFolder,
        Self::Delete,
    ];

    /// Whether the call changes the bucket.
    pub const fn is_write(self) -> bool {
        match self {
            Self::CreateHead | Self::ReplaceHead | Self::Put | Self::Delete => true,
            Self::ReadHead | Self::Get | Self::List | Self::ListFolder => false,
        }
    }

    /// The word for logs and metrics.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::ReadHead => "read_head",
            Self::CreateHead => "create_head",
            Self::ReplaceHead => "replace_head",
            Self::Put => "put",
            Self::Get => "get",
            Self::List => "list",
            Self::ListFolder => "list_folder",
            Self::Delete => "delete",
        }
    }
}
