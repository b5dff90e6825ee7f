-- How a lease's sandbox is paused, and what wakes it. A row ends with its lease.
--  rev: of the change of the lease with which the row was written last
--  do_pause: 1 where ipamd itself pauses and resumes the tasks
--  policy: which traffic wakes it; '' for none
--  flight: the wake that is under way, or the last one that ended; '' before the first
CREATE TABLE sleeps (
    lease_id TEXT    NOT NULL PRIMARY KEY CHECK (length(lease_id) = 36),
    rev      INTEGER NOT NULL CHECK (rev >= 1),
    mode     TEXT    NOT NULL CHECK (mode = 'freeze' OR mode = 'hibernate'),
    do_pause INTEGER NOT NULL CHECK (do_pause = 0 OR do_pause = 1),
    policy   TEXT    NOT NULL CHECK (policy = '' OR json_valid(policy)),
    flight   TEXT    NOT NULL CHECK (flight = '' OR json_valid(flight))
) STRICT, WITHOUT ROWID;
