//! The worlds that are explored.

use crate::setup::{
    Goal, Issued, Limits, Script, Setup, add, create, look_up, pin, pin_for_a_fork,
    pin_for_an_hour, put, raise, remove, retain, update,
};

fn world(name: &'static str, about: &'static str, writers: usize, scripts: Vec<Script>) -> Setup {
    Setup {
        name,
        about,
        writers,
        scripts,
        window: 100,
        batch_max: 2,
        ahead_max: 2,
        is_inline: true,
        do_travel: false,
        head_bytes_max: 1 << 17,
        has_slow_uploads: false,
        has_slow_facts: false,
        is_exclusive: false,
        limits: Limits::default(),
        goals: &[Goal::AllAccepted],
        fault: None,
        finish_every: 16,
    }
}

/// Limits on top of which a world names its own.
const NONE: Limits = Limits {
    lost_answers: 0,
    echoes: 0,
    lost_requests: 0,
    late: 0,
    repeated: 0,
    rests: 0,
    slow: 0,
    failures: 0,
    crashes: 0,
    expiries: 0,
    folds: 0,
    compactions: 0,
    releases: 0,
    hours: 0,
    forks: 0,
    sweeps: 0,
    reads: 0,
};

/// The worlds that are explored whole in every run of the tests.
pub fn small() -> Vec<Setup> {
    vec![
        race(),
        three_writers(),
        lost_reply_and_window(),
        restart(),
        service_kept(),
        pipeline(),
        rejections(),
        predicted_rejection(),
        impatient(),
        deadlines(),
        paced(),
        echoes(),
        look_ups(),
        reused_id(),
        issued_ahead(),
        full_head(),
        epochs(),
        sweep(),
        sweep_pipeline(),
        slow_upload(),
        travelling(),
        travelling_deaths(),
        compactions(),
        pins(),
        retention(),
        expiring_pins(),
        forks(),
        strong_reads(),
        replica_and_sweep(),
        maintenance_and_window(),
    ]
}

fn race() -> Setup {
    let scripts = vec![add("a", 0).again(1), add("b", 1)];
    Setup {
        limits: Limits {
            lost_answers: 1,
            echoes: 1,
            lost_requests: 1,
            late: 1,
            repeated: 1,
            ..NONE
        },
        finish_every: 1,
        ..world("race", "two writers, a retry, replies lost, late and repeated", 2, scripts)
    }
}

fn three_writers() -> Setup {
    let scripts = vec![add("a", 0).again(1), add("b", 1), add("c", 2)];
    Setup {
        limits: Limits { lost_answers: 1, late: 1, ..NONE },
        ..world("three-writers", "three writers on one head", 3, scripts)
    }
}

fn lost_reply_and_window() -> Setup {
    let scripts = vec![
        add("a", 0).again(2),
        add("b", 1).issued(Issued::AtNewest),
        add("c", 1).issued(Issued::AtNewest).after(1),
    ];
    Setup {
        window: 1,
        batch_max: 1,
        finish_every: 1,
        limits: Limits { lost_answers: 1, late: 1, ..NONE },
        goals: &[Goal::AllAccepted, Goal::Doubt],
        ..world(
            "lost-reply-window",
            "a reply is lost, and the window moves past the receipt",
            2,
            scripts,
        )
    }
}

fn restart() -> Setup {
    let scripts = vec![add("a", 0).again(2), add("b", 1)];
    Setup {
        window: 1,
        limits: Limits { lost_answers: 1, late: 1, crashes: 2, ..NONE },
        goals: &[Goal::AllAccepted, Goal::Doubt],
        ..world("restart", "processes die between any two steps", 2, scripts)
    }
}

fn service_kept() -> Setup {
    let scripts =
        vec![add("a", 0).again(2).issued(Issued::ByService), add("b", 1).issued(Issued::AtNewest)];
    Setup {
        window: 1,
        has_slow_uploads: true,
        limits: Limits { lost_answers: 1, late: 1, crashes: 1, failures: 1, ..NONE },
        goals: &[Goal::AllAccepted, Goal::Doubt],
        ..world(
            "service-kept",
            "an issue version in a record, over restarts and a window of one",
            2,
            scripts,
        )
    }
}

fn pipeline() -> Setup {
    let scripts = vec![add("a", 0), add("b", 0).after(0), add("c", 0), add("d", 1)];
    Setup {
        batch_max: 1,
        ahead_max: 3,
        is_inline: false,
        limits: Limits { lost_answers: 1, ..NONE },
        ..world("pipeline", "batches staged behind one another, and a rival", 2, scripts)
    }
}

fn rejections() -> Setup {
    let scripts = vec![create("a", 0, "x"), remove("b", 1, "x").again(1), create("c", 1, "x")];
    Setup {
        limits: Limits { lost_answers: 1, late: 1, slow: 1, ..NONE },
        goals: &[Goal::NotApplied],
        ..world("rejections", "a key comes and goes, and stale heads deny it", 2, scripts)
    }
}

fn predicted_rejection() -> Setup {
    let scripts =
        vec![create("a", 0, "x"), create("b", 0, "x"), update("c", 0, "x"), create("d", 1, "x")];
    Setup {
        batch_max: 1,
        ahead_max: 2,
        is_inline: false,
        limits: Limits { lost_requests: 1, failures: 1, ..NONE },
        goals: &[Goal::NotApplied],
        ..world("predicted-rejection", "rejected by what is not published", 2, scripts)
    }
}

fn impatient() -> Setup {
    let scripts = vec![add("a", 0).again(2).impatient(), add("b", 1)];
    Setup {
        limits: Limits { lost_answers: 1, late: 1, ..NONE },
        ..world("impatient", "the same operation at several writers at once", 2, scripts)
    }
}

fn deadlines() -> Setup {
    let scripts = vec![add("a", 0).again(1), add("b", 1).issued(Issued::AtNewest)];
    Setup {
        window: 1,
        has_slow_facts: true,
        limits: Limits { lost_answers: 1, late: 1, expiries: 2, ..NONE },
        goals: &[Goal::AllAccepted, Goal::Doubt, Goal::NotApplied],
        ..world("deadlines", "time runs out at any moment", 2, scripts)
    }
}

fn paced() -> Setup {
    let scripts = vec![add("a", 0).again(1), add("b", 1)];
    Setup {
        limits: Limits { lost_answers: 1, late: 1, rests: 2, expiries: 1, ..NONE },
        goals: &[Goal::AllAccepted, Goal::Doubt, Goal::NotApplied],
        ..world("paced", "time runs out while the store wants to be left alone", 2, scripts)
    }
}

fn echoes() -> Setup {
    let scripts = vec![add("a", 0).again(1), add("b", 1), raise(1).again(1)];
    Setup {
        is_exclusive: true,
        limits: Limits { echoes: 1, failures: 1, expiries: 1, ..NONE },
        goals: &[Goal::Doubt, Goal::NotApplied],
        ..world("echoes", "a mismatch with what one has published oneself", 2, scripts)
    }
}

fn look_ups() -> Setup {
    let scripts = vec![add("a", 0), look_up(0, 1).again(1), add("b", 1)];
    Setup {
        limits: Limits { lost_answers: 1, late: 1, slow: 1, ..NONE },
        ..world("look-ups", "questions about an operation under way", 2, scripts)
    }
}

fn reused_id() -> Setup {
    let scripts = vec![add("a", 0).again(1), create("a", 1, "x").again(1)];
    Setup {
        limits: Limits { lost_answers: 1, late: 1, expiries: 1, ..NONE },
        finish_every: 1,
        goals: &[Goal::NotApplied],
        ..world("reused-id", "one id for two requests", 2, scripts)
    }
}

fn issued_ahead() -> Setup {
    let scripts =
        vec![add("a", 0).issued(Issued::Ahead).again(2), add("b", 1).issued(Issued::AtNewest)];
    Setup {
        window: 1,
        limits: Limits { lost_answers: 1, late: 1, ..NONE },
        finish_every: 1,
        goals: &[Goal::AllAccepted, Goal::NotApplied],
        ..world("issued-ahead", "a client that names a version to come", 2, scripts)
    }
}

fn full_head() -> Setup {
    let scripts = vec![add("a", 0), look_up(0, 0), add("b", 0), add("c", 1)];
    Setup {
        is_inline: false,
        head_bytes_max: 1050,
        limits: Limits { late: 1, lost_answers: 1, ..NONE },
        finish_every: 1,
        goals: &[Goal::Doubt, Goal::NotApplied],
        ..world("full-head", "a head that takes one change and not two", 2, scripts)
    }
}

fn epochs() -> Setup {
    let scripts = vec![add("a", 0).again(1), raise(1).again(1), add("b", 1).under(1).after(1)];
    Setup {
        is_exclusive: true,
        limits: Limits { lost_answers: 1, late: 1, ..NONE },
        goals: &[Goal::AllAccepted, Goal::NotApplied],
        ..world("epochs", "an owner that does not know yet that it is not", 2, scripts)
    }
}

fn sweep() -> Setup {
    let scripts = vec![add("a", 0), add("b", 1)];
    Setup {
        is_inline: false,
        limits: Limits { sweeps: 2, lost_answers: 1, crashes: 1, ..NONE },
        goals: &[Goal::AllAccepted, Goal::Swept],
        ..world("sweep", "candidates under sweeps that die and come again", 2, scripts)
    }
}

fn sweep_pipeline() -> Setup {
    let scripts = vec![create("a", 0, "x"), create("b", 0, "y"), add("c", 1)];
    Setup {
        is_inline: false,
        batch_max: 1,
        has_slow_facts: true,
        limits: Limits { sweeps: 1, ..NONE },
        goals: &[Goal::AllAccepted, Goal::Swept],
        ..world(
            "sweep-pipeline",
            "batches staged behind the one that raises the boundary",
            2,
            scripts,
        )
    }
}

fn slow_upload() -> Setup {
    let scripts = vec![add("a", 0), add("b", 1)];
    Setup {
        is_inline: false,
        has_slow_uploads: true,
        limits: Limits { sweeps: 1, lost_answers: 1, failures: 1, ..NONE },
        goals: &[Goal::AllAccepted, Goal::Swept],
        ..world("slow-upload", "an upload ends after the boundary was raised", 2, scripts)
    }
}

fn travelling() -> Setup {
    let scripts = vec![add("a", 0), add("b", 0).after(0)];
    Setup {
        is_inline: false,
        do_travel: true,
        has_slow_uploads: true,
        limits: Limits { sweeps: 1, lost_answers: 1, failures: 1, ..NONE },
        goals: &[Goal::AllAccepted, Goal::Swept],
        ..world(
            "travelling",
            "entries in the head while they are uploaded, and a sweep",
            1,
            scripts,
        )
    }
}

fn travelling_deaths() -> Setup {
    let scripts = vec![add("a", 0).again(1), add("b", 1).again(1)];
    Setup {
        is_inline: false,
        do_travel: true,
        limits: Limits { lost_answers: 1, crashes: 1, ..NONE },
        ..world("travelling-deaths", "the same among rivals that die", 2, scripts)
    }
}

fn compactions() -> Setup {
    let scripts = vec![
        create("a", 0, "x").and(&[put("n"), put("y")]),
        remove("b", 0, "x").after(0),
        create("c", 1, "x").after(1),
    ];
    Setup {
        limits: Limits { compactions: 3, sweeps: 1, ..NONE },
        goals: &[Goal::AllAccepted, Goal::Swept],
        ..world("compactions", "two compactors and a sweep", 2, scripts)
    }
}

fn pins() -> Setup {
    let scripts = vec![add("a", 0), add("b", 0).after(0), pin("p", 1, 1).after(1)];
    Setup {
        limits: Limits { compactions: 1, sweeps: 1, lost_answers: 1, ..NONE },
        goals: &[Goal::AllAccepted, Goal::Swept],
        ..world("pins", "a version that is to be kept, while others go", 2, scripts)
    }
}

fn retention() -> Setup {
    let scripts = vec![retain(1, 0), add("a", 0).after(0), add("b", 1).after(1)];
    Setup {
        limits: Limits { compactions: 2, sweeps: 1, ..NONE },
        goals: &[Goal::AllAccepted, Goal::Swept],
        ..world("retention", "older versions move to an archive and out of it", 2, scripts)
    }
}

fn expiring_pins() -> Setup {
    let scripts = vec![add("a", 0), add("b", 0).after(0), pin_for_an_hour("p", 1, 0).after(1)];
    Setup {
        limits: Limits { compactions: 1, releases: 1, hours: 1, sweeps: 1, ..NONE },
        goals: &[Goal::AllAccepted, Goal::Swept, Goal::PinExpired],
        ..world("expiring-pins", "a version is let go of when its pin expires", 1, scripts)
    }
}

fn forks() -> Setup {
    let scripts = vec![
        create("a", 0, "x").and(&[put("n")]),
        remove("b", 0, "x").after(0),
        // Where that is the second version, the compaction of it takes the place
        // of the snapshot that the fork has read: from there on the pin keeps
        // nothing of the older one, only the fork does.
        pin_for_a_fork("f", 0).after(0),
    ];
    Setup {
        limits: Limits { compactions: 2, forks: 1, sweeps: 1, ..NONE },
        goals: &[Goal::AllAccepted, Goal::Swept, Goal::Forked],
        ..world("forks", "a fork names chunks of its source, which goes on", 1, scripts)
    }
}

fn strong_reads() -> Setup {
    let scripts = vec![add("a", 0), add("b", 0).after(0)];
    Setup {
        limits: Limits { reads: 3, failures: 1, lost_answers: 1, ..NONE },
        ..world("strong-reads", "reads that share checks, which overtake one another", 1, scripts)
    }
}

fn replica_and_sweep() -> Setup {
    let scripts = vec![add("a", 0), add("b", 0).after(0)];
    Setup {
        is_inline: false,
        limits: Limits { reads: 1, compactions: 1, folds: 1, sweeps: 1, ..NONE },
        goals: &[Goal::AllAccepted, Goal::Swept],
        ..world("replica-and-sweep", "a replica under compaction and sweep", 1, scripts)
    }
}

fn maintenance_and_window() -> Setup {
    let scripts = vec![add("a", 0).again(1), add("b", 1).issued(Issued::AtNewest)];
    Setup {
        window: 1,
        limits: Limits { compactions: 1, folds: 1, lost_answers: 1, crashes: 1, ..NONE },
        ..world("maintenance-window", "receipts on their way into pages", 2, scripts)
    }
}
