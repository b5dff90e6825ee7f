package main

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/ipamd/ipamd/api"
	"github.com/ipamd/ipamd/internal/realtest"
)

// Each mistake of a file is told, also the second within a minute; a pipe in the
// place of the file is one more, and a file system that does not answer keeps
// the daemon neither from the next signal nor from its end.
func TestF24ReloadsAnswerAndEnd(t *testing.T) {
	path := filepath.Join(t.TempDir(), "ipamd.toml")
	said := new(logBuffer)
	asked := make(chan os.Signal, 1)
	hangs := make(chan struct{})
	p := newProgram(defaults(), slog.New(slog.NewTextHandler(said, nil)), api.VersionReply{})
	p.reload = &reload{asked: asked, level: new(slog.LevelVar), read: func(ctx context.Context) (Config, error) {
		select {
		case <-hangs:
			<-ctx.Done() // as readWithin, for as long as the file system has not answered
			return Config{}, context.Cause(ctx)
		default:
			return loadConfig(ctx, path)
		}
	}}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- p.reloads(ctx) }()
	put := func(doc string) func() {
		return func() {
			if err := os.WriteFile(path, []byte(doc), 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	for i, step := range []struct {
		do   func()
		says string
	}{
		{put("[log]\nlevel = 'loud'\n"), "log.level"},
		{put("[book]\npath = 'relative'\n"), "book.path"},
		{put("[book]\npath = 'relative'\n"), "book.path"},
		{put("[bridge]\nname = 'rt7'\n"), "keys=bridge.name"},
		{put("[bridge]\nmtu = 1400\n"), "keys=bridge.mtu"},
		{func() {
			if err := os.Remove(path); err != nil {
				t.Fatal(err)
			}
			if err := unix.Mkfifo(path, 0o600); err != nil {
				t.Fatal(err)
			}
		}, "it is no regular file"},
	} {
		step.do()
		before := strings.Count(said.String(), step.says)
		asked <- syscall.SIGHUP
		realtest.Eventually(t, wait, fmt.Sprintf("reload %d to say %s", i, step.says), func() bool {
			return strings.Count(said.String(), step.says) > before
		})
	}
	close(hangs)
	asked <- syscall.SIGHUP
	realtest.Eventually(t, wait, "the reload to begin", func() bool { return len(asked) == 0 })
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}
