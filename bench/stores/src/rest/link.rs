//! Connections and requests.
//!
//! hyper's connection is a future that reads and writes, usually in a task of its own.
//! Here the current operation polls it, which saves two task switches per operation.
//! Between operations it is not polled, so a close by the server is noticed at the
//! start of the next one.

use super::{RestSettings, TIMEOUT, target::HttpOrigin};
use crate::reconnecting::{self, ConnectionFate, TimeLimit};
use bytes::Bytes;
use hyper::{
    Request,
    body::{Body, Frame, SizeHint},
    client::conn::http1,
    http::response::Parts,
};
use hyper_util::rt::TokioIo;
use rustls::ClientConfig;
use serval_model::{Outcome, Status, StoreError};
use serval_tls::TlsFailure;
use std::{
    convert::Infallible,
    error::Error as _,
    future::{Future, poll_fn},
    io,
    path::PathBuf,
    pin::{Pin, pin},
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::{TcpStream, UnixStream},
    time::{self, Instant, Sleep},
};
use tokio_rustls::TlsConnector;

/// Body of a request: complete or empty.
#[derive(Debug)]
pub(super) struct Payload(pub(super) Option<Bytes>);

impl Body for Payload {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        Poll::Ready(self.0.take().map(|bytes| Ok(Frame::data(bytes))))
    }

    fn is_end_stream(&self) -> bool {
        self.0.is_none()
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.0.as_ref().map_or(0, |bytes| bytes.len() as u64))
    }
}

/// A byte stream.
trait Stream: AsyncRead + AsyncWrite + Unpin {}
impl<T: AsyncRead + AsyncWrite + Unpin> Stream for T {}

/// Connection options and limits.
#[derive(Debug)]
pub(super) struct HttpConnector {
    pub(super) connect_timeout: Duration,
    pub(super) read_timeout: Option<Duration>,
    /// Time limit of operations.
    pub(super) timeout: Option<Duration>,
    pub(super) response_max: u64,
    pub(super) socket: Option<PathBuf>,
    pub(super) tls: Option<Arc<ClientConfig>>,
}

impl HttpConnector {
    async fn stream(&self, origin: &HttpOrigin) -> io::Result<Box<dyn Stream>> {
        let plain: Box<dyn Stream> = match &self.socket {
            Some(path) => Box::new(UnixStream::connect(path).await?),
            None => {
                let stream = TcpStream::connect((origin.host.as_str(), origin.port)).await?;
                stream.set_nodelay(true)?;
                // Boxed with TLS only.
                Box::new(stream)
            }
        };
        match (&self.tls, origin.https) {
            (Some(config), true) => {
                let connector = TlsConnector::from(Arc::clone(config));
                Ok(Box::new(connector.connect(origin.server_name.clone(), plain).await?))
            }
            _ => Ok(plain),
        }
    }

    /// Opens a connection.
    async fn open(&self, origin: &HttpOrigin) -> Result<Open, StoreError> {
        let failed =
            |problem: String| StoreError::new(origin.name.clone(), format!("cannot connect: {problem}"));
        let opening = async {
            let stream =
                self.stream(origin).await.map_err(|error| failed(advise(&error, self.socket.is_some())))?;
            http1::handshake(TokioIo::new(stream)).await.map_err(|error| failed(words(&error)))
        };
        let Ok(opened) = time::timeout(self.connect_timeout, opening).await else {
            let problem = format!(
                "no connection within {:?} (rest.connect.timeout). Does rest.url name the service's host and port, and \
                 does it speak TLS if that begins with https?",
                self.connect_timeout
            );
            return Err(failed(problem));
        };
        let (sender, connection) = opened?;
        let now = Instant::now();
        let alarm = Alarm { timer: Box::pin(time::sleep_until(now)), end: now };
        Ok(Open { sender, connection: Box::pin(connection), alarm })
    }
}

/// Returns an error with advice.
fn advise(error: &io::Error, socket: bool) -> String {
    let advice = match TlsFailure::of(error) {
        Some(TlsFailure::Certificate | TlsFailure::Alert) => {
            "Does rest.tls.roots hold the signer of the server's certificate, does that name the host of rest.url, and \
             does the server want one of the client (rest.tls.certificate)?"
        }
        Some(TlsFailure::Protocol) => {
            "Does the server speak TLS at that port? If not, rest.url begins with http://"
        }
        None if socket => "Is the server running, and is rest.socket its socket?",
        None => "Is the server running, and does rest.url name its host and port?",
    };
    format!("{error}. {advice}")
}

/// Joins the messages of an error and its causes.
fn words(error: &hyper::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(inner) = cause {
        text = format!("{text}: {inner}");
        cause = inner.source();
    }
    text
}

/// Failure of a request.
#[derive(Debug, Clone)]
pub(super) enum RequestFailure {
    /// The connection ended.
    Lost(String),
    /// The response is not HTTP.
    NotHttp(String),
    /// The response did not arrive in time.
    Late(&'static str, Duration),
    /// The response exceeds the limit.
    Long(u64),
}

impl RequestFailure {
    fn of(error: &hyper::Error) -> RequestFailure {
        if error.is_parse() {
            RequestFailure::NotHttp(words(error))
        } else {
            RequestFailure::Lost(words(error))
        }
    }

    fn outcome(&self) -> Outcome {
        let words = match self {
            RequestFailure::Lost(words) => {
                return Outcome::failed(Status::ServiceUnavailable, format!("connection lost: {words}"));
            }
            RequestFailure::NotHttp(words) => format!("the answer is no HTTP/1.1: {words}"),
            RequestFailure::Late(property, time) => format!("no answer within {time:?} ({property})"),
            RequestFailure::Long(max) => {
                format!("the answer's body has more than {max} bytes (rest.response.max)")
            }
        };
        Outcome::error(words)
    }
}

/// Deadline of a request. All requests of a connection share one timer, which is reset
/// only after it has fired, or if it is later than the deadline.
struct Alarm {
    timer: Pin<Box<Sleep>>,
    end: Instant,
}

impl Alarm {
    /// Waits until `end`.
    fn set(&mut self, end: Instant) {
        self.end = end;
        if self.timer.is_elapsed() || self.timer.deadline() > end {
            self.timer.as_mut().reset(end);
        }
    }

    fn poll(&mut self, context: &mut Context<'_>) -> Poll<()> {
        while self.timer.as_mut().poll(context).is_ready() {
            if self.timer.deadline() >= self.end {
                return Poll::Ready(());
            }
            let end = self.end;
            self.timer.as_mut().reset(end);
        }
        Poll::Pending
    }
}

/// hyper's connection, which reads and writes when polled.
type HttpConnection = http1::Connection<TokioIo<Box<dyn Stream>>, Payload>;

/// An open connection.
pub(super) struct Open {
    sender: http1::SendRequest<Payload>,
    connection: Pin<Box<HttpConnection>>,
    alarm: Alarm,
}

impl Open {
    /// Returns whether a request can be sent: not after the server has closed the
    /// connection, nor after a response that came before the whole request was read.
    fn is_ready(&mut self, context: &mut Context<'_>) -> bool {
        let closed = self.connection.as_mut().poll(context).is_ready();
        !closed && matches!(self.sender.poll_ready(context), Poll::Ready(Ok(())))
    }

    /// Sends a request and reads the response into `body`. Returns the response's
    /// head.
    pub(super) async fn exchange(
        &mut self,
        request: Request<Payload>,
        connector: &HttpConnector,
        body: &mut Vec<u8>,
    ) -> Result<Parts, RequestFailure> {
        let start = Instant::now();
        let whole = connector.timeout.map(|time| (start + time, "rest.operation.timeout", time));
        let until = |now: Instant| {
            let read = connector.read_timeout.map(|time| (now + time, "rest.read.timeout", time));
            [whole, read].into_iter().flatten().min_by_key(|(end, ..)| *end)
        };
        let mut limit = until(start);
        let (connection, alarm) = (&mut self.connection, &mut self.alarm);
        let mut late = |context: &mut Context<'_>, limit: Option<(Instant, &'static str, Duration)>| {
            let Some((end, property, time)) = limit else { return Poll::Pending };
            alarm.set(end);
            alarm.poll(context).map(|()| RequestFailure::Late(property, time))
        };
        let mut ended = None;
        // All events come from the connection; once that has ended, there are no
        // more.
        let mut drive = |context: &mut Context<'_>| {
            if ended.is_none()
                && let Poll::Ready(result) = connection.as_mut().poll(context)
            {
                let closed = || RequestFailure::Lost("the server closed it".to_owned());
                ended = Some(result.map_or_else(|error| RequestFailure::of(&error), |()| closed()));
            }
            ended.clone()
        };
        let mut response = pin!(self.sender.send_request(request));
        let response = poll_fn(|context| {
            let ended = drive(context);
            match (response.as_mut().poll(context), ended) {
                (Poll::Ready(result), _) => Poll::Ready(result.map_err(|error| RequestFailure::of(&error))),
                (Poll::Pending, Some(failure)) => Poll::Ready(Err(failure)),
                (Poll::Pending, None) => late(context, limit).map(Err),
            }
        })
        .await?;
        let too_long = || RequestFailure::Long(connector.response_max);
        let (head, mut incoming) = response.into_parts();
        if incoming.size_hint().lower() > connector.response_max {
            return Err(too_long());
        }
        body.clear();
        while !incoming.is_end_stream() {
            limit = until(if connector.read_timeout.is_some() { Instant::now() } else { start });
            let frame = poll_fn(|context| {
                // First buffered data, then the connection.
                let mut poll = Pin::new(&mut incoming).poll_frame(context);
                let mut ended = None;
                if poll.is_pending() {
                    ended = drive(context);
                    poll = Pin::new(&mut incoming).poll_frame(context);
                }
                match (poll, ended) {
                    (Poll::Ready(frame), _) => {
                        Poll::Ready(frame.transpose().map_err(|error| RequestFailure::of(&error)))
                    }
                    (Poll::Pending, Some(failure)) => Poll::Ready(Err(failure)),
                    (Poll::Pending, None) => late(context, limit).map(Err),
                }
            })
            .await?;
            let Some(frame) = frame else { break };
            let Ok(data) = frame.into_data() else { continue };
            if (body.len() + data.len()) as u64 > connector.response_max {
                return Err(too_long());
            }
            body.extend_from_slice(&data);
        }
        Ok(head)
    }
}

/// Opens clients' connections to one server.
pub(super) struct RestConnector {
    pub(super) settings: Arc<RestSettings>,
    pub(super) origin: HttpOrigin,
}

impl reconnecting::Connector for RestConnector {
    type Connection = Open;
    type Error = RequestFailure;

    /// [`Open::exchange`] applies a request's own limits, which start when it is
    /// sent.
    fn limit(&self) -> TimeLimit {
        TimeLimit { time: None, property: TIMEOUT.name }
    }

    fn open(&self) -> impl Future<Output = Result<Open, StoreError>> + 'static {
        let (settings, origin) = (Arc::clone(&self.settings), self.origin.clone());
        async move { settings.connector.open(&origin).await }
    }

    fn share(_: &Open) -> Option<Open> {
        None
    }

    fn is_usable(open: &mut Open, context: &mut Context<'_>) -> bool {
        open.is_ready(context)
    }

    /// The connection is lost: a late response may still arrive.
    fn failure(&self, _: &Open, failure: &RequestFailure) -> reconnecting::OperationFailure {
        reconnecting::OperationFailure { fate: ConnectionFate::Lost, outcome: failure.outcome() }
    }
}
