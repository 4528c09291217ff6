//! Streams of messages, and answers that are not taken.

use super::*;

const SUBMIT_STREAM: &str = "/headwater.v1.WriteService/SubmitStream";
const SUBSCRIBE: &str = "/headwater.v1.WriteService/SubscribeHeads";
const SUBMIT: &str = "/headwater.v1.WriteService/Submit";

/// Calls the service and goes on with it elsewhere.
fn begin(world: &World, path: &str, body: Body) -> tokio::task::JoinHandle<Response<Body>> {
    let (guard, request) = (world.guard.clone(), world.request(path, body));
    tokio::spawn(async move { guard.oneshot(request).await.unwrap() })
}

async fn settle() {
    tokio::time::sleep(Duration::from_millis(1)).await;
}

#[tokio::test(start_paused = true)]
async fn every_message_of_a_stream_is_a_call() {
    for path in [SUBMIT_STREAM, SUBSCRIBE] {
        let options =
            LimitOptions { caller_requests_per_second_max: 10, ..LimitOptions::default() };
        let mut world = World::new(true, options).await;
        let (sender, body) = half_sent(message(1));
        let began = Instant::now();
        let answering = begin(&world, path, body);
        for _ in 0..39 {
            sender.send(Ok(Frame::data(message(1).into()))).await.unwrap();
        }
        drop(sender);
        answering.await.unwrap();

        assert_eq!(world.reached.try_recv().unwrap().body.unwrap().len(), 40 * 6);
        // A second's worth at once, and the rest at the rate.
        let took = began.elapsed();
        assert!((2_900..3_200).contains(&took.as_millis()), "{path}: {took:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_stream_counts_the_message_that_arrives_and_a_subscription_all_of_them() {
    for (path, kept) in [(SUBMIT_STREAM, 0), (SUBSCRIBE, 105)] {
        let world = World::new(true, LimitOptions::default()).await;
        let limits = world.layer.limits();
        let (sender, body) = half_sent(message(100));
        let answering = begin(&world, path, body);
        settle().await;
        assert_eq!(limits.bytes(), kept, "{path}: one that has arrived");

        sender.send(Ok(Frame::data(message(1_000)[..500].to_vec().into()))).await.unwrap();
        settle().await;
        assert_eq!(limits.bytes(), kept + 500, "{path}: one that is arriving");

        answering.abort();
        settle().await;
        assert_eq!(limits.bytes(), 0, "{path}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_stream_over_the_budget_is_refused_and_others_are_not() {
    let max = 1 << 20;
    let options = LimitOptions { request_bytes_max: max, ..LimitOptions::default() };
    let mut world = World::new(true, options).await;
    let len = usize::try_from(max).unwrap();
    let (_kept, body) = half_sent(message(2 * len)[..=len].to_vec());

    let refused = world.refused(world.request(SUBMIT_STREAM, body)).await;

    assert_eq!(told(&refused), reason::TOO_MANY_REQUESTS);
    assert!(refused.get_error_details().retry_info().is_some());
    assert!(world.reached.try_recv().unwrap().body.is_err());
    assert_eq!(world.layer.limits().bytes(), 0);
    // One that fits is well.
    let many = full(message(len / 8));
    assert_eq!(world.call(world.request(SUBMIT_STREAM, many)).await.status(), 200);
}

#[tokio::test(start_paused = true)]
async fn a_message_of_a_stream_that_does_not_arrive_ends_it() {
    for trickles in [false, true] {
        let mut world = World::new(true, LimitOptions::default()).await;
        let began = Instant::now();
        let (sender, body) = half_sent([message(10), message(1_000)[..50].to_vec()].concat());
        let trickling = async {
            while trickles && sender.send(Ok(Frame::data(Bytes::from_static(b"x")))).await.is_ok() {
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
            std::future::pending::<()>().await;
        };
        let refused = tokio::select! {
            refused = world.refused(world.request(SUBMIT_STREAM, body)) => refused,
            () = trickling => unreachable!(),
        };
        assert_eq!(told(&refused), reason::EXPIRED);
        assert_eq!(began.elapsed().as_secs(), 30);
        assert!(world.reached.try_recv().unwrap().body.is_err());
    }
    // A stream that is between two messages may be so for as long as it likes.
    let world = World::new(true, LimitOptions::default()).await;
    let (_kept, body) = half_sent(message(10));
    let answering = begin(&world, SUBMIT_STREAM, body);
    tokio::time::sleep(Duration::from_secs(3_600)).await;
    assert!(!answering.is_finished());
    answering.abort();
}

#[tokio::test(start_paused = true)]
async fn an_answer_counts_until_it_is_taken_and_one_without_room_is_refused() {
    let options = LimitOptions { answer_bytes_max: 1 << 20, ..LimitOptions::default() };
    let mut world = World::new(true, options).await;
    world.guard.inner.answer = 600 << 10;
    let limits = world.layer.limits();
    let answer = async |world: &World| {
        let body = world.call(world.request(GET, Body::empty())).await.into_body();
        body.collect().await.unwrap()
    };
    let first = answer(&world).await;
    assert!(first.trailers().is_none());
    assert_eq!((limits.calls(), limits.answer_bytes() / 1_024), (0, 601), "the call is over");

    // It was made before it was known that there is no room for it.
    let second = answer(&world).await;
    let end = Status::from_header_map(second.trailers().unwrap()).unwrap();
    assert_eq!(told(&end), reason::TOO_MANY_REQUESTS);
    assert!(end.get_error_details().retry_info().is_some());
    assert!(second.to_bytes().is_empty());
    // What was written is told all the same.
    let written = world.call(world.request(SUBMIT, Body::empty())).await.into_body();
    let written = written.collect().await.unwrap();
    assert!(written.trailers().is_none());
    // It is over this caller's part, and takes no room from others.
    assert_eq!(limits.answer_bytes() / 1_024, 601);
    while world.reached.try_recv().is_ok() {}
    // Now that the caller has none at all, nothing is done for a read of its.
    let refused = world.refused(world.request(GET, Body::empty())).await;
    assert_eq!(told(&refused), reason::TOO_MANY_REQUESTS);
    assert!(world.reached.try_recv().is_err());

    drop((first, written));
    assert_eq!(limits.answer_bytes(), 0);
    assert!(answer(&world).await.trailers().is_none());
    while world.reached.try_recv().is_ok() {}
}

#[tokio::test(start_paused = true)]
async fn a_stream_of_answers_waits_for_room() {
    let options = LimitOptions { answer_bytes_max: 1 << 20, ..LimitOptions::default() };
    let mut world = World::new(true, options).await;
    world.guard.inner.answer = 2 << 20;
    let mut first = world.call(world.request(WATCH, Body::empty())).await.into_body();
    let first = first.frame().await.unwrap().unwrap();
    let (guard, request) = (world.guard.clone(), world.request(WATCH, Body::empty()));
    let second = tokio::spawn(async move {
        let mut body = guard.oneshot(request).await.unwrap().into_body();
        body.frame().await.unwrap().unwrap().into_data().unwrap().len()
    });
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert!(!second.is_finished());

    drop(first);

    let len = tokio::time::timeout(Duration::from_secs(1), second).await.unwrap().unwrap();
    assert_eq!(len, (2 << 20) + 5);
    while world.reached.try_recv().is_ok() {}
}
