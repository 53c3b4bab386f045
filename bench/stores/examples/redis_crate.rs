//! Reads through the kept `redis` crate, for `cargo xtask bench redis`: so
//! many clients on one event loop, a connection each, HGETALL over 10,000
//! keys, the reply taken apart into names and values as our own client does.
//!
//! Arguments: port, clients, operations. Prints `throughput N`.

use std::{cell::Cell, rc::Rc, time::Instant};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<u64> = std::env::args().skip(1).map(|a| a.parse()).collect::<Result<_, _>>()?;
    let [port, clients, operations] = arguments[..] else { return Err("port, clients, operations".into()) };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    tokio::task::LocalSet::new().block_on(&runtime, async {
        let left = Rc::new(Cell::new(operations));
        let mut connections = Vec::new();
        for _ in 0..clients {
            let client = redis::Client::open(format!("redis://127.0.0.1:{port}"))?;
            connections.push(client.get_multiplexed_async_connection().await?);
        }
        let start = Instant::now();
        let tasks: Vec<_> = connections
            .into_iter()
            .enumerate()
            .map(|(index, mut connection)| {
                let left = Rc::clone(&left);
                tokio::task::spawn_local(async move {
                    let mut state = index as u64 * 7919 + 1;
                    while left.get() > 0 {
                        left.set(left.get() - 1);
                        state = state
                            .wrapping_mul(6_364_136_223_846_793_005)
                            .wrapping_add(1_442_695_040_888_963_407);
                        let key = format!("user{:012}", (state >> 33) % 10_000);
                        let record: Vec<(String, Vec<u8>)> =
                            redis::cmd("HGETALL").arg(key).query_async(&mut connection).await?;
                        assert_eq!(record.len(), 10, "a record has ten fields");
                    }
                    Ok::<_, redis::RedisError>(())
                })
            })
            .collect();
        for task in tasks {
            task.await??;
        }
        println!("throughput {}", operations as f64 / start.elapsed().as_secs_f64());
        Ok(())
    })
}
