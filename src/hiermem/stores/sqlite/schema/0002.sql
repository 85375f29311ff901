-- Records: small documents of any kind.
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
