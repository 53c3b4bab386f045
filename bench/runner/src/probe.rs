//! Requests to a store outside of a run.

use serval_model::{Store, StoreError};

/// Connects one client and runs `ask` with it, on this thread.
pub fn probe<S: Store, T>(store: &S, ask: impl AsyncFnOnce(&mut S::Client) -> T) -> Result<T, StoreError> {
    let system = |error: std::io::Error| StoreError::new("event loop", error.to_string());
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(system)?;
    tokio::task::LocalSet::new().block_on(&runtime, async {
        use serval_model::Client;
        let local = store.local()?;
        let mut client = store.connect(&local, 0).await?;
        let answer = ask(&mut client).await;
        // A run reports failures to close as CLEANUP.
        let _ = client.close().await;
        Ok(answer)
    })
}
