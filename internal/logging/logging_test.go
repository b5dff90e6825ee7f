package logging

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"strings"
	"sync"
	"testing"

	"github.com/coreos/go-systemd/v22/journal"
	"golang.org/x/sys/unix"

	"github.com/ipamd/ipamd/internal/realtest"
)

// lines logs one record a level and returns what came out of w's other end.
func lines(t *testing.T, least, format string, r, w *os.File, env map[string]string) []string {
	t.Helper()
	return linesOf(t, New(format, Level(least), w, func(key string) string { return env[key] }), r, w)
}

func linesOf(t *testing.T, log *slog.Logger, r, w *os.File) []string {
	t.Helper()
	log.With("lease", "l1").WithGroup("peer").Error("release failed", "uid", 7)
	log.Warn("odd name", "sandbox", "a\nb\x1b[31m")
	log.Info("ready")
	log.Debug("detail", "mac", net.HardwareAddr{2, 0x42, 0, 0, 0, 1}, "err", errors.New(`odd: "\x1b[31m"`))
	fmt.Fprintln(w, "end")
	var out []string
	for s := bufio.NewScanner(r); s.Scan() && strings.TrimSpace(s.Text()) != "end"; {
		out = append(out, strings.TrimRight(s.Text(), "\r"))
	}
	return out
}

func pipe(t *testing.T) (r, w *os.File) {
	t.Helper()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.Close(); w.Close() })
	return r, w
}

// terminal opens a pseudo-terminal.
func terminal(t *testing.T) (r, w *os.File) {
	t.Helper()
	r, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		realtest.Lack(t, "needs a pseudo-terminal: "+err.Error())
	}
	t.Cleanup(func() { r.Close() })
	if err := unix.IoctlSetPointerInt(int(r.Fd()), unix.TIOCSPTLCK, 0); err != nil {
		t.Fatal(err)
	}
	n, err := unix.IoctlGetInt(int(r.Fd()), unix.TIOCGPTN)
	if err != nil {
		t.Fatal(err)
	}
	if w, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|unix.O_NOCTTY, 0); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { w.Close() })
	return r, w
}

func streamOf(t *testing.T, f *os.File) string {
	t.Helper()
	var st unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &st); err != nil {
		t.Fatal(err)
	}
	return fmt.Sprintf("%d:%d", st.Dev, st.Ino)
}

// TestLogWithPriorities: what the journal does not take as fields it takes as
// lines with priorities.
func TestLogWithPriorities(t *testing.T) {
	r, w := pipe(t)
	refuse := func(string, journal.Priority, map[string]string) error { return errors.New("there is no journal") }
	got := linesOf(t, slog.New(newFieldHandler(newJournalHandler(w, slog.LevelDebug), slog.LevelDebug, refuse)), r, w)
	want := []string{
		`<3>msg="release failed" lease=l1 peer.uid=7`,
		`<4>msg="odd name" sandbox="a\nb\x1b[31m"`,
		`<6>msg=ready`,
		`<7>msg=detail mac=02:42:00:00:00:01 err="odd: \"\\x1b[31m\""`,
	}
	if strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("got\n%s", strings.Join(got, "\n"))
	}
}

func TestLogKnowsItsJournal(t *testing.T) {
	_, w := pipe(t)
	if !isJournal(w, streamOf(t, w)) {
		t.Error("its own stream is not known")
	}
	for _, stream := range []string{"", "0:0", "x", streamOf(t, w) + "1"} {
		if isJournal(w, stream) {
			t.Errorf("%q is taken for its stream", stream)
		}
	}
}

// TestLogOfAChildOfAService: the variable is inherited, the stream is not.
func TestLogOfAChildOfAService(t *testing.T) {
	r, w := pipe(t)
	_, other := pipe(t)
	got := lines(t, "error", "auto", r, w, map[string]string{"JOURNAL_STREAM": streamOf(t, other)})
	if len(got) != 1 || !strings.HasPrefix(got[0], "time=") {
		t.Errorf("got %q", got)
	}
}

func TestLogFormats(t *testing.T) {
	t.Run("json", func(t *testing.T) {
		r, w := pipe(t)
		got := lines(t, "warn", "json", r, w, nil)
		if len(got) != 2 {
			t.Fatalf("got %q", got)
		}
		var record struct {
			Time, Level, Msg, Lease string
			Peer                    struct{ UID int }
		}
		if err := json.Unmarshal([]byte(got[0]), &record); err != nil {
			t.Fatal(err)
		}
		if record.Level != "ERROR" || record.Lease != "l1" || record.Peer.UID != 7 || record.Time == "" {
			t.Errorf("got %+v", record)
		}
	})
	t.Run("text", func(t *testing.T) {
		r, w := terminal(t)
		got := lines(t, "info", "text", r, w, nil)
		if len(got) != 3 || !strings.HasPrefix(got[2], "time=") || !strings.HasSuffix(got[2], "level=INFO msg=ready") {
			t.Errorf("got %q", got)
		}
	})
	t.Run("journal, asked for", func(t *testing.T) {
		r, w := terminal(t)
		if got := lines(t, "info", "journal", r, w, nil); len(got) != 3 || got[2] != "<6>msg=ready" {
			t.Errorf("got %q", got)
		}
	})
	t.Run("auto in a pipe", func(t *testing.T) {
		r, w := pipe(t)
		if got := lines(t, "error", "auto", r, w, nil); len(got) != 1 || !strings.HasPrefix(got[0], "time=") {
			t.Errorf("got %q", got)
		}
	})
}

func TestLogOnATerminal(t *testing.T) {
	for name, env := range map[string]map[string]string{"coloured": nil, "NO_COLOR": {"NO_COLOR": "1"}} {
		r, w := terminal(t)
		got := lines(t, "debug", "auto", r, w, env)
		if len(got) != 4 {
			t.Fatalf("%s: got %q", name, got)
		}
		all := strings.Join(got, "\n")
		if coloured := strings.Contains(all, "\x1b["); coloured != (env == nil) {
			t.Errorf("%s: got %q", name, all)
		}
		if strings.Contains(all, "\x1b[31m") {
			t.Errorf("%s: what is logged steers the terminal: %q", name, all)
		}
		has(t, name, got[0], "ERR", "release failed")
		has(t, name, got[1], `"a\nb\x1b[31m"`)
		has(t, name, got[3], "02:42:00:00:00:01")
	}
}

func TestLogLevels(t *testing.T) {
	for name, want := range map[string]slog.Level{
		"debug": slog.LevelDebug, "info": slog.LevelInfo, "warn": slog.LevelWarn, "error": slog.LevelError,
	} {
		if got := Level(name); got != want {
			t.Errorf("level %s is %v", name, got)
		}
	}
}

func has(t *testing.T, what, got string, parts ...string) {
	t.Helper()
	for _, part := range parts {
		if !strings.Contains(got, part) {
			t.Errorf("%s is %q, without %q", what, got, part)
		}
	}
}

// buffer is what a logger has written. It is safe for concurrent use.
type buffer struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (b *buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.Write(p)
}

func (b *buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.String()
}
