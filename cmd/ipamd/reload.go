package main

import (
	"context"
	"log/slog"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/coreos/go-systemd/v22/daemon"
	"github.com/ipamd/ipamd/config"
	"github.com/ipamd/ipamd/doctor"
	"github.com/ipamd/ipamd/internal/logging"
	"github.com/ipamd/ipamd/internal/supervisor"
)

// A reload is how a running daemon comes to another configuration.
type reload struct {
	asked <-chan os.Signal
	read  func(context.Context) (config.Config, error)
	level *slog.LevelVar // of the log, which changes at once
}

// reloads reads the configuration again whenever it is asked to, until ctx
// ends. log.level and the pools are taken over. Everything else needs a restart and stays
// as it was, and so does all of it when the file is wrong, or one of its pools is refused:
// half a reload leaves a daemon that no file describes.
func (p *program) reloads(ctx context.Context) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-p.reload.asked:
		}
		supervisor.Notify(p.log, daemon.SdNotifyReloading, daemon.SdNotifyMonotonicUsec())
		p.reloadOnce(ctx)
		supervisor.Notify(p.log, daemon.SdNotifyReady)
	}
}

func (p *program) reloadOnce(ctx context.Context) {
	log := p.repeats.Unfiltered(p.log) // each is the answer to a command
	cfg, err := p.reload.read(ctx)
	if ctx.Err() != nil {
		return
	}
	if err != nil {
		log.Error("the configuration is not reloaded; the old one stays", "err", err)
		p.refuseReload(err.Error())
		return
	}
	changed := p.cfg.Differences(cfg)
	live := []string{"log.level"}
	if cfg.Pools[0].Name == p.cfg.Pools[0].Name { // the one that serves requests which name none
		live = append(live, "pool")
	}
	if later := slices.DeleteFunc(slices.Clone(changed), func(key string) bool { return slices.Contains(live, key) }); len(later) > 0 {
		p.refuseReload("a restart is needed for " + strings.Join(later, ", "))
		log.Warn("the configuration is not reloaded; the old one stays: this needs a restart",
			"keys", strings.Join(later, ","), "next", "systemctl restart ipamd")
		return
	}
	if slices.Contains(changed, "pool") || p.refused.Load() != nil { // the file may be as it is, and a pool of it not
		if err := p.configurePools(ctx, cfg); err != nil {
			log.Error("the configuration is not reloaded; the old one stays", "err", err)
			p.refuseReload(err.Error())
			return
		}
		p.configured.Store(&cfg)
		p.reportPools(p.book.Unconfigured())
	}
	p.cfg.Pools, p.cfg.Log.Level = cfg.Pools, cfg.Log.Level
	p.reload.level.Set(logging.Level(cfg.Log.Level))
	p.refused.Store(nil)
	p.log.Info("configuration reloaded", "level", cfg.Log.Level)
}

// refuseReload notes why a configuration was not taken over, until one is.
func (p *program) refuseReload(reason string) {
	next := &doctor.RefusedReload{Reason: reason, Since: time.Now()}
	if before := p.refused.Load(); before != nil {
		next.Since = before.Since
	}
	p.refused.Store(next)
}
