"""A proxy before a PostgreSQL server that counts the waits of its clients."""

import socket
import tempfile
import threading
from pathlib import Path

from psycopg.conninfo import conninfo_to_dict, make_conninfo


class Proxy:
    """Listens where ``dsn`` points; ``waits`` counts how often a client sent and was answered."""

    def __init__(self, dsn):
        self._place = tempfile.TemporaryDirectory(prefix="hm-px-")
        named = conninfo_to_dict(dsn)
        self._to = Path(named["host"]) / ".s.PGSQL.5432"
        self.dsn = make_conninfo(dsn, host=self._place.name)
        self.dsn = f"postgresql://{named['user']}@/{named['dbname']}?host={self._place.name}"
        self.waits = 0
        self._listening = socket.socket(socket.AF_UNIX)
        self._listening.bind(str(Path(self._place.name) / ".s.PGSQL.5432"))
        self._listening.listen()
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self):
        while True:
            try:
                client, _ = self._listening.accept()
            except OSError:
                return
            server = socket.socket(socket.AF_UNIX)
            server.connect(str(self._to))
            turn = {"of": server}
            for source, target in ((client, server), (server, client)):
                relay = threading.Thread(
                    target=self._relay, args=(source, target, client, turn), daemon=True
                )
                relay.start()

    def _relay(self, source, target, client, turn):
        try:
            while data := source.recv(1 << 16):
                if source is client and turn["of"] is not client:
                    self.waits += 1
                turn["of"] = source
                target.sendall(data)
        except OSError:
            pass
        finally:
            for one in (source, target):
                one.close()

    def counted(self):
        """Return the number of waits since the last call."""
        waits, self.waits = self.waits, 0
        return waits

    def close(self):
        self._listening.close()
        self._place.cleanup()
