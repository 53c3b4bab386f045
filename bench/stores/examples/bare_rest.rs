//! Cost of the driver alone: reads by key in a bare loop over hyper, with
//! the requests, headers and concurrency of Serval's binding.
//! `cargo xtask bench bindings` runs it next to Serval; by hand:
//!
//! ```text
//! cargo xtask serve rest --port 8080 &
//! serval load rest -p rest.layout=json -p recordcount=10000 -p insertorder=ordered -P workloads/workloadc
//! cargo run --release -p serval-stores --features rest --example bare_rest -- 127.0.0.1:8080 16 200000 10000
//! ```

mod bare;

use hyper::{
    Request, StatusCode,
    body::{Body, Bytes, Frame, SizeHint},
    client::conn::http1,
    header::{self, HeaderMap, HeaderValue},
};
use hyper_util::rt::TokioIo;
use std::{
    convert::Infallible,
    error::Error,
    future::poll_fn,
    pin::Pin,
    task::{Context, Poll},
};
use tokio::net::TcpStream;

/// An empty body.
struct Nothing;

impl Body for Nothing {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        Poll::Ready(None)
    }

    fn is_end_stream(&self) -> bool {
        true
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(0)
    }
}

async fn client(address: String, mut work: bare::ClientWork) -> Result<(), Box<dyn Error>> {
    let stream = TcpStream::connect(&address).await?;
    stream.set_nodelay(true)?;
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
    tokio::spawn(connection);
    let mut headers = HeaderMap::new();
    headers.insert(header::ACCEPT, HeaderValue::from_static("application/json"));
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    headers.insert(header::USER_AGENT, HeaderValue::from_static("serval"));
    headers.insert(header::HOST, HeaderValue::try_from(&address)?);
    work.connected().await;
    let mut record = Vec::new();
    while let Some(key) = work.next() {
        let mut request = Request::new(Nothing);
        *request.uri_mut() = format!("/{key}").try_into()?;
        *request.headers_mut() = headers.clone();
        sender.ready().await?;
        let mut response = sender.send_request(request).await?;
        assert_eq!(response.status(), StatusCode::OK, "no record {key}");
        record.clear();
        while let Some(frame) = poll_fn(|context| Pin::new(response.body_mut()).poll_frame(context)).await {
            if let Ok(data) = frame?.into_data() {
                record.extend_from_slice(&data);
            }
        }
        assert!(record.first() == Some(&b'{'));
    }
    Ok(())
}

fn main() -> Result<(), Box<dyn Error>> {
    bare::run(client)
}
