"""The part of deploy/test/pods that runs them: see there.

What a Deployment's controller, the endpoints of a Service and the kubelet's
probes do in a cluster is done here by hand, by what the rendered manifests say:
`podman kube play` starts one pod of each template; a Service is a name of the
network that its pods share; probes are asked over HTTP.
"""

import argparse
import base64
import copy
import json
import pathlib
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request

import yaml

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
NETWORK = "headwater-test"
PREFIX = "hwt"
STORE = "s3://headwater/root?endpoint=http://s3:9000&region=us-east-1&allow_http=true"
# Longest time for a pod to become ready.
READY_MAX = 60
# What a run of the load may take after its time is up: the last calls, and the
# check of everything.
LOAD_END_MAX = 150

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
# What podman makes of them: a command inside of the container, where there is no
# shell. They are asked from outside instead.
PROBES = ("startupProbe", "livenessProbe", "readinessProbe")


class Failed(Exception):
    pass


began = time.monotonic()


def say(what):
    print(f"[{time.monotonic() - began:6.1f}] {what}", flush=True)


def podman(*arguments, check=True):
    done = subprocess.run(["podman", *arguments], capture_output=True, text=True)
    if check and done.returncode != 0:
        raise Failed(f"podman {' '.join(arguments)}: {done.stderr.strip()}")
    return done.stdout.strip()


def render(tag):
    values = tempfile.NamedTemporaryFile("w", suffix=".yaml")
    of = copy.deepcopy(VALUES)
    of["image"]["tag"] = tag
    yaml.safe_dump(of, values)
    values.flush()
    text = subprocess.run(
        ["helm", "template", "release", ROOT / "deploy/helm/headwater", "--values", values.name],
        capture_output=True, text=True, check=True,
    ).stdout
    return [it for it in yaml.safe_load_all(text) if it]


class Pod:
    """One pod of a template, as it was rendered except for probes, ports and names
    of volumes."""

    def __init__(self, name, template, services, work):
        self.name = name
        self.template = template
        spec = copy.deepcopy(template["spec"])
        for it in spec.get("initContainers", []) + spec["containers"]:
            # Podman 4 publishes every port on the host, where two pods meet.
            for field in (*PROBES, "ports"):
                it.pop(field, None)
            # An emptyDir of podman's is a volume of that name, for all pods.
            for mount in it.get("volumeMounts", []):
                mount["name"] = f"{name}-{mount['name']}"
        for volume in spec.get("volumes", []):
            volume["name"] = f"{name}-{volume['name']}"
        manifest = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": name, "labels": template["metadata"].get("labels", {})},
            "spec": spec,
        }
        self.file = work / f"{name}.yaml"
        self.file.write_text(yaml.safe_dump(manifest))
        self.network = f"{NETWORK}:" + ",".join(f"alias={it}" for it in [name, *services])
        self.main = spec["containers"][0]["name"]

    @property
    def container(self):
        return f"{self.name}-{self.main}"

    def start(self):
        podman("kube", "play", "--build=false", "--network", self.network, str(self.file))
        return self

    def infra(self):
        return podman("pod", "inspect", self.name, "--format", "{{.InfraContainerID}}")

    def address(self):
        networks = json.loads(
            podman("inspect", self.infra(), "--format", "{{json .NetworkSettings.Networks}}"))
        return networks[NETWORK]["IPAddress"] if NETWORK in networks else None

    def probe(self, kind):
        """What the kubelet would get: a status, or None for no answer."""
        container = self.template["spec"]["containers"][0]
        get = container[kind]["httpGet"]
        ports = {it["name"]: it["containerPort"] for it in container["ports"]}
        port = ports.get(get["port"], get["port"])
        try:
            url = f"http://{self.address()}:{port}{get['path']}"
            timeout = container[kind].get("timeoutSeconds", 1)
            with urllib.request.urlopen(url, timeout=timeout) as answer:
                return answer.status
        except urllib.error.HTTPError as error:
            return error.code
        except OSError:
            return None

    def wait_ready(self):
        until = time.monotonic() + READY_MAX
        while time.monotonic() < until:
            if self.probe("startupProbe") == 200 and self.probe("readinessProbe") == 200:
                return self
            if podman("inspect", self.container, "--format", "{{.State.Status}}") == "exited":
                raise Failed(f"{self.name} ended: {self.logs()}")
            time.sleep(0.2)
        raise Failed(f"{self.name} is not ready within {READY_MAX} s: {self.logs()}")

    def logs(self, tail="15"):
        done = subprocess.run(["podman", "logs", "--tail", tail, self.container],
                              capture_output=True, text=True)
        return done.stdout + done.stderr

    def stop(self):
        """As the kubelet does it. Ends with 0 within the grace, or it is a fault."""
        grace = self.template["spec"]["terminationGracePeriodSeconds"]
        asked = time.monotonic()
        podman("stop", "--time", str(grace), self.container)
        took = time.monotonic() - asked
        code = podman("inspect", self.container, "--format", "{{.State.ExitCode}}")
        if code != "0":
            raise Failed(f"{self.name} ended with {code} after {took:.1f} s: {self.logs()}")
        say(f"{self.name} drained in {took:.1f} s")
        self.remove()

    def kill(self):
        podman("kill", "--signal", "KILL", self.container)
        self.remove()

    def remove(self):
        podman("pod", "rm", "--force", "--time", "0", self.name)

    def cut_off(self):
        podman("network", "disconnect", "--force", NETWORK, self.infra())

    def join_again(self):
        aliases = [it for alias in self.network.split(":", 1)[1].split(",")
                   for it in ("--alias", alias.removeprefix("alias="))]
        podman("network", "connect", *aliases, NETWORK, self.infra())

    def run_to_end(self, seconds):
        """Of a pod that ends by itself: code and log of its last container."""
        self.start()
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            state = json.loads(podman("inspect", self.container, "--format", "{{json .State}}"))
            if state["Status"] == "exited":
                logs = self.logs("1000")
                self.remove()
                return state["ExitCode"], logs
            time.sleep(0.5)
        raise Failed(f"{self.name} does not end: {self.logs()}")


class Deployment:
    """The pods of one Deployment, and what its controller does with them."""

    def __init__(self, document, manifests, work):
        self.name = document["metadata"]["name"]
        self.count = document["spec"]["replicas"]
        self.work = work
        self.n = 0
        self.pods = []
        self.take(document, manifests)

    def take(self, document, manifests):
        self.template = document["spec"]["template"]
        labels = self.template["metadata"]["labels"].items()
        self.services = [it["metadata"]["name"] for it in manifests
                         if it["kind"] == "Service" and it["spec"]["selector"].items() <= labels]

    def add(self):
        self.n += 1
        pod = Pod(f"{self.name}-{self.n}", self.template, self.services, self.work)
        self.pods.append(pod.start())
        return pod

    def start(self):
        for _ in range(self.count):
            self.add()
        for it in self.pods:
            it.wait_ready()

    def roll(self):
        """maxSurge 1, maxUnavailable 0."""
        for old in list(self.pods):
            self.add().wait_ready()
            old.stop()
            self.pods.remove(old)

    def replace(self, pod):
        self.pods.remove(pod)
        return self.add()


def simple(name, image, args, work, command, services=()):
    template = {
        "metadata": {"labels": {"name": name}},
        "spec": {
            "restartPolicy": "Never",
            "terminationGracePeriodSeconds": 5,
            "containers": [{
                "name": "main", "image": image, "imagePullPolicy": "Never",
                "command": [command], "args": args,
                "env": [{"name": "HEADWATER_LOG", "value": "error"}],
                "securityContext": {"readOnlyRootFilesystem": True},
            }],
        },
    }
    return Pod(name, template, services, work)


class Run:
    def __init__(self, options, work):
        self.options = options
        self.work = work
        self.load = None

    def set_up(self):
        clean_up()
        podman("network", "create", NETWORK)
        keys = {"AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "testsecret"}
        make_secret(f"{PREFIX}-keys", keys, self.work)
        self.s3 = simple("s3", "localhost/headwater-test:one",
                         ["--address", "0.0.0.0", "--port", "9000"], self.work,
                         "/headwater-s3-double", ["s3"]).start()
        self.manifests = render("one")
        self.deployments = {}
        for it in self.manifests:
            if it["kind"] == "Deployment":
                part = it["metadata"]["labels"]["app.kubernetes.io/component"]
                self.deployments[part] = Deployment(it, self.manifests, self.work)
        self.writer, self.replica = self.deployments["writer"], self.deployments["replica"]
        for it in self.deployments.values():
            it.start()
        say(f"{len(self.writer.pods)} writer and {len(self.replica.pods)} replicas are ready")

    def helm_test(self):
        (test,) = [it for it in self.manifests if it["kind"] == "Pod"]
        code, logs = Pod(test["metadata"]["name"], test, [], self.work).run_to_end(60)
        if code != 0 or "hello" not in logs:
            raise Failed(f"helm test: {code}: {logs}")
        say("helm test: one key was written and read back")

    def begin_load(self, history, seconds, *more):
        arguments = [
            f"--writer={PREFIX}-writer-headless:7410", f"--replica={PREFIX}-replica-headless:7411",
            f"--store={STORE}", f"--history={history}", f"--seconds={seconds}", *more,
        ]
        if self.options.seed is not None:
            arguments.append(f"--seed={self.options.seed}")
        pod = simple(f"load-{history}", "localhost/headwater-test:one", arguments, self.work,
                     "/headwater-load")
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
        manifests = render("two")
        for it in manifests:
            if it["kind"] == "Deployment":
                part = it["metadata"]["labels"]["app.kubernetes.io/component"]
                self.deployments[part].take(it, manifests)
        self.replica.roll()
        self.writer.roll()
        self.still_at_work()
        for it in self.writer.pods + self.replica.pods:
            image = podman("inspect", it.container, "--format", "{{.ImageName}}")
            if not image.endswith(":two"):
                raise Failed(f"{it.name} still runs {image}")
        self.end_load()

    def alive(self, why):
        for it in self.writer.pods + self.replica.pods:
            status = it.probe("livenessProbe")
            if status != 200:
                raise Failed(f"{it.name} says that it is not alive ({status}) {why}")

    def faults(self):
        """Killed, cut off, without a store. Calls may fail; nothing may be wrong."""
        self.begin_load("faults", self.options.fault_seconds, "--reads-per-second=200")
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
        say("the store is cut off for 6 s")
        self.s3.cut_off()
        for _ in range(6):
            time.sleep(1)
            self.alive("while the store is away")
        self.s3.join_again()
        back = time.monotonic()
        for it in self.writer.pods + self.replica.pods:
            it.wait_ready()
        say(f"all are ready {time.monotonic() - back:.1f} s after the store came back")
        self.still_at_work()
        self.end_load()

    def jobs(self):
        for it in self.manifests:
            if it["kind"] != "CronJob":
                continue
            name = it["metadata"]["name"]
            template = it["spec"]["jobTemplate"]["spec"]["template"]
            code, logs = Pod(name, template, [], self.work).run_to_end(90)
            if code != 0:
                raise Failed(f"{name} ended with {code}: {logs}")
            say(f"{name}: {logs.strip().splitlines()[-1][:160]}")


def make_secret(name, values, work):
    data = {key: base64.b64encode(it.encode()).decode() for key, it in values.items()}
    version = tuple(int(it) for it in podman("version", "--format", "{{.Client.Version}}").split(".")[:2])
    if version < (4, 4):
        # Podman 4.3 reads for envFrom what `kube play` does not write: the bare
        # map (pkg/specgen/generate/kube).
        file = work / "secret.json"
        file.write_text(json.dumps(data))
        podman("secret", "create", name, str(file))
    else:
        file = work / "secret.yaml"
        file.write_text(yaml.safe_dump(
            {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name}, "data": data}))
        podman("kube", "play", str(file))


def clean_up():
    names = podman("pod", "ps", "--format", "{{.Name}}", check=False).split()
    for it in names:
        if it in ("s3",) or it.startswith((f"{PREFIX}-", "load-")):
            podman("pod", "rm", "--force", "--time", "0", it, check=False)
    podman("secret", "rm", f"{PREFIX}-keys", check=False)
    podman("network", "rm", "--force", NETWORK, check=False)
    for it in podman("volume", "ls", "--format", "{{.Name}}", check=False).split():
        if it.startswith(PREFIX):
            podman("volume", "rm", "--force", it, check=False)


PHASES = ("helm_test", "rolling", "faults", "jobs")


def main():
    parser = argparse.ArgumentParser(prog="deploy/test/pods")
    parser.add_argument("--keep", action="store_true", help="leave the pods for a look at them")
    parser.add_argument("--seed", type=int, help="of the load")
    parser.add_argument("--reads-per-second", type=int, default=2000)
    parser.add_argument("--rolling-seconds", type=int, default=60)
    parser.add_argument("--fault-seconds", type=int, default=60)
    parser.add_argument("--only", choices=PHASES, action="append")
    options = parser.parse_args()
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
            if not options.keep:
                clean_up()
    sys.exit(code)


if __name__ == "__main__":
    main()
