-- Warm slots: namespaces with a port that are made before a sandbox asks for them. A slot
-- is a lease of its pool; its row here ends once the lease is neither open nor releasing,
-- and goes over to the lease that it is claimed as.
--  rev: of the change of the lease with which the row was written last
--  slot: its id, which the namespace and the port are named by, also once it is claimed
--  netns: the path of the namespace
--  spec_hash: of spec, behind the name of its algorithm, as in sha256:...
--  spec: what it was plumbed by, as JSON
--  claimed: 1 of a sandbox's
--  broken: why it is never given; '' while it may be
CREATE TABLE slots (
    lease_id  TEXT    NOT NULL PRIMARY KEY CHECK (length(lease_id) = 36),
    rev       INTEGER NOT NULL CHECK (rev >= 1),
    slot      TEXT    NOT NULL UNIQUE CHECK (slot <> ''),
    netns     TEXT    NOT NULL CHECK (netns <> ''),
    spec_hash TEXT    NOT NULL CHECK (spec_hash <> ''),
    spec      TEXT    NOT NULL CHECK (json_valid(spec)),
    claimed   INTEGER NOT NULL CHECK (claimed = 0 OR claimed = 1),
    broken    TEXT    NOT NULL
) STRICT, WITHOUT ROWID;
