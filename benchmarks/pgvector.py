"""Whether vectors should be searched by pgvector: passages of many sessions, one query over all.

The same vectors lie in blocks, as the library keeps them (one packed array a session, read once and
then kept in the process), and in a table of pgvector, searched exactly and by HNSW. The vectors
are drawn round a thousand centres, which is kinder to an index than even noise. Printed are the
milliseconds of a query, the median over the queries, and how many of the exact ten are found: over
all sessions, which no search of the library asks, and in one session, which each search by meaning
asks; there the block of the session is read anew for each query.

    python benchmarks/pgvector.py DSN [passages]
"""

from __future__ import annotations

import sys
import time
from statistics import median

import numpy as np
import psycopg

DIMENSIONS, PER_SESSION, QUERIES, LIMIT = 128, 500, 40, 10
SCHEMA = "bench_pgvector"


def drawn(passages: int) -> tuple[np.ndarray, np.ndarray]:
    """Return vectors of length 1 and queries that lie near some of them."""
    chance = np.random.default_rng(7)
    centres = chance.normal(size=(1_000, DIMENSIONS))
    found = centres[chance.integers(0, 1_000, passages)]
    found = found + 0.6 * chance.normal(size=found.shape)
    asked = found[chance.integers(0, passages, QUERIES)]
    asked = asked + 0.3 * chance.normal(size=asked.shape)
    return unit(found), unit(asked)


def unit(vectors: np.ndarray) -> np.ndarray:
    """Return the vectors with length 1, as they are stored."""
    return (vectors / np.linalg.norm(vectors, axis=1, keepdims=True)).astype(np.float32)


def text(vector: np.ndarray) -> str:
    """Return a vector as pgvector reads it."""
    return "[" + ",".join(f"{number:.6f}" for number in vector) + "]"


def main(dsn: str, passages: int) -> None:
    vectors, queries = drawn(passages)
    with psycopg.connect(dsn, autocommit=True) as base:
        base.execute("CREATE EXTENSION IF NOT EXISTS vector")
        base.execute(f"DROP SCHEMA IF EXISTS {SCHEMA} CASCADE")
        base.execute(f"CREATE SCHEMA {SCHEMA}")
        base.execute(f"SET search_path TO {SCHEMA}, public")
        base.execute("CREATE TABLE blocks (session int PRIMARY KEY, data bytea NOT NULL)")
        base.execute("ALTER TABLE blocks ALTER COLUMN data SET STORAGE EXTERNAL")
        base.execute(
            "CREATE TABLE passages ("
            f"id int PRIMARY KEY, session int NOT NULL, v vector({DIMENSIONS}))"
        )
        base.execute("CREATE INDEX ON passages (session)")
        with base.cursor() as cursor, cursor.copy("COPY passages FROM STDIN") as copy:
            for number, vector in enumerate(vectors):
                copy.write_row((number, number // PER_SESSION, text(vector)))
        for number, start in enumerate(range(0, passages, PER_SESSION)):
            packed = vectors[start : start + PER_SESSION].tobytes()
            base.execute("INSERT INTO blocks VALUES (%s, %s)", (number, packed))
        base.execute("ANALYZE passages")

        began = time.perf_counter()
        rows = base.execute("SELECT data FROM blocks ORDER BY session", binary=True).fetchall()
        kept = np.concatenate([np.frombuffer(data, np.float32) for (data,) in rows])
        kept = kept.reshape(-1, DIMENSIONS)
        print(f"blocks, read once:     {1000 * (time.perf_counter() - began):8.1f} ms")

        truth: list[set[int]] = []
        times = []
        for query in queries:
            began = time.perf_counter()
            cosines = kept @ query
            best = np.argpartition(cosines, -LIMIT)[-LIMIT:]
            times.append(time.perf_counter() - began)
            truth.append(set(map(int, best)))
        print(f"blocks, exact:         {1000 * median(times):8.1f} ms, recall 1.00")

        owners = [int(np.argmax(kept @ query)) // PER_SESSION for query in queries]
        inside: list[set[int]] = []
        times = []
        for query, owner in zip(queries, owners, strict=True):
            began = time.perf_counter()
            ((data,),) = base.execute(
                "SELECT data FROM blocks WHERE session = %s", (owner,), binary=True
            ).fetchall()
            cosines = np.frombuffer(data, np.float32).reshape(-1, DIMENSIONS) @ query
            best = np.argpartition(cosines, -LIMIT)[-LIMIT:]
            times.append(time.perf_counter() - began)
            inside.append({owner * PER_SESSION + int(place) for place in best})
        print(f"one session, its block:{1000 * median(times):8.1f} ms, recall 1.00")

        def asked_inside(name: str) -> None:
            times, hits = [], 0
            for query, owner, known in zip(queries, owners, inside, strict=True):
                given = text(query)
                began = time.perf_counter()
                found = base.execute(
                    "SELECT id FROM passages WHERE session = %s "
                    f"ORDER BY v <=> %s::vector LIMIT {LIMIT}",
                    (owner, given),
                ).fetchall()
                times.append(time.perf_counter() - began)
                hits += len(known & {number for (number,) in found})
            recall = hits / (LIMIT * len(inside))
            print(f"{name:23}{1000 * median(times):8.1f} ms, recall {recall:.2f}")

        def asked(name: str) -> None:
            times, hits = [], 0
            for query, known in zip(queries, truth, strict=True):
                given = text(query)
                began = time.perf_counter()
                found = base.execute(
                    f"SELECT id FROM passages ORDER BY v <=> %s::vector LIMIT {LIMIT}", (given,)
                ).fetchall()
                times.append(time.perf_counter() - began)
                hits += len(known & {number for (number,) in found})
            recall = hits / (LIMIT * len(truth))
            print(f"{name:22} {1000 * median(times):8.1f} ms, recall {recall:.2f}")

        asked("pgvector, exact:")
        asked_inside("one session, pgvector:")
        base.execute("SET maintenance_work_mem = '512MB'")
        began = time.perf_counter()
        base.execute("CREATE INDEX ON passages USING hnsw (v vector_cosine_ops)")
        print(f"HNSW, built in:        {time.perf_counter() - began:8.1f} s")
        for effort in (40, 100, 200, 400):
            base.execute(f"SET hnsw.ef_search = {effort}")
            asked(f"HNSW, ef_search {effort}:")
        # The planner prefers the index of sessions; without it, HNSW has to find them itself.
        base.execute("DROP INDEX passages_session_idx")
        base.execute("SET hnsw.iterative_scan = relaxed_order")
        base.execute("SET hnsw.max_scan_tuples = 200000")
        base.execute("SET enable_seqscan = off")
        asked_inside("one session, HNSW:")
        base.execute(f"DROP SCHEMA {SCHEMA} CASCADE")


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 200_000)
