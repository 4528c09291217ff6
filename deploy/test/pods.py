"""The part of deploy/test/pods that runs them: see there. What a cluster does is in
cluster.py, and what is done over TLS to callers that are known in secured.py.
"""

import argparse
import concurrent.futures
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time
import urllib.request

import secured
from cluster import (PREFIX, READY_MAX, Failed, Installation, Pod, clean_up, hold_bridge, make_network,
                     make_secret, podman, say, simple)

STORE = "s3://headwater/root?endpoint=http://s3:9000&region=us-east-1&allow_http=true"
# What a run of the load may take after its time is up: the last calls, and the
# check of everything.
LOAD_END_MAX = 150
# From the return of a store to work as before, as docs/operations.md has it.
RECOVERY_MAX = 2

VALUES = {
    "fullnameOverride": PREFIX,
    "image": {"repository": "localhost/headwater", "pullPolicy": "Never"},
    "store": {"url": STORE, "credentials": {"existingSecret": f"{PREFIX}-keys"}},
    "tls": {"insecure": True},
    "drain": {"delaySeconds": 2, "callsSecondsMax": 10},
    # Under these folds, snapshots and sweeps happen all the time.
    "writer": {
        "replicas": 1,
        "settings": {
            "writer-fold-changes": 16,
            "writer-compact-tail-versions": 600,
            "writer-compact-keep-versions": 300,
            "writer-retain-versions": 100,
            "writer-sweep-every-ms": 2000,
            "writer-sweep-grace-ms": 3000,
        },
    },
    "replica": {"replicas": 3, "cache": {"kind": "emptyDir", "sizeGiB": 1}},
    "jobs": {
        "maintain": {"enabled": True, "settings": {"grace-seconds": 1}},
        "verify": {"enabled": True},
    },
}


class Run:
    def __init__(self, options, work):
        self.options = options
        self.work = work
        self.load = None

    def set_up(self):
        clean_up()
        make_network()
        keys = {"AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "testsecret"}
        make_secret(f"{PREFIX}-keys", keys, self.work)
        self.s3 = simple("s3", "localhost/headwater-test:one",
                         ["--address", "0.0.0.0", "--port", "9000"], self.work,
                         "/headwater-s3-double", ["s3"]).start()
        hold_bridge()
        self.plain = Installation(VALUES, "one", self.work)
        self.writer, self.replica = self.plain.writer, self.plain.replica
        self.plain.start()

    def helm_test(self):
        self.plain.test()

    def begin_load(self, history, seconds, *more, of=None, volumes=(), writers=None):
        name, scheme = (of or self.plain).name, (of or self.plain).scheme
        writers = [f"{scheme}{it}:7410" for it in writers or [f"{name}-writer-headless"]]
        arguments = [
            f"--writer={','.join(writers)}",
            f"--replica={scheme}{name}-replica-headless:7411",
            f"--store={of.store if of else STORE}", f"--history={history}", f"--seconds={seconds}", *more,
        ]
        if self.options.seed is not None:
            arguments.append(f"--seed={self.options.seed}")
        pod = simple(f"load-{history}", "localhost/headwater-test:one", arguments, self.work,
                     "/headwater-load", volumes=volumes)
        self.load = pod.start()
        self.load_ends = time.monotonic() + seconds
        time.sleep(3)

    def end_load(self):
        until = self.load_ends + LOAD_END_MAX
        while time.monotonic() < until:
            state = json.loads(podman("inspect", self.load.container, "--format", "{{json .State}}"))
            if state["Status"] == "exited":
                logs = self.load.logs("100")
                self.load.remove()
                if state["ExitCode"] != 0:
                    raise Failed(f"load: {logs}")
                for line in logs.strip().splitlines():
                    say(f"load: {line}")
                return
            time.sleep(0.5)
        raise Failed(f"the load does not end: {self.load.logs()}")

    def still_at_work(self):
        if time.monotonic() > self.load_ends:
            raise Failed("the load had ended before everything was done to it: give it more seconds")

    def rolling(self):
        """To another image, replicas and writer, and not one call fails."""
        self.begin_load("rolling", self.options.rolling_seconds, "--strict",
                        f"--reads-per-second={self.options.reads_per_second}")
        self.plain.take("two")
        self.replica.roll()
        self.writer.roll()
        self.still_at_work()
        for it in self.writer.pods + self.replica.pods:
            image = podman("inspect", it.container, "--format", "{{.ImageName}}")
            if not image.endswith(":two"):
                raise Failed(f"{it.name} still runs {image}")
        self.end_load()

    def keep_logs(self):
        """Of those that are still there."""
        for name in podman("ps", "--all", "--format", "{{.Names}}").split():
            with open(self.options.logs / f"{name}.log", "w") as file:
                subprocess.run(["podman", "logs", name], stdout=file, stderr=file)

    def alive(self, why):
        for it in self.writer.pods + self.replica.pods:
            status = it.probe("livenessProbe")
            if status != 200:
                raise Failed(f"{it.name} says that it is not alive ({status}) {why}")

    def faults(self):
        """Killed, cut off, without a store. Calls may fail; nothing may be wrong."""
        self.begin_load("faults", self.options.fault_seconds, "--reads-per-second=200")
        writer = f"--writer={self.writer.pods[0].address()}:7410"
        if not (self.ask("create", "recovery", writer)
                and self.ask("put", "recovery", "key", "value", writer)):
            raise Failed("no key could be written for the check of the store's return")
        say("a replica is killed")
        killed = self.replica.pods[0]
        killed.kill()
        self.replica.replace(killed).wait_ready()
        say("a replica is cut off for 4 s")
        cut = self.replica.pods[0]
        cut.cut_off()
        time.sleep(4)
        cut.join_again()
        say("the writer is killed")
        killed = self.writer.pods[0]
        killed.kill()
        self.writer.replace(killed).wait_ready()
        say("the writer is cut off for 4 s, while another one is there")
        cut = self.writer.pods[0]
        self.writer.add().wait_ready()
        cut.cut_off()
        time.sleep(4)
        cut.join_again()
        away = self.options.store_away_seconds
        say(f"the store is cut off for {away} s")
        self.s3.cut_off()
        until = time.monotonic() + away
        while time.monotonic() < until:
            time.sleep(1)
            self.alive("while the store is away")
            for it in self.writer.pods + self.replica.pods:
                if it.probe("readinessProbe") != 200:
                    raise Failed(f"{it.name} is not ready while the store is away: {it.logs()}")
        self.recovers()
        self.still_at_work()
        self.end_load()

    def ask(self, *arguments):
        """The program of the image, from outside: whether it did what it was told."""
        program = pathlib.Path(os.environ["HEADWATER_PROGRAMS"], "headwater")
        return subprocess.run([program, *arguments, "--deadline-seconds=1"],
                              capture_output=True).returncode == 0

    def recovers(self):
        """The store comes back: each process sees it, a strong read is answered and a
        write is accepted within the time that docs/operations.md says."""
        def sees(pod):
            url = f"{pod.admin('readinessProbe')}/readyz?verbose"

            def asked():
                try:
                    return b"[+]store ok" in urllib.request.urlopen(url, timeout=1).read()
                except OSError:
                    return False
            return asked

        of = {it.name: sees(it) for it in self.writer.pods + self.replica.pods}
        # The newest ones were cut off by nobody.
        writer = f"--writer={self.writer.pods[-1].address()}:7410"
        replica = f"--replica={self.replica.pods[-1].address()}:7411"
        of["a strong read"] = lambda: self.ask("get", "--strong", "recovery", "key", replica)
        of["a write"] = lambda: self.ask("put", "recovery", "key", "value", writer)
        if of["a strong read"]() or of["a write"]():
            raise Failed("a strong read or a write is answered while the store is away")
        back = time.monotonic()

        def took(is_well):
            while time.monotonic() < back + READY_MAX:
                if is_well():
                    return time.monotonic() - back
                time.sleep(0.05)
            return float("inf")

        with concurrent.futures.ThreadPoolExecutor(2 * len(of)) as threads:
            self.s3.join_again()
            back = time.monotonic()
            # Two of each, since one may wait for its own deadline.
            times = [(threads.submit(took, it), name) for name, it in of.items() for _ in range(2)]
        first = {}
        for it, name in times:
            first[name] = min(it.result(), first.get(name, float("inf")))
        say("after the store came back: "
            + ", ".join(f"{name} {seconds:.1f} s" for name, seconds in first.items()))
        if max(first.values()) > RECOVERY_MAX:
            raise Failed(f"recovery takes longer than {RECOVERY_MAX} s")

    def jobs(self):
        for it in self.plain.manifests:
            if it["kind"] != "CronJob":
                continue
            name = it["metadata"]["name"]
            template = it["spec"]["jobTemplate"]["spec"]["template"]
            code, logs = Pod(name, template, [], self.work).run_to_end(90)
            if code != 0:
                raise Failed(f"{name} ended with {code}: {logs}")
            say(f"{name}: {logs.strip().splitlines()[-1][:160]}")

    def secured(self):
        secured.run(self)


PHASES = ("helm_test", "rolling", "faults", "jobs", "secured")


def main():
    parser = argparse.ArgumentParser(prog="deploy/test/pods")
    parser.add_argument("--keep", action="store_true", help="leave the pods for a look at them")
    parser.add_argument("--logs", type=pathlib.Path, help="a folder for the logs of all pods")
    parser.add_argument("--log-level", default="info", help="of writers and replicas")
    parser.add_argument("--seed", type=int, help="of the load")
    parser.add_argument("--reads-per-second", type=int, default=2000)
    parser.add_argument("--rolling-seconds", type=int, default=90)
    parser.add_argument("--fault-seconds", type=int, default=160)
    parser.add_argument("--secured-seconds", type=int, default=120)
    parser.add_argument("--store-away-seconds", type=int, default=60)
    parser.add_argument("--only", choices=PHASES, action="append")
    options = parser.parse_args()
    VALUES["log"] = {"level": options.log_level}
    if options.logs:
        options.logs.mkdir(parents=True, exist_ok=True)
        Pod.logs_into = options.logs
    with tempfile.TemporaryDirectory() as work:
        run = Run(options, pathlib.Path(work))
        code = 0
        try:
            run.set_up()
            for phase in options.only or PHASES:
                getattr(run, phase)()
            say("deploy/test/pods: everything held")
        except Failed as failed:
            say(f"FAILED: {failed}")
            code = 1
        finally:
            if options.logs:
                run.keep_logs()
            if not options.keep:
                clean_up()
    sys.exit(code)


if __name__ == "__main__":
    main()
