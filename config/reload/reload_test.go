package reload

import (
	"context"
	"errors"
	"log/slog"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/ipamd/ipamd/config"
	"github.com/ipamd/ipamd/ipam"
	"github.com/ipamd/ipamd/netdb"
	"github.com/ipamd/ipamd/netdb/netdbtest"
)

func started() config.Config {
	c := config.Default()
	c.Pools = []config.Pool{{Name: "default", Prefix: "10.8.64.0/24"}, {Name: "lab", Prefix: "10.9.0.0/24", Bridge: "br9"}}
	return c
}

// open is a configuration of a new book; none of its bridges is gone.
func open(t *testing.T, cfg config.Config, book *netdb.Book) *Configuration {
	t.Helper()
	quiet := slog.New(slog.DiscardHandler)
	c := New(cfg, Config{Book: book, Missing: func(...string) ([]string, error) { return nil, nil }, Log: quiet, Answers: quiet})
	if err := c.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	return c
}

func onBridges(book *netdb.Book) (out []string) {
	for _, p := range book.Pools() {
		out = append(out, p.Name+" "+p.Prefix.String()+" "+p.Bridge)
	}
	return out
}

// What a reload takes over and what it refuses, of a daemon whose pool lab has a lease.
func TestAReload(t *testing.T) {
	as := []string{"default 10.8.64.0/24 rt0", "lab 10.9.0.0/24 br9"}
	for name, c := range map[string]struct {
		change  func(*config.Config)
		read    error
		refused string // "" it is taken over
		pools   []string
		level   slog.Level
	}{
		"nothing":                    {change: func(*config.Config) {}, pools: as},
		"the level of the log":       {change: func(c *config.Config) { c.Log.Level = "debug" }, pools: as, level: slog.LevelDebug},
		"a new pool":                 {change: func(c *config.Config) { c.Pools = append(c.Pools, config.Pool{Name: "new", Prefix: "10.10.0.0/24"}) }, pools: append(slices.Clone(as), "new 10.10.0.0/24 rt0")},
		"a larger pool":              {change: func(c *config.Config) { c.Pools[1].Prefix = "10.9.0.0/16" }, pools: []string{as[0], "lab 10.9.0.0/16 br9"}},
		"a pool is left out":         {change: func(c *config.Config) { c.Pools = c.Pools[:1] }, pools: as},
		"a file that cannot be read": {change: func(*config.Config) {}, read: errors.New("line 3 is none"), refused: "line 3 is none", pools: as},
		"a key that needs a restart": {change: func(c *config.Config) { c.Log.Level, c.Bridge.MTU = "debug", 1400 }, refused: "restart is needed for bridge.mtu", pools: as},
		"another default pool":       {change: func(c *config.Config) { c.Pools[0].Name = "other" }, refused: "restart is needed for pool", pools: as},
		"a live pool on another bridge": {change: func(c *config.Config) { c.Log.Level, c.Pools[1].Bridge = "debug", "br8" },
			refused: "set its bridge back to br9", pools: as},
		"a live pool elsewhere": {change: func(c *config.Config) {
			c.Pools[0].Prefix, c.Pools[1].Prefix = "10.8.64.0/23", "10.11.0.0/24"
		}, refused: "set its prefix back", pools: as},
	} {
		t.Run(name, func(t *testing.T) {
			book := netdbtest.Open(t)
			r := open(t, started(), book)
			if _, err := netdbtest.TryReserve(book, book.Pools()[1], "a", ipam.Policy{}); err != nil {
				t.Fatal(err)
			}
			next := started()
			c.change(&next)
			level := new(slog.LevelVar)
			r.reload(t.Context(), Source{Level: level, Read: func(context.Context) (config.Config, error) { return next, c.read }})
			refused := ""
			if is := r.Refused(); is != nil {
				refused = is.Reason
			}
			if refused == "" != (c.refused == "") || !strings.Contains(refused, c.refused) {
				t.Errorf("it is refused for %q, want %q", refused, c.refused)
			}
			if pools := onBridges(book); !slices.Equal(pools, c.pools) || level.Level() != c.level {
				t.Errorf("there are %q and level %v, want %q and %v", pools, level, c.pools, c.level)
			}
			if c.refused == "" {
				return
			}
			then := "systemctl reload ipamd"
			if strings.HasPrefix(c.refused, "restart") {
				then = "systemctl restart ipamd"
			}
			if is := r.Refused().Next; !strings.Contains(is, then) {
				t.Errorf("what comes next is %q, want %q", is, then)
			}
			since := r.Refused().Since
			r.reload(t.Context(), Source{Level: level, Read: func(context.Context) (config.Config, error) { return next, c.read }})
			if !r.Refused().Since.Equal(since) {
				t.Error("a second refusal in a row counts as the first")
			}
			r.reload(t.Context(), Source{Level: level, Read: func(context.Context) (config.Config, error) { return started(), nil }})
			if r.Refused() != nil {
				t.Errorf("the refusal outlives a configuration that was taken over: %+v", r.Refused())
			}
		})
	}
}

// TestAStartLeavesALivePoolOnItsBridge: the others become what the configuration says, and so does
// that one once it is free and the same file is reloaded.
func TestAStartLeavesALivePoolOnItsBridge(t *testing.T) {
	book := netdbtest.OpenAt(t, filepath.Join(t.TempDir(), "book.db"), netdbtest.Options())
	open(t, started(), book)
	l, err := netdbtest.TryReserve(book, book.Pools()[1], "a", ipam.Policy{})
	if err != nil {
		t.Fatal(err)
	}
	moved := started()
	moved.Pools[1].Bridge, moved.Pools[1].MTU = "br8", 1400
	moved.Pools = append(moved.Pools, config.Pool{Name: "new", Prefix: "10.10.0.0/24", Bridge: "br8"})
	r := open(t, moved, book)
	want := []string{"default 10.8.64.0/24 rt0", "lab 10.9.0.0/24 br9", "new 10.10.0.0/24 br8"}
	if pools := onBridges(book); !slices.Equal(pools, want) || book.Pools()[1].MTU != 1400 {
		t.Errorf("there are %q, want %q", pools, want)
	}
	if is := r.Refused(); is == nil || !strings.Contains(is.Reason, "it is on bridge br9") {
		t.Errorf("the refusal is %+v", is)
	}
	netdbtest.Cool(t, book, l)
	r.reload(t.Context(), Source{Level: new(slog.LevelVar), Read: func(context.Context) (config.Config, error) { return moved, nil }})
	if pools := onBridges(book); pools[1] != "lab 10.9.0.0/24 br8" || r.Refused() != nil {
		t.Errorf("there are %q, refused %+v", pools, r.Refused())
	}
}
