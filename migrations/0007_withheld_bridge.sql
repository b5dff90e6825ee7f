-- Where a withheld address was in use: nothing but a witness of that bridge sees it there, so
-- a pool on another one cannot know that it is unused. All are '' of what was withheld before.
--  host_interface, netns, plug: as in leases
ALTER TABLE withheld ADD COLUMN bridge TEXT NOT NULL DEFAULT '';
ALTER TABLE withheld ADD COLUMN host_interface TEXT NOT NULL DEFAULT '';
ALTER TABLE withheld ADD COLUMN netns TEXT NOT NULL DEFAULT '';
ALTER TABLE withheld ADD COLUMN plug TEXT NOT NULL DEFAULT '' CHECK (plug = '' OR json_valid(plug));
