-- Whether the tasks of a sandbox were seen to stand still, or to be gone, since it was paused
-- so: until then that they run is no news. What was paused before is taken to have been seen.
ALTER TABLE sleeps ADD COLUMN still INTEGER NOT NULL DEFAULT 1 CHECK (still = 0 OR still = 1);
