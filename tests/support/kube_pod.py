"""A pod of the double of a cluster (kube_double.py): a process of this machine."""
import os
import re
import signal
import subprocess
import time

from processes import contents, kill_at_once


POD_ADDRESS = "127.0.0.1"  # of every pod: they are processes of this machine


def now_text():
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())


class Refused(Exception):
    def __init__(self, code, reason, message):
        super().__init__(message)
        self.code = code
        self.status = {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {},
            "status": "Failure",
            "message": message,
            "reason": reason,
            "code": code,
        }


class Pod:
    """One pod: its object, and its process while it runs."""

    def __init__(self, cluster, document):
        self.cluster, self.document = cluster, document
        self.process, self.kill_at = None, None
        self.folder = os.path.join(cluster.root, "pods", document["metadata"]["uid"])

    @property
    def name(self):
        return self.document["metadata"]["name"]

    @property
    def status(self):
        return self.document["status"]

    def gpus(self):
        total = 0
        for container in self.document["spec"]["containers"]:
            for name, count in container.get("resources", {}).get("limits", {}).items():
                if "/" in name:
                    total += int(count)
        return total

    def set_condition(self, kind, status, reason="", message=""):
        conditions = [c for c in self.status.get("conditions", []) if c["type"] != kind]
        one = {"type": kind, "status": status, "lastTransitionTime": now_text()}
        if reason:
            one["reason"] = reason
        if message:
            one["message"] = message
        self.status["conditions"] = conditions + [one]

    def path_of(self, word):
        """A word of the command with mount paths in place."""
        for mount in self.document["spec"]["containers"][0].get("volumeMounts", []):
            if word == mount["mountPath"] or word.startswith(mount["mountPath"] + "/"):
                return os.path.join(self.folder, mount["name"]) + word[len(mount["mountPath"]) :]
        return word

    def secret_volumes(self):
        for volume in self.document["spec"].get("volumes", []):
            if "secret" in volume:
                yield volume["name"], volume["secret"]["secretName"]

    def start(self):
        """Starts the pod's command if everything it mounts exists."""
        container = self.document["spec"]["containers"][0]
        if "missing" in container["image"]:
            self.status["containerStatuses"] = [
                {
                    "name": container["name"],
                    "state": {
                        "waiting": {
                            "reason": "ImagePullBackOff",
                            "message": f'Back-off pulling image "{container["image"]}"',
                        }
                    },
                }
            ]
            return
        for name, secret in self.secret_volumes():
            if secret not in self.cluster.secrets:
                return
            os.makedirs(os.path.join(self.folder, name), exist_ok=True)
            for key, value in self.cluster.secrets[secret]["stringData"].items():
                path = os.path.join(self.folder, name, key)
                with open(path, "w", encoding="utf-8") as f:
                    f.write(value)
        env = {**self.cluster.environment}
        for pair in container.get("env", []):
            value = pair.get("value", "")
            if pair.get("valueFrom"):
                value = {
                    "spec.nodeName": self.document["spec"]["nodeName"],
                    "status.podIP": POD_ADDRESS,
                }[pair["valueFrom"]["fieldRef"]["fieldPath"]]
            env[pair["name"]] = self.path_of(value)
        os.makedirs(os.path.join(self.folder, "home"), exist_ok=True)
        expand = lambda w: re.sub(
            r"\$\$|\$\((\w+)\)", lambda m: "$" if m[0] == "$$" else env.get(m[1], m[0]), w
        )
        words = [self.path_of(expand(word)) for word in container["command"]]
        if words[:2] == ["/bin/sh", "-c"]:
            for mount in container["volumeMounts"]:
                place = os.path.join(self.folder, mount["name"])
                words[2] = re.sub(re.escape(mount["mountPath"]) + r"(?=/)", place, words[2])
        user = self.document["spec"].get("securityContext", {}).get("runAsUser")
        who = {"user": user, "group": user, "extra_groups": []} if user and not os.geteuid() else {}
        if who:
            subprocess.run(["chown", "-R", str(user), self.folder], check=True)
        log = open(os.path.join(self.folder, "log"), "wb")
        self.process = subprocess.Popen(
            words,
            env=env,
            cwd=self.folder,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
            **who,
        )
        log.close()
        self.status["phase"] = "Running"
        self.status["podIP"] = POD_ADDRESS
        self.status["startTime"] = now_text()
        self.set_condition("Ready", "True")

    def log(self):
        try:
            with open(os.path.join(self.folder, "log"), encoding="utf-8", errors="replace") as f:
                return f.read()
        except OSError:
            return ""

    def terminate(self, grace):
        self.document["metadata"].setdefault("deletionTimestamp", now_text())
        self.kill_at = min(self.kill_at or 1e18, time.monotonic() + grace)
        if self.process and self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)

    def look(self):
        """One turn of the kubelet. Returns True if the object is to vanish."""
        ended = self.process is not None and self.process.poll() is not None
        if self.process and not ended and self.kill_at and time.monotonic() > self.kill_at:
            self.kill()
        if ended and self.status["phase"] == "Running":
            self.kill()  # nothing outlives the container's first process
            code = self.process.returncode
            code = 128 - code if code < 0 else code
            self.status["phase"] = "Succeeded" if code == 0 else "Failed"
            self.status["containerStatuses"] = [
                {
                    "name": "node",
                    "state": {
                        "terminated": {
                            "exitCode": code,
                            "reason": "Completed" if code == 0 else "Error",
                            "message": self.log()[-2000:],
                        }
                    },
                }
            ]
        if self.kill_at is not None:
            return self.process is None or ended
        if self.process is None and self.document["spec"].get("nodeName"):
            self.start()
        return False

    def kill(self):
        """The whole container at once: the command and everything it started."""
        if not self.process:
            return
        here = self.folder.encode()
        # Supervisors are nobody's child, and their jobs neither once they have ended.
        kill_at_once(
            lambda pid: pid == self.process.pid
            or here in contents(pid, "cmdline")
            or here in contents(pid, "environ")
        )
