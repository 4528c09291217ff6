//! Operations of contended histories, handed to the writer that publishes.

use std::time::Duration;

use headwater_core::decide::Ask;
use headwater_core::operation::Operation;
use headwater_core::publish::{Answer, SubmitError};
use headwater_proto::{reason, v1};
use headwater_store::{Call, Outcome};
use headwater_writer::{Handed, HandedOperation, Question, Verdict, WriterConfig};
use tokio::time::{Instant, sleep};

use crate::fixture::network::{Distance, Manner, Network};
use crate::fixture::{Host, Op, World, accepted, in_time, look, name, rpc, settle};

/// A message of a third writer.
pub(crate) async fn handed(world: &World, number: u64, operations: Vec<Operation>) -> Handed {
    let time = Duration::from_secs(5);
    let handed = operations.into_iter().map(|operation| HandedOperation { operation, time });
    Handed {
        history: name("h"),
        history_id: world.head().await.history_id,
        publisher_id: "c".into(),
        life: [3; 16],
        number,
        operations: handed.collect(),
        patience: time,
        traceparent: None,
    }
}

/// How often each operation was applied.
async fn applied(world: &World) -> std::collections::BTreeMap<String, u32> {
    look::applied(&look::tail(&world.store, &name("h")).await)
}

/// What the callers of each writer got done in a while of virtual time, each
/// asking again as soon as it is answered, and how many replacements were sent
/// for one that was carried out.
async fn load(world: &World, hosts: &[Host], callers: usize) -> (Vec<u64>, f64) {
    let begin = Instant::now();
    let (counted_from, end) = (begin + Duration::from_secs(3), begin + Duration::from_secs(6));
    let callers = hosts.iter().enumerate().flat_map(|(at, host)| {
        (0..callers).map(move |caller| async move {
            let (mut done, mut n) = (0, 0);
            while Instant::now() < end {
                let op = Op::new(format!("{at}-{caller}-{n}"));
                host.accept(op.put(&format!("{at}/{caller}"), &"x".repeat(1_024))).await;
                done += u64::from(counted_from < Instant::now());
                n += 1;
            }
            (at, done, n)
        })
    });
    let (mut shares, mut all) = (vec![0; hosts.len()], 0);
    for (at, done, n) in futures::future::join_all(callers).await {
        shares[at] += done;
        all += n;
    }
    assert_eq!(world.head().await.operation_count, all, "every operation is applied once");
    let count = |what: fn(&Host) -> u64| hosts.iter().map(what).sum::<u64>();
    let sent = count(|it| it.readings().calls(Call::ReplaceHead));
    let applied = count(|it| it.readings().count(Call::ReplaceHead, Outcome::Done));
    #[expect(clippy::cast_precision_loss, reason = "a ratio")]
    (shares, sent as f64 / applied as f64)
}

/// Eight writers of eight callers each, and one writer of 64.
async fn eight_against_one(distance: Distance) {
    let world = World::seeded(1);
    let network = Network::over(distance);
    let alone = network.host(&world, "w0");
    alone.create("h").await;
    let (alone, _) = load(&world, &[alone], 64).await;

    let world = World::seeded(2);
    let network = Network::over(distance);
    let hosts: Vec<_> = (0..8).map(|n| network.host(&world, &format!("w{n}"))).collect();
    hosts[0].create("h").await;
    let (shares, attempts) = load(&world, &hosts, 8).await;

    let total: u64 = shares.iter().sum();
    println!("{shares:?} together, {alone:?} alone, {attempts} attempts");
    assert!(alone[0] * 8 / 10 <= total, "{shares:?} together, {alone:?} alone");
    assert!(shares.iter().all(|it| total / 16 <= *it), "{shares:?}");
    assert!(attempts < 1.5, "{attempts} attempts for each replacement");
}

#[tokio::test(start_paused = true)]
async fn eight_writers_that_contend_merge_and_each_has_its_share() {
    eight_against_one(Distance::default()).await;
}

#[tokio::test(start_paused = true)]
async fn eight_writers_that_contend_over_a_fast_store_merge_and_each_has_its_share() {
    let (read, write) = (Duration::from_millis(2), Duration::from_millis(5));
    let hop = [Duration::from_millis(1), Duration::ZERO];
    eight_against_one(Distance { read, write, hop }).await;
}

#[tokio::test(start_paused = true)]
async fn writers_that_do_not_contend_hand_nothing_over() {
    let (world, network) = (World::seeded(1), Network::default());
    let (a, b) = (network.host(&world, "a"), network.host(&world, "b"));
    a.create("h").await;
    for n in 0..50 {
        a.accept(Op::new(format!("a-{n}")).add("n", 1)).await;
        let before = b.readings().calls(Call::ReplaceHead);
        b.accept(Op::new(format!("b-{n}")).add("n", 1)).await;
        // The head has moved, which is found out by the first attempt.
        assert!(b.readings().calls(Call::ReplaceHead) <= before + 2);
        sleep(Duration::from_secs(3)).await;
    }
    assert_eq!(network.messages(), 0);
    assert_eq!(look::number(&world.state().await, "n"), 100);
}

#[tokio::test(start_paused = true)]
async fn a_writer_that_is_alone_again_publishes_again() {
    let (world, network) = (World::seeded(1), Network::default());
    let (a, b) = (network.host(&world, "a"), network.host(&world, "b"));
    a.create("h").await;
    network.contend(&a, &b).await;
    sleep(Duration::from_millis(4_900)).await;
    // Nothing came to the other for a while but what is handed to it.
    b.accept(Op::new("last").add("n", 1)).await;
    sleep(Duration::from_millis(200)).await;
    b.accept(Op::new("alone").add("n", 1)).await;
    let before = network.messages();
    for n in 0..100 {
        b.accept(Op::new(format!("quiet-{n}")).add("n", 1)).await;
    }
    assert_eq!(network.messages(), before);
    assert_eq!(world.head().await.publisher.id, "b");
}

/// What a caller is told after its writer heard nothing of what it handed over,
/// for an operation that fits, and for one that does not.
async fn unheard(manner: Manner) -> (World, Answer, Answer) {
    let (world, network) = (World::seeded(1), Network::default());
    let (a, b) = (network.host(&world, "a"), network.host(&world, "b"));
    a.create("h").await;
    network.contend(&a, &b).await;
    network.set("a", manner);
    let before = network.messages();
    let (fits, stands) = tokio::join!(
        b.submit(Op::new("fits").if_absent("k").put("k", "v").add("n", 1)),
        b.submit(Op::new("stands").if_absent("contend").add("n", 100)),
    );
    assert!(before < network.messages(), "they were handed over");
    (world, fits, stands)
}

#[tokio::test(start_paused = true)]
async fn what_was_taken_and_not_answered_is_applied_once() {
    for manner in [Manner::LosesReply, Manner::Hangs] {
        let (world, fits, stands) = unheard(manner).await;
        let receipt = accepted(fits);
        assert_eq!(applied(&world).await["fits"], 1, "{manner:?}");
        assert_eq!(look::number(&world.state().await, "n"), 1);
        assert_eq!(world.state().await["k"].1, receipt.accepted_at.get());
        // Its own writer rejects it. The other one may accept it yet, for all
        // that is known here.
        assert_eq!(stands, Answer::Failed(SubmitError::InDoubt), "{manner:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn what_was_lost_on_the_way_is_applied_once() {
    let (world, fits, stands) = unheard(Manner::LosesCall).await;
    accepted(fits);
    assert_eq!(look::number(&world.state().await, "n"), 1);
    assert_eq!(stands, Answer::Failed(SubmitError::InDoubt));
}

#[tokio::test(start_paused = true)]
async fn what_arrives_after_its_writer_has_decided_it_is_applied_once() {
    let (world, fits, stands) = unheard(Manner::Late(Duration::from_millis(500))).await;
    let receipt = accepted(fits);
    assert_eq!(stands, Answer::Failed(SubmitError::InDoubt));
    sleep(Duration::from_secs(2)).await;
    assert_eq!(applied(&world).await["fits"], 1);
    assert_eq!(world.state().await["k"].1, receipt.accepted_at.get());
}

#[tokio::test(start_paused = true)]
async fn what_another_writer_accepts_later_was_not_reported_as_rejected() {
    let (world, network) = (World::seeded(1), Network::default());
    let (a, b) = (network.host(&world, "a"), network.host(&world, "b"));
    a.create("h").await;
    network.contend(&a, &b).await;
    a.accept(Op::new("lock").put("lock", "held")).await;
    network.set("a", Manner::Late(Duration::from_secs(3)));
    let op = || Op::new("later").if_absent("lock").add("n", 1);
    let answer = b.submit(op()).await;
    assert_eq!(answer, Answer::Failed(SubmitError::InDoubt), "its own writer rejects it");

    a.accept(Op::new("unlock").delete("lock")).await;
    sleep(Duration::from_secs(4)).await;
    assert_eq!(applied(&world).await["later"], 1, "the other one has accepted it");
    b.accept(op()).await;
    assert_eq!(look::number(&world.state().await, "n"), 1);
}

#[tokio::test(start_paused = true)]
async fn what_was_not_taken_is_decided_by_its_own_writer_alone() {
    let (world, fits, stands) = unheard(Manner::Unreachable).await;
    accepted(fits);
    assert!(matches!(stands, Answer::Rejected { .. }), "{stands:?}");
    assert_eq!(look::number(&world.state().await, "n"), 1);
}

#[tokio::test(start_paused = true)]
async fn a_message_that_comes_twice_is_taken_once() {
    // The first time both were decided, of which nothing is heard.
    let (world, fits, stands) = unheard(Manner::Repeats).await;
    accepted(fits);
    assert_eq!(stands, Answer::Failed(SubmitError::InDoubt));
    assert_eq!(applied(&world).await["fits"], 1);
}

#[tokio::test(start_paused = true)]
async fn verdicts_of_the_other_writer_are_the_answers() {
    let (_, fits, stands) = unheard(Manner::Serves).await;
    let receipt = accepted(fits);
    let Answer::Rejected { at, conflicts } = stands else { panic!("{stands:?}") };
    assert_eq!(conflicts[0].key, "contend");
    assert!(at <= receipt.accepted_at);
}

#[tokio::test(start_paused = true)]
async fn a_writer_that_stops_sends_back_what_it_does_not_take() {
    let (world, network) = (World::seeded(1), Network::default());
    let (a, b) = (network.host(&world, "a"), network.host(&world, "b"));
    a.create("h").await;
    network.contend(&a, &b).await;
    let calls: Vec<_> =
        (0..20).map(|n| b.begin(Op::new(format!("before-{n}")).add("n", 1))).collect();
    settle().await;
    a.writer.shutdown().await;
    let more: Vec<_> =
        (0..20).map(|n| b.begin(Op::new(format!("after-{n}")).add("n", 1))).collect();
    for call in calls.into_iter().chain(more) {
        accepted(call.await.unwrap());
    }
    assert_eq!(look::number(&world.state().await, "n"), 40);
    assert!(applied(&world).await.values().all(|it| *it == 1));
}

#[tokio::test(start_paused = true)]
async fn a_writer_that_dies_and_its_successor_apply_everything_once() {
    let (world, network) = (World::seeded(1), Network::default());
    let (a, b) = (network.host(&world, "a"), network.host(&world, "b"));
    a.create("h").await;
    for round in 0..10_u64 {
        network.contend(&a, &b).await;
        network.set("a", Manner::Hangs);
        // It dies with the operation anywhere between arrival and acceptance.
        let call = b.begin(Op::new(format!("op-{round}")).add("n", 1));
        sleep(Duration::from_millis(7 * round)).await;
        network.set("a", Manner::Unreachable);
        accepted(call.await.unwrap());
        network.set("a", Manner::Serves);
        sleep(Duration::from_secs(70)).await;
    }
    assert_eq!(look::number(&world.state().await, "n"), 10);
}

#[tokio::test(start_paused = true)]
async fn operations_whose_issue_version_the_service_keeps_are_handed_over_too() {
    for (manner, is_heard) in [(Manner::Serves, true), (Manner::LosesReply, false)] {
        let (world, network) = (World::seeded(1), Network::default());
        let (a, b) = (network.host(&world, "a"), network.host(&world, "b"));
        a.create("h").await;
        network.contend(&a, &b).await;
        network.set("a", manner);
        let before = network.operations();
        let receipt = b.accept(Op::new("kept").service_kept().add("n", 1)).await;
        assert_eq!(network.operations(), before + 1);
        network.set("a", Manner::Serves);
        let again = b.accept(Op::new("kept").service_kept().add("n", 1)).await;
        assert_eq!(again, receipt, "{is_heard}");
        assert_eq!(look::number(&world.state().await, "n"), 1);
    }
}

#[tokio::test(start_paused = true)]
async fn what_was_handed_over_is_not_handed_on() {
    let (world, network) = (World::seeded(1), Network::default());
    let (a, b) = (network.host(&world, "a"), network.host(&world, "b"));
    a.create("h").await;
    network.contend(&a, &b).await;
    // To the one that hands over itself: a third writer thinks that it publishes.
    let before = network.messages();
    let operation = Op::new("passed").add("n", 1).operation();
    let handed = handed(&world, 0, vec![operation]).await;
    let taken = in_time(b.writer.take_handed(handed.clone())).await.unwrap();
    assert!(matches!(&taken.verdicts[..], [Verdict::Outcome(Answer::Accepted { .. })]));
    assert_eq!(network.messages(), before);
    let instead = taken.instead.map(|it| it.as_str().to_owned());
    assert_eq!(instead.as_deref(), Some("http://a:7410"), "and says where to go");
    assert_eq!(world.head().await.publisher.id, "b");
    // The same message again is none.
    assert!(b.writer.take_handed(handed).await.is_none());
}

#[tokio::test(start_paused = true)]
async fn an_address_that_leads_to_another_deployment_takes_nothing() {
    let (world, network) = (World::seeded(1), Network::default());
    let (a, b) = (network.host(&world, "a"), network.host(&world, "b"));
    a.create("h").await;
    network.contend(&a, &b).await;
    let other = World::seeded(2);
    let stranger = other.host();
    stranger.create("h").await;
    network.add("a", &stranger.writer);

    let before = network.operations();
    b.accept(Op::new("ours").add("n", 1)).await;
    assert_eq!(network.operations(), before + 1);

    assert_eq!(look::number(&world.state().await, "n"), 1);
    assert_eq!(other.head().await.operation_count, 0);
}

#[tokio::test(start_paused = true)]
async fn whoever_waits_is_answered_by_its_deadline() {
    let (world, network) = (World::seeded(1), Network::default());
    let config = WriterConfig { operation_timeout_ms: 1_000, ..WriterConfig::default() };
    let a = network.host(&world, "a");
    let b = network.host_with(&world, "b", config);
    a.create("h").await;
    network.contend(&a, &b).await;
    network.set("a", Manner::Hangs);
    let began = Instant::now();
    let answer = b.submit(Op::new("late").add("n", 1)).await;
    assert_eq!(answer, Answer::Failed(SubmitError::InDoubt));
    assert!(began.elapsed() <= Duration::from_millis(1_005), "{:?}", began.elapsed());
    // Nobody waited for that answer any more, and it is missed all the same.
    b.accept(Op::new("next").add("n", 1)).await;
    // It was applied over there.
    network.set("a", Manner::Serves);
    b.accept(Op::new("late").add("n", 1)).await;
    assert_eq!(look::number(&world.state().await, "n"), 2);
}

#[tokio::test(start_paused = true)]
async fn a_writer_that_takes_longer_than_taking_turns_is_not_asked_for_a_while() {
    let (world, network) = (World::seeded(1), Network::default());
    let (a, b) = (network.host(&world, "a"), network.host(&world, "b"));
    a.create("h").await;
    network.contend(&a, &b).await;
    network.set("a", Manner::Slow(Duration::from_secs(1)));
    // It goes on as long as others write.
    let other = async {
        for n in 0..400 {
            a.accept(Op::new(format!("a-{n}")).add("n", 1)).await;
        }
    };
    let own = async {
        let mut went = Vec::new();
        for n in 0..30 {
            let before = network.messages();
            b.accept(Op::new(format!("b-{n}")).add("n", 1)).await;
            went.push(before < network.messages());
        }
        went
    };
    let ((), went) = tokio::join!(other, own);
    let away = went.iter().take_while(|it| **it).count();
    assert!((1..20).contains(&away), "{went:?}");
}

#[tokio::test(start_paused = true)]
async fn a_later_operation_sees_an_earlier_one_whichever_way_each_goes() {
    let (world, network) = (World::seeded(1), Network::default());
    let (a, b) = (network.host(&world, "a"), network.host(&world, "b"));
    a.create("h").await;
    let manners = [Manner::Serves, Manner::LosesReply, Manner::Unreachable, Manner::LosesCall];
    for round in 0..8 {
        network.set("a", Manner::Serves);
        network.contend(&a, &b).await;
        let key = |n: usize| format!("{round}/{n}");
        b.accept(Op::new(format!("{round}-first")).put(&key(0), "v")).await;
        for n in 1..12 {
            network.set("a", manners[(n / 3 + round) % manners.len()]);
            let op = Op::new(format!("{round}-{n}")).if_present(&key(n - 1)).if_absent(&key(n));
            b.accept(op.put(&key(n), "v")).await;
        }
        sleep(Duration::from_secs(70)).await;
    }
    assert!(applied(&world).await.values().all(|it| *it == 1));
}

#[tokio::test(start_paused = true)]
async fn a_look_up_is_never_handed_over() {
    let (world, network) = (World::seeded(1), Network::default());
    let (a, b) = (network.host(&world, "a"), network.host(&world, "b"));
    a.create("h").await;
    network.contend(&a, &b).await;
    let before = network.messages();
    let id = headwater_core::id::OperationId::parse("never").unwrap();
    let look_up = headwater_core::decide::LookUp {
        id,
        issued_from: headwater_core::version::StateVersion::ZERO,
        history_id: None,
    };
    let told = b.writer.ask(&name("h"), Question::Ask(Ask::LookUp(look_up))).await.unwrap();
    assert!(matches!(told.answer, Answer::NotAccepted { .. }));
    assert_eq!(network.messages(), before);
}

/// A call with a time of its own; how long it took, and what came of it.
async fn submit_within(host: &Host, id: &str, time: Duration) -> (Duration, String) {
    let add = v1::mutation::Kind::Add(v1::Add { key: "n".into(), delta: 1 });
    let mutation = v1::Mutation { kind: Some(add) };
    let mut request = tonic::Request::new(rpc::submit_request("h", id, vec![mutation]));
    request.set_timeout(time);
    let began = Instant::now();
    let answer = host.submit_rpc(request).await;
    (began.elapsed(), answer.map_or_else(|status| rpc::reason(&status), |_| "none".into()))
}

#[tokio::test(start_paused = true)]
async fn whoever_waits_for_a_message_is_answered_by_its_deadline() {
    let (world, network) = (World::seeded(1), Network::default());
    let (a, b) = (network.host(&world, "a"), network.host(&world, "b"));
    a.create("h").await;
    network.contend(&a, &b).await;
    network.set("a", Manner::Hangs);
    // As many messages as may be unanswered.
    let before = network.messages();
    let mut calls = Vec::new();
    while network.messages() < before + 8 {
        calls.push(b.begin(Op::new(format!("hangs-{}", calls.len())).add("n", 1)));
        settle().await;
        assert!(calls.len() < 100);
    }
    let (took, error) = submit_within(&b, "waits", Duration::from_millis(500)).await;
    assert!(took <= Duration::from_millis(505), "{took:?}");
    assert_eq!(error, reason::EXPIRED, "it was not sent");
    assert_eq!(network.messages(), before + 8);
    for call in calls {
        accepted(call.await.unwrap());
    }
    assert!(!applied(&world).await.contains_key("waits"));
}

#[tokio::test(start_paused = true)]
async fn whoever_comes_while_others_are_waited_for_is_answered_by_its_deadline() {
    let (read, write) = (Duration::from_millis(10), Duration::from_secs(2));
    let distance = Distance { read, write, ..Distance::default() };
    let (world, network) = (World::seeded(1), Network::over(distance));
    let a = network.host(&world, "a");
    a.create("h").await;
    // It finds out how long a replacement takes.
    for n in 0..40 {
        a.accept(Op::new(format!("warm-{n}")).add("n", 1)).await;
    }
    let first = a.begin(Op::new("first").add("n", 1));
    settle().await;
    let operation = Op::new("handed").add("n", 1).operation();
    let handed = handed(&world, 0, vec![operation]).await;
    let handed = tokio::spawn({
        let writer = a.writer.clone();
        async move { writer.take_handed(handed).await }
    });
    accepted(first.await.unwrap());
    sleep(write / 2).await;
    let third = a.begin(Op::new("third").add("n", 1));
    handed.await.unwrap().unwrap();
    // Whoever handed it over is expected to hand more over, for half a second.
    let (took, error) = submit_within(&a, "late", Duration::from_millis(100)).await;
    assert!(took <= Duration::from_millis(105), "{took:?}");
    assert_eq!(error, reason::EXPIRED);
    accepted(third.await.unwrap());
}

#[tokio::test(start_paused = true)]
async fn messages_of_one_history_are_counted_apart_from_those_of_others() {
    let (world, network) = (World::seeded(1), Network::default());
    let (a, b) = (network.host(&world, "a"), network.host(&world, "b"));
    for history in ["h", "i"] {
        a.create(history).await;
    }
    let submit = async |host: &Host, history: &str, id: String| {
        let operation = Op::new(id).add("n", 1).operation();
        let question = Question::Ask(Ask::Submit(operation));
        accepted(host.writer.ask(&name(history), question).await.unwrap().answer);
    };
    for n in 0..200 {
        futures::future::join_all(["h", "i"].into_iter().flat_map(|history| {
            let id = |at: &str| format!("{at}-{n}");
            [submit(&a, history, id("a")), submit(&b, history, id("b"))]
        }))
        .await;
    }
    let numbers = network.numbers();
    assert_eq!(numbers.len(), 2, "{:?}", numbers.keys());
    for (of, numbers) in numbers {
        assert!(100 < numbers.len(), "{of:?}");
        assert!((0..).zip(&numbers).all(|(n, it)| n == *it), "{of:?}: {numbers:?}");
    }
}

/// It would go round without a pause, for as long as it is needed.
#[tokio::test(start_paused = true)]
async fn a_history_that_is_closed_when_idle_stays_open_while_it_is_handed_over() {
    let (world, network) = (World::seeded(1), Network::default());
    let config = WriterConfig { history_idle_ms: 0, ..WriterConfig::default() };
    let a = network.host(&world, "a");
    let b = network.host_with(&world, "b", config);
    a.create("h").await;
    // Until one has lost as many races, one after the other, as are contention.
    for n in 0..1_000 {
        let others = async {
            for m in 0..8 {
                a.accept(Op::new(format!("a-{n}-{m}")).add("n", 1)).await;
            }
        };
        tokio::join!(others, b.accept(Op::new(format!("b-{n}")).add("n", 1)));
        if 0 < network.messages() {
            break;
        }
    }
    assert!(0 < network.messages());
    a.accept(Op::new("another").add("n", 1)).await;
    sleep(Duration::from_secs(3)).await;
    let before = network.messages();
    b.accept(Op::new("later").add("n", 1)).await;
    assert!(before < network.messages(), "it is known still where operations go");
    sleep(Duration::from_secs(10)).await;
    assert!(b.writer.open_histories().is_empty());
}

/// Operations that come to nothing are their callers' trouble.
#[tokio::test(start_paused = true)]
async fn an_operation_that_nobody_accepts_does_not_end_handing_over() {
    let (world, network) = (World::seeded(1), Network::default());
    let (a, b) = (network.host(&world, "a"), network.host(&world, "b"));
    a.create("h").await;
    network.contend(&a, &b).await;
    for n in 0..20 {
        let before = network.messages();
        let wrong = Op::new(format!("wrong-{n}")).issued_from(1_000_000).add("n", 1);
        let error = b.fail(wrong).await;
        assert!(matches!(error, SubmitError::IssuedAhead { .. }), "{error:?}");
        b.accept(Op::new(format!("right-{n}")).add("n", 1)).await;
        assert_eq!(network.messages(), before + 2);
        a.accept(Op::new(format!("a-{n}")).add("n", 1)).await;
    }
}
