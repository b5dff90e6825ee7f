package main

import (
	"context"
	"errors"
	"log/slog"
	"net/netip"
	"strings"
	"time"

	"github.com/ipamd/ipamd/api"
	"github.com/ipamd/ipamd/bridge"
	"github.com/ipamd/ipamd/census"
	"github.com/ipamd/ipamd/netdb"
	"github.com/ipamd/ipamd/workload"
)

// compareWithin is how long the answer to a bind, which is durable by then, waits
// for the kernel.
const compareWithin = 250 * time.Millisecond

// binds compares what binds name with the kernel, through the bridge.
type binds struct {
	bridge interface {
		Settle(ctx context.Context, about ...netip.Addr) error
		PortMACs() map[string]string
		NetnsID(ctx context.Context, path string) (int, error)
	}
	board *census.Board
	log   *slog.Logger
}

// compare returns and logs what differs. What the kernel does not answer in time
// is not compared.
func (b binds) compare(ctx context.Context, l *netdb.Lease, asked netdb.Binding) []api.BindWarning {
	if asked.HostInterface == "" && asked.MAC == "" && asked.Netns == "" {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, compareWithin)
	defer cancel()
	if err := b.bridge.Settle(ctx, l.Addr); err != nil {
		return nil
	}
	k := workload.KernelView{Seen: b.board.About(l.Addr).Seen, Ports: b.bridge.PortMACs()}
	if asked.Netns != "" && len(k.Seen) > 0 {
		id, err := b.bridge.NetnsID(ctx, l.Netns)
		switch {
		case err == nil:
			k.Netns = workload.Namespace{Known: true, ID: id}
		case errors.Is(err, bridge.ErrNoNetnsID):
			k.Netns = workload.Namespace{Known: true, ID: -1}
		}
	}
	var warnings []api.BindWarning
	var differs []string
	for _, d := range workload.BindDiffers(l, asked, k) {
		warnings, differs = append(warnings, api.BindWarning(d)), append(differs, d.Message)
	}
	if len(differs) > 0 {
		b.log.Warn("a bind differs from what the kernel shows", "addr", l.Addr, "sandbox", l.Sandbox, "lease", l.ID, "differs", strings.Join(differs, "; "))
	}
	return warnings
}
