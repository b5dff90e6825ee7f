-- Delegated prefixes: a lease may be of a whole sub-prefix of its pool. Its row's ip is the
-- first address, and address is written with the length, as in 10.8.64.16/28; changes and
-- withheld write it so, too. No row is rewritten.
--  prefix_length: NULL for one address
--  last_ip: the last address, as ip is written; NULL for one address. An index of what
--    lies inside would cost each lease; what follows looks at one row before it.
ALTER TABLE leases ADD COLUMN prefix_length INTEGER CHECK (prefix_length BETWEEN 1 AND 127);
ALTER TABLE leases ADD COLUMN last_ip BLOB CHECK ((last_ip IS NULL) = (prefix_length IS NULL)
    AND (last_ip IS NULL OR length(last_ip) = 16 AND last_ip > ip));

-- No other row, in whatever state, lies in a delegated prefix or contains one.
CREATE TRIGGER leases_keep_out_of_prefixes BEFORE INSERT ON leases
WHEN (SELECT last_ip >= NEW.ip FROM leases WHERE ip <= NEW.ip ORDER BY ip DESC LIMIT 1)
    OR NEW.last_ip IS NOT NULL AND EXISTS (SELECT 1 FROM leases WHERE ip > NEW.ip AND ip <= NEW.last_ip)
BEGIN
    SELECT raise(ABORT, 'it lies in a delegated prefix, or contains a lease');
END;

CREATE TRIGGER leases_keep_their_prefix BEFORE UPDATE OF ip, prefix_length, last_ip ON leases
WHEN NEW.ip IS NOT OLD.ip OR NEW.prefix_length IS NOT OLD.prefix_length OR NEW.last_ip IS NOT OLD.last_ip
BEGIN
    SELECT raise(ABORT, 'a lease never changes its address');
END;
