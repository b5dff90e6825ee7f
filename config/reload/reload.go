package reload

import (
	"context"
	"log/slog"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/coreos/go-systemd/v22/daemon"

	"github.com/ipamd/ipamd/config"
	"github.com/ipamd/ipamd/internal/logging"
	"github.com/ipamd/ipamd/internal/supervisor"
	"github.com/ipamd/ipamd/ipam"
)

// A Book has pools; *netdb.Book is one.
type Book interface {
	CheckIdentity() error
	Pools() []*ipam.Pool
	Unconfigured() []*ipam.Pool
	Configure(ctx context.Context, who ipam.Who, specs []ipam.PoolSpec, gone ...string) ([]*ipam.PoolOutcome, error)
}

// Config has what a [Configuration] needs.
type Config struct {
	Book    Book
	Missing func(names ...string) ([]string, error) // those of some bridges that the kernel does not have
	Log     *slog.Logger
	Answers *slog.Logger // the same log, where no line is held back: each answers a reload
}

// A Source is where a running daemon gets another configuration.
type Source struct {
	Asked <-chan os.Signal
	Read  func(context.Context) (config.Config, error)
	Level *slog.LevelVar // of the log, which changes at once
}

// A Configuration is what a daemon goes by. It is safe for concurrent use, but for Start and
// Run, of which one runs at a time.
type Configuration struct {
	cfg     Config
	now     atomic.Pointer[config.Config] // taken over last
	refused atomic.Pointer[Refusal]
}

// A Refusal is a configuration that a daemon was asked to take over and did not.
type Refusal struct {
	Reason string
	Next   string    // what to do about it
	Since  time.Time // of the first refusal in a row
}

// What comes next after a refusal.
const (
	nextReload  = "ipamd config >/dev/null && systemctl reload ipamd # once the file is corrected"
	nextRestart = "systemctl restart ipamd"
)

// New returns one of which the book does not know yet: see [Configuration.Start].
func New(started config.Config, c Config) *Configuration {
	r := &Configuration{cfg: c}
	r.now.Store(&started)
	return r
}

// Refused is the configuration that was not taken over; nil when the last one was.
func (c *Configuration) Refused() *Refusal { return c.refused.Load() }

// Run reads the configuration again whenever it is asked to, until ctx ends. log.level and the
// pools are taken over. Where anything else has changed, the file is wrong, or one of its pools
// is refused, all of it stays as it was.
func (c *Configuration) Run(ctx context.Context, s Source) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-s.Asked:
		}
		supervisor.Notify(c.cfg.Log, daemon.SdNotifyReloading, daemon.SdNotifyMonotonicUsec())
		c.reload(ctx, s)
		supervisor.Notify(c.cfg.Log, daemon.SdNotifyReady)
	}
}

func (c *Configuration) reload(ctx context.Context, s Source) {
	log := c.cfg.Answers
	next, err := s.Read(ctx)
	if ctx.Err() != nil {
		return
	}
	if err != nil {
		log.Error("the configuration is not reloaded; the old one stays", "err", err, "next", nextReload)
		c.refuse(err.Error(), nextReload)
		return
	}
	now := c.now.Load()
	changed := now.Differences(next)
	live := []string{"log.level"}
	if next.Pools[0].Name == now.Pools[0].Name { // the one that serves requests which name none
		live = append(live, "pool")
	}
	if later := slices.DeleteFunc(slices.Clone(changed), func(key string) bool { return slices.Contains(live, key) }); len(later) > 0 {
		c.refuse("a restart is needed for "+strings.Join(later, ", "), nextRestart)
		log.Warn("the configuration is not reloaded; the old one stays: this needs a restart",
			"keys", strings.Join(later, ","), "next", nextRestart)
		return
	}
	if slices.Contains(changed, "pool") || c.refused.Load() != nil { // the file may be as it is, and a pool of it not
		if err := c.pools(ctx, next); err != nil {
			log.Error("the configuration is not reloaded; the old one stays", "err", err, "next", nextReload)
			c.refuse(err.Error(), nextReload)
			return
		}
		c.reportUnnamed()
	}
	c.now.Store(&next)
	s.Level.Set(logging.Level(next.Log.Level))
	c.refused.Store(nil)
	c.cfg.Log.Info("configuration reloaded", "level", next.Log.Level)
}

// refuse notes why a configuration was not taken over, until one is.
func (c *Configuration) refuse(reason, next string) {
	is := &Refusal{Reason: reason, Next: next, Since: time.Now()}
	if before := c.refused.Load(); before != nil {
		is.Since = before.Since
	}
	c.refused.Store(is)
}
