-- Pools as a live resource. Nothing that is filled is rewritten: a book of 0.1.0 opens
-- as fast as before, and a pool's new settings are in its spec, which is JSON.

-- What is remembered of a pool's name beyond the pool itself, so that old news never
-- undoes newer news:
--  generation: the last one of a pool of the name that was removed, 0 before. The next
--    pool of the name goes on behind it, and what was sent to the removed one stays old.
--  configured: the hash of the spec that the configuration last gave the name, '' for
--    none. While the configuration says the same, it is not applied again.
CREATE TABLE pool_names (
    name       TEXT    NOT NULL,
    family     INTEGER NOT NULL CHECK (family = 4 OR family = 6),
    generation INTEGER NOT NULL CHECK (generation >= 0),
    configured TEXT    NOT NULL,
    PRIMARY KEY (name, family)
) STRICT, WITHOUT ROWID;

-- The configuration was all that made or changed a pool.
INSERT INTO pool_names SELECT name, family, 0, spec_hash FROM pools;

-- Addresses that outlive the pool that had them: it was removed while they cooled or
-- were quarantined, or by force while they were held. They have no row in leases, whose
-- rows belong to a pool. A pool that comes to contain one takes it over in the
-- transaction that makes it so, as a row that cools or is quarantined.
CREATE TABLE withheld (
    ip            BLOB    NOT NULL PRIMARY KEY CHECK (length(ip) = 16),
    address       TEXT    NOT NULL,
    pool_uid      TEXT    NOT NULL, -- of the pool that was removed
    pool          TEXT    NOT NULL,
    lease_id      TEXT    NOT NULL,
    state         TEXT    NOT NULL CHECK (state = 'cooling' OR state = 'quarantined'),
    sandbox       TEXT    NOT NULL,
    uid           TEXT    NOT NULL,
    interface     TEXT    NOT NULL,
    rev           INTEGER NOT NULL CHECK (rev >= 1), -- of the change that took the row
    since_wall    INTEGER NOT NULL,
    since_boot    INTEGER NOT NULL,
    since_boot_id TEXT    NOT NULL,
    evidence      TEXT    NOT NULL CHECK (evidence = '' OR json_valid(evidence)),
    hold          TEXT    NOT NULL
) STRICT, WITHOUT ROWID;
