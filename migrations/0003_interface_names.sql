-- Host interface names, each leased to one interface of one sandbox for as long as that
-- has a lease. The rows that have ended are kept as long as the history.
--  rev, ended: of the changes of leases with which the name was given, and ended; ended is
--    0 while it is held. Who, when and why is with these.
CREATE TABLE interface_names (
    rev       INTEGER NOT NULL CHECK (rev >= 1),
    name      TEXT    NOT NULL CHECK (length(CAST(name AS BLOB)) >= 1 AND length(CAST(name AS BLOB)) <= 15),
    uid       TEXT    NOT NULL CHECK (uid <> ''),
    interface TEXT    NOT NULL CHECK (interface <> ''),
    ended     INTEGER NOT NULL CHECK (ended = 0 OR ended >= rev),
    PRIMARY KEY (rev, name)
) STRICT, WITHOUT ROWID;

-- A name has one holder, and a holder one name.
CREATE UNIQUE INDEX interface_names_held ON interface_names (name)
WHERE ended = 0;

CREATE UNIQUE INDEX interface_names_holder ON interface_names (uid, interface)
WHERE ended = 0;
