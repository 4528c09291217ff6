"""What deploy/test/charts checks of rendered manifests.

    check FILE...           against the schemas, and against rules of our own
    flags PROGRAMS FILE...  every argument is one that the program takes
    settings CHART VALUES RENDERED
                            settings refuse what the chart says itself, and no more
    same CHART BASE         two renderings say the same
    base FILE INTO          writes a Kustomize base
    compose FILE            the compose file, by rules of our own
"""

import json
import pathlib
import re
import subprocess
import sys
import tempfile

import yaml

KUBERNETES = ["1.34.0", "1.35.0", "1.36.0"]
CUSTOM = {
    ("cert-manager.io/v1", "Certificate"): "cloudcoil.models.cert_manager.v1",
    ("keda.sh/v1alpha1", "ScaledObject"): "cloudcoil.models.keda.v1alpha1",
    ("monitoring.coreos.com/v1", "ServiceMonitor"): "cloudcoil.models.prometheus_operator.v1",
    ("monitoring.coreos.com/v1", "PrometheusRule"): "cloudcoil.models.prometheus_operator.v1",
}
problems = []


def problem(what):
    problems.append(what)


def documents(path):
    return [it for it in yaml.safe_load_all(pathlib.Path(path).read_text()) if it]


def named(document):
    return f"{document.get('kind')} {document.get('metadata', {}).get('name')}"


def lost(given, kept, at=""):
    """Paths in `given` that a model did not take over: fields that it lacks."""
    if isinstance(given, dict):
        if not isinstance(kept, dict):
            return [at]
        return [
            it
            for key, value in given.items()
            for it in ([f"{at}.{key}"] if key not in kept else lost(value, kept[key], f"{at}.{key}"))
        ]
    if isinstance(given, list):
        if not isinstance(kept, list) or len(kept) != len(given):
            return [at]
        return [it for n, pair in enumerate(zip(given, kept)) for it in lost(*pair, f"{at}[{n}]")]
    return []


def check_custom(document):
    import importlib

    kind = (document["apiVersion"], document["kind"])
    model = getattr(importlib.import_module(CUSTOM[kind]), kind[1])
    # Not all fields of a custom resource are closed, so a model would pass over
    # a name that it does not know.
    try:
        kept = model.model_validate(document).model_dump(by_alias=True, exclude_unset=True, mode="json")
    except ValueError as error:
        return problem(f"{named(document)}: {error}")
    for path in lost(document, kept):
        problem(f"{named(document)}: no such field: {path}")


def pod_specs(document):
    spec = document.get("spec", {})
    if document["kind"] == "Pod":
        return [spec]
    if document["kind"] == "Deployment":
        return [spec["template"]["spec"]]
    if document["kind"] == "CronJob":
        return [spec["jobTemplate"]["spec"]["template"]["spec"]]
    return []


def containers(spec):
    return spec.get("initContainers", []) + spec["containers"]


def argument(container, flag):
    for it in container.get("args", []):
        if it.startswith(f"--{flag}="):
            return it.split("=", 1)[1]
    return None


def check_pod(name, kind, spec):
    security = spec.get("securityContext", {})
    if not security.get("runAsNonRoot") or security.get("runAsUser") != 65532:
        problem(f"{name}: runs as root or as somebody else")
    if spec.get("automountServiceAccountToken") is not False:
        problem(f"{name}: is given a token of the API server")
    volumes = {it["name"] for it in spec.get("volumes", [])}
    for it in containers(spec):
        inner = it.get("securityContext", {})
        if (
            not inner.get("readOnlyRootFilesystem")
            or inner.get("allowPrivilegeEscalation") is not False
            or inner.get("capabilities") != {"drop": ["ALL"]}
        ):
            problem(f"{name}/{it['name']}: has more privileges than it needs")
        if "memory" not in it.get("resources", {}).get("limits", {}):
            problem(f"{name}/{it['name']}: no limit of memory")
        mounted = {mount["name"] for mount in it.get("volumeMounts", [])}
        if not mounted <= volumes:
            problem(f"{name}/{it['name']}: mounts {mounted - volumes}, which is no volume")
        folders = [mount["mountPath"] for mount in it.get("volumeMounts", [])]
        for path in (arg.split("=", 1)[1] for arg in it.get("args", []) if "=/" in arg):
            if not any(f"{path}/".startswith(f"{folder}/") for folder in folders):
                problem(f"{name}/{it['name']}: is told of {path}, which nothing mounts")
        for variable in it.get("env", []):
            if re.search("SECRET|PASSWORD", variable["name"]) and "value" in variable:
                problem(f"{name}: the secret {variable['name']} is in the manifest")
        if kind == "Deployment":
            check_server(name, spec, it)


def check_server(name, spec, container):
    ports = {it["name"]: it["containerPort"] for it in container["ports"]}
    for flag, port in (("listen", "grpc"), ("admin-listen", "admin")):
        if (argument(container, flag) or "").rsplit(":", 1)[-1] != str(ports.get(port)):
            problem(f"{name}: --{flag} is not the port {port}")
    for probe in ("startupProbe", "livenessProbe", "readinessProbe"):
        of = container.get(probe, {})
        if "httpGet" in of:
            port = ports.get(of["httpGet"]["port"], of["httpGet"]["port"])
            path = "/readyz" if probe == "readinessProbe" else "/livez"
            if (port, of["httpGet"]["path"]) != (ports["admin"], path):
                problem(f"{name}: {probe} asks {of['httpGet']}")
        elif "grpc" in of:
            if of["grpc"]["port"] != ports["grpc"]:
                problem(f"{name}: {probe} asks another port than gRPC's")
        else:
            problem(f"{name}: no {probe}")
    delay = int(argument(container, "drain-delay-seconds"))
    calls = int(argument(container, "drain-seconds-max"))
    if spec["terminationGracePeriodSeconds"] < delay + calls + 10:
        problem(f"{name}: is killed before its drain of {delay} + {calls} + 10 s ends")
    size = argument(container, "replica-cache-disk-bytes")
    for volume in spec.get("volumes", []):
        if volume["name"] == "cache":
            limit = volume.get("emptyDir", {}).get("sizeLimit") or (
                volume["ephemeral"]["volumeClaimTemplate"]["spec"]["resources"]["requests"]["storage"]
            )
            if int(size) > int(limit.removesuffix("Gi")) << 30:
                problem(f"{name}: the cache may grow past its volume")


def check_together(all_documents):
    """What one document says of another."""
    deployments = [it for it in all_documents if it["kind"] == "Deployment"]
    labels = [it["spec"]["template"]["metadata"]["labels"] for it in deployments]
    ports = [
        {port["name"] for port in it["spec"]["template"]["spec"]["containers"][0]["ports"]}
        for it in deployments
    ]

    def selected(selector, document):
        found = [n for n, it in enumerate(labels) if selector.items() <= it.items()]
        if len(found) != 1:
            problem(f"{named(document)}: selects {len(found)} Deployments and not one")
        return found

    names = {it["metadata"]["name"] for it in all_documents if it["kind"] == "ServiceAccount"}
    for it in all_documents:
        if it["kind"] == "Service":
            for n in selected(it["spec"]["selector"], it):
                for port in it["spec"]["ports"]:
                    if port["targetPort"] not in ports[n]:
                        problem(f"{named(it)}: no container has the port {port['targetPort']}")
        if it["kind"] in ("PodDisruptionBudget", "Deployment"):
            selected(it["spec"]["selector"]["matchLabels"], it)
        if it["kind"] in ("HorizontalPodAutoscaler", "ScaledObject"):
            target = it["spec"]["scaleTargetRef"]["name"]
            scaled = [of for of in deployments if of["metadata"]["name"] == target]
            if len(scaled) != 1 or "replicas" in scaled[0]["spec"]:
                problem(f"{named(it)}: does not scale one Deployment that leaves it the count")
        for spec in pod_specs(it):
            account = spec.get("serviceAccountName")
            if names and account and account not in names:
                problem(f"{named(it)}: no account {account}")
        if it["kind"] == "Deployment":
            check_forwarding(it, all_documents)
    check_policies(all_documents)
    seen = [(it["kind"], it["metadata"]["name"]) for it in all_documents]
    for it in set(seen):
        if seen.count(it) > 1:
            problem(f"{it} is there more than once")


def check_forwarding(deployment, all_documents):
    """Where writers hand operations to each other, each is reached where it says,
    and knows whom it has reached."""
    template = deployment["spec"]["template"]
    labels, container = template["metadata"]["labels"], template["spec"]["containers"][0]
    who = named(deployment)
    variables = {it["name"]: it for it in container.get("env", [])}
    for name in re.findall(r"\$\((\w+)\)", " ".join(container["args"])):
        if name not in variables:
            problem(f"{who}: names $({name}), which is no variable of it")
    advertised = argument(container, "writer-advertise")
    if advertised is None:
        return
    is_tls = argument(container, "listen-tls-cert-file") is not None
    (port,) = [it["containerPort"] for it in container["ports"] if it["name"] == "grpc"]
    address = re.fullmatch(r"(https?)://(\$\(POD_IP\)|\[\$\(POD_IP\)\]):(\d+)", advertised)
    if not address or (address[1], address[3]) != ("https" if is_tls else "http", str(port)):
        problem(f"{who}: is not reached at {advertised}")
    of = variables.get("POD_IP", {}).get("valueFrom", {}).get("fieldRef", {}).get("fieldPath")
    if of != "status.podIP":
        problem(f"{who}: POD_IP is not its address")
    if argument(container, "writer-forward-to") != "*":
        problem(f"{who}: addresses of pods are not among the hosts that it hands over to")
    # The address is none that a certificate is for; a service's name is.
    services = {it["metadata"]["name"] for it in all_documents
                if it["kind"] == "Service" and it["spec"]["selector"].items() <= labels.items()}
    name = argument(container, "writers-tls-server-name")
    if is_tls and (name not in services or argument(container, "writers-tls-ca") is None):
        problem(f"{who}: does not know whom it has reached ({name})")
    for it in all_documents:
        if it["kind"] == "Certificate" and name not in it["spec"]["dnsNames"]:
            problem(f"{who}: no certificate is for {name}")
    shown = argument(container, "writers-token-file") or argument(container, "writers-tls-cert")
    if argument(container, "auth-file") and shown is None:
        problem(f"{who}: shows nothing to other writers, which ask who calls")
    in_clear = "--writers-token-over-plain" in container["args"]
    if argument(container, "writers-token-file") and in_clear == is_tls:
        problem(f"{who}: its token does not go the way that it connects")
    for it in all_documents:
        if it["kind"] != "NetworkPolicy" or not selects(it["spec"]["podSelector"], labels):
            continue
        for way, peer in (("ingress", "from"), ("egress", "to")):
            if not any("podSelector" in to and selects(to["podSelector"], labels)
                       for rule in it["spec"][way] for to in rule.get(peer, [])
                       if "grpc" in [port["port"] for port in rule["ports"]]):
                problem(f"{who}: its policy lets no writer through ({way})")


def selects(selector, labels):
    return selector["matchLabels"].items() <= labels.items() if selector else True


def check_policies(all_documents):
    """Where there are network policies, each pod has one, but that of `helm test`,
    which has to be let in."""
    policies = [it["spec"] for it in all_documents if it["kind"] == "NetworkPolicy"]
    if not policies:
        return

    for it in all_documents:
        if it["kind"] in ("Deployment", "CronJob"):
            template = it["spec"].get("jobTemplate", it)["spec"]["template"]
            found = [of for of in policies if selects(of["podSelector"], template["metadata"]["labels"])]
            if len(found) != 1:
                problem(f"{named(it)}: {len(found)} network policies are for its pods, and not one")
        if it["kind"] == "Pod":
            for of in policies:
                peers = [peer for rule in of.get("ingress", []) for peer in rule.get("from", [])
                         if "grpc" in [port["port"] for port in rule["ports"]]]
                if "ingress" in of and not any(
                        "podSelector" in peer and selects(peer["podSelector"], it["metadata"]["labels"])
                        for peer in peers):
                    problem(f"{named(it)}: is not let in by the policy of {of['podSelector']}")


def check(*paths):
    standard = []
    for path in paths:
        before = len(problems)
        all_documents = documents(path)
        plain = pathlib.Path(path).with_suffix(".standard.yaml")
        plain.write_text(yaml.safe_dump_all(
            it for it in all_documents if (it["apiVersion"], it["kind"]) not in CUSTOM))
        standard.append(plain)
        for it in all_documents:
            if (it["apiVersion"], it["kind"]) in CUSTOM:
                check_custom(it)
            for spec in pod_specs(it):
                check_pod(named(it), it["kind"], spec)
        check_together(all_documents)
        problems[before:] = [f"{pathlib.Path(path).name}: {it}" for it in problems[before:]]
    # One process for each version: most of its time goes into reading schemas.
    for version in KUBERNETES:
        command = [pathlib.Path(sys.executable).parent / "kubernetes-validate", "--strict", "--quiet",
                   "--no-warn", "--kubernetes-version", version, *standard]
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode != 0:
            problem(f"Kubernetes {version}: {done.stdout} {done.stderr}")


def make_secrets(into):
    """What secrets hold, in the places where pods have them below /etc/headwater."""
    for name in ("tls", "auth", "keys", "writer-token"):
        pathlib.Path(into, name).mkdir()
    tls = pathlib.Path(into, "tls")
    subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1",
                    "-nodes", "-days", "2", "-subj", "/CN=headwater", "-addext", "subjectAltName=DNS:headwater",
                    "-keyout", tls / "tls.key", "-out", tls / "tls.crt"],
                   check=True, capture_output=True)
    (tls / "ca.crt").write_text((tls / "tls.crt").read_text())
    for name in ("auth.toml", "rights.toml"):
        pathlib.Path(into, "auth", name).write_text("")
    pathlib.Path(into, "keys/keyring").write_text(f"names {'1' * 64}\nkey first {'2' * 64}\n")
    pathlib.Path(into, "writer-token/token").write_text("hw_0000000000000000_" + "0" * 64)


def flags(programs, *paths):
    known = {}
    temporary = tempfile.TemporaryDirectory()
    secrets = temporary.name
    make_secrets(secrets)

    def help_of(*command):
        if command not in known:
            said = subprocess.run([pathlib.Path(programs, command[0]), *command[1:], "--help"],
                                  capture_output=True, text=True, check=True).stdout
            known[command] = set(re.findall(r"--([a-z][a-z0-9-]*)", said)), set(
                re.findall(r"\[env: ([A-Z0-9_]+)", said))
        return known[command]

    for path in paths:
        for document in documents(path):
            for spec in pod_specs(document):
                for it in containers(spec):
                    program = it["command"][0].rsplit("/", 1)[1]
                    positional = [a for a in it["args"] if not a.startswith("--")]
                    command = (program, *positional[:1])
                    arguments, variables = help_of(*command)
                    for a in it["args"]:
                        if a.startswith("--") and a[2:].split("=")[0] not in arguments:
                            problem(f"{named(document)}: {command} has no flag {a}")
                    for variable in it.get("env", []):
                        name = variable["name"]
                        if name.startswith("HEADWATER_") and name != "HEADWATER_LOG" and name not in variables:
                            problem(f"{named(document)}: {command} has no variable {name}")
                    if document["kind"] == "Deployment":
                        check_config(programs, path, document, it, secrets)


def check_config(programs, path, document, container, secrets):
    """Values too: whether the program would start with them."""
    def here(it):
        # As the kubelet replaces it.
        it = it.replace("[$(POD_IP)]", "[fd00::1]").replace("$(POD_IP)", "10.0.0.1")
        return it.replace("/etc/headwater/", f"{secrets}/")

    variables = {it["name"]: here(it["value"]) for it in container["env"] if "value" in it}
    program = pathlib.Path(programs, container["command"][0].rsplit("/", 1)[1])
    done = subprocess.run([program, *map(here, container["args"]), "--check-config"], env=variables,
                          capture_output=True, text=True)
    if done.returncode != 0:
        problem(f"{pathlib.Path(path).name}: {named(document)} would not start: {done.stderr}")


def said(container):
    """Names of settings that it is given, by flag or by variable."""
    flags = {a[2:].split("=")[0] for a in container["args"] if a.startswith("--")}
    names = {it["name"] for it in container.get("env", [])}
    return flags | {
        it.removeprefix("HEADWATER_").lower().replace("_", "-") for it in names if it.startswith("HEADWATER_")
    }


def settings(chart, values, rendered):
    """A flag that is given twice ends the start; one that is refused for a name
    that it had once cannot be set."""
    schema = json.loads(pathlib.Path(chart, "values.schema.json").read_text())
    own = {}
    for path in sorted(pathlib.Path(values).glob("*.yaml")):
        given = yaml.safe_load(path.read_text())
        for document in documents(pathlib.Path(rendered, path.name)):
            if document["kind"] not in ("Deployment", "CronJob"):
                continue
            for spec in pod_specs(document):
                container = spec["containers"][0]
                place = ["jobs"] * (document["kind"] == "CronJob") + [container["name"]]
                of = given
                for name in place:
                    of = of.get(name, {})
                own.setdefault(tuple(place), set()).update(said(container) - set(of.get("settings", {})))
    for place, names in own.items():
        of = schema
        for name in (*place, "settings"):
            of = of["properties"][name]
        refused = set(of["propertyNames"]["not"]["enum"])
        for name in sorted(names - refused):
            problem(f"{'.'.join(place)}.settings takes {name}, which the chart says itself")
        for name in sorted(refused - names):
            problem(f"{'.'.join(place)}.settings refuses {name}, which the chart never says")
    if len(own) != 4:
        problem(f"settings of {sorted(own)}, and not of writers, replicas and both jobs")


def bare(document):
    """Without what only Helm knows of."""
    labels = [document["metadata"]["labels"]]
    spec = document.get("spec", {})
    if "template" in spec:
        labels.append(spec["template"]["metadata"]["labels"])
    if "jobTemplate" in spec:
        labels.append(spec["jobTemplate"]["spec"]["template"]["metadata"]["labels"])
    for it in labels:
        for name in ("helm.sh/chart", "app.kubernetes.io/managed-by"):
            it.pop(name, None)
    return document


def same(chart, base):
    keyed = lambda path: {named(it): bare(it) for it in documents(path)}
    left, right = keyed(chart), keyed(base)
    for it in left.values():
        it["metadata"].setdefault("namespace", "headwater")
    for name in sorted(left.keys() | right.keys()):
        if left.get(name) != right.get(name):
            problem(f"{name} differs")


def base(path, into):
    into = pathlib.Path(into)
    files = {}
    for it in map(bare, documents(path)):
        component = it["metadata"]["labels"]["app.kubernetes.io/component"]
        files.setdefault(f"{component}.yaml", []).append(it)
    for old in into.glob("*.yaml"):
        old.unlink()
    into.mkdir(parents=True, exist_ok=True)
    head = "# Made from the chart by `deploy/test/charts --write`; do not edit.\n"
    for name, content in sorted(files.items()):
        (into / name).write_text(head + yaml.safe_dump_all(content, sort_keys=False))
    kustomization = {
        "apiVersion": "kustomize.config.k8s.io/v1beta1",
        "kind": "Kustomization",
        "namespace": "headwater",
        "resources": sorted(files),
    }
    (into / "kustomization.yaml").write_text(head + yaml.safe_dump(kustomization, sort_keys=False))


def compose(path):
    services = yaml.safe_load(pathlib.Path(path).read_text())["services"]
    for name, it in services.items():
        if not it.get("read_only") or it.get("cap_drop") != ["ALL"]:
            problem(f"compose: {name} has more privileges than it needs")
        if "no-new-privileges:true" not in it.get("security_opt", []):
            problem(f"compose: {name} may gain privileges")
        for variable, value in it.get("environment", {}).items():
            # An empty key is a key, to those who look for one.
            if variable.startswith("AWS_") and value is not None:
                problem(f"compose: {name} is given {variable} also where nobody has set it")
        for used in it.get("depends_on", {}):
            if used not in services:
                problem(f"compose: {name} waits for {used}, which is not there")
        for port in it.get("ports", []):
            if not str(port).startswith("127.0.0.1:"):
                problem(f"compose: {name} is open to everybody on {port}")


if __name__ == "__main__":
    {"check": check, "flags": flags, "settings": settings, "same": same, "base": base,
     "compose": compose}[sys.argv[1]](*sys.argv[2:])
    for it in problems:
        print(it, file=sys.stderr)
    sys.exit(1 if problems else 0)
