"""A small S3 server on loopback for the tests of banks in object storage, which can misbehave."""

import hashlib
import threading
from contextlib import contextmanager
from email.utils import formatdate
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, unquote, urlsplit

SECRET = "a-SECRET-key-of-nobody"


class ObjectServer:
    """The objects by bucket and key, and how the server answers.

    ``conditions`` are the headers that it obeys. ``answer`` may return what to do instead of a
    request, by its method and key: a status, "lose" to do it and say nothing, or None.
    """

    def __init__(self, *buckets: str) -> None:
        self.buckets: dict[str, dict[str, tuple[bytes, dict[str, str]]]] = {b: {} for b in buckets}
        self.conditions = {"If-Match", "If-None-Match"}
        self.answer = lambda method, key: None
        self.requests: list[tuple[str, str]] = []
        self.lock = threading.RLock()
        self.endpoint = ""

    @property
    def options(self) -> dict[str, str | bool]:
        return {
            "endpoint": self.endpoint, "access_key_id": "AKID-OF-NOBODY", "region": "us-east-1",
            "secret_access_key": SECRET, "allow_http": True,
        }  # fmt: skip

    def names(self, bucket: str = "bank") -> list[str]:
        with self.lock:
            return sorted(self.buckets[bucket])


def _handler(server: ObjectServer):
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        wbufsize = 65_536  # one packet an answer, or the client waits for the second
        disable_nagle_algorithm = True

        def log_message(self, *args) -> None:
            pass

        def _say(self, status: int, body: bytes = b"", headers: dict[str, str] | None = None):
            self.send_response(status)
            for name, value in (headers or {}).items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def _handle(self) -> None:
            data = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            url = urlsplit(self.path)
            bucket, _, key = unquote(url.path).lstrip("/").partition("/")
            query = parse_qs(url.query)
            told = server.answer(self.command, key)
            if isinstance(told, int):
                # As real servers do, it repeats what it was sent.
                body = f"<Error><Key>{self.headers.get('Authorization')} {SECRET}</Key></Error>"
                return self._say(told, body.encode())
            with server.lock:
                server.requests.append((self.command, key))
                status, body, headers = self._done(bucket, key, data, query)
            if told == "lose":
                self.close_connection = True
                return self.connection.close()
            return self._say(status, body, headers)

        def _done(self, bucket, key, data, query):
            if (held := server.buckets.get(bucket)) is None:
                return 404, b"<Error><Code>NoSuchBucket</Code></Error>", {}
            if self.command == "DELETE":
                held.pop(key, None)
                return 204, b"", {}
            found = held.get(key)
            tag = f'"{hashlib.md5(found[0]).hexdigest()}"' if found else None
            if self.command == "PUT":
                obeys = server.conditions
                if "If-None-Match" in obeys and self.headers.get("If-None-Match") and found:
                    return 412, b"", {}
                match = self.headers.get("If-Match")
                if "If-Match" in obeys and match is not None and match != tag:
                    return 412 if found else 404, b"", {}
                kept = {
                    name.lower(): value
                    for name, value in self.headers.items()
                    if name.lower() == "content-type"
                }
                held[key] = (data, kept)
                return 200, b"", {"ETag": f'"{hashlib.md5(data).hexdigest()}"'}
            if found is None:
                return 404, b"<Error><Code>NoSuchKey</Code></Error>", {}
            when = formatdate(usegmt=True)
            return 200, found[0], {"ETag": tag, "Last-Modified": when, **found[1]}

        do_GET = do_PUT = do_DELETE = _handle  # noqa: N815

    return Handler


@contextmanager
def serving(*buckets: str):
    """Run a server with these buckets."""
    server = ObjectServer(*buckets)
    http = ThreadingHTTPServer(("127.0.0.1", 0), _handler(server))
    http.daemon_threads = True
    thread = threading.Thread(target=http.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    server.endpoint = f"http://127.0.0.1:{http.server_address[1]}"
    try:
        yield server
    finally:
        http.shutdown()
        http.server_close()
        thread.join()
