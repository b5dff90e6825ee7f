package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/coreos/go-systemd/v22/daemon"
)

// statusEvery is the time between two looks at what systemd's status line says.
const statusEvery = 5 * time.Second

// notify tells systemd something (sd_notify(3)). Without one nothing happens.
func (p *program) notify(lines ...string) {
	if _, err := daemon.SdNotify(false, strings.Join(lines, "\n")); err != nil {
		p.log.Warn("systemd cannot be told", "what", lines[0], "err", err)
	}
}

// supervised tells systemd that ipamd is up, and from then on how it is, until
// ctx ends. It starts after the first pass.
func (p *program) supervised(ctx context.Context) error {
	status := p.statusLine()
	p.notify(daemon.SdNotifyReady, status)
	tick := time.NewTicker(statusEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		if now := p.statusLine(); now != status && !p.stopping.Load() {
			status = now
			p.notify(status)
		}
	}
}

// statusLine is what `systemctl status ipamd` shows.
func (p *program) statusLine() string {
	if why := p.server.NotReady(); len(why) > 0 {
		return "STATUS=not ready: " + strings.ReplaceAll(strings.Join(why, "; "), "\n", " ")
	}
	usage, _ := p.book.Usage()
	pools := make([]string, len(usage))
	for i, u := range usage {
		held := 0
		for _, n := range u.ByState {
			held += n
		}
		pools[i] = fmt.Sprintf("%s %d of %d addresses", u.Pool.Prefix, held, u.Size)
	}
	return "STATUS=ready: " + strings.Join(pools, ", ")
}
