package changelog

import (
	"context"
	"log/slog"

	"github.com/ipamd/ipamd/census"
	"github.com/ipamd/ipamd/netdb"
)

// report counts and logs a change.
func (f *Follower) report(c netdb.Change) {
	f.count(c)
	level := Level(c)
	if !f.log.Enabled(context.Background(), level) {
		return // most changes: no line is put together that is not written
	}
	f.log.LogAttrs(context.Background(), level, Message(c), attrs(c)...)
}

// Level is the level of a change's line. What a client asked for, and what follows
// from that, is detail: the history has it, and a line for each would be most
// of a busy runner's log. What ipamd or an operator decided is logged; that an
// address to be given, or held, is in use by another is a warning.
func Level(c netdb.Change) slog.Level {
	switch {
	case c.Subject == netdb.OfBook, c.Subject == netdb.OfAttempt:
		return slog.LevelDebug // a client's; or of the book itself, where the one that made it logs more
	case c.Subject == netdb.OfPool:
		return slog.LevelInfo
	case c.Who.Reason == netdb.ConflictSeen, c.To == netdb.Quarantined && (c.Who.Actor == netdb.ByAllocator || c.Who.Actor == netdb.ByWatchdog):
		return slog.LevelWarn
	case c.Who.Actor == netdb.ByClient, c.Who.Actor == netdb.ByAllocator, c.From == netdb.Releasing, c.From == netdb.Cooling && c.To == netdb.Free:
		return slog.LevelDebug
	default:
		return slog.LevelInfo
	}
}

// Message is a change in words: what became of an address.
func Message(c netdb.Change) string {
	switch {
	case c.Subject == netdb.OfBook:
		return "book is changed"
	case c.Subject == netdb.OfAttempt:
		return "attempt is cancelled"
	case c.Subject == netdb.OfPool:
		return "pool is changed"
	case c.Who.Reason == netdb.ConflictSeen:
		return "held address is in conflict"
	case c.Who.Reason == netdb.ConflictOver:
		return "conflict on a held address is over"
	case c.From == c.To:
		return "lease is renewed"
	}
	switch c.To {
	case netdb.Reserved:
		return "address is given"
	case netdb.Bound:
		return "address is bound"
	case netdb.Paused:
		return "address is paused"
	case netdb.Releasing:
		return "address is released"
	case netdb.Cooling:
		return "address cools"
	case netdb.Quarantined:
		return "address is quarantined"
	default:
		return "address is free"
	}
}

// attrs are the keys of a change's line, without those that it has no
// value for. The evidence of a quarantine or a conflict is shown by its first sighting.
func attrs(c netdb.Change) []slog.Attr {
	var out []slog.Attr
	add := func(key, value string) {
		if value != "" {
			out = append(out, slog.String(key, value))
		}
	}
	if c.Addr.IsValid() {
		add("addr", c.Addr.String())
	}
	add("sandbox", c.Sandbox)
	if c.Subject == netdb.OfAttempt {
		add("uid", c.UID)
		out = append(out, slog.Int64("attempt", c.Attempt))
	}
	add("lease", c.LeaseID)
	add("pool", c.Pool)
	add("from", string(c.From))
	if seen := census.ParseEvidence(c.Evidence); len(seen) > 0 && (c.To == netdb.Quarantined || c.Who.Reason == netdb.ConflictSeen) {
		add("witness", string(seen[0].Witness))
		add("port", seen[0].Port)
		add("container", seen[0].Container)
		add("mac", seen[0].MAC)
	}
	add("reason", c.Who.Reason)
	add("note", c.Who.Note)
	add("actor", string(c.Who.Actor))
	add("peer", c.Who.Peer)
	return append(out, slog.Int64("rev", c.Rev))
}
