package logging

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"slices"
	"strings"
	"sync"

	"github.com/coreos/go-systemd/v22/journal"
	"github.com/lmittmann/tint"
	"github.com/mattn/go-isatty"
	"golang.org/x/sys/unix"
)

// New makes the daemon's logger, which writes records of the level least or above. The
// format was checked; getenv is asked for JOURNAL_STREAM and NO_COLOR (https://no-color.org).
func New(format string, least slog.Leveler, w *os.File, getenv func(string) string) *slog.Logger {
	opts := &slog.HandlerOptions{Level: least, ReplaceAttr: spelled}
	switch {
	case format == "json":
		return slog.New(slog.NewJSONHandler(w, opts))
	case (format == "journal" || format == "auto") && isJournal(w, getenv("JOURNAL_STREAM")):
		return slog.New(newFieldHandler(newJournalHandler(w, opts.Level), opts.Level, journal.Send))
	case format == "journal":
		return slog.New(newJournalHandler(w, opts.Level))
	case format == "auto" && isatty.IsTerminal(w.Fd()):
		return slog.New(tint.NewTextHandler(w, &tint.Options{
			Level: opts.Level, ReplaceAttr: harmless, NoColor: getenv("NO_COLOR") != "",
		}))
	default:
		return slog.New(slog.NewTextHandler(w, opts))
	}
}

// Level is the level of a name that was checked: debug, info, warn or error.
func Level(name string) (l slog.Level) {
	_ = l.UnmarshalText([]byte(name)) // any other is info
	return l
}

// spelled writes a hardware address as people do; slog takes it for text.
func spelled(_ []string, a slog.Attr) slog.Attr {
	if a.Value.Kind() == slog.KindAny {
		if mac, ok := a.Value.Any().(net.HardwareAddr); ok {
			return slog.String(a.Key, mac.String())
		}
	}
	return a
}

// harmless keeps a value from steering the terminal. A sandbox is named by
// its client, and tint passes escape sequences on, also those that only
// read like one once quoted; bytes it always quotes.
func harmless(groups []string, a slog.Attr) slog.Attr {
	a = spelled(groups, a)
	if text := a.Value.String(); strings.Contains(text, "\x1b") || strings.Contains(text, `\x1b`) {
		return slog.Any(a.Key, []byte(text))
	}
	return a
}

// isJournal reports whether f is the stream that systemd named. The variable
// is inherited by everything that a service starts, also with its output
// elsewhere, so the file itself must be the one (systemd.exec(5)).
func isJournal(f *os.File, stream string) bool {
	var st unix.Stat_t
	if stream == "" || unix.Fstat(int(f.Fd()), &st) != nil {
		return false
	}
	return stream == fmt.Sprintf("%d:%d", st.Dev, st.Ino)
}

// A textHandler makes one line of text of a record.
type textHandler struct {
	slog.Handler // writes into the shared line
	line         *textLine
}

type textLine struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

// newTextHandler leaves out the keys of a record's own that are dropped.
func newTextHandler(least slog.Leveler, dropped ...string) textHandler {
	line := new(textLine)
	return textHandler{line: line, Handler: slog.NewTextHandler(&line.buf, &slog.HandlerOptions{
		Level: least,
		ReplaceAttr: func(groups []string, a slog.Attr) slog.Attr {
			if len(groups) == 0 && slices.Contains(dropped, a.Key) {
				return slog.Attr{}
			}
			return spelled(groups, a)
		},
	})}
}

func (h textHandler) text(ctx context.Context, r slog.Record) (string, error) {
	h.line.mu.Lock()
	defer h.line.mu.Unlock()
	h.line.buf.Reset()
	err := h.Handler.Handle(ctx, r)
	return h.line.buf.String(), err
}

func (h textHandler) with(inner slog.Handler) textHandler { return textHandler{inner, h.line} }

// A journalHandler writes a line a record, beginning with its priority as
// sd-daemon(3) has it. The journal knows the time.
type journalHandler struct {
	textHandler
	w io.Writer
}

func newJournalHandler(w io.Writer, least slog.Leveler) slog.Handler {
	return journalHandler{newTextHandler(least, slog.TimeKey, slog.LevelKey), w}
}

func (h journalHandler) Handle(ctx context.Context, r slog.Record) error {
	line, err := h.text(ctx, r)
	if err == nil {
		_, err = fmt.Fprintf(h.w, "<%d>%s", priority(r.Level), line)
	}
	return err
}

func (h journalHandler) WithAttrs(attrs []slog.Attr) slog.Handler {
	return journalHandler{h.with(h.Handler.WithAttrs(attrs)), h.w}
}

func (h journalHandler) WithGroup(name string) slog.Handler {
	return journalHandler{h.with(h.Handler.WithGroup(name)), h.w}
}

// priority is syslog's (RFC 5424, section 6.2.1).
func priority(l slog.Level) int {
	switch {
	case l >= slog.LevelError:
		return 3
	case l >= slog.LevelWarn:
		return 4
	case l >= slog.LevelInfo:
		return 6
	default:
		return 7
	}
}
