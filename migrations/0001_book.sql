-- The lease book. Times are triples: wall clock in Unix nanoseconds (for
-- people), the nanoseconds that had certainly passed of a boot, or of a part of
-- it, and the id of that (for arithmetic); see netdb/clock.go.
--
-- The CHECKs of leases and changes compare one by one: for an IN of more than
-- two values SQLite builds a table in memory, anew for every row written.

-- One row: whose book this is. The epoch is new whenever revisions of before
-- can no longer be compared: a book created, rebuilt or restored.
CREATE TABLE book (
    one          INTEGER PRIMARY KEY CHECK (one = 1),
    epoch        TEXT    NOT NULL,
    runner_uid   TEXT    NOT NULL,
    machine_id   TEXT    NOT NULL,
    boot_id      TEXT    NOT NULL,
    runtime_id   TEXT    NOT NULL, -- of the container runtime that the leases' containers are in; '' before the first
    created_wall INTEGER NOT NULL
) STRICT;

CREATE TABLE pools (
    uid          TEXT    NOT NULL PRIMARY KEY,
    name         TEXT    NOT NULL,
    family       INTEGER NOT NULL CHECK (family IN (4, 6)),
    generation   INTEGER NOT NULL CHECK (generation >= 1),
    prefix       TEXT    NOT NULL,
    gateway      TEXT    NOT NULL,
    bridge       TEXT    NOT NULL,
    spec         TEXT    NOT NULL CHECK (json_valid(spec)),
    spec_hash    TEXT    NOT NULL,
    state        TEXT    NOT NULL CHECK (state IN ('active', 'draining')),
    created_wall INTEGER NOT NULL,
    created_boot INTEGER NOT NULL,
    created_boot_id TEXT NOT NULL,
    UNIQUE (name, family)
) STRICT, WITHOUT ROWID;

-- The present truth. Free is the absence of a row. ip is the address as 16 bytes,
-- IPv4 mapped into IPv6: it sorts as numbers do, and two spellings of one address
-- are one row, so an address cannot have two owners. address is the same for a
-- person to read. An id is one row's, too: netdb refuses a second, and reports
-- one that it reads. An index of ids would cost each new lease another page.
--
-- The words on columns stand here, because SQLite keeps what is between the
-- parentheses in the book:
--  plug: Which link host_interface was, by its index, and which namespace
--    netns, by its inode, when they were recorded, and in which boot: names are
--    used again. '' while neither is known.
--  cut: Why the address was given while it still cooled: at exhaustion, or
--    back to its own sandbox. Such a lease never ends with the address free at
--    once.
--  hold: An operator's reason: only an operator ends a quarantine that has one.
--  conflict: What the witnesses report of a conflict that stands: the address is
--    held, and seen under another than its owner. '' while there is none.
CREATE TABLE leases (
    ip             BLOB    NOT NULL PRIMARY KEY CHECK (length(ip) = 16),
    address        TEXT    NOT NULL,
    pool_uid       TEXT    NOT NULL REFERENCES pools (uid),
    id             TEXT    NOT NULL CHECK (length(id) = 36),
    state          TEXT    NOT NULL CHECK (state = 'reserved' OR state = 'bound' OR state = 'paused'
        OR state = 'releasing' OR state = 'cooling' OR state = 'quarantined'),
    sandbox        TEXT    NOT NULL CHECK (length(CAST(sandbox AS BLOB)) <= 253),
    uid            TEXT    NOT NULL CHECK (length(CAST(uid AS BLOB)) <= 253),
    interface      TEXT    NOT NULL,
    attempt        INTEGER NOT NULL CHECK (attempt >= 0),
    rev            INTEGER NOT NULL CHECK (rev >= 1),
    created_wall   INTEGER NOT NULL,
    created_boot   INTEGER NOT NULL,
    created_boot_id TEXT   NOT NULL,
    since_wall     INTEGER NOT NULL,
    since_boot     INTEGER NOT NULL,
    since_boot_id  TEXT    NOT NULL,
    bind_within    INTEGER NOT NULL CHECK (bind_within >= 0),
    containers     TEXT    NOT NULL CHECK (containers = '' OR json_valid(containers)),
    netns          TEXT    NOT NULL,
    host_interface TEXT    NOT NULL,
    mac            TEXT    NOT NULL,
    plug           TEXT    NOT NULL CHECK (plug = '' OR json_valid(plug)),
    labels         TEXT    NOT NULL CHECK (labels = '' OR json_valid(labels)),
    evidence       TEXT    NOT NULL CHECK (evidence = '' OR json_valid(evidence)),
    reason         TEXT    NOT NULL,
    cut            TEXT    NOT NULL CHECK (cut = '' OR cut = 'early' OR cut = 'own'),
    hold           TEXT    NOT NULL CHECK (length(CAST(hold AS BLOB)) <= 1000 AND (hold = '' OR state = 'quarantined')),
    conflict       TEXT    NOT NULL CHECK (conflict = '' OR json_valid(conflict)),
    CHECK (state IN ('quarantined', 'cooling') OR (sandbox <> '' AND uid <> '' AND interface <> '' AND attempt >= 1)),
    CHECK (state <> 'reserved' OR bind_within > 0),
    CHECK (state <> 'quarantined' OR evidence <> '' OR hold <> ''),
    CHECK (conflict = '' OR (state <> 'cooling' AND state <> 'quarantined'))
) STRICT, WITHOUT ROWID;

CREATE TRIGGER leases_keep_their_pool BEFORE UPDATE OF pool_uid ON leases
WHEN NEW.pool_uid <> OLD.pool_uid
BEGIN
    SELECT raise(ABORT, 'a lease never changes its pool');
END;

-- Every committed move, in order. Rows leave at the old end only, and the newest
-- one stays, so that no revision is used twice: netdb counts on from it.
--
-- The words on columns stand here, because SQLite keeps what is between the
-- parentheses in the book:
--  note: what an operator wrote
--  uptime: CLOCK_BOOTTIME as it was read; boottime is what had certainly
--    passed
--  row_sum: of all columns of the row in leases that the change made; 0 for
--    none
--  the CHECK: the table of moves, as in netdb/transition.go; a test tries every actor
--    and pair of states against both
--  the CHECK: an attempt that was cancelled; its leases have changes of their own
CREATE TABLE changes (
    rev        INTEGER PRIMARY KEY,
    wall       INTEGER NOT NULL,
    boottime   INTEGER NOT NULL,
    boot_id    TEXT    NOT NULL,
    subject    TEXT    NOT NULL CHECK (subject = 'lease' OR subject = 'attempt' OR subject = 'pool' OR subject = 'book'),
    address    TEXT    NOT NULL,
    lease_id   TEXT    NOT NULL,
    pool_uid   TEXT    NOT NULL,
    pool       TEXT    NOT NULL,
    sandbox    TEXT    NOT NULL,
    uid        TEXT    NOT NULL,
    interface  TEXT    NOT NULL,
    attempt    INTEGER NOT NULL,
    from_state TEXT    NOT NULL,
    to_state   TEXT    NOT NULL,
    actor      TEXT    NOT NULL,
    peer       TEXT    NOT NULL,
    reason     TEXT    NOT NULL CHECK (reason <> ''),
    note       TEXT    NOT NULL CHECK (length(CAST(note AS BLOB)) <= 1000),
    evidence   TEXT    NOT NULL CHECK (evidence = '' OR json_valid(evidence)),
    uptime     INTEGER NOT NULL,
    row_sum    INTEGER NOT NULL,
    CHECK (subject <> 'lease' OR CASE from_state || '>' || to_state
        WHEN 'free>reserved' THEN actor = 'allocator'
        WHEN 'free>quarantined' THEN actor = 'allocator' OR actor = 'reconciler' OR actor = 'operator'
        WHEN 'free>bound' THEN actor = 'reconciler'
        WHEN 'reserved>reserved' THEN actor = 'allocator' OR actor = 'reconciler'
        WHEN 'reserved>bound' THEN actor = 'client' OR actor = 'reconciler'
        WHEN 'reserved>free' THEN actor = 'watchdog'
        WHEN 'reserved>releasing' THEN actor = 'client' OR actor = 'watchdog' OR actor = 'reconciler' OR actor = 'operator'
        WHEN 'bound>bound' THEN actor = 'allocator' OR actor = 'client' OR actor = 'reconciler'
        WHEN 'bound>paused' THEN actor = 'client' OR actor = 'reconciler'
        WHEN 'bound>releasing' THEN actor = 'client' OR actor = 'watchdog' OR actor = 'reconciler' OR actor = 'operator'
        WHEN 'paused>paused' THEN actor = 'allocator' OR actor = 'client' OR actor = 'reconciler'
        WHEN 'paused>bound' THEN actor = 'client' OR actor = 'reconciler'
        WHEN 'paused>releasing' THEN actor = 'client' OR actor = 'watchdog' OR actor = 'reconciler' OR actor = 'operator'
        WHEN 'releasing>releasing' THEN actor = 'reconciler'
        WHEN 'releasing>cooling' THEN actor = 'watchdog'
        WHEN 'releasing>quarantined' THEN actor = 'watchdog' OR actor = 'operator'
        WHEN 'cooling>reserved' THEN actor = 'allocator'
        WHEN 'cooling>quarantined' THEN actor = 'allocator' OR actor = 'reconciler' OR actor = 'operator'
        WHEN 'cooling>bound' THEN actor = 'reconciler'
        WHEN 'cooling>free' THEN actor = 'allocator' OR actor = 'reconciler'
        WHEN 'quarantined>bound' THEN actor = 'allocator' OR actor = 'client' OR actor = 'reconciler' OR actor = 'operator'
        WHEN 'quarantined>quarantined' THEN actor = 'operator'
        WHEN 'quarantined>cooling' THEN actor = 'reconciler' OR actor = 'operator'
        ELSE FALSE END),
    CHECK (subject <> 'attempt' OR address = '' AND uid <> '' AND attempt >= 1 AND from_state = 'free' AND to_state = 'cancelled')
) STRICT;

-- "Has this lease ended?" without an index entry for every change.
CREATE INDEX changes_ended ON changes (lease_id)
WHERE to_state IN ('cooling', 'free');

-- In which order addresses became free, for the next start: what was given before
-- is given again in this order. No client's request writes it.
CREATE INDEX changes_freed ON changes (rev, pool_uid, address)
WHERE to_state = 'free';

-- Attempts that were cancelled before their allocate arrived.
CREATE TABLE tombstones (
    uid      TEXT    NOT NULL PRIMARY KEY,
    attempt  INTEGER NOT NULL CHECK (attempt >= 1),
    rev      INTEGER NOT NULL CHECK (rev >= 1), -- of the change that records it
    wall     INTEGER NOT NULL,
    boottime INTEGER NOT NULL,
    boot_id  TEXT    NOT NULL
) STRICT, WITHOUT ROWID;
