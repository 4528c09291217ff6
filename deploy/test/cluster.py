"""What a cluster does, by hand, for deploy/test/pods: the part of the controller of
Deployments, of the endpoints of a Service, and of the kubelet.

`podman kube play` starts one pod of each template as it was rendered; a Service is
a name of the network that its pods share; probes are asked over HTTP; secrets are
folders, replaced as the kubelet replaces them.
"""

import base64
import copy
import itertools
import json
import os
import pathlib
import ssl
import subprocess
import tempfile
import time
import urllib.error
import urllib.request

import yaml

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
NETWORK = "headwater-test"
ADDRESSES = "10.213.77"
PREFIX = "hwt"
# Longest time for a pod to become ready.
READY_MAX = 60
# What podman makes of them: a command inside of the container, where there is no
# shell. They are asked from outside instead.
PROBES = ("startupProbe", "livenessProbe", "readinessProbe")


# The kubelet looks at no certificate either.
ANY_CERTIFICATE = ssl._create_unverified_context()


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


def make_network():
    """Of its addresses podman gives the lower half; the rest are chosen here."""
    podman("network", "create", "--subnet", f"{ADDRESSES}.0/24", "--ip-range", f"{ADDRESSES}.0/25", NETWORK)


def hold_bridge():
    """Once a first pod is in the network: gives its bridge an address of its own.

    Podman alone needs this. A bridge without one has the lowest hardware address of
    the pods in it (netavark 1.4 sets none), so it gets another one as pods come and
    go, and what the others send to the old one is lost until they ask again, up to
    half a minute later. Pods reach each other meanwhile, but no name server, which
    is behind that address."""
    (network,) = json.loads(podman("network", "inspect", NETWORK))
    bridge = network["network_interface"]
    done = subprocess.run(["ip", "link", "set", "dev", bridge, "address", "02:00:00:00:00:01"],
                          capture_output=True, text=True)
    if done.returncode != 0:
        raise Failed(f"ip link set dev {bridge}: {done.stderr.strip()}")


def render(values_of, tag):
    values = tempfile.NamedTemporaryFile("w", suffix=".yaml")
    of = copy.deepcopy(values_of)
    of["image"]["tag"] = tag
    yaml.safe_dump(of, values)
    values.flush()
    text = subprocess.run(
        ["helm", "template", "release", ROOT / "deploy/helm/headwater", "--values", values.name],
        capture_output=True, text=True, check=True,
    ).stdout
    return [it for it in yaml.safe_load_all(text) if it]


class Secret:
    """A secret as the kubelet mounts one: a folder whose files are links to a folder
    of one moment, which is replaced as a whole."""

    def __init__(self, name, work):
        self.folder = work / "secrets" / name
        self.folder.mkdir(parents=True)
        self.n = 0

    def put(self, files):
        self.n += 1
        moment = self.folder / f"..{self.n}"
        moment.mkdir()
        for name, content in files.items():
            (moment / name).write_text(content)
            # defaultMode 0440, and fsGroup.
            os.chown(moment / name, 0, 65532)
            os.chmod(moment / name, 0o440)
        before = self.folder / "..data.new"
        before.symlink_to(moment.name)
        before.rename(self.folder / "..data")
        for name in files:
            if not (self.folder / name).is_symlink():
                (self.folder / name).symlink_to(f"..data/{name}")
        return self


class Pod:
    """One pod of a template, as it was rendered except for probes, ports, names of
    volumes, its own address and where secrets are."""

    # A folder for what each container has logged, if somebody wants it.
    logs_into = None
    # The ends of addresses that are chosen here.
    ends = itertools.count(130)

    def __init__(self, name, template, services, work):
        self.name = name
        self.template = template
        spec = copy.deepcopy(template["spec"])
        self.fixed = self.take_address(spec)
        for it in spec.get("initContainers", []) + spec["containers"]:
            # Podman 4 publishes every port on the host, where two pods meet.
            for field in (*PROBES, "ports"):
                it.pop(field, None)
            # An emptyDir of podman's is a volume of that name, for all pods.
            for mount in it.get("volumeMounts", []):
                mount["name"] = f"{name}-{mount['name']}"
        for volume in spec.get("volumes", []):
            volume["name"] = f"{name}-{volume['name']}"
            if "secret" in volume:
                of = volume.pop("secret")["secretName"]
                volume["hostPath"] = {"path": str(work / "secrets" / of), "type": "Directory"}
        manifest = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": name, "labels": template["metadata"].get("labels", {})},
            "spec": spec,
        }
        self.file = work / f"{name}.yaml"
        self.file.write_text(yaml.safe_dump(manifest))
        options = [f"alias={it}" for it in [name, *services]]
        options += [f"ip={self.fixed}"] if self.fixed else []
        self.network = f"{NETWORK}:" + ",".join(options)
        self.main = spec["containers"][0]["name"]

    def take_address(self, spec):
        """Says the pod's address where the template asks for it. Podman 4 knows no
        `status.podIP` and replaces no $(POD_IP), so it is chosen before the pod is."""
        address = None
        for container in spec["containers"]:
            for variable in container.get("env", []):
                of = variable.get("valueFrom", {}).get("fieldRef", {}).get("fieldPath")
                if of == "status.podIP":
                    address = address or f"{ADDRESSES}.{next(self.ends)}"
                    del variable["valueFrom"]
                    variable["value"] = address
                    container["args"] = [it.replace(f"$({variable['name']})", address)
                                         for it in container["args"]]
        return address

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

    def admin(self, kind):
        """The address that a probe asks."""
        container = self.template["spec"]["containers"][0]
        get = container[kind]["httpGet"]
        ports = {it["name"]: it["containerPort"] for it in container["ports"]}
        port = ports.get(get["port"], get["port"])
        return f"{get.get('scheme', 'HTTP').lower()}://{self.address()}:{port}"

    def probe(self, kind):
        """What the kubelet would get: a status, or None for no answer."""
        container = self.template["spec"]["containers"][0]
        try:
            url = self.admin(kind) + container[kind]["httpGet"]["path"]
            timeout = container[kind].get("timeoutSeconds", 1)
            with urllib.request.urlopen(url, timeout=timeout, context=ANY_CERTIFICATE) as answer:
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
        if self.logs_into:
            (self.logs_into / f"{self.container}.log").write_text(self.logs("-1"))
        podman("pod", "rm", "--force", "--time", "0", self.name)

    def cut_off(self):
        podman("network", "disconnect", "--force", NETWORK, self.infra())

    def join_again(self):
        options = [it for option in self.network.split(":", 1)[1].split(",")
                   for it in ("--" + option.split("=")[0], option.split("=")[1])]
        podman("network", "connect", *options, NETWORK, self.infra())

    def counted(self, metric, label=""):
        """The sum of a counter's samples, of those that have a label as it is written."""
        with urllib.request.urlopen(f"{self.admin('readinessProbe')}/metrics", timeout=5,
                                    context=ANY_CERTIFICATE) as answer:
            lines = answer.read().decode().splitlines()
        return sum(float(it.rsplit(" ", 1)[1]) for it in lines
                   if it.split("{")[0].split(" ")[0] == metric and label in it)

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



class Installation:
    """What one set of values makes: a Deployment of writers and one of replicas."""

    def __init__(self, values, tag, work):
        self.values = values
        self.work = work
        self.name = values["fullnameOverride"]
        self.store = values["store"]["url"]
        self.scheme = "https://" if values["tls"].get("enabled") else ""
        self.manifests = render(values, tag)
        self.deployments = {part: Deployment(it, self.manifests, work)
                            for part, it in self.templates().items()}
        self.writer, self.replica = self.deployments["writer"], self.deployments["replica"]

    def templates(self):
        return {it["metadata"]["labels"]["app.kubernetes.io/component"]: it
                for it in self.manifests if it["kind"] == "Deployment"}

    def start(self):
        for it in self.deployments.values():
            it.start()
        say(f"{self.name}: {len(self.writer.pods)} writer and {len(self.replica.pods)} replicas are ready")

    def take(self, tag):
        """Another image; pods that are added have it."""
        self.manifests = render(self.values, tag)
        for part, it in self.templates().items():
            self.deployments[part].take(it, self.manifests)

    def test(self):
        (test,) = [it for it in self.manifests if it["kind"] == "Pod"]
        code, logs = Pod(test["metadata"]["name"], test, [], self.work).run_to_end(60)
        if code != 0 or "hello" not in logs:
            raise Failed(f"helm test of {self.name}: {code}: {logs}")
        say(f"helm test of {self.name}: one key was written and read back")

    def remove(self):
        for it in self.writer.pods + self.replica.pods:
            it.remove()


def simple(name, image, args, work, command, services=(), volumes=()):
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
                "volumeMounts": [{"name": it, "mountPath": f"/{it}", "readOnly": True} for it in volumes],
            }],
            "volumes": [{"name": it, "secret": {"secretName": it}} for it in volumes],
        },
    }
    return Pod(name, template, services, work)


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
