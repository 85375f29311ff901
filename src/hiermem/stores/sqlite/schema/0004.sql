-- The messages, and earlier versions, that hold memory which was rendered here.
CREATE INDEX messages_echoing ON messages (message) WHERE instr(rest, '"echoes":[[') > 0;
CREATE INDEX versions_echoing ON versions (message) WHERE instr(rest, '"echoes":[[') > 0;

-- What a call cost, and which of its tokens the provider's cache held or reasoning took.

ALTER TABLE attempts RENAME TO attempts_before;
CREATE TABLE attempts (
    attempt INTEGER PRIMARY KEY,
    tenant TEXT NOT NULL,
    id TEXT NOT NULL,
    run_id TEXT NOT NULL,
    session_id TEXT NOT NULL,
    node_id TEXT NOT NULL,
    number INTEGER NOT NULL,
    model TEXT NOT NULL,
    started_at INTEGER NOT NULL,
    outcome TEXT NOT NULL,
    reason TEXT NOT NULL,
    tokens_in INTEGER NOT NULL,
    tokens_out INTEGER NOT NULL,
    ended_at INTEGER,
    cached_tokens INTEGER NOT NULL,
    reasoning_tokens INTEGER NOT NULL,
    cost REAL,
    UNIQUE (tenant, id)
);
INSERT INTO attempts (
    attempt, tenant, id, run_id, session_id, node_id, number, model, started_at, outcome, reason,
    tokens_in, tokens_out, ended_at, cached_tokens, reasoning_tokens
)
SELECT
    attempt, tenant, id, run_id, session_id, node_id, number, model, started_at, outcome, reason,
    tokens_in, tokens_out, ended_at, 0, 0
FROM attempts_before;
DROP TABLE attempts_before;
CREATE INDEX attempts_of_run ON attempts (tenant, run_id);
CREATE INDEX attempts_of_session ON attempts (tenant, session_id);
