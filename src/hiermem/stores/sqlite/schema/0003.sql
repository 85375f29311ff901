-- Epochs, trees, earlier versions of messages, forks, blocks. A table that gets a column or another
-- key is made anew. No session was erased before this version, so their numbers go on by themselves.

ALTER TABLE sessions RENAME TO sessions_before;
CREATE TABLE sessions (
    session INTEGER PRIMARY KEY AUTOINCREMENT,
    tenant TEXT NOT NULL,
    id TEXT NOT NULL,
    title TEXT,
    participants TEXT NOT NULL,
    config TEXT NOT NULL,
    counter TEXT NOT NULL,
    created_at INTEGER NOT NULL,
    forked_from TEXT,
    forked_at INTEGER NOT NULL,
    UNIQUE (tenant, id)
);
INSERT INTO sessions (
    session, tenant, id, title, participants, config, counter, created_at, forked_at
)
SELECT
    session, tenant, id, title, participants, config, counter, created_at, 0
FROM sessions_before;
DROP TABLE sessions_before;
CREATE INDEX sessions_forked ON sessions (tenant, forked_from) WHERE forked_from IS NOT NULL;

ALTER TABLE heads RENAME TO heads_before;
CREATE TABLE heads (
    session INTEGER PRIMARY KEY,
    messages INTEGER NOT NULL,
    closed INTEGER NOT NULL,
    version INTEGER NOT NULL,
    state TEXT NOT NULL,
    epoch INTEGER NOT NULL,
    tree INTEGER NOT NULL,
    build TEXT NOT NULL
);
INSERT INTO heads (session, messages, closed, version, state, epoch, tree, build)
SELECT session, messages, closed, version, state, 0, 0, '' FROM heads_before;
DROP TABLE heads_before;

CREATE TABLE versions (
    edit INTEGER PRIMARY KEY,
    message INTEGER NOT NULL,
    role TEXT NOT NULL,
    thread TEXT NOT NULL,
    name TEXT,
    content TEXT,
    created_at INTEGER NOT NULL,
    zone INTEGER,
    tokens INTEGER NOT NULL,
    size INTEGER NOT NULL,
    hash TEXT NOT NULL,
    key TEXT,
    state TEXT NOT NULL,
    flags TEXT,
    rest TEXT
);
CREATE INDEX versions_of ON versions (message);

ALTER TABLE nodes RENAME TO nodes_before;
CREATE TABLE nodes (
    node INTEGER PRIMARY KEY,
    tenant TEXT NOT NULL,
    session INTEGER NOT NULL,
    tree INTEGER NOT NULL,
    id TEXT NOT NULL,
    level INTEGER NOT NULL,
    ordinal INTEGER NOT NULL,
    thread TEXT,
    start INTEGER NOT NULL,
    stop INTEGER NOT NULL,
    start_char INTEGER NOT NULL,
    stop_char INTEGER,
    first_window INTEGER NOT NULL,
    stop_window INTEGER NOT NULL,
    children TEXT NOT NULL,
    messages INTEGER NOT NULL,
    input_size INTEGER NOT NULL,
    allotted INTEGER NOT NULL,
    input_tokens INTEGER NOT NULL,
    allotted_tokens INTEGER NOT NULL,
    verbatim INTEGER NOT NULL,
    first_at INTEGER NOT NULL,
    last_at INTEGER NOT NULL,
    linked INTEGER NOT NULL,
    sealed INTEGER NOT NULL,
    parent TEXT,
    status TEXT NOT NULL,
    revision INTEGER NOT NULL,
    version INTEGER NOT NULL,
    attempts INTEGER NOT NULL,
    error TEXT,
    degraded INTEGER NOT NULL,
    dirty INTEGER NOT NULL,
    stale INTEGER NOT NULL,
    lease_owner TEXT,
    lease_until INTEGER,
    unit TEXT NOT NULL,
    forced INTEGER NOT NULL,
    since INTEGER,
    UNIQUE (session, tree, id)
);
INSERT INTO nodes (
    node, session, id, level, ordinal, thread, start, stop, start_char, stop_char, first_window,
    stop_window, children, messages, input_size, allotted, input_tokens, allotted_tokens,
    verbatim, first_at, last_at, linked, sealed, parent, status, revision, version, attempts,
    error, degraded, dirty, stale, lease_owner, lease_until, tenant, tree, unit, forced
)
SELECT
    n.node, n.session, n.id, n.level, n.ordinal, n.thread, n.start, n.stop, n.start_char,
    n.stop_char, n.first_window, n.stop_window, n.children, n.messages, n.input_size,
    n.allotted, n.input_tokens, n.allotted_tokens, n.verbatim, n.first_at, n.last_at, n.linked,
    n.sealed, n.parent, n.status, n.revision, n.version, n.attempts, n.error, n.degraded,
    n.dirty, n.stale, n.lease_owner, n.lease_until, s.tenant, 0,
    CASE WHEN instr(s.config, '"unit":"chars"') > 0 THEN 'chars' ELSE 'tokens' END, 0
FROM nodes_before n JOIN sessions s ON s.session = n.session;
DROP TABLE nodes_before;
CREATE INDEX nodes_sealed ON nodes (session, tree, level, ordinal) WHERE sealed = 1;
CREATE INDEX nodes_provisional ON nodes (session, tree, level, id) WHERE sealed = 0;
CREATE INDEX nodes_unfinished ON nodes (tenant, session, tree, level, ordinal)
    WHERE sealed = 1 AND (status <> 'active' OR degraded = 1 OR dirty = 1);
CREATE INDEX nodes_covering ON nodes (session, tree, thread, stop, start)
    WHERE sealed = 1 AND level = 1;

ALTER TABLE revisions RENAME TO revisions_before;
CREATE TABLE revisions (
    written INTEGER PRIMARY KEY,
    tenant TEXT NOT NULL,
    session INTEGER NOT NULL,
    tree INTEGER NOT NULL,
    node_id TEXT NOT NULL,
    number INTEGER NOT NULL,
    text TEXT NOT NULL,
    tokens INTEGER NOT NULL,
    input_hash TEXT NOT NULL,
    output_hash TEXT NOT NULL,
    strategy TEXT NOT NULL,
    style TEXT NOT NULL,
    model TEXT NOT NULL,
    created_at INTEGER NOT NULL,
    provenance TEXT NOT NULL,
    anchors TEXT NOT NULL,
    tags TEXT NOT NULL,
    entities TEXT NOT NULL,
    fidelity REAL NOT NULL,
    unsupported TEXT NOT NULL,
    trust TEXT NOT NULL,
    degraded INTEGER NOT NULL,
    reused INTEGER NOT NULL,
    tokens_in INTEGER NOT NULL,
    tokens_out INTEGER NOT NULL,
    calls INTEGER NOT NULL,
    duration_ms INTEGER NOT NULL,
    extras TEXT NOT NULL,
    UNIQUE (session, tree, node_id, number)
);
INSERT INTO revisions (
    written, tenant, session, node_id, number, text, tokens, input_hash, output_hash, strategy,
    style, model, created_at, provenance, anchors, tags, entities, fidelity, unsupported, trust,
    degraded, reused, tokens_in, tokens_out, calls, duration_ms, extras, tree
)
SELECT
    written, tenant, session, node_id, number, text, tokens, input_hash, output_hash, strategy,
    style, model, created_at, provenance, anchors, tags, entities, fidelity, unsupported, trust,
    degraded, reused, tokens_in, tokens_out, calls, duration_ms, extras, 0
FROM revisions_before;
DROP TABLE revisions_before;
CREATE INDEX revisions_reusable ON revisions (tenant, input_hash) WHERE degraded = 0;

CREATE INDEX records_of_scope ON records (tenant, scope);

CREATE TABLE blocks (
    block INTEGER PRIMARY KEY,
    session INTEGER NOT NULL,
    kind TEXT NOT NULL,
    start INTEGER NOT NULL,
    stop INTEGER NOT NULL,
    data BLOB NOT NULL,
    UNIQUE (session, kind, start)
);
CREATE INDEX blocks_holding ON blocks (session, stop, start);
