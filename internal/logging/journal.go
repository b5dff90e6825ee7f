package logging

import (
	"context"
	"log/slog"
	"maps"
	"strings"
	"unicode"

	"github.com/coreos/go-systemd/v22/journal"
)

// sendJournal is [journal.Send].
type sendJournal func(message string, priority journal.Priority, fields map[string]string) error

// A fieldHandler speaks the journal's own protocol, so that each key of a
// record is a field to search by: journalctl IPAMD_ADDR=10.8.64.7. MESSAGE has
// all of them too, for people, and IPAMD_MSG the bare message. A record that
// the journal does not take goes to the handler that stands in. systemd/slog-journal
// is not used: its MESSAGE is the bare message, without the address that it is about, it
// writes durations and times as numbers, and a level between two of slog's is informational.
type fieldHandler struct {
	standIn slog.Handler
	send    sendJournal
	attrs   textHandler       // of a record's attributes
	fields  map[string]string // of the logger's own attributes
	prefix  string            // of the logger's groups: "PEER_"
}

func newFieldHandler(standIn slog.Handler, least slog.Leveler, send sendJournal) slog.Handler {
	return fieldHandler{standIn: standIn, send: send, fields: map[string]string{},
		attrs: newTextHandler(least, slog.TimeKey, slog.LevelKey, slog.MessageKey)}
}

func (h fieldHandler) Enabled(ctx context.Context, l slog.Level) bool { return h.attrs.Enabled(ctx, l) }

func (h fieldHandler) Handle(ctx context.Context, r slog.Record) error {
	text, err := h.attrs.text(ctx, r)
	if err != nil {
		return h.standIn.Handle(ctx, r)
	}
	message := strings.TrimSpace(r.Message + " " + strings.TrimSpace(text))
	fields := maps.Clone(h.fields)
	r.Attrs(func(a slog.Attr) bool {
		field(fields, h.prefix, a)
		return true
	})
	fields["IPAMD_MSG"] = r.Message
	fields["SYSLOG_IDENTIFIER"] = "ipamd"
	if err := h.send(message, journal.Priority(priority(r.Level)), fields); err != nil {
		return h.standIn.Handle(ctx, r)
	}
	return nil
}

func (h fieldHandler) WithAttrs(attrs []slog.Attr) slog.Handler {
	h.standIn, h.attrs = h.standIn.WithAttrs(attrs), h.attrs.with(h.attrs.WithAttrs(attrs))
	h.fields = maps.Clone(h.fields)
	for _, a := range attrs {
		field(h.fields, h.prefix, a)
	}
	return h
}

func (h fieldHandler) WithGroup(name string) slog.Handler {
	h.standIn, h.attrs = h.standIn.WithGroup(name), h.attrs.with(h.attrs.WithGroup(name))
	if name != "" {
		h.prefix += name + "_"
	}
	return h
}

// field adds an attribute under the name that the journal takes: capitals,
// digits and underscores. A group's members are fields each.
func field(fields map[string]string, prefix string, a slog.Attr) {
	a = spelled(nil, a)
	value := a.Value.Resolve()
	if value.Kind() == slog.KindGroup {
		if a.Key != "" {
			prefix += a.Key + "_"
		}
		for _, member := range value.Group() {
			field(fields, prefix, member)
		}
		return
	}
	if a.Key == "" {
		return
	}
	fields["IPAMD_"+strings.Map(fieldRune, prefix+a.Key)] = value.String()
}

func fieldRune(r rune) rune {
	r = unicode.ToUpper(r)
	if 'A' <= r && r <= 'Z' || '0' <= r && r <= '9' {
		return r
	}
	return '_'
}
