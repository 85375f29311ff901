-- The schema of a new store. The statements run in the store's own schema, in one transaction.
-- Times are whole microseconds since 1970 in UTC; lists and mappings are JSON; truth values are 0
-- and 1. Raw rows are the truth: nothing here is derived from something else here.
--
-- tenant is the digest of the tenant's name, and the first column of every key. Several names may
-- together be longer than a key of an index may be. Where that is so, the index holds a hash of
-- them, and the statement compares the names too.

-- The table has one row, which identifies this store.
CREATE TABLE store (
    one bigint PRIMARY KEY CHECK (one = 1),
    version bigint NOT NULL,
    secret bytea NOT NULL,
    created_at bigint NOT NULL
);

-- The names of the tenants that were ever written to and not erased.
CREATE TABLE tenants (
    tenant uuid PRIMARY KEY,
    name text COLLATE "C" NOT NULL
);

-- A number is not used again after its session was erased: the keys of the messages are made from
-- it.
CREATE TABLE sessions (
    tenant uuid NOT NULL,
    session bigint GENERATED ALWAYS AS IDENTITY,
    id text COLLATE "C" NOT NULL,
    title text COLLATE "C",
    participants text COLLATE "C" NOT NULL,
    config text COLLATE "C" NOT NULL,
    counter text COLLATE "C" NOT NULL,
    created_at bigint NOT NULL,
    forked_from text COLLATE "C",
    forked_at bigint NOT NULL,
    PRIMARY KEY (tenant, session),
    UNIQUE (tenant, id)
);
CREATE INDEX sessions_forked ON sessions (tenant, forked_from) WHERE forked_from IS NOT NULL;

-- The application's own labels of a session.
CREATE TABLE session_metadata (
    tenant uuid NOT NULL,
    session bigint NOT NULL,
    key text COLLATE "C" NOT NULL,
    value text COLLATE "C" NOT NULL,
    PRIMARY KEY (tenant, session, key)
);
CREATE INDEX session_metadata_held ON session_metadata
    (tenant, hashtextextended(value, hashtextextended(key, 0)), session);

-- The fields of a session that every append rewrites, separate from the fields that it does not.
CREATE TABLE heads (
    tenant uuid NOT NULL,
    session bigint NOT NULL,
    messages bigint NOT NULL,
    closed bigint NOT NULL,
    version bigint NOT NULL,
    state text COLLATE "C" NOT NULL,
    epoch bigint NOT NULL,
    tree bigint NOT NULL,
    build text COLLATE "C" NOT NULL,
    last_activity bigint NOT NULL,
    -- The messages that blocks of terms cover.
    indexed bigint NOT NULL DEFAULT 0,
    PRIMARY KEY (tenant, session)
);
CREATE INDEX heads_active ON heads (tenant, last_activity, session);
-- Only the sessions with messages that a search over all sessions finds in no block.
CREATE INDEX heads_unindexed ON heads (tenant, session) WHERE indexed < messages;

-- When a session has something to make next, and the claim on it. While claimed is not 0, due_at is
-- when the claim ends; 2 says that something became due meanwhile. generation begins anywhere and
-- rises with each claim. The indexes are those of all tenants: whoever looks for work has no other.
CREATE TABLE due (
    tenant uuid NOT NULL,
    session bigint NOT NULL,
    due_at bigint NOT NULL,
    generation bigint NOT NULL,
    claimed bigint NOT NULL,
    PRIMARY KEY (tenant, session)
);
CREATE INDEX due_next ON due (due_at);
CREATE INDEX due_claimed ON due (due_at) WHERE claimed > 0;

-- message = session << 32 | index: a session's messages lie together, in order, in one index.
-- content is NULL if the message has parts; rest holds the values that few messages have; zone is
-- the offset from UTC in microseconds, NULL for none.
CREATE TABLE messages (
    tenant uuid NOT NULL,
    message bigint NOT NULL,
    role text COLLATE "C" NOT NULL,
    thread text COLLATE "C" NOT NULL,
    name text COLLATE "C",
    content text COLLATE "C",
    created_at bigint NOT NULL,
    zone bigint,
    tokens bigint NOT NULL,
    size bigint NOT NULL,
    hash text COLLATE "C" NOT NULL,
    key text COLLATE "C",
    state text COLLATE "C" NOT NULL,
    flags text COLLATE "C",
    rest text COLLATE "C",
    PRIMARY KEY (tenant, message)
);
-- The messages that hold memory text rendered by this library, and at times a message that only
-- seems to.
CREATE INDEX messages_echoing ON messages (tenant, message) WHERE strpos(rest, '"echoes":[[') > 0;
-- The few messages with a flag: a tool result without its call, a standing instruction.
CREATE INDEX messages_flagged ON messages (tenant, message) WHERE flags IS NOT NULL;

-- The versions of a message from before its edits, in the order of the edits.
CREATE TABLE versions (
    tenant uuid NOT NULL,
    edit bigint GENERATED ALWAYS AS IDENTITY,
    message bigint NOT NULL,
    role text COLLATE "C" NOT NULL,
    thread text COLLATE "C" NOT NULL,
    name text COLLATE "C",
    content text COLLATE "C",
    created_at bigint NOT NULL,
    zone bigint,
    tokens bigint NOT NULL,
    size bigint NOT NULL,
    hash text COLLATE "C" NOT NULL,
    key text COLLATE "C",
    state text COLLATE "C" NOT NULL,
    flags text COLLATE "C",
    rest text COLLATE "C",
    PRIMARY KEY (tenant, message, edit)
);
CREATE INDEX versions_echoing ON versions (tenant, message) WHERE strpos(rest, '"echoes":[[') > 0;

CREATE TABLE keys (
    tenant uuid NOT NULL,
    session bigint NOT NULL,
    key text COLLATE "C" NOT NULL,
    message_index bigint NOT NULL,
    fingerprint text COLLATE "C",
    PRIMARY KEY (tenant, session, key)
);

CREATE TABLE events (
    tenant uuid NOT NULL,
    event bigint GENERATED ALWAYS AS IDENTITY,
    session bigint NOT NULL,
    kind text COLLATE "C" NOT NULL,
    at bigint NOT NULL,
    happened_at bigint NOT NULL,
    detail text COLLATE "C" NOT NULL,
    PRIMARY KEY (tenant, session, event)
);

-- A session has one serving tree, which its head names, and at times a tree that is being built.
CREATE TABLE nodes (
    tenant uuid NOT NULL,
    node bigint GENERATED ALWAYS AS IDENTITY,
    session bigint NOT NULL,
    tree bigint NOT NULL,
    id text COLLATE "C" NOT NULL,
    level bigint NOT NULL,
    ordinal bigint NOT NULL,
    thread text COLLATE "C",
    start bigint NOT NULL,
    stop bigint NOT NULL,
    start_char bigint NOT NULL,
    stop_char bigint,
    first_window bigint NOT NULL,
    stop_window bigint NOT NULL,
    children text COLLATE "C" NOT NULL,
    messages bigint NOT NULL,
    input_size bigint NOT NULL,
    allotted bigint NOT NULL,
    input_tokens bigint NOT NULL,
    allotted_tokens bigint NOT NULL,
    verbatim bigint NOT NULL,
    first_at bigint NOT NULL,
    last_at bigint NOT NULL,
    linked bigint NOT NULL,
    parent text COLLATE "C",
    status text COLLATE "C" NOT NULL,
    revision bigint NOT NULL,
    version bigint NOT NULL,
    attempts bigint NOT NULL,
    error text COLLATE "C",
    degraded bigint NOT NULL,
    dirty bigint NOT NULL,
    unit text COLLATE "C" NOT NULL,
    forced bigint NOT NULL,
    since bigint,
    PRIMARY KEY (tenant, session, tree, id)
);
CREATE INDEX nodes_by_level ON nodes (tenant, session, tree, level, ordinal);
-- Only the nodes that an update has to process, so that finding them costs in proportion to their
-- number.
CREATE INDEX nodes_unfinished ON nodes (tenant, session, tree, level, ordinal)
    WHERE (status <> 'active' OR degraded = 1 OR dirty = 1);
-- The windows of a thread, ordered by their end: the windows that hold a message are the first ones
-- that end after it.
CREATE INDEX nodes_covering ON nodes (tenant, session, tree, thread, stop, start)
    WHERE level = 1;

CREATE TABLE revisions (
    tenant uuid NOT NULL,
    written bigint GENERATED ALWAYS AS IDENTITY,
    session bigint NOT NULL,
    tree bigint NOT NULL,
    node_id text COLLATE "C" NOT NULL,
    number bigint NOT NULL,
    text text COLLATE "C" NOT NULL,
    tokens bigint NOT NULL,
    input_hash text COLLATE "C" NOT NULL,
    output_hash text COLLATE "C" NOT NULL,
    strategy text COLLATE "C" NOT NULL,
    style text COLLATE "C" NOT NULL,
    model text COLLATE "C" NOT NULL,
    created_at bigint NOT NULL,
    provenance text COLLATE "C" NOT NULL,
    anchors text COLLATE "C" NOT NULL,
    tags text COLLATE "C" NOT NULL,
    entities text COLLATE "C" NOT NULL,
    fidelity float8,
    unsupported text COLLATE "C" NOT NULL,
    trust text COLLATE "C" NOT NULL,
    degraded bigint NOT NULL,
    reused bigint NOT NULL,
    tokens_in bigint NOT NULL,
    tokens_out bigint NOT NULL,
    calls bigint NOT NULL,
    duration_ms bigint NOT NULL,
    extras text COLLATE "C" NOT NULL,
    PRIMARY KEY (tenant, session, tree, node_id, number)
);
CREATE INDEX revisions_reusable ON revisions (tenant, input_hash, written) WHERE degraded = 0;

CREATE TABLE runs (
    tenant uuid NOT NULL,
    run bigint GENERATED ALWAYS AS IDENTITY,
    id text COLLATE "C" NOT NULL,
    kind text COLLATE "C" NOT NULL,
    subject text COLLATE "C" NOT NULL,
    started_at bigint NOT NULL,
    ended_at bigint,
    outcome text COLLATE "C" NOT NULL,
    detail text COLLATE "C" NOT NULL,
    PRIMARY KEY (tenant, id)
);
CREATE INDEX runs_newest ON runs (tenant, run);
CREATE INDEX runs_of ON runs (tenant, hashtextextended(subject, 0), run);

CREATE TABLE attempts (
    tenant uuid NOT NULL,
    attempt bigint GENERATED ALWAYS AS IDENTITY,
    id text COLLATE "C" NOT NULL,
    run_id text COLLATE "C" NOT NULL,
    session_id text COLLATE "C" NOT NULL,
    node_id text COLLATE "C" NOT NULL,
    number bigint NOT NULL,
    model text COLLATE "C" NOT NULL,
    started_at bigint NOT NULL,
    outcome text COLLATE "C" NOT NULL,
    reason text COLLATE "C" NOT NULL,
    tokens_in bigint NOT NULL,
    tokens_out bigint NOT NULL,
    ended_at bigint,
    cached_tokens bigint NOT NULL,
    reasoning_tokens bigint NOT NULL,
    cost float8,
    PRIMARY KEY (tenant, id)
);
CREATE INDEX attempts_of_run ON attempts (tenant, hashtextextended(run_id, 0), attempt);
CREATE INDEX attempts_of_session ON attempts (tenant, hashtextextended(session_id, 0), attempt);

-- place is the digest of the other columns of the key.
CREATE TABLE views (
    tenant uuid NOT NULL,
    place uuid NOT NULL,
    session_id text COLLATE "C" NOT NULL,
    name text COLLATE "C" NOT NULL,
    state text COLLATE "C" NOT NULL,
    PRIMARY KEY (tenant, place)
);
CREATE INDEX views_of ON views (tenant, hashtextextended(session_id, 0));

-- Small documents of any kind; the store does not interpret their bodies. place is the digest of
-- kind, scope and key.
CREATE TABLE records (
    tenant uuid NOT NULL,
    place uuid NOT NULL,
    record bigint GENERATED ALWAYS AS IDENTITY,
    kind text COLLATE "C" NOT NULL,
    scope text COLLATE "C" NOT NULL,
    key text COLLATE "C" NOT NULL,
    body text COLLATE "C" NOT NULL,
    version bigint NOT NULL,
    PRIMARY KEY (tenant, place)
);
CREATE INDEX records_of_kind ON records (tenant, hashtextextended(kind, 0));
CREATE INDEX records_of_scope ON records (tenant, hashtextextended(scope, 0));
CREATE INDEX records_by_key ON records (tenant, hashtextextended(key, hashtextextended(kind, 0)));

-- Pieces of indexes over messages; each piece can be computed again from the messages. They are
-- compressed already where that helps. segment and place say where a block of terms is in the index
-- over all sessions; segment 0 is none.
CREATE TABLE blocks (
    tenant uuid NOT NULL,
    block bigint GENERATED ALWAYS AS IDENTITY,
    session bigint NOT NULL,
    kind text COLLATE "C" NOT NULL,
    start bigint NOT NULL,
    stop bigint NOT NULL,
    data bytea NOT NULL,
    segment bigint NOT NULL DEFAULT 0,
    place bigint NOT NULL DEFAULT 0,
    PRIMARY KEY (tenant, session, kind, start)
);
ALTER TABLE blocks ALTER COLUMN data SET STORAGE EXTERNAL;
CREATE INDEX blocks_holding ON blocks (tenant, session, stop, start);
CREATE INDEX blocks_loose ON blocks (tenant, session, start) WHERE kind = 'terms' AND segment = 0;
CREATE INDEX blocks_in ON blocks (tenant, segment, place) WHERE segment > 0;

-- The index over all sessions of a tenant. A number is not used again: a reader remembers segments
-- by it.
CREATE TABLE segments (
    tenant uuid NOT NULL,
    segment bigint GENERATED ALWAYS AS IDENTITY,
    blocks bigint NOT NULL,
    PRIMARY KEY (tenant, segment)
);

CREATE TABLE pages (
    tenant uuid NOT NULL,
    segment bigint NOT NULL,
    page bigint NOT NULL,
    data bytea NOT NULL,
    PRIMARY KEY (tenant, segment, page)
);
ALTER TABLE pages ALTER COLUMN data SET STORAGE EXTERNAL;

-- The places of segments whose block was replaced since, and what that block covered.
CREATE TABLE replaced (
    tenant uuid NOT NULL,
    segment bigint NOT NULL,
    place bigint NOT NULL,
    session bigint NOT NULL,
    start bigint NOT NULL,
    stop bigint NOT NULL,
    PRIMARY KEY (tenant, segment, place)
);
CREATE INDEX replaced_of ON replaced (tenant, session, stop, start);

-- The names of the tenants that have anything stored. It is read with the rights of its owner, so
-- that a role may have this list and no more.
CREATE VIEW listed_tenants AS
    SELECT name FROM tenants t WHERE
        EXISTS (SELECT FROM sessions WHERE tenant = t.tenant)
        OR EXISTS (SELECT FROM runs WHERE tenant = t.tenant)
        OR EXISTS (SELECT FROM attempts WHERE tenant = t.tenant)
        OR EXISTS (SELECT FROM views WHERE tenant = t.tenant)
        OR EXISTS (SELECT FROM records WHERE tenant = t.tenant);

-- The names of what is in due, for a transaction of all tenants. It is read with the rights of its
-- owner too.
CREATE VIEW named_sessions AS
    SELECT s.tenant, s.session, t.name, s.id FROM sessions s JOIN tenants t ON t.tenant = s.tenant
    WHERE current_setting('hiermem.tenant') = 'ba768b33-1fd8-6cec-803b-e04e56ab2b3d'
        AND EXISTS (SELECT FROM due d WHERE d.tenant = s.tenant AND d.session = s.session);

-- A role that is neither the owner nor a superuser sees the rows of the tenant that its transaction
-- names, and none before it names one.
DO $$
DECLARE
    named text;
BEGIN
    FOREACH named IN ARRAY ARRAY['tenants', 'sessions', 'session_metadata', 'heads', 'messages',
        'versions', 'keys', 'events', 'nodes', 'revisions', 'runs', 'attempts', 'views', 'records',
        'blocks', 'segments', 'pages', 'replaced']
    LOOP
        EXECUTE format('ALTER TABLE %I ENABLE ROW LEVEL SECURITY', named);
        EXECUTE format('CREATE POLICY one_tenant ON %I USING ('
            'tenant = current_setting(''hiermem.tenant'')::uuid)', named);
    END LOOP;
END
$$;
-- A transaction that names no tenant sees what is due, of all of them.
ALTER TABLE due ENABLE ROW LEVEL SECURITY;
CREATE POLICY one_tenant_or_all ON due USING (
    tenant = current_setting('hiermem.tenant')::uuid
    OR current_setting('hiermem.tenant') = 'ba768b33-1fd8-6cec-803b-e04e56ab2b3d');
