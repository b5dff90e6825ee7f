package changelog

import (
	"context"
	"log/slog"

	"github.com/ipamd/ipamd/census"
	"github.com/ipamd/ipamd/ipam"
)

// report counts and logs a change.
func (f *Follower) report(c ipam.Change) {
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
func Level(c ipam.Change) slog.Level {
	switch {
	case c.Subject == ipam.OfBook, c.Subject == ipam.OfAttempt:
		return slog.LevelDebug // a client's; or of the book itself, where the one that made it logs more
	case c.Subject == ipam.OfPool:
		return slog.LevelInfo
	case c.Who.Reason == ipam.ConflictSeen, c.To == ipam.Quarantined && (c.Who.Actor == ipam.ByAllocator || c.Who.Actor == ipam.ByWatchdog):
		return slog.LevelWarn
	case c.Who.Actor == ipam.ByClient, c.Who.Actor == ipam.ByAllocator, c.From == ipam.Releasing, c.From == ipam.Cooling && c.To == ipam.Free:
		return slog.LevelDebug
	default:
		return slog.LevelInfo
	}
}

// Message is a change in words: what became of an address.
func Message(c ipam.Change) string {
	switch {
	case c.Subject == ipam.OfBook:
		return "book is changed"
	case c.Subject == ipam.OfAttempt:
		return "attempt is cancelled"
	case c.Subject == ipam.OfPool:
		return "pool is changed"
	case c.Who.Reason == ipam.ConflictSeen:
		return "held address is in conflict"
	case c.Who.Reason == ipam.ConflictOver:
		return "conflict on a held address is over"
	case c.From == c.To:
		return "lease is renewed"
	}
	switch c.To {
	case ipam.Reserved:
		return "address is given"
	case ipam.Bound:
		return "address is bound"
	case ipam.Paused:
		return "address is paused"
	case ipam.Releasing:
		return "address is released"
	case ipam.Cooling:
		return "address cools"
	case ipam.Quarantined:
		return "address is quarantined"
	default:
		return "address is free"
	}
}

// attrs are the keys of a change's line, without those that it has no
// value for. The evidence of a quarantine or a conflict is shown by its first sighting.
func attrs(c ipam.Change) []slog.Attr {
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
	if c.Subject == ipam.OfAttempt {
		add("uid", c.UID)
		out = append(out, slog.Int64("attempt", c.Attempt))
	}
	add("lease", c.LeaseID)
	add("pool", c.Pool)
	add("from", string(c.From))
	if seen := census.ParseEvidence(c.Evidence); len(seen) > 0 && (c.To == ipam.Quarantined || c.Who.Reason == ipam.ConflictSeen) {
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
