"""A proxy before a PostgreSQL server that counts the waits of its clients."""

import socket
import struct
import tempfile
import threading
from contextlib import suppress
from pathlib import Path

from psycopg.conninfo import conninfo_to_dict, make_conninfo


class Proxy:
    """Listens where ``dsn`` points; ``waits`` counts how often a client waited for an answer.

    A wait is a Sync or a simple query: on a busy machine a client may still send the rest of its
    statements while the first are answered, which is no wait.
    """

    def __init__(self, dsn, *, tcp=False):
        self._place = tempfile.TemporaryDirectory(prefix="hm-px-")
        self._to = conninfo_to_dict(dsn)
        self.waits = 0
        self._left = None
        self._silent = False
        self._away, self._clients = False, []
        if tcp:
            self._listening = socket.create_server(("127.0.0.1", 0))
            host, port = self._listening.getsockname()
        else:
            host, port = self._place.name, 5432
            self._listening = socket.socket(socket.AF_UNIX)
            self._listening.bind(str(Path(host) / ".s.PGSQL.5432"))
            self._listening.listen()
        self.dsn = make_conninfo(dsn, host=host, port=port)
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self):
        while True:
            try:
                client, _ = self._listening.accept()
            except OSError:
                return
            if self._away:
                client.close()
                continue
            self._clients.append(client)
            server = self._server()
            threading.Thread(target=self._serve, args=(client, server), daemon=True).start()

    def _server(self):
        host, port = self._to.get("host") or "localhost", self._to.get("port") or 5432
        if not host.startswith("/"):
            return socket.create_connection((host, int(port)))
        server = socket.socket(socket.AF_UNIX)
        server.connect(f"{host}/.s.PGSQL.{port}")
        return server

    def _serve(self, client, server):
        turn = {"of": server}
        with client, server:
            back = threading.Thread(target=self._relay, args=(server, client, client, turn))
            back.start()
            self._relay(client, server, client, turn)
            back.join()

    def _relay(self, source, target, client, turn):
        count = _syncs()
        next(count)
        try:
            while data := source.recv(1 << 16):
                if source is client:
                    self.waits += count.send(data)
                if source is not client and self._left is not None and turn["of"] is client:
                    self._left -= 1
                    if not self._left:  # the server has done it, and nobody is told
                        self._left = None
                        break
                turn["of"] = source
                if not self._silent:
                    target.sendall(data)
        except OSError:
            pass
        finally:
            for one in (source, target):
                with suppress(OSError):
                    one.shutdown(socket.SHUT_RDWR)

    def counted(self):
        """Return the number of waits since the last call."""
        waits, self.waits = self.waits, 0
        return waits

    def cut_after(self, waits):
        """Close the next connection whose client has waited that often, instead of the answer."""
        self._left = waits

    def be_silent(self):
        """From now on pass nothing on, in either direction."""
        self._silent = True

    def go_away(self):
        """Close all connections, and each new one."""
        self._away = True
        while self._clients:
            with suppress(OSError):
                self._clients.pop().shutdown(socket.SHUT_RDWR)

    def come_back(self):
        self._away = False

    def close(self):
        self._listening.close()
        self._place.cleanup()


def _syncs():
    """Take what a client sends, in any pieces; answer with the Syncs and simple queries in each."""
    waiting, number, started = b"", 0, False
    while True:
        waiting += yield number
        number = 0
        # Before its start a connection sends messages without a letter: encryption, then 3.0.
        while len(waiting) >= (head := 5 if started else 8):
            (length,) = struct.unpack("!I", waiting[head - 4 : head] if started else waiting[:4])
            end = length + 1 if started else length
            if len(waiting) < end:
                break
            if started:
                number += waiting[:1] in b"SQ"
            else:
                started = waiting[4:6] == b"\0\3"
            waiting = waiting[end:]
