package logging

import (
	"bytes"
	"context"
	"log/slog"
	"maps"
	"strings"
	"sync"

	"github.com/coreos/go-systemd/v22/journal"
)

// sendJournal is [journal.Send].
type sendJournal func(message string, priority journal.Priority, fields map[string]string) error

// A fieldHandler speaks the journal's own protocol, so that each key of a
// record is a field to search by: journalctl IPAMD_ADDR=10.8.64.7. MESSAGE has
// all of them too, for people, and IPAMD_MSG the bare message. A record that
// the journal does not take goes to the handler that stands in.
type fieldHandler struct {
	standIn slog.Handler
	send    sendJournal
	attrs   slog.Handler // writes a record's attributes into the shared text
	text    *sharedText
	fields  map[string]string // of the logger's own attributes
	prefix  string            // of the logger's groups: "PEER_"
}

type sharedText struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func newFieldHandler(standIn slog.Handler, least slog.Leveler, send sendJournal) slog.Handler {
	text := new(sharedText)
	return fieldHandler{standIn: standIn, send: send, text: text, attrs: slog.NewTextHandler(&text.buf, &slog.HandlerOptions{
		Level: least,
		ReplaceAttr: func(groups []string, a slog.Attr) slog.Attr {
			if len(groups) == 0 && (a.Key == slog.TimeKey || a.Key == slog.LevelKey || a.Key == slog.MessageKey) {
				return slog.Attr{}
			}
			return spelled(groups, a)
		},
	})}
}

func (h fieldHandler) Enabled(ctx context.Context, l slog.Level) bool { return h.attrs.Enabled(ctx, l) }

func (h fieldHandler) Handle(ctx context.Context, r slog.Record) error {
	message, err := h.message(ctx, r)
	if err != nil {
		return h.standIn.Handle(ctx, r)
	}
	fields := maps.Clone(h.fields)
	if fields == nil {
		fields = make(map[string]string)
	}
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

// message is what a person reads: the message and its attributes.
func (h fieldHandler) message(ctx context.Context, r slog.Record) (string, error) {
	h.text.mu.Lock()
	defer h.text.mu.Unlock()
	h.text.buf.Reset()
	if err := h.attrs.Handle(ctx, r); err != nil {
		return "", err
	}
	return strings.TrimSpace(r.Message + " " + strings.TrimSpace(h.text.buf.String())), nil
}

func (h fieldHandler) WithAttrs(attrs []slog.Attr) slog.Handler {
	h.standIn, h.attrs = h.standIn.WithAttrs(attrs), h.attrs.WithAttrs(attrs)
	h.fields = maps.Clone(h.fields)
	if h.fields == nil {
		h.fields = make(map[string]string)
	}
	for _, a := range attrs {
		field(h.fields, h.prefix, a)
	}
	return h
}

func (h fieldHandler) WithGroup(name string) slog.Handler {
	h.standIn, h.attrs = h.standIn.WithGroup(name), h.attrs.WithGroup(name)
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
	switch {
	case 'a' <= r && r <= 'z':
		return r - 'a' + 'A'
	case 'A' <= r && r <= 'Z', '0' <= r && r <= '9':
		return r
	default:
		return '_'
	}
}
