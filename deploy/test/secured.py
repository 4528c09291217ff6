"""A part of deploy/test/pods: the chart with TLS, client certificates, a file of
rights and tokens, all of them replaced while load goes on; and two writers that
contend, and hand operations over at the addresses of their pods.

What cert-manager does with the chart's Certificate is done here with openssl; what
the kubelet does with secrets is in cluster.py.
"""

import copy
import json
import pathlib
import ssl
import subprocess
import tempfile
import time

from cluster import NETWORK, PREFIX, Failed, Installation, Secret, podman, say

NAME = f"{PREFIX}-s"
# Servers look at their files this often, and clients at their token once a second.
LOOK_MS = 1000
NOTICED = 4
# Of load on two writers that contend.
CONTENDED_SECONDS = 20


class Authority:
    def __init__(self, work):
        self.folder = pathlib.Path(tempfile.mkdtemp(dir=work))
        self.openssl("req", "-x509", "-nodes", "-days", "2", "-subj", "/CN=test",
                     "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1",
                     "-keyout", "ca.key", "-out", "ca.crt")

    def openssl(self, *arguments):
        subprocess.run(["openssl", *arguments], cwd=self.folder, check=True, capture_output=True)

    def issue(self, names):
        """What cert-manager writes into a secret."""
        (self.folder / "names").write_text(
            f"subjectAltName={','.join(f'DNS:{it}' for it in names)}\n"
            "extendedKeyUsage=serverAuth,clientAuth\n")
        self.openssl("req", "-new", "-nodes", "-subj", "/CN=headwater", "-newkey", "ec",
                     "-pkeyopt", "ec_paramgen_curve:prime256v1", "-keyout", "tls.key", "-out", "request")
        self.openssl("x509", "-req", "-in", "request", "-CA", "ca.crt", "-CAkey", "ca.key",
                     "-CAcreateserial", "-days", "2", "-extfile", "names", "-out", "tls.crt")
        return {name: (self.folder / name).read_text() for name in ("ca.crt", "tls.crt", "tls.key")}


def token(role, name):
    """A token, and its row in the file of rights, by the image's own program."""
    said = json.loads(podman("run", "--rm", "--network", "none", "localhost/headwater:one", "--json",
                             "token", "new", "--name", name, "--role", role, "--histories", ""))
    return said["token"], said["row"] + "\n\n"


def shown_by(pod):
    """The certificate that a pod shows to those who connect now."""
    (port,) = [it["containerPort"] for it in pod.template["spec"]["containers"][0]["ports"]
               if it["name"] == "admin"]
    return ssl.get_server_certificate((pod.address(), port), timeout=5)


def run(run):
    # Nothing of the plain ones is needed any more, and two cores are few.
    run.plain.remove()
    values = copy.deepcopy(run.plain.values)
    values["fullnameOverride"] = NAME
    values["store"]["url"] = run.plain.store.replace("/root?", "/secured?")
    # Pods by their names, for the clients that contend: two that roll are four.
    names = [f"{NAME}-writer-{n}" for n in range(1, 5)]
    values["tls"] = {"enabled": True, "clientCertificates": True,
                     "certManager": {"enabled": True, "issuer": {"name": "test"}, "dnsNames": names}}
    values["auth"] = {"existingSecret": f"{NAME}-rights"}
    values["replica"].update(replicas=2, writerToken={"existingSecret": f"{NAME}-replica"})
    values["writer"].update(replicas=2, forwarding={
        "enabled": True, "token": {"existingSecret": f"{NAME}-writer"}})
    values["test"] = {"tokenSecret": f"{NAME}-test"}
    # Connections are made again all the time, so that certificates matter.
    for of in ("writer", "replica"):
        values[of].setdefault("settings", {}).update(
            {"credentials-interval-ms": LOOK_MS, "connection-age-seconds-max": 3})
    secured = Installation(values, "one", run.work)

    authority = Authority(run.work)
    (certificate,) = [it["spec"] for it in secured.manifests if it["kind"] == "Certificate"]
    tls = Secret(certificate["secretName"], run.work).put(authority.issue(certificate["dnsNames"]))
    replica, replica_row = token("read", "replica")
    writer, writer_row = token("write", "writer")
    caller, caller_row = token("admin", "caller")
    own_rows = replica_row + writer_row
    rights = Secret(f"{NAME}-rights", run.work).put({"auth.toml": own_rows + caller_row})
    Secret(f"{NAME}-replica", run.work).put({"token": replica})
    Secret(f"{NAME}-writer", run.work).put({"token": writer})
    Secret(f"{NAME}-test", run.work).put({"token": caller})
    secured.start()
    secured.test()

    load = Secret("load", run.work).put({**authority.issue(["load.test"]), "token": caller})
    seconds = run.options.secured_seconds
    shown = ["--tls-ca=/load/ca.crt", "--tls-cert=/load/tls.crt", "--tls-key=/load/tls.key",
             "--token-file=/load/token"]
    run.begin_load("secured", seconds, "--strict", "--reads-per-second=200", *shown,
                   of=secured, volumes=["load"])
    pods = secured.writer.pods + secured.replica.pods
    before = [shown_by(it) for it in pods]
    tls.put(authority.issue(certificate["dnsNames"]))
    time.sleep(NOTICED)
    for pod, old in zip(pods, before):
        if shown_by(pod) == old:
            raise Failed(f"{pod.name} still shows the certificate that was replaced")
    say("certificates were replaced: new connections get the new one")
    # Both tokens are known, the caller shows the new one, then one is known.
    next_caller, next_row = token("admin", "caller")
    rights.put({"auth.toml": own_rows + caller_row + next_row})
    time.sleep(NOTICED)
    load.put({**authority.issue(["load.test"]), "token": next_caller})
    time.sleep(NOTICED)
    rights.put({"auth.toml": own_rows + next_row})
    time.sleep(NOTICED)
    secured.take("two")
    secured.replica.roll()
    secured.writer.roll()
    run.still_at_work()
    run.end_load()
    say("certificates, tokens and images were replaced under load, and no call failed")

    # Each client has one of the writers, so these contend until they hand over.
    run.begin_load("contended", CONTENDED_SECONDS, "--contend", *shown, of=secured, volumes=["load"],
                   writers=[it.name for it in secured.writer.pods])
    run.end_load()
    answered = sum(it.counted("headwater_forwarded_operations_total", 'outcome="answered"')
                   for it in secured.writer.pods)
    received = sum(it.counted("headwater_forwarded_received_total") for it in secured.writer.pods)
    if answered == 0 or received < answered:
        logs = [it.logs() for it in secured.writer.pods]
        raise Failed(f"of writers that contend {answered:.0f} operations were answered by the other "
                     f"one, and {received:.0f} arrived there: {logs}")
    say(f"two writers contended, and {answered:.0f} operations were decided by the other one")

    # Who has a certificate and no token, or one that was taken away, may nothing.
    ask = ["run", "--rm", "--network", NETWORK, "--volume", f"{load.folder}:/load:ro",
           "--volume", f"{run.work}/secrets/{NAME}-test:/old:ro",
           "--env", f"HEADWATER_REPLICA=https://{NAME}-replica-headless:7411",
           "--env", f"HEADWATER_WRITER=https://{NAME}-writer-headless:7410",
           "localhost/headwater:one", "--tls-ca=/load/ca.crt"]
    own = ["--tls-cert=/load/tls.crt", "--tls-key=/load/tls.key"]
    get = ["get", "helm-test", "greeting"]
    if podman(*ask, *own, "--token-file=/load/token", *get) != "hello":
        raise Failed("what is known by its token is not served")
    for shown, why in (([], "no certificate"), (own, "no token"),
                       ([*own, "--token-file=/old/token"], "a token that was taken away")):
        try:
            podman(*ask, *shown, *get)
        except Failed:
            continue
        raise Failed(f"a caller with {why} is served")
    say("callers without certificate, without token, or with an old one are refused")
    secured.remove()
