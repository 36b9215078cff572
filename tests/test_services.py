"""The files in deploy/: systemd units, and Kubernetes manifests whose command lines start a grid."""

import os
import pathlib
import shutil
import signal
import socket
import subprocess

import gridloom as gl
import pytest

ROOT = pathlib.Path(__file__).resolve().parents[1]
PROGRAM = str(pathlib.Path(gl.__file__).parent / "bin" / "gridloom")
MANIFESTS = ROOT / "deploy" / "kubernetes" / "gridloom.yaml"


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="there is no systemd-analyze")
def test_systemd_takes_the_units(tmp_path):
    files = []
    for unit in ("agent", "server"):
        text = subprocess.run([PROGRAM, "units", unit], capture_output=True, text=True, check=True).stdout
        path = f'"{PROGRAM}"' if " " in str(PROGRAM) else PROGRAM
        assert f"ExecStart={path} " in text
        files.append(tmp_path / f"gridloom-{unit}.service")
        files[-1].write_text(text)
    done = subprocess.run(["systemd-analyze", "verify", "--man=no", *files], capture_output=True, text=True)
    said = [line for line in done.stderr.splitlines() if str(tmp_path) in line or "gridloom" in line]
    assert done.returncode == 0 and not said, done.stderr
    # An unknown setting is only a warning, which the check must detect.
    files[0].write_text(files[0].read_text().replace("NoNewPrivileges", "NoPrivileges"))
    done = subprocess.run(["systemd-analyze", "verify", "--man=no", files[0]], capture_output=True, text=True)
    assert "NoPrivileges" in done.stderr


def manifests():
    yaml = pytest.importorskip("yaml", reason="PyYAML is not installed")
    return list(yaml.safe_load_all(MANIFESTS.read_text()))


def test_kubernetes_takes_the_manifests():
    validator = pytest.importorskip("kubernetes_validate", reason="kubernetes-validate is not installed")
    for manifest in manifests():
        validator.validate(manifest, "1.37", strict=True)
    agent = next(manifest for manifest in manifests() if manifest["kind"] == "Deployment")
    agent["spec"]["template"]["spec"]["containers"][0]["argument"] = []
    with pytest.raises(validator.ValidationError):
        validator.validate(agent, "1.37", strict=True)


def pods():
    workloads = [manifest for manifest in manifests() if manifest["kind"] in ("Deployment", "StatefulSet")]
    return [workload["spec"]["template"]["spec"] for workload in workloads]


def page():
    """The commands on the page about Kubernetes that make the keys."""
    text = (ROOT / "docs" / "services.md").read_text()
    return text[text.index("gridloom keys init cluster") : text.index("kubectl apply")]


def keys_of(pod, folder):
    """Does what the first container of a pod does, with the secret that is made as the page says; gives its folder of keys."""
    [role] = [volume["secret"]["secretName"].removeprefix("gridloom-") for volume in pod["volumes"] if "secret" in volume]
    [first] = pod["initContainers"]
    [shell, option, script] = first["command"]
    assert {mount["mountPath"] for mount in first["volumeMounts"]} == {"/installed", "/keys"}
    # The folder's path may have blanks, and the script does not quote paths of the container.
    script = script.replace("/installed", f"secrets/{role}").replace("/keys", f"pods/{role}")
    subprocess.run([shell, option, script], check=True, cwd=folder)
    return f"{folder}/pods/{role}"


def free_port():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return free.getsockname()[1]


def test_the_command_lines_of_the_containers_start_a_grid(tmp_path):
    # What 'kubectl' makes of a folder.
    kubectl = tmp_path / "kubectl"
    kubectl.write_text('#!/bin/sh\nmkdir -p "secrets/${4#gridloom-}" && install -m 644 "${5#--from-file=}"/* "secrets/${4#gridloom-}"\n')
    kubectl.chmod(0o755)
    path = f"{tmp_path}:{pathlib.Path(PROGRAM).parent}:{os.environ['PATH']}"
    own = {**os.environ, "PATH": path, "GRIDLOOM_KEYS": str(tmp_path / "own")}
    subprocess.run(["sh", "-e", "-c", page()], cwd=tmp_path, env=own, check=True)
    keys = [keys_of(pod, tmp_path) for pod in pods()]
    agent, server = [pod["containers"][0] for pod in pods()]
    port = free_port()
    # Values from the cluster: names and addresses of pods, and of the service.
    given = {
        "$(POD_NAME)": "gridloom-server-0",
        "$(POD_ADDRESS):7801": f"127.0.0.1:{(served := free_port())}",
        "0.0.0.0:7711": f"127.0.0.1:{port}",
        "0.0.0.0:7801": f"127.0.0.1:{served}",
        "gridloom-agent:7711": f"127.0.0.1:{port}",
    }
    environment = {**os.environ, "GRIDLOOM_BLAS": str(gl.blas_library())}
    assert {variable["name"] for variable in server["env"]} == {"GRIDLOOM_KEYS", "POD_NAME", "POD_ADDRESS"}

    def start(container, keys):
        assert {"name": "GRIDLOOM_KEYS", "value": "/keys"} in container["env"]
        words = [PROGRAM, *(given.get(word, word) for word in container["args"])]
        return subprocess.Popen(words, stdout=subprocess.PIPE, text=True, env={**environment, "GRIDLOOM_KEYS": keys})

    with start(agent, keys[0]) as agent_process, start(server, keys[1]) as server_process:
        try:
            assert agent_process.stdout.readline().startswith("agent listening")
            assert server_process.stdout.readline().startswith("server gridloom-server-0")
            # Kubernetes runs this before it ends a pod.
            [shell, option, script] = server["lifecycle"]["preStop"]["exec"]["command"]
            script = script.replace("-USR1 1 ", f"-USR1 {server_process.pid} ").replace("=1 ", f"={server_process.pid} ")
            with subprocess.Popen([shell, option, script]) as before_stop:
                assert server_process.wait() == 0
                assert before_stop.wait() == 0
        finally:
            server_process.kill()
            agent_process.send_signal(signal.SIGTERM)
