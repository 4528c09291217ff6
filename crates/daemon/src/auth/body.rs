//! The bodies of calls that were let in.

use std::fmt;
use std::future::Future as _;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use futures::future::BoxFuture;
use headwater_proto::limits::MESSAGE_BYTES_MAX;
use hyper::body::{Body as HttpBody, Frame, SizeHint};
use tokio::time::{Sleep, sleep};
use tonic::Status;
use tonic::body::Body;

use super::methods::OPEN_REQUEST_BYTES_MAX;
use crate::limit::{Answers, Charge, Permit};
use crate::status;

/// Flag and length of a gRPC message.
const PREFIX_BYTES: usize = 5;

/// A request on its way in: its messages are looked at for their length before
/// anything of them is kept, each has to arrive in time, and a single one has to
/// be single.
pub(super) struct Arriving {
    inner: Body,
    lengths: Lengths,
    kind: Kind,
}

enum Kind {
    Single(Single),
    Many(Many),
    /// All of it has come.
    Over,
}

/// What holds of a request of one message. Gone once it has arrived, and its
/// charge with it where nobody else holds that.
struct Single {
    charge: Option<Arc<Charge>>,
    received: usize,
    /// Most bytes of the whole body: what comes after the message is read and
    /// thrown away by the services, and would come for ever.
    bytes_max: usize,
    late: Late,
}

/// What holds of a stream of messages. Each is a call of its caller's.
struct Many {
    charge: Charge,
    /// What all calls of the stream count towards.
    permit: Arc<Permit>,
    /// Whether the service keeps the messages until the end of the stream.
    is_kept: bool,
    /// Messages that have begun. The first one is the call itself.
    begun: u32,
    /// Bytes of the message that is arriving.
    arriving: usize,
    /// Until when it has to be there.
    late: Option<Late>,
    time: Duration,
    /// Nothing more is read before it: the caller is over its rate.
    pause: Option<Pin<Box<Sleep>>>,
}

/// The moment at which a message is late.
struct Late {
    at: Pin<Box<Sleep>>,
    time: Duration,
}

impl Late {
    fn after(time: Duration) -> Self {
        Self { at: Box::pin(sleep(time)), time }
    }

    fn check(&mut self, cx: &mut Context<'_>) -> Result<(), Status> {
        if self.at.as_mut().poll(cx).is_pending() {
            return Ok(());
        }
        let ms = self.time.as_millis();
        Err(status::expired(&format!("the request took over {ms} ms to arrive")))
    }
}

impl Single {
    fn receive(&mut self, len: usize) -> Result<(), Status> {
        self.received = self.received.saturating_add(len);
        if self.bytes_max < self.received {
            return Err(status::message_too_large(self.received, self.bytes_max));
        }
        self.charge.as_ref().map_or(Ok(()), |it| it.add(len as u64))
    }
}

impl Many {
    /// `begun`: messages that begin in these bytes. `arriving`: bytes that have
    /// come of the last one, where there is more to come.
    fn receive(&mut self, len: usize, begun: u32, arriving: usize) -> Result<(), Status> {
        self.charge.add(len as u64)?;
        self.arriving = arriving;
        if arriving == 0 {
            self.late = None;
        } else if 0 < begun || self.late.is_none() {
            self.late = Some(Late::after(self.time));
        }
        let free = u32::from(self.begun == 0 && 0 < begun);
        self.begun = self.begun.saturating_add(begun);
        if free < begun && self.permit.has_rate() {
            let pause = self.permit.take_messages(begun - free);
            self.pause = pause.map(|it| Box::pin(sleep(it)));
        }
        Ok(())
    }

    /// Before more is read.
    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Status>> {
        // Whoever asks for more has taken what was whole: a service that keeps
        // it counts it itself.
        if !self.is_kept {
            self.charge.keep(self.arriving as u64);
        }
        if let Some(pause) = &mut self.pause {
            ready!(pause.as_mut().poll(cx));
            self.pause = None;
            // It was kept from sending.
            self.late = (self.arriving != 0).then(|| Late::after(self.time));
        }
        Poll::Ready(self.late.as_mut().map_or(Ok(()), |it| it.check(cx)))
    }
}

impl Arriving {
    /// Of a stream of messages, which count towards `permit`, and have `time` to
    /// arrive each. `is_kept`: for as long as the stream lasts.
    pub(super) fn many(inner: Body, permit: Arc<Permit>, is_kept: bool, time: Duration) -> Self {
        let kind = Kind::Many(Many {
            charge: permit.charge(),
            permit,
            is_kept,
            begun: 0,
            arriving: 0,
            late: None,
            time,
            pause: None,
        });
        Self { inner, lengths: Lengths::of(MESSAGE_BYTES_MAX), kind }
    }

    /// Of one message, which counts towards `charge` and has `time` to arrive.
    pub(super) fn one(inner: Body, charge: Arc<Charge>, time: Duration) -> Self {
        Self::single(inner, Some(charge), MESSAGE_BYTES_MAX + PREFIX_BYTES, time)
    }

    /// Of one message of somebody unknown: small, so that it counts towards
    /// nothing that others need.
    pub(super) fn open(inner: Body, time: Duration) -> Self {
        Self::single(inner, None, OPEN_REQUEST_BYTES_MAX, time)
    }

    fn single(inner: Body, charge: Option<Arc<Charge>>, bytes_max: usize, time: Duration) -> Self {
        let lengths = Lengths::of(bytes_max - PREFIX_BYTES);
        let single = Single { charge, received: 0, bytes_max, late: Late::after(time) };
        Self { inner, lengths, kind: Kind::Single(single) }
    }

    fn receive(&mut self, data: &Bytes) -> Result<(), Status> {
        let begun = self.lengths.look(data)?;
        match &mut self.kind {
            Kind::Single(it) => it.receive(data.len()),
            Kind::Many(it) => it.receive(data.len(), begun, self.lengths.arriving()),
            Kind::Over => Ok(()),
        }
    }
}

impl HttpBody for Arriving {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        // First: who sends a byte now and then would always have one ready.
        let checked = match &mut self.kind {
            Kind::Single(it) => it.late.check(cx),
            Kind::Many(it) => ready!(it.poll_ready(cx)),
            Kind::Over => Ok(()),
        };
        if let Err(refused) = checked {
            return Poll::Ready(Some(Err(refused)));
        }
        let next = ready!(Pin::new(&mut self.inner).poll_frame(cx));
        if let Some(Ok(frame)) = &next
            && let Some(data) = frame.data_ref()
        {
            let data = data.clone();
            if let Err(refused) = self.receive(&data) {
                return Poll::Ready(Some(Err(refused)));
            }
        }
        // What a subscription holds, it holds until it is dropped: its caller
        // has only said that there is no more.
        let is_kept = matches!(&self.kind, Kind::Many(it) if it.is_kept);
        if next.is_none() && !is_kept {
            self.kind = Kind::Over;
        }
        Poll::Ready(next)
    }

    fn is_end_stream(&self) -> bool {
        self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.size_hint()
    }
}

/// Follows the length prefixes of gRPC messages: a flag and four bytes.
#[derive(Debug)]
struct Lengths {
    /// Most bytes of a message.
    max: usize,
    prefix: [u8; PREFIX_BYTES],
    filled: usize,
    /// Bytes of the message, without the prefix.
    len: usize,
    /// Those that are still to come.
    left: usize,
}

impl Lengths {
    fn of(max: usize) -> Self {
        Self { max, prefix: [0; PREFIX_BYTES], filled: 0, len: 0, left: 0 }
    }

    /// Bytes that have come of a message of which there is more to come.
    fn arriving(&self) -> usize {
        if self.left == 0 { self.filled } else { PREFIX_BYTES + self.len - self.left }
    }

    /// Looks at the next bytes, and counts the messages that begin in them.
    fn look(&mut self, mut data: &[u8]) -> Result<u32, Status> {
        let mut begun = 0;
        while !data.is_empty() {
            if self.left != 0 {
                let skipped = self.left.min(data.len());
                self.left -= skipped;
                data = &data[skipped..];
                continue;
            }
            let taken = (self.prefix.len() - self.filled).min(data.len());
            self.prefix[self.filled..self.filled + taken].copy_from_slice(&data[..taken]);
            self.filled += taken;
            data = &data[taken..];
            if self.filled == self.prefix.len() {
                let [_, len @ ..] = self.prefix;
                (self.filled, self.len) = (0, u32::from_be_bytes(len) as usize);
                self.left = self.len;
                if self.max < self.len {
                    return Err(status::message_too_large(self.len, self.max));
                }
                begun += 1;
            }
        }
        Ok(begun)
    }
}

/// An answer on its way out. Holds what the call counts towards.
pub(super) struct Answering {
    inner: Body,
    held: Option<Held>,
    going: Going,
    /// Done once the caller's rights are others than when it was let in.
    changed: Option<BoxFuture<'static, ()>>,
    /// Done once there is room for more.
    room: Option<BoxFuture<'static, ()>>,
}

/// What is done with an answer for which there is no room.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Going {
    /// It is thrown away, and its caller told to come again: it is one message,
    /// and nothing was changed by it.
    Refused,
    /// It goes out all the same: what it tells has been done.
    Anyway,
    /// It waits to be made: it is a stream.
    Waits,
}

/// What is given back when the answer is finished or dropped.
pub(super) struct Held {
    /// Before the permit, whose end looks at what is left of its caller.
    pub(super) charge: Option<Arc<Charge>>,
    pub(super) answers: Answers,
    pub(super) permit: Arc<Permit>,
}

impl fmt::Debug for Held {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { charge, answers: _, permit } = self;
        f.debug_struct("Held")
            .field("permit", permit)
            .field("charge", charge)
            .finish_non_exhaustive()
    }
}

impl Answering {
    pub(super) fn new(
        inner: Body,
        held: Held,
        going: Going,
        changed: Option<BoxFuture<'static, ()>>,
    ) -> Self {
        Self { inner, held: Some(held), going, changed, room: None }
    }

    fn finish(&mut self) {
        (self.held, self.changed, self.room) = (None, None, None);
    }

    /// Ends the answer with `status`, whatever the service has to say.
    fn end_with(&mut self, status: &Status) -> Result<Frame<Bytes>, Status> {
        self.finish();
        self.inner = Body::empty();
        let mut trailers = http::HeaderMap::new();
        status.add_header(&mut trailers)?;
        Ok(Frame::trailers(trailers))
    }

    /// Waits for room, where that is what the answer does.
    fn poll_room(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let Some(held) = self.held.as_ref().filter(|_| self.going == Going::Waits) else {
            return Poll::Ready(());
        };
        if self.room.is_none() && held.answers.has_room() {
            return Poll::Ready(());
        }
        let answers = held.answers.clone();
        let room = self.room.get_or_insert_with(|| Box::pin(answers.room()));
        ready!(room.as_mut().poll(cx));
        self.room = None;
        Poll::Ready(())
    }

    /// The same bytes, which count until they are written to the connection.
    fn count(&self, data: Bytes) -> Result<Bytes, Status> {
        let Some(held) = &self.held else { return Ok(data) };
        let taken = match self.going {
            Going::Refused => held.answers.take(data.len())?,
            Going::Anyway | Going::Waits => held.answers.hold(data.len()),
        };
        Ok(taken.with(data))
    }
}

impl HttpBody for Answering {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        if let Some(changed) = &mut self.changed
            && changed.as_mut().poll(cx).is_ready()
        {
            return Poll::Ready(Some(self.end_with(&status::rights_changed())));
        }
        ready!(self.poll_room(cx));
        let next = match ready!(Pin::new(&mut self.inner).poll_frame(cx)) {
            Some(Ok(frame)) => match frame.into_data() {
                Ok(data) => match self.count(data) {
                    Ok(data) => return Poll::Ready(Some(Ok(Frame::data(data)))),
                    Err(refused) => return Poll::Ready(Some(self.end_with(&refused))),
                },
                // Trailers: the last of it.
                Err(frame) => Some(Ok(frame)),
            },
            ended => ended,
        };
        self.finish();
        Poll::Ready(next)
    }

    fn is_end_stream(&self) -> bool {
        self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        // A call that its caller's rights end has more to say than the service
        // has, and one that is refused has less.
        if self.changed.is_some() || self.going == Going::Refused {
            SizeHint::default()
        } else {
            self.inner.size_hint()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(len: usize) -> Vec<u8> {
        let mut bytes = vec![0];
        bytes.extend(u32::try_from(len).unwrap().to_be_bytes());
        bytes.resize(5 + len, 7);
        bytes
    }

    #[test]
    fn lengths_are_found_however_the_bytes_are_cut() {
        let mut stream = [message(0), message(300), message(3)].concat();
        stream.extend(&message(MESSAGE_BYTES_MAX + 1)[..5]);
        for cut in [1, 2, 3, 5, 7, 100, stream.len()] {
            let mut lengths = Lengths::of(MESSAGE_BYTES_MAX);
            let mut pieces = stream.chunks(cut).map(|it| lengths.look(it));
            let mut begun = 0;
            let refused = pieces
                .find_map(|it| it.map(|count| begun += count).err())
                .expect("the last one is refused");
            assert_eq!(refused.code(), tonic::Code::ResourceExhausted);
            assert_eq!(pieces.count(), 0, "it is refused when its length is known, not before");
            // Those before it, unless they came in the same piece.
            assert_eq!(begun, if cut < 100 { 3 } else { begun }, "{cut}");
        }
        let mut lengths = Lengths::of(MESSAGE_BYTES_MAX);
        assert_eq!(lengths.look(&message(MESSAGE_BYTES_MAX)).unwrap(), 1);
        assert_eq!(lengths.arriving(), 0);
        assert_eq!(lengths.look(&message(300)[..100]).unwrap(), 1);
        assert_eq!(lengths.arriving(), 100);
        assert_eq!(lengths.look(&[7; 205]).unwrap(), 0);
        assert_eq!(lengths.arriving(), 0);
        assert_eq!(lengths.look(&message(2).repeat(5)).unwrap(), 5);
        assert_eq!(lengths.look(&message(2)[..3]).unwrap(), 0);
        assert_eq!(lengths.arriving(), 3);
    }
}
