package main

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/ipamd/ipamd/api"
	"github.com/ipamd/ipamd/config"
	"github.com/ipamd/ipamd/config/reload"
	"github.com/ipamd/ipamd/internal/realtest"
)

// Each mistake of a file is reported, also the second within a minute; a pipe in the
// place of the file is one more, and a file system that does not answer keeps
// the daemon neither from the next signal nor from its end.
func TestF24ReloadsAnswerAndEnd(t *testing.T) {
	path := filepath.Join(t.TempDir(), "ipamd.toml")
	output := new(logBuffer)
	asked := make(chan os.Signal, 1)
	cfg := config.Default()
	cfg.Book.Path = filepath.Join(t.TempDir(), "book.db")
	p := newProgram(cfg, slog.New(slog.NewTextHandler(output, nil)), api.VersionReply{})
	if err := p.openBook(ctx); err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := p.close(); err != nil {
			t.Error(err)
		}
	}()
	source := reload.Source{Asked: asked, Level: new(slog.LevelVar), Read: func(ctx context.Context) (config.Config, error) {
		next, err := config.Load(ctx, path)
		if next.Book.Path == config.Default().Book.Path {
			next.Book.Path = cfg.Book.Path
		}
		return next, err
	}}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- p.configured.Run(ctx, source) }()
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
		before := strings.Count(output.String(), step.says)
		asked <- syscall.SIGHUP
		realtest.Eventually(t, wait, fmt.Sprintf("reload %d to say %s", i, step.says), func() bool {
			return strings.Count(output.String(), step.says) > before
		})
	}
	path = hung(t)
	asked <- syscall.SIGHUP // is taken, and the file is being read
	cancel()
	select {
	case err := <-ended:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(wait / 2):
		t.Error("a file system that does not answer keeps the daemon from its end")
	}
}

// hung is a file of a file system that does not answer before the test ends. It is
// mounted nowhere, where others could meet it.
func hung(t *testing.T) string {
	t.Helper()
	realtest.Root(t)
	answers, err := unix.Open("/dev/fuse", unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		realtest.Lack(t, "needs FUSE: "+err.Error())
	}
	t.Cleanup(func() { unix.Close(answers) }) // ends every call that waits
	made, err := unix.Fsopen("fuse", unix.FSOPEN_CLOEXEC)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(made)
	for key, value := range map[string]string{"fd": strconv.Itoa(answers), "rootmode": "40000", "user_id": "0", "group_id": "0"} {
		if err := unix.FsconfigSetString(made, key, value); err != nil {
			t.Fatalf("%s: %v", key, err)
		}
	}
	if err := unix.FsconfigCreate(made); err != nil {
		t.Fatal(err)
	}
	root, err := unix.Fsmount(made, unix.FSMOUNT_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Close(root) })
	return fmt.Sprintf("/proc/self/fd/%d/ipamd.toml", root)
}
