//! The methods that guards and faces share, for threads.

/// Generates the methods of a guard, for a type of this module whose first field is a [`Lease`](crate::lease::Lease).
macro_rules! blocking_guard_methods {
    () => {
        guard_methods!(state);

        /// Blocks until the lease is lost, for at most `at_most`. Returns `None` if it was not lost by then. No round trip.
        /// If `at_most` is zero, this only checks, and does not block.
        #[must_use]
        pub fn wait_lost(&self, at_most: std::time::Duration) -> Option<crate::lost::Lost> {
            super::wait::wait(self.0.lost_within(at_most))
        }

        /// Calls `callback` once when the lease is lost, on a new thread. `callback` may block, lock and panic.
        ///
        /// If the lease is already lost, `callback` is called at once. If the lease is released, it is never called. If
        /// other guards of the same owner hold the lease, it can still be called after this guard was released.
        ///
        /// Any number of callbacks may be registered. A pending one uses no thread. If the system cannot start a thread
        /// when the lease is lost, `callback` is not called. If you must not miss a loss, use [`Self::check`] as well.
        pub fn on_lost(&self, callback: impl FnOnce(crate::lost::Lost) + Send + 'static) {
            super::on_lost::call(self.0.hold(), callback);
        }

        /// Releases the lease, and blocks until the store has confirmed that: one round trip.
        ///
        /// While the store is unreachable, this blocks for at most the lease and 2 s. If you do not want to wait, drop the
        /// guard instead. See [`crate::Guard::release`].
        ///
        /// # Errors
        ///
        /// See [`crate::Guard::release`].
        pub fn release(self) -> crate::error::Result<crate::lost::Released> {
            super::wait::wait(self.0.release())
        }
    };
}

pub(super) use blocking_guard_methods;

/// Generates a guard: its type, its methods, and its `Debug`.
macro_rules! blocking_guard {
    ($(#[$about:meta])* $guard:ident) => {
        $(#[$about])*
        #[must_use = "dropping the guard releases the lease at once"]
        pub struct $guard(crate::lease::Lease);

        impl $guard {
            blocking_guard_methods!();

            fn of(guard: crate::$guard) -> Self {
                Self(guard.0)
            }
        }

        impl std::fmt::Debug for $guard {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                self.0.fmt_as(stringify!($guard), f)
            }
        }
    };
}
pub(super) use blocking_guard;

/// Generates methods with the name, the arguments and the errors of an async method, for a type of this module whose first
/// field is the async type. The word in front says what comes back:
///
/// - `wait`: the guard of this module.
/// - `limited`: the guard, unless somebody else holds the lock or the time is over.
/// - `ask`: the result of the async method.
/// - `plain`: the same, of a method that neither waits nor fails.
/// - `set`: the same value with this setting.
macro_rules! blocking_calls {
    ($face:literal: $($way:ident $call:ident($($arg:ident: $kind:ty),*) $(-> $result:ty)?;)*) => {
        $(blocking_calls!(@$way concat!("See [`", $face, "::", stringify!($call), "`]."),
            $call($($arg: $kind),*) $(-> $result)?);)*
    };
    (@wait $see:expr, $call:ident($($arg:ident: $kind:ty),*) -> $guard:ty) => {
        blocking_calls!(@asks $see, $call($($arg: $kind),*) -> $guard, |result| result.map(<$guard>::of));
    };
    (@limited $see:expr, $call:ident($($arg:ident: $kind:ty),*) -> $guard:ty) => {
        blocking_calls!(@asks $see, $call($($arg: $kind),*) -> Option<$guard>, |result| Ok(result?.map(<$guard>::of)));
    };
    (@ask $see:expr, $call:ident($($arg:ident: $kind:ty),*) -> $result:ty) => {
        blocking_calls!(@asks $see, $call($($arg: $kind),*) -> $result, |result| result);
    };
    (@asks $see:expr, $call:ident($($arg:ident: $kind:ty),*) -> $result:ty, |$got:ident| $made:expr) => {
        #[doc = $see]
        ///
        /// # Errors
        ///
        #[doc = $see]
        pub fn $call(&self, $($arg: $kind),*) -> crate::error::Result<$result> {
            let $got = super::wait::wait(self.0.$call($($arg),*));
            $made
        }
    };
    (@plain $see:expr, $call:ident($($arg:ident: $kind:ty),*) -> $result:ty) => {
        #[doc = $see]
        #[must_use]
        pub fn $call(&self, $($arg: $kind),*) -> $result {
            self.0.$call($($arg),*)
        }
    };
    (@set $see:expr, $call:ident($($arg:ident: $kind:ty),*)) => {
        #[doc = $see]
        #[must_use]
        pub fn $call(self, $($arg: $kind),*) -> Self {
            Self(self.0.$call($($arg),*))
        }
    };
}
pub(super) use blocking_calls;

/// Generates methods that acquire, and that stop waiting when a canceller is canceled.
macro_rules! blocking_or_cancel {
    ($face:literal: $($name:ident = $call:ident($($arg:ident: $kind:ty),*) -> $guard:ident;)*) => {
        $(
            #[doc = concat!("Waits like [`", $face, "::", stringify!($call), "`](", $face, "::")]
            #[doc = concat!(stringify!($call), ")")]
            /// until `canceller` is canceled, and returns `None` then: see [`super::Mutex::lock_or_cancel`].
            ///
            /// # Errors
            ///
            #[doc = concat!("See [`", $face, "::", stringify!($call), "`](", $face, "::", stringify!($call), ").")]
            pub fn $name(
                &self,
                $($arg: $kind,)*
                canceller: &super::canceller::Canceller,
            ) -> crate::error::Result<Option<$guard>> {
                Ok(super::wait::wait_or_cancel(self.0.$call($($arg),*), canceller)?.map($guard::of))
            }
        )*
    };
}
pub(super) use blocking_or_cancel;

/// Generates `inspect`, `revoke`, the settings and `Debug`, for a type of this module whose first field is the async type.
macro_rules! blocking_face {
    ($face:ident, $path:literal) => {
        impl $face {
            #[doc = concat!("See [`", $path, "::inspect`](", $path, "::inspect).")]
            ///
            /// # Errors
            ///
            /// See [`crate::Mutex::inspect`].
            pub fn inspect(&self) -> crate::error::Result<crate::inspection::Inspection> {
                super::wait::wait(self.0.inspect())
            }

            #[doc = concat!("See [`", $path, "::revoke`](", $path, "::revoke).")]
            ///
            /// # Errors
            ///
            /// See [`crate::Mutex::revoke`].
            pub fn revoke(
                &self,
                holder: &crate::inspection::Holder,
                grace: std::time::Duration,
            ) -> crate::error::Result<crate::inspection::Revoked> {
                super::wait::wait(self.0.revoke(holder, grace))
            }

            crate::acquirer::setting_methods!();

            fn with(self, change: impl Fn(crate::acquirer::Acquirer) -> crate::acquirer::Acquirer) -> Self {
                Self(self.0.with(change))
            }
        }

        impl std::fmt::Debug for $face {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                self.0.fmt(f)
            }
        }
    };
}
pub(super) use blocking_face;
