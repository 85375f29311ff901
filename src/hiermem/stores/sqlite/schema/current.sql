-- The schema of a new store file. Times are whole microseconds since 1970 in UTC; lists and
-- mappings are JSON. Raw rows are the truth: nothing here is derived from something else here.

-- The table has one row, which identifies this file.
CREATE TABLE store (
    one INTEGER PRIMARY KEY CHECK (one = 1),
    secret BLOB NOT NULL,
    created_at INTEGER NOT NULL
);

-- AUTOINCREMENT, because a number must not be used again after its session was erased: the keys of
-- the messages are made from it.
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
CREATE INDEX sessions_created ON sessions (tenant);
CREATE INDEX sessions_forked ON sessions (tenant, forked_from) WHERE forked_from IS NOT NULL;

-- The application's own labels of a session. The tenant is repeated for the index, which finds the
-- sessions with a label in the order of their creation.
CREATE TABLE session_metadata (
    session INTEGER NOT NULL,
    tenant TEXT NOT NULL,
    key TEXT NOT NULL,
    value TEXT NOT NULL,
    PRIMARY KEY (session, key)
) WITHOUT ROWID;
CREATE INDEX session_metadata_held ON session_metadata (tenant, key, value, session);

-- The fields of a session that every append rewrites, separate from the fields that it does not.
-- The tenant is repeated here for the index heads_active.
CREATE TABLE heads (
    session INTEGER PRIMARY KEY,
    tenant TEXT NOT NULL,
    messages INTEGER NOT NULL,
    closed INTEGER NOT NULL,
    version INTEGER NOT NULL,
    state TEXT NOT NULL,
    epoch INTEGER NOT NULL,
    tree INTEGER NOT NULL,
    build TEXT NOT NULL,
    last_activity INTEGER NOT NULL,
    -- The messages that blocks of terms cover.
    indexed INTEGER NOT NULL DEFAULT 0
);
CREATE INDEX heads_active ON heads (tenant, last_activity, session);
-- Only the sessions with messages that a search over all sessions finds in no block.
CREATE INDEX heads_unindexed ON heads (tenant, session) WHERE indexed < messages;

-- When a session has something to make next, and the claim on it. While claimed is not 0, due_at is
-- when the claim ends; 2 says that something became due meanwhile. generation rises with each claim.
CREATE TABLE due (
    session INTEGER PRIMARY KEY,
    due_at INTEGER NOT NULL,
    generation INTEGER NOT NULL,
    claimed INTEGER NOT NULL
);
CREATE INDEX due_next ON due (due_at);
CREATE INDEX due_claimed ON due (due_at) WHERE claimed > 0;

-- message = session << 32 | index: a session's messages lie together, in order, in one tree.
-- content is NULL if the message has parts; rest holds the values that few messages have; zone is
-- the offset from UTC in microseconds, NULL for none.
CREATE TABLE messages (
    message INTEGER PRIMARY KEY,
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
-- The messages that hold memory text rendered by this library, and at times a message that only
-- seems to.
CREATE INDEX messages_echoing ON messages (message) WHERE instr(rest, '"echoes":[[') > 0;
-- The few messages with a flag: a tool result without its call, a standing instruction.
CREATE INDEX messages_flagged ON messages (message) WHERE flags IS NOT NULL;

-- The versions of a message from before its edits, in the order of the edits.
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
CREATE INDEX versions_echoing ON versions (message) WHERE instr(rest, '"echoes":[[') > 0;

CREATE TABLE keys (
    session INTEGER NOT NULL,
    key TEXT NOT NULL,
    message_index INTEGER NOT NULL,
    fingerprint TEXT,
    PRIMARY KEY (session, key)
) WITHOUT ROWID;

CREATE TABLE events (
    event INTEGER PRIMARY KEY,
    session INTEGER NOT NULL,
    kind TEXT NOT NULL,
    at INTEGER NOT NULL,
    happened_at INTEGER NOT NULL,
    detail TEXT NOT NULL
);
CREATE INDEX events_of ON events (session);

-- A session has one serving tree, which its head names, and at times a tree that is being built.
-- The tenant is repeated here for the index nodes_unfinished.
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
    parent TEXT,
    status TEXT NOT NULL,
    revision INTEGER NOT NULL,
    version INTEGER NOT NULL,
    attempts INTEGER NOT NULL,
    error TEXT,
    degraded INTEGER NOT NULL,
    dirty INTEGER NOT NULL,
    unit TEXT NOT NULL,
    forced INTEGER NOT NULL,
    since INTEGER,
    UNIQUE (session, tree, id)
);
CREATE INDEX nodes_by_level ON nodes (session, tree, level, ordinal);
-- Only the nodes that an update has to process, so that finding them costs in proportion to their
-- number.
CREATE INDEX nodes_unfinished ON nodes (tenant, session, tree, level, ordinal)
    WHERE (status <> 'active' OR degraded = 1 OR dirty = 1);
-- The windows of a thread, ordered by their end: the windows that hold a message are the first ones
-- that end after it.
CREATE INDEX nodes_covering ON nodes (session, tree, thread, stop, start)
    WHERE level = 1;

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
    fidelity REAL,
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
CREATE INDEX revisions_reusable ON revisions (tenant, input_hash) WHERE degraded = 0;

CREATE TABLE runs (
    run INTEGER PRIMARY KEY,
    tenant TEXT NOT NULL,
    id TEXT NOT NULL,
    kind TEXT NOT NULL,
    subject TEXT NOT NULL,
    started_at INTEGER NOT NULL,
    ended_at INTEGER,
    outcome TEXT NOT NULL,
    detail TEXT NOT NULL,
    UNIQUE (tenant, id)
);
CREATE INDEX runs_of ON runs (tenant, subject);

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
CREATE INDEX attempts_of_run ON attempts (tenant, run_id);
CREATE INDEX attempts_of_session ON attempts (tenant, session_id);

CREATE TABLE views (
    tenant TEXT NOT NULL,
    session_id TEXT NOT NULL,
    name TEXT NOT NULL,
    state TEXT NOT NULL,
    PRIMARY KEY (tenant, session_id, name)
) WITHOUT ROWID;

-- Small documents of any kind; the store does not interpret their bodies.
CREATE TABLE records (
    record INTEGER PRIMARY KEY,
    tenant TEXT NOT NULL,
    kind TEXT NOT NULL,
    scope TEXT NOT NULL,
    key TEXT NOT NULL,
    body TEXT NOT NULL,
    version INTEGER NOT NULL,
    UNIQUE (tenant, kind, scope, key)
);
CREATE INDEX records_by_key ON records (tenant, kind, key, scope);
CREATE INDEX records_of_scope ON records (tenant, scope);

-- Pieces of indexes over messages; each piece can be computed again from the messages.
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

-- The index over all sessions of a tenant. AUTOINCREMENT, because a number must not be used again:
-- a reader remembers segments by it.
CREATE TABLE segments (
    segment INTEGER PRIMARY KEY AUTOINCREMENT,
    tenant TEXT NOT NULL,
    blocks INTEGER NOT NULL
);
CREATE INDEX segments_of ON segments (tenant);

-- page = segment << 16 | number.
CREATE TABLE pages (
    page INTEGER PRIMARY KEY,
    data BLOB NOT NULL
);

-- The place of each block of terms in a segment; segment 0 is none. A row with live = 0 is of a
-- block that was replaced since, and which the segment still holds.
CREATE TABLE places (
    id INTEGER PRIMARY KEY,
    tenant TEXT NOT NULL,
    session INTEGER NOT NULL,
    start INTEGER NOT NULL,
    stop INTEGER NOT NULL,
    segment INTEGER NOT NULL DEFAULT 0,
    place INTEGER NOT NULL DEFAULT 0,
    live INTEGER NOT NULL DEFAULT 1
);
CREATE INDEX places_of ON places (session, start, stop, live);
CREATE INDEX places_loose ON places (tenant, session, start) WHERE segment = 0;
CREATE INDEX places_in ON places (segment, place) WHERE segment > 0;
CREATE INDEX places_dead ON places (tenant, segment, place) WHERE live = 0;
