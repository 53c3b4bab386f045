//! How a run ends.

use std::{
    cell::Cell,
    panic::{UnwindSafe, catch_unwind, set_hook, take_hook},
    sync::Once,
};

thread_local! {
    static QUIET: Cell<bool> = const { Cell::new(false) };
}

/// The message of the panic in which a run ends, if it does.
///
/// The panic is not printed: to shrink a list is to run into hundreds of them.
/// Those of other threads are, as another test may fail there.
pub(crate) fn of(run: impl FnOnce() + UnwindSafe) -> Option<String> {
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        let print = take_hook();
        set_hook(Box::new(move |panic| {
            if !QUIET.get() {
                print(panic);
            }
        }));
    });
    let was_quiet = QUIET.replace(true);
    let outcome = catch_unwind(run);
    QUIET.set(was_quiet);
    let panic = outcome.err()?;
    // With arguments the message of a panic is a `String`, without a `&str`.
    let message = panic.downcast_ref::<String>().map(String::as_str);
    Some(message.or_else(|| panic.downcast_ref().copied()).unwrap_or("panicked").to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_of_any_kind_is_reported() {
        assert_eq!(of(|| {}), None);
        assert_eq!(of(|| panic!("so")).as_deref(), Some("so"));
        assert_eq!(of(|| panic!("{} and so", 1)).as_deref(), Some("1 and so"));
        assert_eq!(of(|| std::panic::panic_any(1)).as_deref(), Some("panicked"));
    }

    #[test]
    fn a_nested_run_stays_quiet() {
        assert_eq!(of(|| assert!(of(|| panic!("inside")).is_some() && QUIET.get())), None);
        assert!(!QUIET.get());
    }
}
