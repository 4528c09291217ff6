//! What decorators pass on as it is.
//!
//! A decorator is about a few calls and hands the others to the store inside.
//! It says which, and the handing on is written here once:
//!
//! ```text
//! #[async_trait]
//! impl Store for Limited {
//!     forward!(inner: hints, read_head, create_head, put, ...);
//!     async fn replace_head(...) { ... }
//! }
//! ```
//!
//! Nothing is passed on by default: a new call of the trait does not compile
//! before every decorator has said what it does with it. `hints` are what a
//! store says about itself without being asked over the wire.

/// Passes the named calls of [`Store`](crate::Store) on to a field. For use
/// within an implementation under `async_trait`, whose expansion it writes out:
/// the future of the store inside is returned as it is, without a box of its own.
macro_rules! forward {
    ($inner:ident: $($call:ident),+ $(,)?) => {
        $( $crate::forward::forward!(@$call $inner); )+
    };
    (@hints $inner:ident) => {
        $crate::forward::forward!($inner: replacement_pause, put_requests, get_requests, reads_in_vain);
    };
    (@replacement_pause $inner:ident) => {
        fn replacement_pause(&self, key: &str) -> std::time::Duration {
            self.$inner.replacement_pause(key)
        }
    };
    (@put_requests $inner:ident) => {
        fn put_requests(&self, size_bytes: u64) -> u64 {
            self.$inner.put_requests(size_bytes)
        }
    };
    (@get_requests $inner:ident) => {
        fn get_requests(&self, size_bytes: u64) -> u64 {
            self.$inner.get_requests(size_bytes)
        }
    };
    (@reads_in_vain $inner:ident) => {
        fn reads_in_vain(&self) -> u64 {
            self.$inner.reads_in_vain()
        }
    };
    (@read_head $inner:ident) => {
        fn read_head<'life0, 'life1, 'life2, 'async_trait>(
            &'life0 self,
            key: &'life1 str,
            known: Option<&'life2 headwater_core::id::Tag>,
        ) -> $crate::forward::Call<'async_trait, Result<$crate::HeadRead, $crate::ReadError>>
        where
            'life0: 'async_trait,
            'life1: 'async_trait,
            'life2: 'async_trait,
            Self: 'async_trait,
        {
            self.$inner.read_head(key, known)
        }
    };
    (@create_head $inner:ident) => {
        $crate::forward::forward!(@one $inner create_head (bytes: bytes::Bytes) $crate::HeadWrite);
    };
    (@replace_head $inner:ident) => {
        fn replace_head<'life0, 'life1, 'life2, 'async_trait>(
            &'life0 self,
            key: &'life1 str,
            if_match: &'life2 headwater_core::id::Tag,
            bytes: bytes::Bytes,
        ) -> $crate::forward::Call<'async_trait, $crate::HeadWrite>
        where
            'life0: 'async_trait,
            'life1: 'async_trait,
            'life2: 'async_trait,
            Self: 'async_trait,
        {
            self.$inner.replace_head(key, if_match, bytes)
        }
    };
    (@put $inner:ident) => {
        $crate::forward::forward!(
            @one $inner put (bytes: bytes::Bytes) Result<(), $crate::PutError>
        );
    };
    (@get $inner:ident) => {
        $crate::forward::forward!(@one $inner get () Result<bytes::Bytes, $crate::ReadError>);
    };
    (@get_sized $inner:ident) => {
        $crate::forward::forward!(
            @one $inner get_sized (size_bytes: u64) Result<bytes::Bytes, $crate::ReadError>
        );
    };
    (@list $inner:ident) => {
        fn list<'life0, 'life1, 'life2, 'async_trait>(
            &'life0 self,
            prefix: &'life1 str,
            start_after: Option<&'life2 str>,
            limit: usize,
        ) -> $crate::forward::Call<'async_trait, Result<Vec<$crate::Listed>, $crate::ReadError>>
        where
            'life0: 'async_trait,
            'life1: 'async_trait,
            'life2: 'async_trait,
            Self: 'async_trait,
        {
            self.$inner.list(prefix, start_after, limit)
        }
    };
    (@list_folder $inner:ident) => {
        $crate::forward::forward!(
            @one $inner list_folder () Result<$crate::Folder, $crate::ReadError>
        );
    };
    (@delete $inner:ident) => {
        $crate::forward::forward!(@one $inner delete () Result<(), $crate::ReadError>);
    };
    // A call about one key, or prefix.
    (@one $inner:ident $call:ident ($($name:ident: $type:ty)?) $answer:ty) => {
        fn $call<'life0, 'life1, 'async_trait>(
            &'life0 self,
            key: &'life1 str,
            $($name: $type,)?
        ) -> $crate::forward::Call<'async_trait, $answer>
        where
            'life0: 'async_trait,
            'life1: 'async_trait,
            Self: 'async_trait,
        {
            self.$inner.$call(key $(, $name)?)
        }
    };
}

pub(crate) use forward;

/// A call under way, as `async_trait` has it.
pub(crate) type Call<'a, T> = std::pin::Pin<Box<dyn Future<Output = T> + Send + 'a>>;
